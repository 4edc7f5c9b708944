// Package ledger records for every second of every node who used it and what it cost, and how
// much decisions saved.
//
// It stands at the end of a job's path, and of a node's. The yardmaster reports to the Ledger
// every change of a node, a lease or a run; a Meter for each node turns that into postings,
// which are stored with the change that caused them. Each posting that someone pays for is
// charged to them. Reports and the double-entry check are sums of postings. The ledger limits
// nobody: that is package quota.
//
// The package is pure and its arithmetic is whole numbers throughout, so that sums are
// exact: the postings of a node add up to what the node itself used, to the last unit, for
// every period and every grouping.
package ledger

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Changes is what has to be stored since the last Take.
type Changes struct {
	Postings []Posting
	Meters   []State   // changed
	Closed   []id.Node // whose meters are closed
	Savings  []Saving
	// Decisions are those about jobs that have not ended; Settled are jobs of which none are left.
	Decisions []JobDecisions
	Settled   []id.Job
}

// Empty reports whether there is nothing to store.
func (c *Changes) Empty() bool {
	return len(c.Postings)+len(c.Meters)+len(c.Closed)+len(c.Savings)+len(c.Decisions)+len(c.Settled) == 0
}

// Ledger has a meter for each node and numbers what they post. It is not safe for
// concurrent use.
type Ledger struct {
	tariff      *fleet.Tariff
	meters      map[id.Node]*Meter
	booting     map[id.Lease]id.Node // name under which a machine is metered until it joins
	dirty       map[id.Node]bool     // whose meters have to be stored
	readings    map[id.Node]*State   // copies of meters that have not changed since
	changes     Changes
	lastPosting uint64 // number of the last one
	lastSaving  uint64
	charge      func(*Posting)

	decisions        map[id.Job]*JobDecisions
	changedDecisions map[id.Job]bool // that have to be stored

	// scratch is memory that is used again. Nothing in it outlives a call.
	scratch struct {
		nodes    []id.Node
		jobs     []id.Job
		postings []Posting
	}
}

// New returns an empty ledger. charge is called for each posting that someone pays for.
func New(t *fleet.Tariff, charge func(*Posting)) *Ledger {
	return &Ledger{
		tariff: t, charge: charge,
		meters: map[id.Node]*Meter{}, booting: map[id.Lease]id.Node{}, dirty: map[id.Node]bool{},
		readings:  map[id.Node]*State{},
		decisions: map[id.Job]*JobDecisions{}, changedDecisions: map[id.Job]bool{},
	}
}

// Stored is what the store keeps of the ledger beside postings and savings themselves.
type Stored struct {
	Meters      []State
	LastPosting uint64
	LastSaving  uint64
	Decisions   []JobDecisions
}

// Load restores what the store kept.
func (g *Ledger) Load(s Stored) error {
	g.lastPosting, g.lastSaving = s.LastPosting, s.LastSaving

	for i := range s.Decisions {
		g.decisions[s.Decisions[i].Job] = &s.Decisions[i]
	}

	for _, state := range s.Meters {
		m, err := LoadMeter(state)
		if err != nil {
			return err
		}

		g.meters[state.Node] = m

		if state.Lease != "" && state.Node == bootName(state.Lease) { // booting, or released before it joined
			g.booting[state.Lease] = state.Node
		}
	}

	return nil
}

// bootName is the name under which a machine is metered until it has joined.
func bootName(l id.Lease) id.Node { return id.Node("machine-" + string(l)) }

// Lease records a change of a lease: a machine costs from when it was granted until it is
// gone.
func (g *Ledger) Lease(now time.Time, l *fleet.Lease) {
	name, booting := g.booting[l.ID]
	switch {
	case l.State == fleet.LeaseBooting || l.State == fleet.LeaseReleasing && l.Joined.IsZero() && l.Instance != "":
		n := l.Offer.Node()
		n.ID, n.Lease = bootName(l.ID), l.ID

		if !booting {
			g.booting[l.ID] = n.ID
			g.meters[n.ID] = NewMeter(n, g.tariff, l, l.Granted)
			g.dirty[n.ID] = true

			return
		}

		g.set(now, n, 0, nil, l)
	case l.State.Final() && booting:
		delete(g.booting, l.ID)
		g.close(l.Ended, name)
	case l.State.Final() && l.Node != "":
		g.close(l.Ended, l.Node)
	}
}

// Node records the state of a node and who holds it. The lease is nil unless it is an
// on-demand node.
func (g *Ledger) Node(now time.Time, n *fleet.Node, foreign uint64, holders []Holder, l *fleet.Lease) {
	if l != nil {
		if name, booting := g.booting[l.ID]; booting { // the machine has become this node
			delete(g.booting, l.ID)
			g.meters[n.ID] = g.meters[name]
			delete(g.meters, name)
			delete(g.dirty, name)
			g.changes.Closed = append(g.changes.Closed, name)
		}
	}

	if g.meters[n.ID] == nil {
		g.meters[n.ID] = NewMeter(n, g.tariff, l, now)
		g.dirty[n.ID] = true
	}

	g.set(now, n, foreign, holders, l)
}

func (g *Ledger) set(now time.Time, n *fleet.Node, foreign uint64, holders []Holder, l *fleet.Lease) {
	m := g.meters[n.ID]
	from := len(g.changes.Postings)
	before := m.Since()
	g.changes.Postings = m.Change(g.changes.Postings, now, n, g.tariff, l)
	g.changes.Postings = m.Set(g.changes.Postings, now, StatusOf(n, foreign, l), holders)
	g.posted(n.ID, from, before)
}

// posted numbers what was posted and charges it.
func (g *Ledger) posted(n id.Node, from int, before time.Time) {
	g.dirty[n] = true
	delete(g.readings, n)

	if m := g.meters[n]; m != nil && len(g.changes.Postings) == from && m.Since().Equal(before) {
		return // only the holders changed, which are stored with the meter
	}

	for i := from; i < len(g.changes.Postings); i++ {
		p := &g.changes.Postings[i]
		g.lastPosting++
		p.Seq = g.lastPosting

		if p.Owner != "" {
			g.charge(p)
		}
	}
}

// Gone records that a node is gone.
func (g *Ledger) Gone(now time.Time, n id.Node) { g.close(now, n) }

func (g *Ledger) close(now time.Time, n id.Node) {
	m, ok := g.meters[n]
	if !ok {
		return
	}

	from, before := len(g.changes.Postings), m.Since()
	g.changes.Postings = m.Close(g.changes.Postings, now)
	g.posted(n, from, before)
	delete(g.meters, n)
	delete(g.dirty, n)
	g.changes.Closed = append(g.changes.Closed, n)
}

// Roll posts everything up to the last full hour.
func (g *Ledger) Roll(now time.Time) { g.each(now, (*Meter).Roll) }

// Settle posts everything up to now on the nodes that the filter selects.
func (g *Ledger) Settle(now time.Time, selects func(*State) bool) {
	g.each(now, func(m *Meter, dst []Posting, now time.Time) []Posting {
		if s := m.Save(); selects(&s) {
			return m.Post(dst, now)
		}

		return dst
	})
}

func (g *Ledger) each(now time.Time, post func(*Meter, []Posting, time.Time) []Posting) {
	for _, n := range slices.Sorted(maps.Keys(g.meters)) {
		m := g.meters[n]
		from, before := len(g.changes.Postings), m.Since()

		g.changes.Postings = post(m, g.changes.Postings, now)
		if len(g.changes.Postings) > from {
			g.posted(n, from, before)
		}
	}
}

// Rate returns what a rank costs, as the meter of its node will post it.
func (g *Ledger) Rate(n *fleet.Node, k *job.Rank, l *fleet.Lease) money.PerHour {
	h := HolderOf(&fleet.Hold{GPUs: fleet.Mask(k.GPUs), Share: k.Share, CPUs: k.CPUs}, "")
	if m := g.meters[n.ID]; m != nil && m.inputs == priceInputsOf(n, g.tariff, l) {
		return m.s.Rates.paidBy(h, &n.Inventory)
	}

	return Hourly(n, g.tariff, l, h)
}

// usualPostings is for how many postings room is made in advance, at most.
const usualPostings = 512

// Take returns what has to be stored, and forgets it.
func (g *Ledger) Take() Changes {
	g.scratch.nodes = slices.AppendSeq(g.scratch.nodes[:0], maps.Keys(g.dirty))
	slices.Sort(g.scratch.nodes)
	g.changes.Meters = slices.Grow(g.changes.Meters, len(g.scratch.nodes))

	for _, n := range g.scratch.nodes {
		if m := g.meters[n]; m != nil {
			g.changes.Meters = append(g.changes.Meters, m.Save())
		}
	}

	clear(g.dirty)
	g.takeDecisions()

	changes := g.changes
	g.changes = Changes{}

	if posted := len(changes.Postings); posted > 0 {
		g.changes.Postings = make([]Posting, 0, min(posted, usualPostings)) // batches are of similar size
	}

	return changes
}

// Reading returns the state of a node's meter, which is not changed any more; nil if it has none.
func (g *Ledger) Reading(n id.Node) *State {
	m, ok := g.meters[n]
	if !ok {
		return nil
	}

	r, ok := g.readings[n]
	if !ok {
		s := m.Save()
		r = &s
		g.readings[n] = r
	}

	return r
}

// Peek returns what would be posted if everything ended now.
func (g *Ledger) Peek(now time.Time) []Posting {
	var list []Posting
	for _, n := range slices.Sorted(maps.Keys(g.meters)) {
		list = g.meters[n].Peek(list, now)
	}

	return list
}
