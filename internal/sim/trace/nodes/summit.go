package nodes

import (
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// SummitSize is the number of nodes of the Summit trace.
const SummitSize = 4734

// SummitNode returns the name of a node of the Summit trace, counted from 0.
func SummitNode(i int) id.Node { return Name("summit", i, SummitSize) }

// summitNames returns the names of the first n nodes, of all if n is 0.
func summitNames(n int) []id.Node {
	if n <= 0 || n > SummitSize {
		n = SummitSize
	}

	names := make([]id.Node, n)
	for i := range names {
		names[i] = SummitNode(i)
	}

	return names
}

// SummitNodes returns the first n nodes of Summit. A node of six GPUs counts as
// one GPU: nothing in the workload divides it.
func SummitNodes(n int) []fleet.Node {
	nodes := make([]fleet.Node, n)
	for i := range nodes {
		nodes[i] = New(SummitNode(i), "V100", 1, 16<<30)
	}

	return nodes
}

// openSummitNodes reads the log of Summit's idle nodes: a node opens when it falls
// idle and is taken when the batch system wants it. All nodes are taken at first. The
// nodes themselves are those of SummitNodes, or join as the options make them.
func openSummitNodes(f *rows.File, o Options) (*stream, error) {
	t, err := rows.WithHeader(f, ',', "t_s", "node", "state")
	if err != nil {
		return nil, err
	}

	names := summitNames(o.Nodes)

	r := &stream{file: f, skipBad: o.SkipBad}
	joined := make([]bool, len(names))

	if o.Node == nil {
		for i, name := range names {
			r.pending = append(r.pending, sim.Change{Kind: sim.NodeReclaimed, ID: name})
			joined[i] = true
		}
	}

	one := make([]sim.Change, 1)
	r.read = func() ([]sim.Change, error) {
		if err := t.Read(); err != nil {
			return nil, err
		}

		at := t.Seconds("t_s")
		node := t.Count("node")
		state := t.Count("state")

		if t.Err == nil && node >= SummitSize {
			t.Fail("node", "must be at most %d, the nodes of Summit", SummitSize)
		}

		if t.Err == nil && state > 1 {
			t.Fail("state", "must be 0 or 1, got %d", state)
		}

		if t.Err != nil {
			return nil, t.Err
		}
		if node >= len(names) {
			return nil, nil
		}

		switch {
		case state == 1 && !joined[node]:
			joined[node] = true
			one[0] = joins(at, names[node], o.Node)
		case state == 1:
			one[0] = sim.Change{At: at, Kind: sim.NodeUncordoned, ID: names[node]}
		case !joined[node]:
			return nil, nil // taken, as it was
		default:
			one[0] = sim.Change{At: at, Kind: sim.NodeReclaimed, ID: names[node]}
		}

		return one, nil
	}

	return r, nil
}
