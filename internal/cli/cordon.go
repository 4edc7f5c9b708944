package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
)

// cordon stops scheduling on nodes.
func (a *app) cordon() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cordon NODE...",
		Short:   "Stop scheduling on nodes",
		Long:    `Stop scheduling on nodes. Jobs that run there run to their end; to stop them too, drain the node.`,
		Example: "  trainyard cordon box1",
		Args:    exit.Args(1, 0, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.CordonNode(cmd.Context(), n)
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

// eachNode changes nodes one by one and shows them as they are then.
func (a *app) eachNode(names []string, change func(*api.Client, id.Node) (api.Node, error)) error {
	return a.withClient(func(c *api.Client) error {
		page := api.NodePage{Nodes: []api.Node{}}
		for _, name := range names {
			n, err := change(c, id.Node(name))
			if err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}

			page.Nodes = append(page.Nodes, n)
		}

		return a.Show(page, nil, func() error { return a.nodeTable(page.Nodes).Write(a.Stdout) })
	})
}
