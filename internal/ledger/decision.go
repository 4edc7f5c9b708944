package ledger

import (
	"maps"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
)

// Counterfactual is what would have become of a job if the option that was chosen for it had not
// existed, in the terms of the ledger: when the job would have run, how fast, and at which price.
// It is recorded when the decision is made and priced when it is known what really happened.
type Counterfactual struct {
	What     string        `json:"what"`                   // for people: provision aws/p4d (8× A100)
	StartsIn Span          `json:"starts_in_ms,omitempty"` // from the decision until it is paid for
	Lead     Span          `json:"lead_ms,omitempty"`      // paid for before the program starts: boot, staging of data
	Runs     Span          `json:"runs_ms,omitempty"`      // how long it was expected to run there; 0 if unknown
	Startup  Span          `json:"startup_ms,omitempty"`   // of each run, the same on all hardware
	Restart  Span          `json:"restart_ms,omitempty"`   // start-up that only the decision makes necessary
	Ratio    float64       `json:"ratio"`                  // how long it runs there for each second that it runs here
	Hourly   money.PerHour `json:"hourly"`                 // of its nodes of the yard, or of one provisioned node
	Nodes    int           `json:"nodes,omitempty"`        // to be provisioned; 0 for nodes of the yard

	// How a provisioned node is billed.
	BillingUnit Span `json:"billing_unit_ms,omitempty"`
	MinBilled   Span `json:"min_billed_ms,omitempty"`
}

// Decision is a decision about a job that has not been settled: its part of the job's life has not
// ended. A job has at most one; the next decision about the job ends its part.
type Decision struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	Counterfactual
	CostBefore Nanos  `json:"cost_before"`       // what the job had cost until then
	Run        id.Run `json:"run,omitempty"`     // that carries it out; "" while none does
	Awaited    bool   `json:"awaited,omitempty"` // the next start carries it out
	Provisions bool   `json:"provisions,omitempty"`
	Ran        Span   `json:"ran_ms,omitempty"` // how long the job ran in its part, without what was lost
	// SameMoment says that the job was ended from outside, by a person or a budget. That would have
	// happened at the same moment, however far the job would have been, unless it would have been
	// done by then.
	SameMoment bool `json:"same_moment,omitempty"`
}

// JobDecisions is what has to be kept of the decisions about a job until the job has ended.
type JobDecisions struct {
	Job     id.Job     `json:"job"`
	Owner   id.User    `json:"owner"`
	Project id.Project `json:"project,omitempty"`
	Open    *Decision  `json:"open,omitempty"`
	Closed  []Saving   `json:"closed,omitempty"` // booked when the job ends
}

// Part is what really happened in the part of a job's life that a decision accounts for.
type Part struct {
	End   time.Time // the job ended then, or the next decision was made
	Cost  Nanos     // of the job until then, since its submission
	Final bool      // the job has ended
	// Released says when a provisioned node that became idle would be released. It is needed if
	// Final is set.
	Released func(l *fleet.Lease, idleSince time.Time) time.Time
}

// Decision returns the decision about a job that has not been settled, nil if there is none. A
// caller that changes it calls DecisionChanged.
func (g *Ledger) Decision(j id.Job) *Decision {
	if l := g.decisions[j]; l != nil {
		return l.Open
	}

	return nil
}

// DecisionChanged records that the decision about a job has to be stored.
func (g *Ledger) DecisionChanged(j id.Job) { g.changedDecisions[j] = true }

// Decide records a decision about a job. The one before must have been closed.
func (g *Ledger) Decide(j id.Job, owner id.User, project id.Project, d Decision) {
	l := g.decisions[j]
	if l == nil {
		l = &JobDecisions{Job: j, Owner: owner, Project: project}
		g.decisions[j] = l
	}

	l.Open = &d
	g.DecisionChanged(j)
}

// CloseDecision ends the part of the open decision about a job, if there is one.
func (g *Ledger) CloseDecision(j id.Job, p *Part) {
	l := g.decisions[j]
	if l == nil || l.Open == nil {
		return
	}

	d := l.Open
	l.Open = nil
	g.DecisionChanged(j)

	if money, saved := d.settle(p); money != 0 || saved != 0 {
		l.Closed = append(l.Closed, Saving{
			Job: j, Owner: l.Owner, Project: l.Project, Kind: d.Kind, Money: money, Time: saved, Reason: d.What,
		})
	}
}

// BookSavings books what the decisions about a job saved, now that the job has ended.
func (g *Ledger) BookSavings(now time.Time, j id.Job) {
	l := g.decisions[j]
	if l == nil {
		return
	}

	for _, s := range l.Closed {
		s.At = now
		g.lastSaving++
		s.Seq = g.lastSaving
		g.changes.Savings = append(g.changes.Savings, s)
	}

	delete(g.decisions, j)
	g.DecisionChanged(j)
}

// takeDecisions adds the changed decisions to what has to be stored.
func (g *Ledger) takeDecisions() {
	g.scratch.jobs = slices.AppendSeq(g.scratch.jobs[:0], maps.Keys(g.changedDecisions))
	slices.Sort(g.scratch.jobs)

	left := 0
	for _, j := range g.scratch.jobs {
		if g.decisions[j] != nil {
			left++
		}
	}

	g.changes.Decisions = slices.Grow(g.changes.Decisions, left)
	open := make([]Decision, 0, left) // one piece of memory for all

	for _, j := range g.scratch.jobs {
		l := g.decisions[j]
		if l == nil {
			g.changes.Settled = append(g.changes.Settled, j)
			continue
		}

		stored := *l
		stored.Closed = slices.Clone(l.Closed)

		if l.Open != nil {
			open = append(open, *l.Open)
			stored.Open = &open[len(open)-1]
		}

		g.changes.Decisions = append(g.changes.Decisions, stored)
	}

	clear(g.changedDecisions)
}

// settle compares what happened in the part of a decision with what would have happened instead:
// the same work, done where the job would have run. It returns how much less money and how much
// less time it took; both are negative if the decision was a loss.
func (d *Decision) settle(p *Part) (money Nanos, saved Span) {
	actual := p.Cost - d.CostBefore
	if d.SameMoment {
		cost, end := d.costUntil(p)
		return cost - actual, SpanOf(end.Sub(p.End))
	}

	if d.Ran == 0 && !p.Final {
		return d.settleIdle() - actual, d.delay(p)
	}

	started := min(d.Ran, d.Startup)
	work := max(Span(math.Round(float64(started)+float64(d.Ran-started)*d.Ratio))-d.Restart, 0)
	end := d.At.Add((d.StartsIn + d.Lead + work).Duration())

	return d.cost(d.Lead+work, p, end) - actual, SpanOf(end.Sub(p.End))
}

// settleIdle returns what the counterfactual would have cost in a part in which nothing was done: a
// job that would have gone on running need not start again.
func (d *Decision) settleIdle() Nanos { return -d.cost(d.Restart, nil, time.Time{}) }

// delay returns the time, at most 0, that was lost in a part in which nothing was done. The next
// decision finds a job that waited or was stopped as this one did, only later. One for which nodes
// were provisioned in vain would have waited too, until its counterfactual was ready.
func (d *Decision) delay(p *Part) Span {
	ready := d.At.Add(-d.Restart.Duration())
	if d.Provisions {
		ready = d.At.Add((d.StartsIn + d.Lead).Duration())
	}

	return min(SpanOf(ready.Sub(p.End)), 0)
}

// costUntil returns what the counterfactual would have cost if it had been ended when the job was,
// and when it would have ended.
func (d *Decision) costUntil(p *Part) (Nanos, time.Time) {
	end := p.End
	if done := d.At.Add((d.StartsIn + d.Lead + d.Runs).Duration()); d.Runs > 0 && done.Before(end) {
		end = done
	}

	held := SpanOf(end.Sub(d.At)) - d.StartsIn
	if held < 0 || held == 0 && d.StartsIn > 0 {
		return 0, end // it would still have been queued
	}

	idle := end
	if held < d.Lead {
		idle = time.Time{} // a machine that is not ready is released at once
	}

	return d.cost(held, p, idle), end
}

// cost returns what the counterfactual costs that holds its nodes for a while. A provisioned node
// is billed to the end of its billing increment, and until it is released, if the job ends with
// the part; otherwise it goes on. idle is when the job leaves a node that is ready, or zero.
func (d *Decision) cost(held Span, p *Part, idle time.Time) Nanos {
	nodes := max(d.Nodes, 1)
	ms := int64(held)

	if d.Nodes > 0 && p != nil && p.Final {
		l := &fleet.Lease{Granted: d.At.Add(d.StartsIn.Duration())}
		l.Offer.BillingIncrement, l.Offer.MinBilling = d.BillingUnit.job(), d.MinBilled.job()

		if !idle.IsZero() {
			ms = max(ms, millis(p.Released(l, idle).Sub(l.Granted)))
		}

		r := rates{BillingUnit: int64(d.BillingUnit), MinBilled: int64(d.MinBilled)}
		ms += r.unusedPaid(ms)
	}

	return NanosOf(d.Hourly.Times(float64(nodes)).For(Span(ms).Duration()))
}

// RemainingCost returns what a lease will still cost if nothing uses its machine from now until it
// is released.
func RemainingCost(l *fleet.Lease, now, released time.Time) Nanos {
	if l.Granted.IsZero() {
		return 0
	}

	ms := millis(wholeMillis(l.Granted.Add(l.PaidTime(now))).Sub(wholeMillis(l.Granted)))
	soFar, _ := accrue(at(ratesOf(l.Offer.Node(), nil, l).Hourly, 0), ms, 0, msPerHour)

	return Estimate(l, released) - Nanos(soFar)
}

// Unposted returns what a job has cost on nodes, and on machines that have not joined, since they
// were last posted.
func (g *Ledger) Unposted(now time.Time, j id.Job, nodes []id.Node, arriving []id.Lease) Nanos {
	var sum Nanos
	add := func(n id.Node) {
		m, ok := g.meters[n]
		if !ok {
			return
		}

		g.scratch.postings = m.Peek(g.scratch.postings[:0], now)
		for i := range g.scratch.postings {
			if p := &g.scratch.postings[i]; p.Job == j {
				sum += p.Cost()
			}
		}
	}

	for _, n := range nodes {
		add(n)
	}

	for _, l := range arriving {
		add(bootName(l))
	}

	return sum
}

// SpanOf returns a duration, rounded to milliseconds.
func SpanOf(d time.Duration) Span { return Span(d.Round(time.Millisecond).Milliseconds()) }
