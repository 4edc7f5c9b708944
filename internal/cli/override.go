package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func (a *app) override() *cobra.Command {
	var in api.OverrideRequest
	var place string
	cmd := &cobra.Command{
		Use: "override JOB", Short: "Allow a job to run where its datasets may not be used", Args: exit.Args(1, 1, "job"),
		Long: `Allow a job to run where the rules of its datasets forbid it. Requires an admin; who did it and why is
recorded in the audit of each dataset.`,
		Example: `  trainyard override j7 --place any --why "the owner of the scans agreed, ticket 812"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Place = job.Place(place)
			if !slices.Contains([]job.Place{job.PlaceLocal, job.PlaceCloud, job.PlaceAny}, in.Place) {
				return exit.Usagef(cmd, "--place cannot be %q: choose local, cloud, any", place)
			}
			if strings.TrimSpace(in.Why) == "" {
				return exit.Usagef(cmd, "--why is required: it is recorded in the audit")
			}

			return a.withClient(func(c *api.Client) error {
				j, err := c.Override(cmd.Context(), id.Job(args[0]), in) // the server knows names too
				if err != nil {
					return err
				}

				return a.Show(j, nil, func() error {
					_, err := fmt.Fprintf(
						a.Stdout,
						"%s may run on %s nodes despite the rules of its datasets; this was recorded\n",
						j.ID,
						in.Place,
					)

					return err
				})
			})
		},
	}

	cmd.Flags().StringVar(&place, "place", "", "`place` where it may run: local, cloud or any")
	cmd.Flags().StringVar(&in.Why, "why", "", "`reason`, recorded in the audit")
	a.OutputFlag(cmd)

	return cmd
}
