package sim

import (
	"slices"
	"time"

	"trainyard/internal/id"
)

// savedState is what a job has saved on a node.
type savedState struct {
	node  id.Node
	saved float64
	ran   time.Duration
}

// keep notes what a run leaves behind for the next one.
func (s *simulation) keep(m *model) {
	l := m.life
	l.saved, l.ran = m.did, m.ran

	if !s.cfg.CheckpointsStay || len(m.allocations) == 0 {
		return
	}

	c := savedState{m.allocations[0].Node, m.did, m.ran}
	at := slices.IndexFunc(l.left, func(o savedState) bool { return o.node == c.node })

	if at < 0 {
		l.left = append(l.left, c)
	} else {
		l.left[at] = c
	}
}

// restore lets a job go on from what its next run finds on the first of its nodes, and returns how much of its work it
// has lost by that.
func (s *simulation) restore(l *jobRecord, node id.Node) (lost float64) {
	if !s.cfg.CheckpointsStay || l.last == nil {
		return 0
	}

	found := savedState{}
	if at := slices.IndexFunc(l.left, func(o savedState) bool { return o.node == node }); at >= 0 {
		found = l.left[at]
	}

	lost = l.saved - found.saved
	l.saved, l.ran = found.saved, found.ran

	return lost
}
