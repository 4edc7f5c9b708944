package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

func (a *app) giveBack() *cobra.Command {
	cmd := &cobra.Command{
		Use: "return LEASE...", Short: "Give hired nodes back", Args: exit.Args(1, 0, "lease"),
		Long:    "Give hired nodes back to their providers. What runs there is stopped, with its grace time, and starts again elsewhere.",
		Example: "  trainyard leases\n  trainyard return l7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := a.sure(cmd.Context(), "Give back "+strings.Join(args, ", ")+"? What runs there starts again elsewhere."); err != nil {
					return err
				}
				page := api.LeasePage{Leases: []api.Lease{}}
				for _, name := range args {
					l, err := c.ReturnLease(cmd.Context(), id.Lease(name))
					if err != nil {
						return fmt.Errorf("return %s: %w", name, err)
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
