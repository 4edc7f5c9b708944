package nodes

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/sim"
)

// list yields changes that are in memory.
type list struct{ remaining []sim.Change }

// List yields these changes in order of time; changes at the same time stay in their order.
func List(changes []sim.Change) sim.Changes {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b sim.Change) int { return cmp.Compare(a.At, b.At) })
	return &list{changes}
}

// Next returns the next change.
func (l *list) Next() (sim.Change, error) {
	if len(l.remaining) == 0 {
		return sim.Change{}, io.EOF
	}

	c := l.remaining[0]
	l.remaining = l.remaining[1:]

	return c, nil
}

// Collect reads all changes into memory.
func Collect(changes sim.Changes) ([]sim.Change, error) {
	var all []sim.Change
	for {
		c, err := changes.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}

		all = append(all, c)
	}
}

// merged yields the changes of two sources in order of time.
type merged struct {
	first, second sim.Changes
	next          [2]*sim.Change // read but not yet given
	over          [2]bool
}

// Merge yields the changes of two sources in order of time; of two at the same time
// that of the first source comes first.
func Merge(first, second sim.Changes) sim.Changes {
	return &merged{first: first, second: second}
}

// Next returns the next change.
func (m *merged) Next() (sim.Change, error) {
	for i, source := range []sim.Changes{m.first, m.second} {
		if m.next[i] != nil || m.over[i] {
			continue
		}

		c, err := source.Next()
		if errors.Is(err, io.EOF) {
			m.over[i] = true
			continue
		}
		if err != nil {
			return c, err
		}

		m.next[i] = &c
	}

	at := 0
	switch {
	case m.next[0] == nil && m.next[1] == nil:
		return sim.Change{}, io.EOF
	case m.next[0] == nil, m.next[1] != nil && m.next[1].At < m.next[0].At:
		at = 1
	}

	c := *m.next[at]
	m.next[at] = nil

	return c, nil
}

// window yields the changes of a stretch of time, counted from its beginning.
type window struct {
	changes      sim.Changes
	from, length time.Duration
	before       *states
	pending      []sim.Change
	next         *sim.Change // read but not yet given
	over         bool
}

// Window yields the changes from a time on and for a length of time, 0 for all
// that follow. The state of the nodes at its beginning comes first, at time 0.
func Window(changes sim.Changes, from, length time.Duration) sim.Changes {
	return &window{changes: changes, from: from, length: length, before: newStates()}
}

// Next returns the next change.
func (w *window) Next() (sim.Change, error) {
	for w.before != nil {
		c, err := w.changes.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return c, err
		}

		switch {
		case err != nil:
			w.over = true
		case c.At <= w.from:
			w.before.note(c)
			continue
		default:
			w.next = &c
		}

		w.pending, w.before = w.before.changes(), nil
	}

	if len(w.pending) > 0 {
		c := w.pending[0]
		w.pending = w.pending[1:]
		return c, nil
	}

	c, err := w.read()
	if err != nil {
		return c, err
	}

	c.At -= w.from
	if w.length > 0 && c.At >= w.length {
		w.over = true
		return sim.Change{}, io.EOF
	}

	return c, nil
}

func (w *window) read() (sim.Change, error) {
	switch {
	case w.over:
		return sim.Change{}, io.EOF
	case w.next != nil:
		c := *w.next
		w.next = nil
		return c, nil
	}

	return w.changes.Next()
}

// states remembers how nodes stand after changes, in the order in which they
// were first heard of.
type states struct {
	at   map[id.Node]int
	last []sim.Change
	join []sim.Change // with the node itself; of kind "" for a node that was there before
}

func newStates() *states { return &states{at: map[id.Node]int{}} }

// note applies a change.
func (s *states) note(c sim.Change) {
	i, known := s.at[c.ID]
	if !known {
		i = len(s.last)
		s.at[c.ID] = i
		s.last = append(s.last, sim.Change{})
		s.join = append(s.join, sim.Change{})
	}

	if c.Kind == sim.NodeJoins {
		s.join[i] = c
	}

	s.last[i] = c
}

// changes returns what leads to the present state, all at time 0.
func (s *states) changes() []sim.Change {
	var all []sim.Change
	for i, c := range s.last {
		if j := s.join[i]; j.Kind == sim.NodeJoins {
			j.At = 0
			all = append(all, j)
		}

		if c.Kind != sim.NodeJoins {
			c.At = 0
			all = append(all, c)
		}
	}

	return all
}
