// Package nodes makes the machines of the simulator, and says when they come and
// go: from recorded traces of idle nodes and spot instances, and from a generator
// fitted to the published statistics of one.
//
// Readers stream as those of jobs in trace do, and the generator gives the same
// changes for the same seed. The simulator's callers give it what is made here;
// nothing here decides which job goes where.
package nodes

import (
	"errors"
	"io"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/rows"
)

// Options say how to read a trace of nodes.
type Options struct {
	// SkipBad skips rows that cannot be read, and counts them.
	SkipBad bool
	// Nodes takes only the first so many nodes; 0 takes all.
	Nodes int
	// From and Length take a stretch of the trace, whose beginning becomes time 0.
	// The state of the nodes at that time comes first. A Length of 0 goes to the end.
	From, Length time.Duration
	// Prefix begins the names of nodes that have none in the trace.
	Prefix string
	// Node makes a node that comes for the first time: it joins. If it is nil,
	// nodes are there from the beginning and only open.
	Node func(id.Node) fleet.Node
}

// Reader yields the changes of nodes of a trace.
type Reader struct {
	changes sim.Changes // of the stretch that is wanted
	rows    *stream
}

var _ sim.Changes = (*Reader)(nil)

// Next returns the next change, and io.EOF after the last. After an error it
// returns the same error again.
func (r *Reader) Next() (sim.Change, error) {
	c, err := r.changes.Next()
	if errors.Is(err, io.EOF) {
		if closing := r.Close(); closing != nil {
			return c, closing
		}
	}

	return c, err
}

// Skipped returns how many rows could not be read and were skipped.
func (r *Reader) Skipped() int { return r.rows.skipped }

// Close closes the trace. It is closed by itself at its end.
func (r *Reader) Close() error { return r.rows.file.Close() }

// stream yields the changes of a whole trace.
type stream struct {
	file    *rows.File
	read    func() ([]sim.Change, error) // of one row
	pending []sim.Change
	skipBad bool
	skipped int
	last    time.Duration
	err     error
}

// Next returns the next change of the trace.
func (r *stream) Next() (sim.Change, error) {
	for len(r.pending) == 0 && r.err == nil {
		changes, err := r.read()
		var bad *fault.Error
		switch {
		case err == nil && len(changes) > 0 && changes[0].At < r.last:
			r.end(r.file.Bad(0, "", "times must not decrease"))
		case err == nil:
			r.pending = changes
		case r.skipBad && errors.As(err, &bad) && bad.Code == rows.BadRow:
			r.skipped++
		default:
			r.end(err)
		}
	}

	if r.err != nil {
		return sim.Change{}, r.err
	}

	c := r.pending[0]
	r.pending = r.pending[1:]
	r.last = c.At

	return c, nil
}

// end ends the reading for good.
func (r *stream) end(err error) {
	r.err = err
	if closing := r.file.Close(); closing != nil && errors.Is(err, io.EOF) {
		r.err = closing
	}
}

// pool turns numbers of nodes into changes of numbered nodes: the last to come is
// the first to go.
type pool struct {
	prefix string
	limit  int // 0 for no bound
	have   int
	joined int
	node   func(id.Node) fleet.Node
}

func newPool(o Options, prefix string) *pool {
	if o.Prefix != "" {
		prefix = o.Prefix
	}

	return &pool{prefix: prefix, limit: o.Nodes, node: o.Node}
}

// set returns the changes that make the pool have n nodes.
func (p *pool) set(at time.Duration, n int) []sim.Change {
	if p.limit > 0 {
		n = min(n, p.limit)
	}

	var changes []sim.Change
	for ; p.have < n; p.have++ {
		changes = append(changes, p.come(at, p.name(p.have)))
	}

	for ; p.have > n; p.have-- {
		changes = append(changes, sim.Change{At: at, Kind: sim.NodeReclaimed, ID: p.name(p.have - 1)})
	}

	return changes
}

// maxPool is the greatest number of nodes of a pool.
const maxPool = 99999

func (p *pool) name(i int) id.Node { return Name(p.prefix+"-", i+1, maxPool) }

// come is the coming of a node, the first of which is its joining.
func (p *pool) come(at time.Duration, name id.Node) sim.Change {
	if p.node == nil || p.have < p.joined {
		return sim.Change{At: at, Kind: sim.NodeUncordoned, ID: name}
	}

	p.joined++

	return joins(at, name, p.node)
}

func joins(at time.Duration, name id.Node, make func(id.Node) fleet.Node) sim.Change {
	n := make(name)
	return sim.Change{At: at, Kind: sim.NodeJoins, ID: name, Node: &n}
}
