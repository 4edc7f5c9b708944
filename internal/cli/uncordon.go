package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

// uncordon resumes scheduling on nodes.
func (a *app) uncordon() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "uncordon NODE...",
		Short:   "Resume scheduling on nodes",
		Long:    `Resume scheduling on nodes that were cordoned or drained.`,
		Example: "  trainyard uncordon box1",
		Args:    exit.Args(1, 0, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.UncordonNode(cmd.Context(), n)
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}
