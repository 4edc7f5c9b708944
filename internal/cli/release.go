package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

// release releases provisioned nodes.
func (a *app) release() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release LEASE...",
		Short: "Release provisioned nodes",
		Long: `Release provisioned nodes to their providers. Jobs that run there are stopped, with their grace
period, and restart elsewhere.`,
		Example: "  trainyard leases\n  trainyard release l7",
		Args:    exit.Args(1, 0, "lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				question := "Release " + strings.Join(args, ", ") + "? Jobs that run there restart elsewhere."
				if err := a.sure(cmd.Context(), question); err != nil {
					return err
				}

				page := api.LeasePage{Leases: []api.Lease{}}
				for _, name := range args {
					l, err := c.ReleaseLease(cmd.Context(), id.Lease(name))
					if err != nil {
						return fmt.Errorf("release %s: %w", name, err)
					}

					page.Leases = append(page.Leases, l)
				}

				return a.Show(page, nil, func() error { return a.leaseTable(page.Leases).Write(a.Stdout) })
			})
		},
	}

	a.YesFlag(cmd)
	a.OutputFlag(cmd)

	return cmd
}
