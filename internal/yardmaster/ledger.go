package yardmaster

import (
	"maps"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/quota"
)

// meterChanged records that the meter of a node has to be updated.
func (y *Yard) meterChanged(n id.Node) {
	if !y.cfg.Unmetered {
		y.changedMeters[n] = true
	}
}

// leaseChanged records a change of a lease in the ledger.
func (y *Yard) leaseChanged(l *fleet.Lease) {
	if !y.cfg.Unmetered {
		y.ledger.Lease(y.now, l)
	}

	if l.Node != "" {
		y.meterChanged(l.Node)
	}
}

// updateMeters updates the meters of the nodes on which something changed.
func (y *Yard) updateMeters() {
	if len(y.changedMeters) == 0 {
		return
	}

	sooner := false
	y.scratch.nodes = slices.AppendSeq(y.scratch.nodes[:0], maps.Keys(y.changedMeters))
	slices.Sort(y.scratch.nodes)

	for _, name := range y.scratch.nodes {
		y.updateMeter(name)
		sooner = y.projectBudgetsOn(name) || sooner
	}

	clear(y.changedMeters)

	if sooner {
		y.watchQuotas()
	}
}

// projectBudgetsOn projects the budgets of the jobs on a node anew: what they cost depends on who
// else is there. It reports whether one is used up sooner than was known.
func (y *Yard) projectBudgetsOn(name id.Node) (sooner bool) {
	if y.budgets == 0 {
		return false
	}

	room, ok := y.nodes.Rooms.Get(name)
	if !ok {
		return false
	}

	for i := range room.Holds {
		if r := y.jobs[room.Holds[i].Job]; r != nil && r.Spec.Budget > 0 {
			before := r.exhausts
			y.projectBudget(r)
			sooner = sooner || !r.exhausts.IsZero() && (before.IsZero() || r.exhausts.Before(before))
		}
	}

	return sooner
}

// projectBudget works out when the budget of a job will be used up at what it costs now.
func (y *Yard) projectBudget(r *jobRecord) {
	r.exhausts = time.Time{}

	if r.Spec.Budget == 0 || r.run == nil {
		return
	}

	soFar, inAnHour := y.costAt(r, y.now), y.costAt(r, y.now.Add(time.Hour))
	if hourly := money.PerHour(inAnHour - soFar); hourly > 0 {
		remaining := r.Spec.Budget.Amount() - (soFar - r.Paid)
		r.exhausts = y.now.Add(remaining.Lasts(hourly))
	}
}

func (y *Yard) updateMeter(name id.Node) {
	n, ok := y.nodes.Get(name)
	if !ok || n.State == fleet.Removed {
		y.ledger.Gone(y.now, name)
		return
	}

	room, _ := y.nodes.Rooms.Get(name)

	holders := y.scratch.holders[:0]
	for i := range room.Holds {
		h := &room.Holds[i]
		if run := y.runs[h.Run]; run != nil && !run.Suspended() { // else reserved for a start that waits, or lent
			holders = append(holders, ledger.HolderOf(h, y.jobs[h.Job].Project))
		}
	}

	y.scratch.holders = holders
	y.ledger.Node(y.now, &n.Node, n.Foreign, holders, y.Lease(n.Lease))
	y.touchNode(name)
}

// charge charges a posting to its payer's quotas and to the cost of its job.
func (y *Yard) charge(p *ledger.Posting) {
	used := p.GPUTime
	if p.Account != ledger.Use {
		used = 0 // provisioned for them, and not used
	}

	payer := quota.Payer{Owner: p.Owner, Project: p.Project, Job: p.Job}
	y.quotas.Spend(p.From, p.To, payer, float64(used)/1000, p.Cost().Amount())

	if r, ok := y.jobs[p.Job]; ok {
		r.Cost += p.Cost().Amount()
		y.changedJob(r)
	}
}

// countUse records in the quotas what a rank holds, or with a negative sign no longer holds.
func (y *Yard) countUse(r *jobRecord, k *job.Rank, sign float64) {
	n := y.nodes.Of(k.Node)
	if n == nil {
		return
	}

	if sign > 0 {
		k.Hourly = y.ledger.Rate(n, k, y.Lease(n.Lease))
	}

	y.quotas.Use(y.now, r.payer(), n.Class, sign*k.GPUCount(), k.Hourly.Times(sign))
}

// commit records in the quotas what a job is expected to use from now on.
func (y *Yard) commit(r *jobRecord) {
	if r.State.Final() {
		y.quotas.Done(r.payer())
		return
	}

	cost, gpuHours := y.expectedUse(r)
	r.committed = true
	y.quotas.Commit(r.payer(), r.commitment(cost, gpuHours))
}

// expectedUse returns what a job is expected to use from now on, with the nodes that are provisioned for it while it
// runs; negative where that is unknown.
func (y *Yard) expectedUse(r *jobRecord) (money.Amount, float64) {
	cost, gpuHours := money.Amount(-1), -1.0
	if r.running == nil {
		return cost, gpuHours
	}

	if end := expectedEnd(y.now, r.Spec, &r.run.Run, r.running); !end.IsZero() {
		lasts := max(end.Sub(y.now), 0)
		cost, gpuHours = r.run.hourly().For(lasts), lasts.Hours()*r.running.GPUCount()
	}

	if r.run.faster.cost > 0 {
		cost = max(cost, 0) + r.run.faster.cost
	}

	return cost, gpuHours
}

// commitment is what a job is expected to use from now on; negative where that is unknown.
func (r *jobRecord) commitment(cost money.Amount, gpuHours float64) quota.Commitment {
	return quota.Commitment{
		RemainingCost: cost, RemainingGPUHours: gpuHours, Budget: r.Spec.Budget, CostSoFar: r.budgetCost(),
	}
}

// hourly is what the ranks of a run cost in an hour.
func (run *runRecord) hourly() money.PerHour {
	sum := money.PerHour(0)
	for i := range run.Ranks {
		sum += run.Ranks[i].Hourly
	}

	return sum
}
