package rules

import (
	"fmt"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// dollars writes an amount of money as people read it.
func dollars(m float64) string {
	if m > 0 && m < 0.01 {
		return "less than $0.01"
	}
	return fmt.Sprintf("$%.2f", m)
}

// clockTime writes a time of day, with the date if it is another day.
func (e *engine) clockTime(d time.Duration) string {
	at := e.view.Now.Add(d).UTC()
	if at.YearDay() == e.view.Now.UTC().YearDay() && at.Year() == e.view.Now.UTC().Year() {
		return at.Format("15:04")
	}
	return at.Format("Jan 2 15:04")
}

// describeOption names what a job would have.
func (e *engine) describeOption(o *option) string {
	if o.provisions() {
		f := o.offer.Offer
		name := f.Name
		if f.GPUs > 0 {
			name = fmt.Sprintf("%s (%d× %s)", f.Name, f.GPUs, f.GPU)
		}
		if o.offer.Nodes > 1 {
			return fmt.Sprintf("%d of %s", o.offer.Nodes, name)
		}
		return name
	}
	names := e.names(o.rooms)
	where := string(names[0])
	if len(names) > 1 {
		where = fmt.Sprintf("%s and %d more", names[0], len(names)-1)
	}
	if g := o.pool.Sample.Node.Inventory.GPUs; len(g) > 0 && o.gpus > 0 {
		return fmt.Sprintf("%d× %s of %s", o.gpus, g[0].Model, where)
	}
	return where
}

// basis is how it is known how long a job takes.
type basis string

// The bases.
const (
	expected basis = "what its owner expects"
	measured basis = "its speed as it was told"
	guessed  basis = "a guess, for nobody said how long it takes"
	learned  basis = "earlier jobs like it"
	forecast basis = "its forecast"
)

// basedOn says how it is known how long a job takes.
func (j *queuedJob) basedOn() string {
	if j.basis == learned {
		return fmt.Sprintf("%d %s", j.samples, learned)
	}
	return string(j.basis)
}

// objective is how a job is called by what it cares about.
func objective(j *queuedJob) string {
	if j.item.Spec == nil {
		return "balanced"
	}
	switch j.item.Spec.Objective {
	case job.ObjectiveTime:
		return "time-sensitive"
	case job.ObjectiveCost:
		return "cost-sensitive"
	case job.ObjectiveBalanced:
	}
	return "balanced"
}

// whyHere says why a job starts where it does.
func (e *engine) whyHere(j *queuedJob, o *option, all []option) string {
	b := strings.Builder{}
	fmt.Fprintf(&b, "%s, %s", e.describeOption(o), classWords(o.pool.Class))
	switch {
	case len(o.stops) > 0:
		why := "which is cost-sensitive and goes on later"
		if !timeSensitive(j) {
			why = "which ran on borrowed GPUs and goes on later"
		}
		fmt.Fprintf(&b, ", made free by %s, %s", o.stops[0].Job, why)
	case e.timeline.Dedicated(o.rooms[0]) == j.item.Job:
		b.WriteString(", hired for it")
	case e.view.Rooms[o.rooms[0]].Node.ID == j.item.Prefer:
		b.WriteString(", where it ran before")
	default:
		b.WriteString(", idle now")
	}
	fmt.Fprintf(&b, "; %s", e.because(j, o, all))
	return b.String()
}

func classWords(c fleet.Class) string {
	switch c {
	case fleet.Local:
		return "a local node"
	case fleet.Reserved:
		return "a reserved node, paid for anyway"
	case fleet.OnDemand:
	}
	return "a hired node"
}

// because says what decided for an option, against the next best.
func (e *engine) because(j *queuedJob, o *option, all []option) string {
	end := fmt.Sprintf("done by %s", e.clockTime(o.done()))
	if o.ledgerCost > 0 {
		end += " for " + dollars(o.ledgerCost)
	}
	if j.costSensitive && !o.provisions() && e.costs.of(o.pool).rent == 0 {
		return end + "; the weakest idle node that will do, because the job is cost-sensitive"
	}
	next := e.nextBest(o, all)
	if next == nil || next.provisions() && !o.provisions() && e.costs.of(o.pool).rent > 0 { // what was hired is compared no more
		return end
	}
	other := "on " + e.describeOption(next)
	switch {
	case next.provisions():
		other = "by hiring " + e.describeOption(next)
	case next.startsIn > 0:
		other = "by waiting for " + e.describeOption(next)
	}
	by := e.clockTime(next.done())
	if next.ledgerCost > 0 {
		by += " for " + dollars(next.ledgerCost)
	}
	return fmt.Sprintf("%s; %s it would be done by %s, and the job is %s", end, other, by, objective(j))
}

func (e *engine) nextBest(o *option, all []option) *option {
	for i := range all {
		if &all[i] != o && all[i].barredBy == "" && (all[i].provisions() || len(o.rooms) == 0 || all[i].pool != o.pool) {
			return &all[i]
		}
	}
	return nil
}

// whyHire says why nodes are hired for a job.
func (e *engine) whyHire(j *queuedJob, o *option) string {
	s := fmt.Sprintf("hires %s: done by %s for about %s", e.describeOption(o), e.clockTime(o.done()), dollars(o.marginalCost))
	if len(e.shapeOf(j).Able) == 0 {
		return s + "; no node of the yard could ever run it"
	}
	return s + "; waiting for a node of the yard would cost more, because the job is " + objective(j)
}

// whyStop says why a job is stopped for another.
func (e *engine) whyStop(j *queuedJob, v *victim, gain float64) string {
	who := "which is time-sensitive and would wait longer"
	if !timeSensitive(j) {
		who = "whose owner is within their limit, while this one runs on borrowed GPUs"
	}
	return fmt.Sprintf("makes room for %s, %s: that is worth %s, and stopping this one costs %s", j.item.Job, who, dollars(gain), dollars(v.loss))
}
