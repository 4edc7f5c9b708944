// Package books is the yard's bookkeeper: it reads a meter at every node, charges
// what was used to who used it, and knows who may take how much more.
//
// The yardmaster tells it of every change of a node, a lease or a run; it answers
// with what is to be stored: postings, meters, totals and alerts. It ties together
// ledger, which reckons, and admit, which limits; it decides nothing itself.
package books

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/tenant"
)

// Out is what is to be stored since the last Take.
type Out struct {
	Postings []ledger.Posting
	Meters   []ledger.State // changed
	Closed   []id.Node      // whose meters are no more
	Savings  []ledger.Saving
	Totals   []admit.Total
	Told     []admit.Told
}

// Empty reports whether there is nothing.
func (o *Out) Empty() bool {
	return len(o.Postings)+len(o.Meters)+len(o.Closed)+len(o.Savings)+len(o.Totals)+len(o.Told) == 0
}

// Books keeps them. They are not safe for concurrent use.
type Books struct {
	Limits  *admit.Books
	tariff  *fleet.Tariff
	meters  map[id.Node]*ledger.Meter
	booting map[id.Lease]id.Node // name under which a machine's meter runs until it joins
	dirty   map[id.Node]bool
	out     Out
	posting uint64 // last number given
	saving  uint64
	charged func(*ledger.Posting)
}

// New returns empty books. charged is told of each posting that someone pays for.
func New(t *fleet.Tariff, charged func(*ledger.Posting)) *Books {
	return &Books{Limits: admit.New(), tariff: t, meters: map[id.Node]*ledger.Meter{}, booting: map[id.Lease]id.Node{}, dirty: map[id.Node]bool{}, charged: charged}
}

// Stored is what the store kept of the books.
type Stored struct {
	Meters      []ledger.State
	Limits      []tenant.Limit
	Totals      []admit.Total
	Told        []admit.Told
	LastPosting uint64
	LastSaving  uint64
}

// Load takes up what the store kept.
func (b *Books) Load(s Stored) error {
	b.posting, b.saving = s.LastPosting, s.LastSaving
	for _, state := range s.Meters {
		m, err := ledger.Load(state)
		if err != nil {
			return err
		}
		b.meters[state.Node] = m
		if state.Lease != "" && state.Node == bootName(state.Lease) { // booting, or given back before it joined
			b.booting[state.Lease] = state.Node
		}
	}
	for _, l := range s.Limits {
		if l.Removed {
			continue
		}
		if err := b.Limits.Put(l); err != nil {
			return err
		}
	}
	return b.Limits.Load(s.Totals, s.Told)
}

// bootName is what a machine is called in the books until it has joined.
func bootName(l id.Lease) id.Node { return id.Node("machine-" + string(l)) }

// Lease takes note of a lease that has changed: a machine costs from when it was
// given until it is gone.
func (b *Books) Lease(now time.Time, l *fleet.Lease) {
	name, booting := b.booting[l.ID]
	switch {
	case l.State == fleet.LeaseBooting || l.State == fleet.LeaseReleasing && l.Joined.IsZero() && l.Instance != "":
		n := l.Offer.Node()
		n.ID, n.Lease = bootName(l.ID), l.ID
		if !booting {
			b.booting[l.ID] = n.ID
			b.meters[n.ID] = ledger.New(n, b.tariff, l, l.Granted)
			b.dirty[n.ID] = true
			return
		}
		b.set(now, n, 0, nil, l)
	case l.State.Final() && booting:
		delete(b.booting, l.ID)
		b.close(l.Ended, name)
	case l.State.Final() && l.Node != "":
		b.close(l.Ended, l.Node)
	}
}

// Node takes note of how a node stands and who holds it. The lease is nil if it was
// not hired.
func (b *Books) Node(now time.Time, n *fleet.Node, foreign uint64, holders []ledger.Holder, l *fleet.Lease) {
	if l != nil {
		if name, booting := b.booting[l.ID]; booting { // its machine has become this node
			delete(b.booting, l.ID)
			b.meters[n.ID] = b.meters[name]
			delete(b.meters, name)
			delete(b.dirty, name)
			b.out.Closed = append(b.out.Closed, name)
		}
	}
	if b.meters[n.ID] == nil {
		b.meters[n.ID] = ledger.New(n, b.tariff, l, now)
		b.dirty[n.ID] = true
	}
	b.set(now, n, foreign, holders, l)
}

func (b *Books) set(now time.Time, n *fleet.Node, foreign uint64, holders []ledger.Holder, l *fleet.Lease) {
	m := b.meters[n.ID]
	from := len(b.out.Postings)
	before := m.Since()
	b.out.Postings = m.Change(b.out.Postings, now, n, b.tariff, l)
	b.out.Postings = m.Set(b.out.Postings, now, ledger.StatusOf(n, foreign, l), holders)
	b.posted(n.ID, from, before)
}

// posted numbers what was posted and charges it.
func (b *Books) posted(n id.Node, from int, before time.Time) {
	b.dirty[n] = true
	if m := b.meters[n]; m != nil && len(b.out.Postings) == from && m.Since().Equal(before) {
		return // only who holds it is new, which is stored with the meter
	}
	for i := from; i < len(b.out.Postings); i++ {
		p := &b.out.Postings[i]
		b.posting++
		p.Seq = b.posting
		if p.Owner == "" {
			continue
		}
		used := p.GPUTime
		if p.Account != ledger.Use {
			used = 0 // hired for them, and not used
		}
		b.Limits.SpendOver(p.From, p.To, admit.Who{Owner: p.Owner, Project: p.Project, Job: p.Job}, float64(used)/1000, p.Cost().Dollars())
		b.charged(p)
	}
}

// Gone takes note that a node is no more.
func (b *Books) Gone(now time.Time, n id.Node) { b.close(now, n) }

func (b *Books) close(now time.Time, n id.Node) {
	m, ok := b.meters[n]
	if !ok {
		return
	}
	from, before := len(b.out.Postings), m.Since()
	b.out.Postings = m.Close(b.out.Postings, now)
	b.posted(n, from, before)
	delete(b.meters, n)
	delete(b.dirty, n)
	b.out.Closed = append(b.out.Closed, n)
}

// Roll posts what has run up until the last full hour.
func (b *Books) Roll(now time.Time) { b.each(now, (*ledger.Meter).Roll) }

// Settle posts at once what has run up on nodes for which someone pays who is limited.
func (b *Books) Settle(now time.Time, limited func(*ledger.State) bool) {
	b.each(now, func(m *ledger.Meter, dst []ledger.Posting, now time.Time) []ledger.Posting {
		if s := m.Save(); limited(&s) {
			return m.Post(dst, now)
		}
		return dst
	})
}

func (b *Books) each(now time.Time, post func(*ledger.Meter, []ledger.Posting, time.Time) []ledger.Posting) {
	for _, n := range slices.Sorted(maps.Keys(b.meters)) {
		m := b.meters[n]
		from, before := len(b.out.Postings), m.Since()
		b.out.Postings = post(m, b.out.Postings, now)
		if len(b.out.Postings) > from {
			b.posted(n, from, before)
		}
	}
}

// Save writes down what a decision saved.
func (b *Books) Save(s ledger.Saving) {
	b.saving++
	s.Seq = b.saving
	b.out.Savings = append(b.out.Savings, s)
}

// Rate returns what a rank costs in an hour, as the meter of its node will read it.
func (b *Books) Rate(n *fleet.Node, k *job.Rank, l *fleet.Lease) float64 {
	h := ledger.HolderOf(&fleet.Hold{GPUs: fleet.Mask(k.GPUs), Share: k.Share, CPUs: k.CPUs}, "")
	return ledger.Hourly(n, b.tariff, l, h).Dollars()
}

// Take returns what is to be stored, and forgets it.
func (b *Books) Take() Out {
	for _, n := range slices.Sorted(maps.Keys(b.dirty)) {
		if m := b.meters[n]; m != nil {
			b.out.Meters = append(b.out.Meters, m.Save())
		}
	}
	clear(b.dirty)
	b.out.Totals, b.out.Told = b.Limits.Changed()
	o := b.out
	b.out = Out{}
	return o
}

// Peek returns what would be posted if everything ended now.
func (b *Books) Peek(now time.Time) []ledger.Posting {
	var list []ledger.Posting
	for _, n := range slices.Sorted(maps.Keys(b.meters)) {
		list = b.meters[n].Peek(list, now)
	}
	return list
}
