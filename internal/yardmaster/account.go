package yardmaster

import (
	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster/cashier"
	"trainyard/internal/yardmaster/course"
)

// account reads the meters of the nodes that something changed on.
func (y *Yard) account() {
	y.cashier.Read(func(name id.Node) {
		n, ok := y.nodes.Get(name)
		if !ok || n.State == fleet.Removed {
			y.cashier.Gone(y.now, name)
			return
		}
		room, _ := y.nodes.Rooms.Get(name)
		var holders []ledger.Holder
		for i := range room.Holds {
			if h := &room.Holds[i]; y.runs[h.Run] != nil { // else kept for one that is to come
				holders = append(holders, ledger.HolderOf(h, y.jobs[h.Job].Project))
			}
		}
		y.cashier.Node(y.now, &n.Node, n.Foreign, holders, y.Lease(n.Lease))
	})
}

// charged adds what was posted to what its job has cost.
func (y *Yard) charged(p *ledger.Posting) {
	if r, ok := y.jobs[p.Job]; ok {
		r.Cost += p.Cost().Dollars()
		y.changedJob(r)
	}
}

// who is on whose account a job runs.
func (r *jobRecord) who() admit.Who { return admit.Who{Owner: r.Owner, Project: r.Project, Job: r.ID} }

func (r *jobRecord) account() cashier.Account {
	return cashier.Account{Who: r.who(), Budget: r.Spec.Budget, Spent: r.Cost - r.Paid}
}

// use tells the books of what a rank holds, or with a minus sign no longer holds.
func (y *Yard) use(r *jobRecord, k *job.Rank, sign float64) {
	n := y.nodes.Of(k.Node)
	if n == nil {
		return
	}
	if sign > 0 {
		k.Hourly = y.cashier.Rate(n, k, y.Lease(n.Lease))
	}
	y.cashier.Limits.Use(y.now, r.who(), n.Class, sign*k.Whole(), sign*k.Hourly)
}

// commit tells the books what a job is expected to spend from now on.
func (y *Yard) commit(r *jobRecord) {
	if r.State.Final() {
		y.cashier.Limits.Done(r.who())
		return
	}
	money, gpuHours := -1.0, -1.0
	if r.running != nil {
		if ends := course.Ends(y.now, r.Spec, &r.run.Run, r.running); !ends.IsZero() {
			hours := max(ends.Sub(y.now), 0).Hours()
			money, gpuHours = 0, hours*r.running.Whole()
			for i := range r.run.Ranks {
				money += r.run.Ranks[i].Hourly * hours
			}
		}
	}
	a := r.account()
	r.committed = true
	y.cashier.Limits.Commit(a.Who, a.Outlay(money, gpuHours))
}

// spending visits the jobs that run on a budget of their own.
func (y *Yard) spending(visit func(a *cashier.Account, hourly float64)) {
	for _, rn := range y.running {
		r := y.jobs[rn.Job]
		if r.Spec.Budget == 0 || r.run == nil {
			continue
		}
		hourly := 0.0
		for i := range r.run.Ranks {
			hourly += r.run.Ranks[i].Hourly
		}
		a := r.account()
		visit(&a, hourly)
	}
}

// budgeted reports whether a job has a budget of its own.
func (y *Yard) budgeted(j id.Job) bool {
	r, ok := y.jobs[j]
	return ok && r.Spec.Budget > 0
}

// saved writes down what a start saved against what the job would have had instead.
func (y *Yard) saved(r *jobRecord, s *place.Start) {
	if s.Saves == 0 {
		return
	}
	y.cashier.Save(ledger.Saving{At: y.now, Job: r.ID, Owner: r.Owner, Project: r.Project, Kind: "place", Money: ledger.NanosOf(s.Saves), Reason: s.Instead})
}
