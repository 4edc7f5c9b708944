package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func (a *app) nodes() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "nodes [NODE]",
		Aliases: []string{"node"},
		Short:   "List nodes, or show one",
		Long: `List the nodes: their hardware and state, their speed and how it is known, their power draw and price,
and the lease of a provisioned node. With a name, show one node and its GPUs in detail.`,
		Example: `  trainyard nodes
  trainyard nodes -o wide
  trainyard nodes box1
  trainyard nodes clear-error box1 3`,
		Args: exit.Args(0, 1, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if len(args) == 1 {
					return a.showNode(cmd.Context(), c, id.Node(args[0]))
				}

				return a.listNodes(cmd.Context(), c)
			})
		},
	}

	a.OutputFlag(cmd, console.Wide)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.removeNode(), a.acceptNode(), a.clearError())

	return cmd
}

func (a *app) listNodes(ctx context.Context, c *api.Client) error {
	nodes, err := collect(func(p api.Page) ([]api.Node, string, error) {
		page, err := c.Nodes(ctx, p)
		return page.Nodes, page.Next, err
	})
	if err != nil {
		return err
	}

	names := func() []string {
		list := make([]string, len(nodes))
		for i, n := range nodes {
			list[i] = string(n.ID)
		}

		return list
	}

	return a.Show(api.NodePage{Nodes: nodes}, names, func() error {
		return a.WriteTable(
			a.nodeTable(nodes),
			"no nodes",
			"trainyard tokens create --join     create a token to join a machine",
		)
	})
}

func (a *app) nodeTable(nodes []api.Node) *table.Table {
	now, wide := a.Clock.Now(), a.Output == console.Wide
	head := []string{"NODE", "CLASS", "STATE", "SINCE", "GPUS", "FREE", "TFLOPS", "POWER", "PRICE", "JOBS", "LEASE"}
	if wide {
		head = append(head, "FREE CPUS", "FREE MEMORY", "SEEN", "POOL", "ADDRESS", "OS", "VERSION", "LIMITS",
			"ISOLATION", "REASON")
	}

	t := a.NewTable(head...)

	for i := range nodes {
		n := &nodes[i]
		state := nodeState(n)

		lease := ""
		if n.Lease != nil {
			lease = string(n.Lease.ID)
			if n.Lease.Ends != nil {
				lease += ", ends " + humanize.Ago(*n.Lease.Ends, now)
			}
		}

		row := []table.Cell{
			{
				Text: string(n.ID),
			},
			{Text: string(n.Class)},
			{Text: withActivity(n, state), Color: nodeColor(state)},
			{Text: humanize.Ago(n.Since, now)},
			{Text: gpuKinds(n)},
			{
				Text: freeGPUs(n),
			},
			{Text: speed(n.TFLOPS, n.Origin)},
			{Text: power(n.Draw, n.Watts)},
			{Text: price(n.Price)},
			{Text: few(n.Jobs)},
			{Text: lease},
		}

		if wide {
			seen := ""
			if n.LastSeen != nil {
				seen = humanize.Ago(*n.LastSeen, now)
			}

			for _, text := range []string{
				fmt.Sprintf("%s of %s", n.CPUsFree, n.CPUs),
				fmt.Sprintf("%s of %s", humanize.Size(n.MemFree), humanize.Size(n.Memory)), seen,
				n.Pool, n.Address, n.OS + "/" + n.Arch, n.Version, n.Limits, isolation(n), nodeReason(n),
			} {
				row = append(row, table.Cell{Text: text})
			}
		}

		t.Cells(row...)
	}

	return t
}

// isolation says what separates jobs of different users on a node, and what follows where nothing does.
func isolation(n *api.Node) string {
	switch {
	case n.Isolation == fleet.IsolationUsers:
		return "each user's jobs run under a user id of their own"
	case n.Tenant != "":
		return fmt.Sprintf("none: dedicated to %s until their jobs have ended", n.Tenant)
	case n.SingleUser:
		return "none: jobs of one user at a time"
	case n.Isolation == fleet.IsolationNone:
		return "none: users are mixed"
	}

	return ""
}

// stateError is the state of a node that has a problem or a broken GPU.
const stateError = "error"

// nodeReason says why a node is in its state.
func nodeReason(n *api.Node) string {
	if n.Problem != nil && n.State == stateError {
		return "takes no new jobs: " + n.Problem.Reason
	}

	return n.Reason
}

// nodeState is the word for a node: its state with the problem that it has, or that it is cordoned.
func nodeState(n *api.Node) string {
	if n.Problem != nil && n.State == stateError {
		return stateError + " (" + strings.ReplaceAll(n.Problem.Cause, "_", " ") + ")"
	}

	if !n.Cordoned || n.State != "running" && n.State != "idle" && n.State != "foreign" {
		return n.State
	}
	if len(n.Jobs) > 0 {
		return "running (cordoned)"
	}

	return "cordoned"
}

// withActivity adds to the state of a node what is wrong with it although it takes jobs, and what its agent does beside
// running them.
func withActivity(n *api.Node, state string) string {
	for _, w := range n.Warnings {
		state += " (" + strings.ReplaceAll(w.Cause, "_", " ") + ")"
	}

	if n.Activity == "" {
		return state
	}

	return state + " (" + n.Activity + ")"
}

// warnings writes what is wrong with a node although it takes jobs.
func warnings(n *api.Node) string {
	texts := make([]string, len(n.Warnings))
	for i, w := range n.Warnings {
		texts[i] = w.Reason
	}

	return strings.Join(texts, "; ")
}

func nodeColor(state string) table.Color {
	if strings.HasPrefix(state, stateError) {
		return table.Red
	}

	switch state {
	case "running":
		return table.Cyan
	case "idle":
		return table.Green
	case "suspect", "running (cordoned)", "cordoned", "foreign":
		return table.Yellow
	case "lost":
		return table.Red
	case "removed":
		return table.Gray
	}

	return table.NoColor
}

// speed writes TFLOPS and how they are known.
func speed(tflops float64, origin string) string {
	if tflops == 0 {
		return ""
	}

	digits := 0
	if tflops < 100 {
		digits = 1
	}

	return fmt.Sprintf("%.*f (%s)", digits, tflops, origin)
}

// power writes what is drawn now of what may be drawn.
func power(draw, limit float64) string {
	switch {
	case draw > 0 && limit > 0:
		return fmt.Sprintf("%.0f of %.0f W", draw, limit)
	case limit > 0:
		return fmt.Sprintf("up to %.0f W", limit)
	case draw > 0:
		return fmt.Sprintf("%.0f W", draw)
	}

	return ""
}

// price writes what an hour costs while all is used.
func price(p *api.Price) string {
	if p == nil {
		return ""
	}

	return humanize.Dollars(p.Hourly) + "/h"
}

// gpuKinds writes a node's GPUs by kind: "8x A100:80GB". Fake ones are labelled.
func gpuKinds(n *api.Node) string {
	type kind struct {
		model  string
		memory job.Bytes
		fake   bool
	}

	var order []kind

	count := map[kind]int{}
	for _, g := range n.GPUs {
		k := kind{g.Model, g.Memory, g.Fake || n.FakeGPUs}
		if count[k] == 0 {
			order = append(order, k)
		}

		count[k]++
	}

	words := make([]string, len(order))
	for i, k := range order {
		words[i] = table.GPUs(count[k], k.model, k.memory, k.fake)
	}

	return strings.Join(words, ", ")
}

func freeGPUs(n *api.Node) string {
	if len(n.GPUs) == 0 {
		return ""
	}

	free := 0
	for _, g := range n.GPUs {
		if g.State == fleet.GPUIdle {
			free++
		}
	}

	return fmt.Sprintf("%d of %d", free, len(n.GPUs))
}

func (a *app) removeNode() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "remove NODE...", Aliases: []string{"rm"},
		Short: "Remove nodes from the yard",
		Args:  exit.Args(1, 0, "node"),
		Long: `Remove nodes from the yard for good. Their certificates are refused from then on. A node that still has runs
is not removed, unless --force is given: then it is ended at once, its runs are declared lost, and their jobs restart
elsewhere as soon as its agent has surely stopped them. Use that for a machine that you do not trust any more.`,
		Example: `  trainyard drain box1 && trainyard nodes remove box1
  trainyard nodes remove --force box1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				if err := a.sure(cmd.Context(), "Remove "+strings.Join(args, ", ")+" permanently?"); err != nil {
					return err
				}

				for _, name := range args {
					if err := c.RemoveNode(cmd.Context(), id.Node(name), force); err != nil {
						return fmt.Errorf("remove %s: %w", name, err)
					}
					if _, err := fmt.Fprintf(a.Stdout, "%s removed\n", name); err != nil {
						return err
					}
				}

				return nil
			})
		},
	}

	cmd.Flags().BoolVar(&force, "force", false, "end the nodes at once, whatever runs on them")
	a.YesFlag(cmd)

	return cmd
}

// acceptNode is `nodes accept`: it lets a node work again that waits for an admin.
func (a *app) acceptNode() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept NODE",
		Short: "Accept the hardware that a node declares, or its identity after an alarm",
		Args:  exit.Args(1, 1, "node"),
		Long: `Let a node have jobs again that waits for an admin: because it declares more hardware than when it joined or
was last accepted, or because two processes used its identity. Check the machine first; trainyard nodes NODE and
trainyard events --audit --node NODE say what happened.`,
		Example: "  trainyard nodes accept box1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *api.Client) error {
				n, err := c.AcceptNode(cmd.Context(), id.Node(args[0]))
				if err != nil {
					return err
				}

				return a.Show(n, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "%s accepted\n", n.ID)
					return err
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}

// clearError is `nodes clear-error`: it takes a GPU out of quarantine.
func (a *app) clearError() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clear-error NODE GPU",
		Short: "Return a quarantined GPU to service",
		Args:  exit.Args(2, 2, "node and GPU"),
		Long: `Return a GPU to service that its agent has quarantined because of a driver error. The agent learns of
it with its next report; if the GPU fails again it is quarantined again.`,
		Example: "  trainyard nodes clear-error box1 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			gpu, err := strconv.Atoi(args[1])
			if err != nil || gpu < 0 {
				return exit.Usagef(
					cmd,
					"GPU must be an index such as 3, got %q; list them with: trainyard nodes %s",
					args[1],
					args[0],
				)
			}

			return a.withClient(func(c *api.Client) error {
				n, err := c.ClearGPUError(cmd.Context(), id.Node(args[0]), gpu)
				if err != nil {
					return err
				}

				return a.Show(n, nil, func() error {
					_, err := fmt.Fprintf(a.Stdout, "GPU %d of %s returns to service with the next report of its agent\n", gpu, n.ID)
					return err
				})
			})
		},
	}

	a.OutputFlag(cmd)

	return cmd
}
