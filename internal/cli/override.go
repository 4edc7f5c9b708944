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
		Use: "override JOB", Short: "Let a job run against the rules of its data", Args: exit.Args(1, 1, "job"),
		Long:    "Let a job run where the rules of its datasets do not let it. Only admins may, and it is written down who did it and why:\nthe audit of each dataset shows it for ever.",
		Example: `  trainyard override j7 --place any --why "the owner of the scans agreed, ticket 812"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.Place = job.Place(place); !slices.Contains([]job.Place{job.PlaceLocal, job.PlaceCloud, job.PlaceAny}, in.Place) {
				return exit.Usagef(cmd, "--place cannot be %q: choose local, cloud, any", place)
			}
			if strings.TrimSpace(in.Why) == "" {
				return exit.Usagef(cmd, "say why with --why: it is written down")
			}
			return a.withClient(func(c *api.Client) error {
				j, err := c.Override(cmd.Context(), id.Job(args[0]), in)
				if err != nil {
					return err
				}
				return a.Show(j, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "%s may run on %s nodes, whatever the rules of its data; this was written down\n", j.ID, in.Place)
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&place, "place", "", "where it may run: local, cloud or `any`")
	cmd.Flags().StringVar(&in.Why, "why", "", "the `reason`, for the record")
	a.OutputFlag(cmd)
	return cmd
}
