package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

// drain cordons nodes and stops the jobs there.
func (a *app) drain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Cordon nodes and stop the jobs there",
		Long: `Cordon nodes and stop the jobs there, with their grace period, so that they restart elsewhere. To let
the jobs run to their end, cordon the node instead.`,
		Example: "  trainyard drain box1\n  trainyard uncordon box1",
		Args:    exit.Args(1, 0, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.DrainNode(cmd.Context(), n)
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}
