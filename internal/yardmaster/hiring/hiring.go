// Package hiring is the yard's dealings with providers: which leases were written for
// which waiting job, what is offered and what was refused lately, and which providers
// do not answer as they should.
//
// A plan says what to hire; the yardmaster asks the limits and has the leases written
// here; cloud/desk asks the providers. Until a machine has come its price counts
// against who will pay for it. What becomes of nodes and their runs when a lease ends is
// the yardmaster's business: Settle tells it.
package hiring

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/hire"
	"trainyard/internal/hire/leases"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster/agenda"
	"trainyard/internal/yardmaster/batch"
)

// Hiring is the leases with what they were written for. It is not safe for concurrent use.
type Hiring struct {
	*leases.Leases
	Market *hire.Market

	every   time.Duration // between two looks at the leases
	limits  *admit.Books
	heard   func(id.Node) bool
	feed    *batch.Feed
	timers  *agenda.Agenda
	awaited map[id.Job][]id.Lease // leases for jobs that wait
	asking  map[id.Lease]float64  // what machines that have not come yet will cost in an hour
	failing map[string]*outage    // providers that do not answer as they should
	sweep   *agenda.Entry
	changed []*fleet.Lease
}

// New returns one that holds no lease. heard tells whether a node's agent has been heard
// lately: only then its lease is renewed.
func New(cfg leases.Config, offers []fleet.Offer, limits *admit.Books, feed *batch.Feed, timers *agenda.Agenda, heard func(id.Node) bool) *Hiring {
	return &Hiring{
		Leases: leases.New(cfg), Market: hire.NewMarket(offers), every: cfg.Every(), limits: limits, heard: heard, feed: feed, timers: timers,
		awaited: map[id.Job][]id.Lease{}, asking: map[id.Lease]float64{}, failing: map[string]*outage{},
	}
}

// Load takes up the leases, and what was hired for jobs that still wait.
func (h *Hiring) Load(now time.Time, s *batch.State) {
	h.Leases.Load(now, s.Leases, s.LastLease)
	h.Market.Replay(s.Leases)
	for _, l := range h.Live() {
		h.limits.Nodes(now, payer(l), 1)
		if l.Job != "" && comes(l) {
			h.awaited[l.Job] = append(h.awaited[l.Job], l.ID)
		}
	}
	h.Watch(now)
}

// Take moves what has changed into a batch.
func (h *Hiring) Take(b *batch.Batch) {
	b.Leases = b.Leases[:0]
	for _, l := range h.changed {
		b.Leases = append(b.Leases, *l)
	}
	clear(h.changed)
	h.changed = h.changed[:0]
}

// Watch lets time pass for the leases as long as there are any.
func (h *Hiring) Watch(now time.Time) {
	if h.sweep != nil || len(h.Live()) == 0 {
		return
	}
	h.sweep = h.timers.After(now.Add(h.every), func(now time.Time) {
		h.sweep = nil
		h.Sweep(now, h.heard)
		h.Watch(now)
	})
}

// Of returns a lease that has not ended, nil if there is none.
func (h *Hiring) Of(name id.Lease) *fleet.Lease {
	l, _ := h.Get(name)
	return l
}

// comes reports whether the machine of a lease has not become a node yet and may.
func comes(l *fleet.Lease) bool {
	return l.State == fleet.LeaseRequested || l.State == fleet.LeaseBooting
}

// payer is on whose account a lease is.
func payer(l *fleet.Lease) admit.Who { return admit.Who{Owner: l.Owner, Project: l.Project} }

// Hire writes the leases of a wish for a waiting job. What that is expected to cost is
// committed, so that nobody else spends that money.
func (h *Hiring) Hire(now time.Time, w leases.Wish, o admit.Outlay) error {
	hired, err := h.Leases.Hire(now, w)
	if err != nil {
		return err
	}
	who := admit.Who{Owner: w.Owner, Project: w.Project, Job: w.Job}
	for _, l := range hired {
		h.awaited[w.Job] = append(h.awaited[w.Job], l.ID)
		h.limits.Nodes(now, payer(l), 1)
		hourly := float64(l.Offer.Hourly) / 1e6
		h.asking[l.ID] = hourly
		h.limits.Use(now, who, fleet.OnDemand, 0, hourly)
	}
	h.limits.Commit(who, o)
	h.Watch(now)
	return nil
}

// Awaits reports whether nodes were hired for a job that waits.
func (h *Hiring) Awaits(j id.Job) bool { return len(h.awaited[j]) > 0 }

// Comes says which node is being hired for a job, "" if none is.
func (h *Hiring) Comes(j id.Job) string {
	for _, name := range h.awaited[j] {
		if l := h.Of(name); l != nil && comes(l) {
			return fmt.Sprintf("a node is being hired for it: %s, lease %s is %s", l.Offer.Name, l.ID, l.State)
		}
	}
	return ""
}

// Forgo gives back what was hired for a job that no longer waits for it and has not come.
func (h *Hiring) Forgo(now time.Time, j id.Job) {
	list, ok := h.awaited[j]
	if !ok {
		return
	}
	delete(h.awaited, j)
	for _, name := range list {
		if l := h.Of(name); l != nil && comes(l) {
			h.GiveBack(now, name, "job "+string(j)+", for which it was hired, no longer waits for it")
		}
	}
}

// GiveBack gives a lease back that may have ended already.
func (h *Hiring) GiveBack(now time.Time, name id.Lease, reason string) {
	if _, live := h.Get(name); live {
		_, err := h.Return(now, name, reason)
		h.feed.Bug(now, err)
	}
}

// Fellows returns the other leases of a gang for which a job still waits.
func (h *Hiring) Fellows(l *fleet.Lease) []*fleet.Lease {
	waits := func(name id.Lease) bool {
		o, live := h.Get(name)
		return live && o.Gang == l.Gang
	}
	if l.Gang == "" || !slices.ContainsFunc(h.awaited[l.Job], waits) {
		return nil
	}
	var list []*fleet.Lease
	for _, o := range h.Live() {
		if o.Gang == l.Gang && o != l && o.Live() {
			list = append(list, o)
		}
	}
	return list
}

// grace is how long a node that has just come is left to the job it was hired for.
const grace = time.Minute

// Early returns until when nobody should ask whether a hired node is of use, because
// nodes that it is hired with are still to come, or its job starts there next; zero if
// that may be asked now.
func (h *Hiring) Early(now time.Time, l *fleet.Lease) time.Time {
	partial := l.Gang != "" && slices.ContainsFunc(h.Live(), func(o *fleet.Lease) bool { return o.Gang == l.Gang && comes(o) })
	if partial || slices.Contains(h.awaited[l.Job], l.ID) && now.Sub(l.Joined) < grace {
		return now.Add(grace)
	}
	return time.Time{}
}

// Settle passes on what has changed among the leases: changed is told of each lease
// before anything else is done about it. It returns the leases whose node is no more, and
// whether there was any change.
func (h *Hiring) Settle(now time.Time, changed func(*fleet.Lease)) (gone []*fleet.Lease, any bool) {
	out := h.Leases.Take()
	h.changed = append(h.changed, out.Changed...)
	for _, l := range out.Changed {
		changed(l)
		if !comes(l) {
			h.arrived(now, l)
		}
		if !l.Live() {
			h.forget(l)
		}
	}
	for _, t := range out.Told {
		h.feed.Tell(now, batch.Event{Kind: t.Kind, Actor: batch.Yard, Owner: t.Lease.Owner, Job: t.Lease.Job, Node: t.Lease.Node, Lease: t.Lease.ID,
			From: string(t.From), To: string(t.Lease.State), Reason: t.Reason})
	}
	for _, l := range out.Closed {
		if !l.Stray {
			h.limits.Nodes(now, payer(l), -1)
		}
		h.Market.Ended(l)
	}
	return out.Gone, len(out.Changed) > 0
}

// arrived ends the expectation of what a lease costs: its machine is there and costs
// what it costs, or it will not come.
func (h *Hiring) arrived(now time.Time, l *fleet.Lease) {
	if hourly, ok := h.asking[l.ID]; ok {
		delete(h.asking, l.ID)
		h.limits.Use(now, admit.Who{Owner: l.Owner, Project: l.Project, Job: l.Job}, fleet.OnDemand, 0, -hourly)
	}
}

// forget drops a lease of which a job can expect nothing any more.
func (h *Hiring) forget(l *fleet.Lease) {
	if left := slices.DeleteFunc(h.awaited[l.Job], func(o id.Lease) bool { return o == l.ID }); len(left) > 0 {
		h.awaited[l.Job] = left
	} else {
		delete(h.awaited, l.Job)
	}
}
