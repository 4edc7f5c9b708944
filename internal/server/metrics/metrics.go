// Package metrics shows an operator what happens in the yard, as Prometheus metrics.
//
// It stands beside the path of a job and of a node: the server's loop hands it every
// batch after the commit, as it does to the live feed, and from these alone it knows
// what there is and counts what has happened. Being scraped therefore asks nothing of
// the loop, however many nodes and jobs there are: a batch costs the loop a few
// additions, and what takes longer is worked out when someone looks, beside it.
//
// Counters begin with the process, as Prometheus expects; the store's books are what
// bills are written from.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// Options is what an operator can set.
type Options struct {
	// Providers are those that nodes can be provisioned from. Their counters are there from the
	// start, so that the first thing that happens is seen as a change.
	Providers []string
	// ByUser adds money and GPU time for each user. Every user makes series of their own,
	// which a Prometheus of thousands of users may not want.
	ByUser bool
}

// Collector knows the figures. Load comes first, then Take for every committed batch;
// Collect may come at any time.
type Collector struct {
	clock   clock.Clock
	options Options
	figures figures
	counts  counts

	mu      sync.Mutex
	nodes   map[id.Node]*node
	changed []*node // to be read anew
	jobs    jobs
	leases  map[id.Lease]*fleet.Lease
	spent   sums
	saved   map[string]saved
	budgets budgets
	runs    map[id.Run]fleet.Class // where the first rank is
	orders  map[string]bool

	scrape   sync.Mutex // held while someone looks; what follows is theirs
	readings map[id.Node]*reading
	shown    map[series]float64
}

// New returns a board of a yard in which there is nothing yet.
func New(clk clock.Clock, o Options) *Collector {
	b := &Collector{
		clock:    clk,
		options:  o,
		counts:   newCounts(o.Providers),
		nodes:    map[id.Node]*node{},
		jobs:     newJobs(),
		leases:   map[id.Lease]*fleet.Lease{},
		spent:    newSums(o.ByUser),
		saved:    map[string]saved{},
		budgets:  newBudgets(),
		runs:     map[id.Run]fleet.Class{},
		orders:   map[string]bool{},
		readings: map[id.Node]*reading{},
		shown:    map[series]float64{},
	}

	b.figures.define(o.ByUser)

	for _, kind := range place.DecisionKinds() {
		b.saved[string(kind)] = saved{}
	}

	return b
}

// Load takes what the store kept of the yard before this start.
func (b *Collector) Load(s *yardmaster.State) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for i := range s.Jobs {
		b.jobs.load(&s.Jobs[i])
	}

	for i := range s.Nodes {
		b.node(&s.Nodes[i])
	}

	for i := range s.Runs {
		if s.Runs[i].State != job.RunEnded {
			b.run(&s.Runs[i])
		}
	}

	for i := range s.Leases {
		if l := s.Leases[i]; !l.State.Final() {
			b.leases[l.ID] = &l
		}
	}

	for i := range s.Orders {
		b.orders[s.Orders[i].Key()] = true
	}

	for i := range s.Ledger.Meters {
		b.meter(&s.Ledger.Meters[i])
	}

	b.budgets.take(s.Quotas, s.Usage, s.Notices)
}

// Take takes a batch that is committed. The loop calls it, so it is brief.
func (b *Collector) Take(batch *yardmaster.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for i := range batch.Leases {
		l := batch.Leases[i]
		b.leases[l.ID] = &l
	}

	for i := range batch.Nodes {
		b.node(&batch.Nodes[i])
	}

	for i := range batch.Runs {
		b.run(&batch.Runs[i])
	}

	for i := range batch.Events {
		b.event(&batch.Events[i])
	}

	for i := range batch.Jobs {
		b.jobs.changed(&batch.Jobs[i])
	}

	for i := range batch.Leases {
		if l := &batch.Leases[i]; l.State.Final() {
			delete(b.leases, l.ID)
		}
	}

	for i := range batch.Runs {
		if r := &batch.Runs[i]; r.State == job.RunEnded {
			delete(b.runs, r.ID)
		}
	}

	for i := range batch.Orders {
		b.orders[batch.Orders[i].Key()] = true
	}

	for _, key := range batch.Closed {
		delete(b.orders, key)
	}

	b.books(batch)
}

// books takes what was written into the books.
func (b *Collector) books(batch *yardmaster.Batch) {
	out := &batch.Ledger
	for i := range out.Postings {
		p := portionOf(&out.Postings[i])
		b.spent.add(&p, 1)
	}

	for _, name := range out.Closed {
		b.at(name).meter = nil
	}

	for i := range out.Meters {
		b.meter(&out.Meters[i])
	}

	for i := range out.Savings {
		s := b.saved[out.Savings[i].Kind]
		s.add(out.Savings[i].Money)
		b.saved[out.Savings[i].Kind] = s
	}

	b.budgets.take(batch.Quotas, batch.Usage, batch.Notices)
}

// event counts something that happened.
func (b *Collector) event(e *yardmaster.Event) {
	switch {
	case e.Lease != "" && b.leases[e.Lease] != nil:
		b.counts.lease(e, b.leases[e.Lease])
	case e.Job == "":
	default:
		waited, started, ended := b.jobs.event(e)
		if started {
			b.counts.waits.WithLabelValues(string(b.runs[e.Run])).Observe(waited.Seconds())
		}

		if ended != "" {
			b.counts.ended.WithLabelValues(string(ended)).Inc()
		}
	}

	b.counts.alert(e)
}

// Describe is part of prometheus.Collector.
func (b *Collector) Describe(ch chan<- *prometheus.Desc) {
	b.figures.describe(ch)
	b.counts.each(func(c prometheus.Collector) { c.Describe(ch) })
}

// Collect is part of prometheus.Collector.
func (b *Collector) Collect(ch chan<- prometheus.Metric) {
	b.scrape.Lock()
	defer b.scrape.Unlock()

	b.show(ch)
	b.counts.each(func(c prometheus.Collector) { c.Collect(ch) })
}
