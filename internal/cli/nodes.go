package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
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

func (a *app) nodes() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes [NODE]",
		Short: "List the machines that run jobs, or show one",
		Example: `  trainyard nodes
  trainyard nodes -o wide
  trainyard nodes box1`,
		Args: exit.Args(0, 1, "node"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.showNode(cmd.Context(), id.Node(args[0]))
			}
			return a.listNodes(cmd.Context())
		},
	}
	a.OutputFlag(cmd, console.Wide)
	a.QuietFlag(cmd)
	cmd.AddCommand(a.removeNode())
	return cmd
}

func (a *app) listNodes(ctx context.Context) error {
	client, err := a.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	all := api.NodePage{Nodes: []api.Node{}}
	for {
		page, err := client.Nodes(ctx, api.Page{Cursor: all.Next, Limit: pageLimit})
		if err != nil {
			return err
		}
		all.Nodes, all.Next = append(all.Nodes, page.Nodes...), page.Next
		if page.Next == "" {
			break
		}
	}
	names := func() []string {
		list := make([]string, len(all.Nodes))
		for i, n := range all.Nodes {
			list[i] = string(n.ID)
		}
		return list
	}
	return a.Show(all, names, func() error {
		return a.WriteTable(a.nodeTable(all.Nodes), "no nodes", "trainyard tokens create --join     then join a machine with what it prints")
	})
}

func (a *app) nodeTable(nodes []api.Node) *table.Table {
	now, wide := a.Clock.Now(), a.Output == console.Wide
	head := []string{"NODE", "CLASS", "STATE", "GPUS", "FREE GPUS", "FREE CPUS", "FREE MEMORY", "JOBS", "SEEN"}
	if wide {
		head = append(head, "POOL", "ADDRESS", "OS", "VERSION", "LIMITS", "REASON")
	}
	t := a.NewTable(head...)
	for _, n := range nodes {
		seen := ""
		if n.LastSeen != nil {
			seen = table.Ago(*n.LastSeen, now)
		}
		state := nodeState(n)
		row := []table.Cell{
			{Text: string(n.ID)}, {Text: string(n.Class)}, {Text: state, Color: nodeColor(state)}, {Text: gpuKinds(n)},
			{Text: freeGPUs(n)}, {Text: fmt.Sprintf("%s of %s", n.CPUsFree, n.CPUs)},
			{Text: fmt.Sprintf("%s of %s", n.MemFree.Short(), n.Memory.Short())}, {Text: jobList(n.Jobs)}, {Text: seen},
		}
		if wide {
			for _, text := range []string{n.Pool, n.Address, n.OS + "/" + n.Arch, n.Version, n.Limits, n.Reason} {
				row = append(row, table.Cell{Text: text})
			}
		}
		t.Cells(row...)
	}
	return t
}

// nodeState is the word for a node: its state, or how far draining it has come.
func nodeState(n api.Node) string {
	if !n.Drained || n.State != "running" && n.State != "idle" {
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
	case "suspect", "draining", "drained":
		return table.Yellow
	case "lost", "error":
		return table.Red
	case "removed":
		return table.Gray
	}
	return table.NoColor
}

// gpuKinds writes a node's GPUs by kind: "8x A100:80GB". Fake ones are labelled.
func gpuKinds(n api.Node) string {
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

func freeGPUs(n api.Node) string {
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

func jobList(jobs []id.Job) string {
	names := make([]id.Node, len(jobs))
	for i, j := range jobs {
		names[i] = id.Node(j)
	}
	return nodeList(names)
}

func (a *app) showNode(ctx context.Context, name id.Node) error {
	client, err := a.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	n, err := client.Node(ctx, name)
	if err != nil {
		return err
	}
	return a.Show(n, func() []string { return []string{string(n.ID)} }, func() error { return a.nodeDetail(n) })
}

func (a *app) nodeDetail(n api.Node) error {
	now, state := a.Clock.Now(), nodeState(n)
	if err := a.Fields(
		console.Field{Name: "Node", Value: string(n.ID)}, console.Field{Name: "State", Value: state, Color: nodeColor(state)}, console.Field{Name: "Reason", Value: n.Reason},
		console.Field{Name: "Class", Value: string(n.Class)}, console.Field{Name: "Pool", Value: n.Pool},
		console.Field{Name: "GPUs", Value: gpuKinds(n)},
		console.Field{Name: "CPUs", Value: fmt.Sprintf("%s of %s free", n.CPUsFree, n.CPUs)},
		console.Field{Name: "Memory", Value: fmt.Sprintf("%s of %s free", n.MemFree.Short(), n.Memory.Short())},
		console.Field{Name: "Disk", Value: n.Disk.Short()}, console.Field{Name: "System", Value: strings.Trim(n.OS+" "+n.Arch, " ")},
		console.Field{Name: "Address", Value: n.Address}, console.Field{Name: "Agent", Value: n.Version}, console.Field{Name: "Limits", Value: n.Limits},
		console.Field{Name: "Seen", Value: stamp(n.LastSeen, now)}, console.Field{Name: "Jobs", Value: jobList(n.Jobs)},
	); err != nil {
		return err
	}
	if len(n.GPUs) == 0 {
		return nil
	}
	if _, err := io.WriteString(a.Stdout, "\n"); err != nil {
		return err
	}
	t := a.NewTable("GPU", "MODEL", "MEMORY", "STATE", "JOB", "DRIVER", "UUID", "ERROR")
	for _, g := range n.GPUs {
		t.Row(strconv.Itoa(g.Index), table.Model(g.Model, g.Fake || n.FakeGPUs), g.Memory.Short(), string(g.State), string(g.Job), g.Driver, g.UUID, g.Error)
	}
	return t.Write(a.Stdout)
}

func (a *app) removeNode() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NODE...", Short: "Take nodes out of the yard for good", Args: exit.Args(1, 0, "node"),
		Long:    "Take nodes out of the yard for good. Their certificates are refused from then on; what runs on them starts again elsewhere.",
		Example: "  trainyard drain box1 && trainyard nodes rm box1",
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect()
			if err != nil {
				return err
			}
			defer client.Close()
			ok, err := a.Confirm(cmd.Context(), "Remove "+table.Plain(strings.Join(args, ", "))+" for good?")
			if err != nil || !ok {
				return a.declined(err)
			}
			for _, name := range args {
				if err := client.RemoveNode(cmd.Context(), id.Node(name)); err != nil {
					return fmt.Errorf("remove %s: %w", name, err)
				}
				if _, err := fmt.Fprintf(a.Stdout, "%s removed\n", name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	a.YesFlag(cmd)
	return cmd
}

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

func (a *app) undrain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "undrain NODE...", Short: "Let jobs onto nodes again", Args: exit.Args(1, 0, "node"),
		Example: "  trainyard undrain box1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachNode(args, func(c *api.Client, n id.Node) (api.Node, error) {
				return c.UndrainNode(cmd.Context(), n)
			})
		},
	}
	a.OutputFlag(cmd)
	return cmd
}

// eachNode changes nodes one by one and shows them as they are then.
func (a *app) eachNode(names []string, call func(*api.Client, id.Node) (api.Node, error)) error {
	client, err := a.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	page := api.NodePage{Nodes: []api.Node{}}
	for _, name := range names {
		n, err := call(client, id.Node(name))
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		page.Nodes = append(page.Nodes, n)
	}
	return a.Show(page, nil, func() error { return a.nodeTable(page.Nodes).Write(a.Stdout) })
}

// declined ends a command whose question was answered with no.
func (a *app) declined(err error) error {
	if err != nil {
		return err
	}
	a.Note("Nothing was changed.")
	return exit.With(exit.Error)
}
