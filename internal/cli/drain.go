package cli

import (
	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

func (a *app) drain() *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use: "drain NODE...", Short: "Let nothing new onto nodes", Args: exit.Args(1, 0, "node"),
		Long:    "Let nothing new onto nodes. What runs there runs to its end; with --stop it is stopped, with its grace time, and starts again elsewhere.",
		Example: "  trainyard drain box1\n  trainyard drain box1 --stop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.DrainNode(cmd.Context(), n, api.DrainRequest{Stop: stop})
			})
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "also stop what runs there, so that it starts again elsewhere")
	a.OutputFlag(cmd)
	return cmd
}
