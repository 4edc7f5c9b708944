package office

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func (o *Office) nodes() *cobra.Command {
	cmd := &cobra.Command{
		Use: "nodes [NODE]", Aliases: []string{"node"},
		Short: "List the machines that run jobs, or show one",
		Long: "List the machines that run jobs: what they have, what they do and since when, how fast they are and how that is known,\n" +
			"what they draw and cost, and by what they were hired. With a name: all that is known about one and its GPUs.",
		Example: `  trainyard nodes
  trainyard nodes -o wide
  trainyard nodes box1
  trainyard nodes release box1 3`,
		Args: exit.Args(0, 1, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.call(func(c *api.Client) error {
				if len(args) == 1 {
					return o.showNode(cmd.Context(), c, id.Node(args[0]))
				}
				return o.listNodes(cmd.Context(), c)
			})
		},
	}
	o.OutputFlag(cmd, console.Wide)
	o.QuietFlag(cmd)
	cmd.AddCommand(o.removeNode(), o.releaseGPU())
	return cmd
}

func (o *Office) listNodes(ctx context.Context, c *api.Client) error {
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
	return o.Show(api.NodePage{Nodes: nodes}, names, func() error {
		return o.WriteTable(o.nodeTable(nodes), "no nodes", "trainyard tokens create --join     then join a machine with what it prints")
	})
}

func (o *Office) nodeTable(nodes []api.Node) *table.Table {
	now, wide := o.Clock.Now(), o.Output == console.Wide
	head := []string{"NODE", "CLASS", "STATE", "SINCE", "GPUS", "FREE", "TFLOPS", "POWER", "PRICE", "JOBS", "LEASE"}
	if wide {
		head = append(head, "FREE CPUS", "FREE MEMORY", "SEEN", "POOL", "ADDRESS", "OS", "VERSION", "LIMITS", "REASON")
	}
	t := o.NewTable(head...)
	for i := range nodes {
		n := &nodes[i]
		state := nodeState(n)
		lease := ""
		if n.Lease != nil {
			if lease = string(n.Lease.ID); n.Lease.Ends != nil {
				lease += ", ends " + table.Ago(*n.Lease.Ends, now)
			}
		}
		row := []table.Cell{
			{Text: string(n.ID)}, {Text: string(n.Class)}, {Text: state, Color: nodeColor(state)}, {Text: table.Ago(n.Since, now)}, {Text: gpuKinds(n)},
			{Text: freeGPUs(n)}, {Text: speed(n.TFLOPS, n.Origin)}, {Text: power(n.Draw, n.Watts)}, {Text: price(n.Price)}, {Text: few(n.Jobs)}, {Text: lease},
		}
		if wide {
			seen := ""
			if n.LastSeen != nil {
				seen = table.Ago(*n.LastSeen, now)
			}
			for _, text := range []string{
				fmt.Sprintf("%s of %s", n.CPUsFree, n.CPUs), fmt.Sprintf("%s of %s", n.MemFree.Short(), n.Memory.Short()), seen,
				n.Pool, n.Address, n.OS + "/" + n.Arch, n.Version, n.Limits, n.Reason,
			} {
				row = append(row, table.Cell{Text: text})
			}
		}
		t.Cells(row...)
	}
	return t
}

// nodeState is the word for a node: its state, or how far draining it has come.
func nodeState(n *api.Node) string {
	if !n.Drained || n.State != "running" && n.State != "idle" && n.State != "foreign" {
		return n.State
	}
	if len(n.Jobs) > 0 {
		return "draining"
	}
	return "drained"
}

func nodeColor(state string) table.Color {
	switch state {
	case "running":
		return table.Cyan
	case "idle":
		return table.Green
	case "suspect", "draining", "drained", "foreign":
		return table.Yellow
	case "lost", "error":
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
	return table.Dollars(p.Hourly) + "/h"
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

func (o *Office) removeNode() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NODE...", Short: "Take nodes out of the yard for good", Args: exit.Args(1, 0, "node"),
		Long:    "Take nodes out of the yard for good. Their certificates are refused from then on; what runs on them starts again elsewhere.",
		Example: "  trainyard drain box1 && trainyard nodes rm box1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.call(func(c *api.Client) error {
				if err := o.sure(cmd.Context(), "Remove "+strings.Join(args, ", ")+" for good?"); err != nil {
					return err
				}
				for _, name := range args {
					if err := c.RemoveNode(cmd.Context(), id.Node(name)); err != nil {
						return fmt.Errorf("remove %s: %w", name, err)
					}
					if _, err := fmt.Fprintf(o.Stdout, "%s removed\n", name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	o.YesFlag(cmd)
	return cmd
}

func (o *Office) drain() *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use: "drain NODE...", Short: "Let nothing new onto nodes", Args: exit.Args(1, 0, "node"),
		Long:    "Let nothing new onto nodes. What runs there runs to its end; with --stop it is stopped, with its grace time, and starts again elsewhere.",
		Example: "  trainyard drain box1\n  trainyard drain box1 --stop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.DrainNode(cmd.Context(), n, api.DrainRequest{Stop: stop})
			})
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "also stop what runs there, so that it starts again elsewhere")
	o.OutputFlag(cmd)
	return cmd
}

func (o *Office) undrain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "undrain NODE...", Short: "Let jobs onto nodes again", Args: exit.Args(1, 0, "node"),
		Example: "  trainyard undrain box1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.UndrainNode(cmd.Context(), n)
			})
		},
	}
	o.OutputFlag(cmd)
	return cmd
}

// eachNode changes nodes one by one and shows them as they are then.
func (o *Office) eachNode(names []string, change func(*api.Client, id.Node) (api.Node, error)) error {
	return o.call(func(c *api.Client) error {
		page := api.NodePage{Nodes: []api.Node{}}
		for _, name := range names {
			n, err := change(c, id.Node(name))
			if err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
			page.Nodes = append(page.Nodes, n)
		}
		return o.Show(page, nil, func() error { return o.nodeTable(page.Nodes).Write(o.Stdout) })
	})
}
