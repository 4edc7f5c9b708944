package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// drain cordons nodes and stops the jobs there.
func (a *app) drain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Cordon nodes and stop the jobs there",
		Long: `Cordon nodes and stop the jobs there, with their grace period, so that they restart elsewhere. A job
without checkpoint starts again from the beginning; before work is lost that way, drain asks. To let
the jobs run to their end, cordon the node instead.`,
		Example: "  trainyard drain box1\n  trainyard uncordon box1",
		Args:    exit.Args(1, 0, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()

			err := a.withClient(func(c *api.Client) error { return a.confirmDrain(ctx, c, args) })
			if err != nil {
				return err
			}

			return a.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) { return c.DrainNode(ctx, n) })
		},
	}

	a.OutputFlag(cmd)
	a.YesFlag(cmd)

	return cmd
}

// confirmDrain asks before jobs on nodes are stopped that lose their work by it.
func (a *app) confirmDrain(ctx context.Context, c *api.Client, nodes []string) error {
	var running []api.Job

	for _, n := range nodes {
		page, err := c.Jobs(ctx, api.JobFilter{
			Node: id.Node(n), States: []job.State{job.Starting, job.Running}, Page: api.Page{Limit: pageLimit},
		})
		if err != nil {
			return err
		}

		for _, j := range page.Jobs {
			if slices.Contains(j.Nodes, id.Node(n)) { // and not only in an earlier run
				running = append(running, j)
			}
		}
	}

	return a.confirmLoss(ctx, running, "Stop")
}
