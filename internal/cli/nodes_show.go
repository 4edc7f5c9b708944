package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/table"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

func (a *app) showNode(ctx context.Context, c *api.Client, name id.Node) error {
	n, err := c.Node(ctx, name)
	if err != nil {
		return err
	}

	return a.Show(n, func() []string { return []string{string(n.ID)} }, func() error { return a.nodeDetail(&n) })
}

// sharedFolders says where a node has its shared file systems, and why it does not use one.
func sharedFolders(list []fleet.Shared) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = s.Name + " at " + s.Path
		if !s.OK {
			parts[i] += " (not used: " + s.Reason + ")"
		}
	}

	return strings.Join(parts, ", ")
}

// nodeDetail writes one node for people: its fields, its GPUs, what runs there, and
// whatever else is to be known about its GPUs.
func (a *app) nodeDetail(n *api.Node) error {
	now, state := a.Clock.Now(), nodeState(n)
	cost, lease := "", ""
	var can fleet.Snapshots
	if n.Snapshots != nil {
		can = *n.Snapshots
	}

	if p := n.Price; p != nil {
		cost = fmt.Sprintf(
			"%s per hour: node %s, energy %s; unused %s",
			humanize.Dollars(p.Hourly),
			humanize.Dollars(p.NodeCost),
			humanize.Dollars(p.EnergyCost),
			humanize.Dollars(p.Idle),
		)
	}

	if l := n.Lease; l != nil {
		lease = fmt.Sprintf("%s of %s, %s", l.ID, l.Offer, l.State)
		if l.Ends != nil {
			lease += ", ends " + stamp(l.Ends, now) + " unless it is renewed"
		}
	}

	if err := a.Fields(
		console.Field{
			Name:  "Node",
			Value: string(n.ID),
		},
		console.Field{Name: "State", Value: since(withActivity(n, state), humanize.Ago(n.Since, now)),
			Color: nodeColor(state)},
		console.Field{
			Name:  "Reason",
			Value: nodeReason(n),
		},
		console.Field{Name: "Warning", Value: warnings(n), Color: table.Yellow},
		console.Field{Name: "Class", Value: string(n.Class)},
		console.Field{Name: "Pool", Value: n.Pool},
		console.Field{Name: "GPUs", Value: gpuKinds(n)},
		console.Field{Name: "TFLOPS", Value: speed(n.TFLOPS, n.Origin)},
		console.Field{
			Name:  "Power",
			Value: power(n.Draw, n.Watts),
		},
		console.Field{Name: "Price", Value: cost},
		console.Field{Name: "Lease", Value: lease},
		console.Field{Name: "CPUs", Value: fmt.Sprintf("%s of %s free", n.CPUsFree, n.CPUs)},
		console.Field{Name: "Memory", Value: fmt.Sprintf("%s of %s free", humanize.Size(n.MemFree), humanize.Size(n.Memory))},
		console.Field{
			Name:  "Disk",
			Value: humanize.Size(n.Disk),
		},
		console.Field{Name: "System", Value: strings.Trim(n.OS+" "+n.Arch, " ")},
		console.Field{
			Name:  "Address",
			Value: n.Address,
		},
		console.Field{Name: "Topology", Value: n.Topology},
		console.Field{Name: "Labels", Value: strings.Join(n.Labels, ", ")},
		console.Field{Name: "Agent", Value: n.Version},
		console.Field{Name: "Limits", Value: n.Limits},
		console.Field{Name: "Isolation", Value: isolation(n)},
		console.Field{Name: "Metadata", Value: n.Metadata},
		console.Field{Name: "GPU shares", Value: gpuSharing(n)},
		console.Field{Name: "Containers", Value: containers(n)},
		console.Field{Name: "Python", Value: environments(n)},
		console.Field{Name: "Suspend", Value: ability(can.Suspend)},
		console.Field{Name: "Snapshot", Value: ability(can.Process)},
		console.Field{Name: "GPU snapshot", Value: ability(can.GPU)},
		console.Field{Name: "Shared", Value: sharedFolders(n.Shared)},
		console.Field{Name: "Seen", Value: stamp(n.LastSeen, now)},
		console.Field{Name: "Jobs", Value: few(n.Jobs)},
	); err != nil {
		return err
	}

	for _, part := range []*table.Table{a.gpuTable(n), a.shareTable(n), a.runTable(n), a.foreignTable(n)} {
		if part.Len() == 0 {
			continue
		}
		if _, err := io.WriteString(a.Stdout, "\n"); err != nil {
			return err
		}
		if err := part.Write(a.Stdout); err != nil {
			return err
		}
	}

	return a.gpuNotes(n)
}

// since writes a state and how long it has lasted.
func since(state, ago string) string {
	if d, ok := strings.CutSuffix(ago, " ago"); ok {
		return state + " for " + d
	}

	return state
}

func (a *app) gpuTable(n *api.Node) *table.Table {
	now := a.Clock.Now()
	t := a.NewTable("GPU", "MODEL", "MEMORY", "STATE", "SINCE", "JOB", "TFLOPS", "BANDWIDTH", "LIMIT", "DRIVER", "UUID")

	for i := range n.GPUs {
		g := &n.GPUs[i]
		ago, bandwidth, watts := "", "", ""
		if g.Since != nil {
			ago = humanize.Ago(*g.Since, now)
		}

		if g.Bandwidth > 0 {
			bandwidth = fmt.Sprintf("%.0f GB/s", g.Bandwidth)
		}

		if g.Watts > 0 {
			watts = fmt.Sprintf("%.0f W", g.Watts)
		}

		t.Cells(
			table.Cell{Text: strconv.Itoa(g.Index)},
			table.Cell{Text: table.Model(g.Model, g.Fake || n.FakeGPUs)},
			table.Cell{Text: humanize.Size(g.Memory)},
			table.Cell{
				Text:  string(g.State),
				Color: nodeColor(string(g.State)),
			},
			table.Cell{Text: ago},
			table.Cell{Text: cmp.Or(sharers(g.Shares), string(g.Job))},
			table.Cell{
				Text: speed(g.TFLOPS, g.Origin),
			},
			table.Cell{Text: bandwidth},
			table.Cell{Text: watts},
			table.Cell{Text: g.Driver},
			table.Cell{Text: g.UUID},
		)
	}

	return t
}

func (a *app) runTable(n *api.Node) *table.Table {
	t := a.NewTable("RUN", "JOB", "GPUS", "SINCE")

	for _, r := range n.Runs {
		gpus := make([]string, len(r.GPUs))
		for i, g := range r.GPUs {
			gpus[i] = strconv.Itoa(g)
		}

		text := strings.Join(gpus, ",")
		if r.Share > 0 {
			text = humanize.Percent(r.Share) + " of " + text
		}

		t.Row(string(r.Run), string(r.Job), text, humanize.Ago(r.Since, a.Clock.Now()))
	}

	return t
}

func (a *app) foreignTable(n *api.Node) *table.Table {
	t := a.NewTable("FOREIGN PROCESS", "GPU", "USER", "PROGRAM", "GPU MEMORY")
	for i := range n.GPUs {
		for _, p := range n.GPUs[i].Foreign {
			memory := ""
			if p.Memory > 0 {
				memory = humanize.Size(p.Memory)
			}

			t.Row(strconv.Itoa(p.PID), strconv.Itoa(p.GPU), p.User, p.Program, memory)
		}
	}

	return t
}

// gpuNotes says what is wrong with GPUs, or was, and what to do about it.
func (a *app) gpuNotes(n *api.Node) error {
	var out strings.Builder
	for i := range n.GPUs {
		g := &n.GPUs[i]
		switch {
		case g.State == fleet.GPUError:
			_, _ = fmt.Fprintf(&out, "\nGPU %d is quarantined: %s\n", g.Index, table.Plain(g.Error))

			if g.Health != "" && g.Health != g.Error {
				_, _ = fmt.Fprintf(&out, "  evidence: %s\n", table.Plain(g.Health))
			}

			_, _ = fmt.Fprintf(&out, "  after repair: trainyard nodes clear-error %s %d\n", n.ID, g.Index)
		case g.Health != "":
			_, _ = fmt.Fprintf(&out, "\nGPU %d: %s\n", g.Index, table.Plain(g.Health))
		}
	}

	_, err := io.WriteString(a.Stdout, out.String())

	return err
}

// containers writes whether a node runs jobs in containers, and by which engine. It is "" if the node does not say.
func containers(n *api.Node) string {
	c := n.Containers

	switch {
	case c == nil:
		return ""
	case !c.OK:
		return "no: " + c.Reason
	case c.HostNetwork:
		return c.Engine + ", network of the node"
	}

	return c.Engine
}

// environments writes what a node makes Python environments with. It is "" if the node does not say.
func environments(n *api.Node) string {
	e := n.Environments
	if e == nil {
		return ""
	}

	var tools []string
	for _, tool := range []string{e.UV, e.Pythons, e.Conda} {
		if tool != "" {
			tools = append(tools, tool)
		}
	}

	if len(tools) == 0 {
		return "no tool to make environments with"
	}

	return strings.Join(tools, ", ")
}

// ability writes whether a node can save programs in one way, or why it cannot. It is "" if the node does not say.
func ability(a fleet.Ability) string {
	switch {
	case a.OK:
		return "yes"
	case a.Reason == "":
		return ""
	}

	return "no: " + a.Reason
}
