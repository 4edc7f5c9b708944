package scenario

import (
	"cmp"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/sim"
)

// chance is something that happens to nodes at random, to each by itself.
type chance struct {
	down, up sim.ChangeKind
	every    time.Duration // mean time from one end to the next beginning
	lasts    time.Duration
	nodes    []id.Node // nil for all that are there from the beginning
	at       word
}

// longest is how far random changes go in a scenario that does not say when it
// ends: long enough for all jobs, and an end for jobs that can never run.
const longest = 100 * 24 * time.Hour

// atLine reads something that happens to nodes at a time.
func (s *Scenario) atLine(a *args) *fault.Error {
	const example = "at 2h fail a"
	w, err := a.must("a time", example)
	if err != nil {
		return err
	}

	var c sim.Change
	if err := into(&c.At, parseDuration)(a, w); err != nil {
		return err
	}

	w, err = a.must("what happens", example)
	if err != nil {
		return err
	}

	if w.text == "spot" {
		return s.spotLine(a, c.At)
	}

	kinds := oneOf(sim.NodeFails, sim.NodeHeals, sim.NodeReclaimed, sim.NodeUncordoned, sim.NodeCordoned)
	if err := into(&c.Kind, kinds)(a, w); err != nil {
		return err
	}

	var nodes []id.Node
	if err := a.only(into(&nodes, parseNames)); err != nil {
		return err
	}

	for _, n := range nodes {
		c.ID = n
		s.changes = append(s.changes, c)
	}

	return nil
}

// randomLine reads what happens to nodes at random.
func (s *Scenario) randomLine(a *args) *fault.Error {
	const example = "random fail every 50h for 1h"
	w, err := a.must("what happens", example)
	if err != nil {
		return err
	}

	c := chance{at: w}
	if err := into(&c.down, oneOf(sim.NodeFails, sim.NodeReclaimed, sim.NodeCordoned))(a, w); err != nil {
		return err
	}

	c.up = sim.NodeUncordoned
	if c.down == sim.NodeFails {
		c.up = sim.NodeHeals
	}

	err = a.keys(map[string]reader{
		"every": value(into(&c.every, parseLasting)),
		"for":   value(into(&c.lasts, parseLasting)),
		"on":    value(into(&c.nodes, parseNames)),
	})
	if err != nil {
		return err
	}
	if c.every == 0 || c.lasts == 0 {
		return a.bad(w, "every and for are required").WithRemedy("for example: %s", example)
	}

	s.chances = append(s.chances, c)

	return nil
}

// timeline returns the changes of all nodes by time, nil if there are none.
func (s *Scenario) timeline(seed uint64) sim.Changes {
	if len(s.changes) == 0 && len(s.chances) == 0 {
		return nil
	}

	t := &timeline{fixed: slices.Clone(s.changes)}
	slices.SortStableFunc(t.fixed, func(a, b sim.Change) int { return cmp.Compare(a.At, b.At) })

	end := s.Until
	if end == 0 {
		end = longest
	}

	joined := map[id.Node]time.Duration{}
	for _, c := range s.changes {
		if c.Kind == sim.NodeJoins {
			joined[c.ID] = c.At
		}
	}

	stream := uint64(0)
	for i := range s.chances {
		c := &s.chances[i]
		nodes := c.nodes
		if nodes == nil {
			for j := range s.nodes {
				nodes = append(nodes, s.nodes[j].ID)
			}
		}

		for _, n := range nodes {
			stream++
			t.random = append(t.random, newDraws(c, n, joined[n], end, rand.New(rand.NewPCG(seed, stream<<16|faultStream))))
		}
	}

	return t
}

// faultStream keeps the chance of faults apart from that of workloads.
const faultStream = 0xfa

// timeline yields what was written and what is drawn, by time.
type timeline struct {
	fixed  []sim.Change
	random []*draws // one for each chance and node; few enough to look through
}

// draws is what happens to one node at random.
type draws struct {
	chance    *chance
	end       time.Duration
	source    *rand.Rand
	next      sim.Change
	exhausted bool
}

func newDraws(c *chance, n id.Node, from, end time.Duration, source *rand.Rand) *draws {
	d := &draws{chance: c, end: end, source: source, next: sim.Change{At: from, Kind: c.up, ID: n}}
	d.draw()
	return d
}

// draw makes the next change: the node goes some time after it came back.
func (d *draws) draw() {
	c := d.chance
	if d.next.Kind == c.up {
		d.next.Kind = c.down

		// To the second, so that people can read the times.
		d.next.At += max(job.Seconds(d.source.ExpFloat64()*c.every.Seconds()).Round(time.Second), time.Second)
		d.exhausted = d.next.At > d.end // one that has gone comes back in any case

		return
	}

	d.next.Kind = c.up
	d.next.At += c.lasts
}

// Next returns the next change.
func (t *timeline) Next() (sim.Change, error) {
	var first *draws
	for _, d := range t.random {
		if !d.exhausted && (first == nil || d.next.At < first.next.At) {
			first = d
		}
	}

	if len(t.fixed) > 0 && (first == nil || t.fixed[0].At <= first.next.At) {
		c := t.fixed[0]
		t.fixed = t.fixed[1:]
		return c, nil
	}

	if first == nil {
		return sim.Change{}, io.EOF
	}

	c := first.next
	first.draw()

	return c, nil
}
