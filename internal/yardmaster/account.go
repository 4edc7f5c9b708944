package yardmaster

import (
	"math/bits"
	"time"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
)

// touch remembers that a node's meter has to be read.
func (y *Yard) touch(n id.Node) {
	if !y.cfg.Unmetered {
		y.touched[n] = true
	}
}

// account reads the meters of the nodes that something changed on.
func (y *Yard) account() {
	for _, name := range sortedKeys(y.touched) {
		n, ok := y.nodes[name]
		if !ok || n.State == fleet.Removed {
			y.books.Gone(y.now, name)
			continue
		}
		room, _ := y.table.Get(name)
		var holders []ledger.Holder
		for i := range room.Holds {
			if h := &room.Holds[i]; y.runs[h.Run] != nil { // else kept for one that is to come
				holders = append(holders, ledger.HolderOf(h, y.jobs[h.Job].Project))
			}
		}
		y.books.Node(y.now, &n.Node, n.foreign, holders, y.Lease(n.Lease))
	}
	clear(y.touched)
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

// use tells the books of what a rank holds, or with a minus sign no longer holds.
func (y *Yard) use(r *jobRecord, k *job.Rank, sign float64) {
	n, ok := y.nodes[k.Node]
	if !ok {
		return
	}
	gpus := k.Whole()
	if sign > 0 {
		k.Hourly = y.books.Rate(&n.Node, k, y.Lease(n.Lease))
	}
	y.books.Limits.Use(y.now, r.who(), n.Class, sign*gpus, sign*k.Hourly)
}

// commit tells the books what a job is expected to spend from now on.
func (y *Yard) commit(r *jobRecord) {
	if r.State.Final() {
		y.books.Limits.Done(r.who())
		return
	}
	o := admit.Outlay{Money: -1, GPUHours: -1, Budget: r.Spec.Budget, Spent: r.Cost - r.Paid}
	if r.running == nil {
		y.books.Limits.Commit(r.who(), o)
		return
	}
	if ends := y.ends(r, r.run); !ends.IsZero() {
		hours := max(ends.Sub(y.now), 0).Hours()
		o.Money, o.GPUHours = 0, hours*r.running.Whole()
		for i := range r.run.Ranks {
			o.Money += r.run.Ranks[i].Hourly * hours
		}
	}
	y.books.Limits.Commit(r.who(), o)
}

// bookEvery is how often budgets are looked at.
const bookEvery = time.Minute

// keepBooks lets time pass for the books: hours are posted, budgets are watched.
func (y *Yard) keepBooks() {
	if y.cfg.Unmetered {
		return
	}
	y.drop(y.booked)
	y.booked = y.after(y.nextLook(), func(y *Yard) {
		y.books.Roll(y.now)
		if y.limited() {
			y.books.Settle(y.now, y.watched)
			for _, a := range y.books.Limits.Alerts(y.now) {
				y.alert(&a)
			}
			y.letBack()
		}
		y.keepBooks()
	})
}

// nextLook returns when the books are to be looked at: on the next full minute, or
// when a budget will be used up if that is sooner.
func (y *Yard) nextLook() time.Time {
	next := y.now.Truncate(bookEvery).Add(bookEvery)
	if !y.limited() {
		return next
	}
	sooner := func(at time.Time) {
		if at = at.Add(time.Second); !at.Before(y.now) && at.Before(next) {
			next = at
		}
	}
	for _, s := range y.books.Limits.Forecast(y.now) {
		for _, c := range []admit.Course{s.Money, s.GPUHours} {
			if c.UsedUp.After(y.now) {
				sooner(c.UsedUp)
			}
		}
	}
	for _, rn := range y.running {
		r := y.jobs[rn.Job]
		if r.Spec.Budget == 0 || r.run == nil {
			continue
		}
		hourly := 0.0
		for i := range r.run.Ranks {
			hourly += r.run.Ranks[i].Hourly
		}
		if left := float64(r.Spec.Budget)/1e6 - (r.Cost - r.Paid); hourly > 0 && left > 0 {
			sooner(y.now.Add(job.Seconds(left / hourly * 3600)))
		}
	}
	return next
}

// watched reports whether someone who holds a node, or for whom it was hired, has a limit.
func (y *Yard) watched(s *ledger.State) bool {
	limited := func(w admit.Who, j id.Job) bool {
		r, ok := y.jobs[j]
		return ok && r.Spec.Budget > 0 || y.books.Limits.Binds(w)
	}
	if limited(admit.Who{Owner: s.Owner, Project: s.Project}, s.Job) {
		return true
	}
	for i := range s.Holders {
		h := &s.Holders[i]
		if limited(admit.Who{Owner: h.Owner, Project: h.Project}, h.Job) {
			return true
		}
	}
	return false
}

// saved writes down what a start saved against what the job would have had instead.
func (y *Yard) saved(r *jobRecord, s *place.Start) {
	if s.Saves == 0 {
		return
	}
	y.books.Save(ledger.Saving{At: y.now, Job: r.ID, Owner: r.Owner, Project: r.Project, Kind: "place", Money: ledger.NanosOf(s.Saves), Reason: s.Instead})
}

func count64(set uint64) int { return bits.OnesCount64(set) }
