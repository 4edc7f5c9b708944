package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
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

// what names what a job would have.
func (e *engine) what(o *option) string {
	if o.hire {
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
	if g := o.stock.Sample.Node.Inventory.GPUs; len(g) > 0 && o.gpus > 0 {
		return fmt.Sprintf("%d× %s of %s", o.gpus, g[0].Model, where)
	}
	return where
}

// basis is how it is known how long a job takes.
type basis string

// The bases.
const (
	expected basis = "what its owner expects"
	told     basis = "its speed as it was told"
	guessed  basis = "a guess, for nobody said how long it takes"
	learned  basis = "earlier jobs like it"
	foreseen basis = "its forecast"
)

// basedOn says how it is known how long a job takes.
func (w *wait) basedOn() string {
	if w.basis == learned {
		return fmt.Sprintf("%d %s", w.of, learned)
	}
	return string(w.basis)
}

// objective is how a job is called by what it cares about.
func objective(w *wait) string {
	if w.it.Spec == nil {
		return "balanced"
	}
	switch w.it.Spec.Objective {
	case job.ObjectiveTime:
		return "time-sensitive"
	case job.ObjectiveCost:
		return "cost-sensitive"
	case job.ObjectiveBalanced:
	}
	return "balanced"
}

// whyHere says why a job starts where it does.
func (e *engine) whyHere(w *wait, o *option, all []option) string {
	b := strings.Builder{}
	fmt.Fprintf(&b, "%s, %s", e.what(o), classWords(o.stock.Class))
	switch {
	case len(o.stops) > 0:
		why := "which is cost-sensitive and goes on later"
		if !hurried(w) {
			why = "which ran on borrowed GPUs and goes on later"
		}
		fmt.Fprintf(&b, ", made free by %s, %s", o.stops[0].Job, why)
	case e.timeline.Dedicated(o.rooms[0]) == w.it.Job:
		b.WriteString(", hired for it")
	case e.view.Rooms[o.rooms[0]].Node.ID == w.it.Prefer:
		b.WriteString(", where it ran before")
	default:
		b.WriteString(", idle now")
	}
	fmt.Fprintf(&b, "; %s", e.because(w, o, all))
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
func (e *engine) because(w *wait, o *option, all []option) string {
	end := fmt.Sprintf("done by %s", e.clockTime(o.done()))
	if o.shown > 0 {
		end += " for " + dollars(o.shown)
	}
	if w.patient && !o.hire && e.costs.of(o.stock).rent == 0 {
		return end + "; the weakest idle node that will do, because the job is cost-sensitive"
	}
	next := e.nextBest(o, all)
	if next == nil || next.hire && !o.hire && e.costs.of(o.stock).rent > 0 { // what was hired is compared no more
		return end
	}
	other := "on " + e.what(next)
	switch {
	case next.hire:
		other = "by hiring " + e.what(next)
	case next.wait > 0:
		other = "by waiting for " + e.what(next)
	}
	by := e.clockTime(next.done())
	if next.shown > 0 {
		by += " for " + dollars(next.shown)
	}
	return fmt.Sprintf("%s; %s it would be done by %s, and the job is %s", end, other, by, objective(w))
}

func (e *engine) nextBest(o *option, all []option) *option {
	for i := range all {
		if &all[i] != o && all[i].bar == "" && (all[i].hire || len(o.rooms) == 0 || all[i].stock != o.stock) {
			return &all[i]
		}
	}
	return nil
}

// whyHire says why nodes are hired for a job.
func (e *engine) whyHire(w *wait, o *option) string {
	s := fmt.Sprintf("hires %s: done by %s for about %s", e.what(o), e.clockTime(o.done()), dollars(o.money))
	if len(e.shapeOf(w).Able) == 0 {
		return s + "; no node of the yard could ever run it"
	}
	return s + "; waiting for a node of the yard would cost more, because the job is " + objective(w)
}

// whyStop says why a job is stopped for another.
func (e *engine) whyStop(w *wait, v *victim, gain float64) string {
	who := "which is time-sensitive and would wait longer"
	if !hurried(w) {
		who = "whose owner is within their limit, while this one runs on borrowed GPUs"
	}
	return fmt.Sprintf("makes room for %s, %s: that is worth %s, and stopping this one costs %s", w.it.Job, who, dollars(gain), dollars(v.loss))
}

// advise turns a job's options into what people are shown.
func (e *engine) advise(w *wait) []place.Option {
	s := e.shapeOf(w)
	w.quick, w.cut = false, false
	options := e.options(w, s)
	taken := e.best(w, options)
	if taken != nil { // it may move when others are added
		chosen := *taken
		options = slices.DeleteFunc(options, func(o option) bool { return o.hire == chosen.hire && o.score == chosen.score })
		options = append([]option{chosen}, append(options, e.others(w, s, &chosen)...)...)
		taken = &options[0]
	}
	var list []place.Option
	for i := range options {
		o := &options[i]
		p := place.Option{
			What: e.what(o), Start: e.view.Now.Add(o.ready), Finish: e.view.Now.Add(o.done()), Cost: o.shown, Basis: w.basedOn(), Count: len(o.rooms),
		}
		p.Earliest, p.Latest = e.interval(w, o)
		p.CostMost = o.shown
		if o.runs > 0 {
			p.CostMost = o.shown * float64(p.Latest.Sub(p.Start)) / float64(o.runs)
		}
		if o.hire {
			p.Class, p.Offer, p.Count = fleet.OnDemand, o.offer.Offer.Name, o.offer.Nodes
		} else {
			p.Class, p.Nodes = o.stock.Class, e.names(o.rooms)
		}
		switch {
		case o == taken:
			p.Verdict = "taken: " + e.because(w, o, options)
		case o.bar != "":
			p.Verdict, p.Barred = "not possible: "+o.bar, o.bar
		case o.hire && w.patient:
			p.Verdict = fmt.Sprintf("only if nothing that is paid for anyway is free within %s: the job is cost-sensitive", job.Duration(e.cfg.Patience))
		case taken != nil && o.done() > taken.done() && o.shown >= taken.shown:
			p.Verdict = "later and no cheaper"
		case taken != nil && o.done() > taken.done():
			p.Verdict = "cheaper, but later"
		case taken != nil:
			p.Verdict = "sooner, but dearer"
		default:
			p.Verdict = "considered"
		}
		list = append(list, p)
		if o == taken {
			list[0], list[len(list)-1] = list[len(list)-1], list[0]
		}
	}
	return list
}

// maxOthers bounds how many offers are shown beside the best.
const maxOthers = 4

// others lists further ways to hire, to be shown.
func (e *engine) others(w *wait, s *shape, taken *option) []option {
	var list []option
	a := e.allowance(w)
	if len(e.view.Offers) == 0 || !fleet.OnDemand.Allows(s.Match.Need.Place) {
		return nil
	}
	for _, h := range e.policy.offers.fit(&s.Match.Need).Best(e.query(w, s)) {
		o := e.hireOption(&h)
		o.bar = barred(a, &o)
		if taken.hire && h.Offer.Name == taken.offer.Offer.Name {
			continue
		}
		e.score(w, &o)
		if list = append(list, o); len(list) == maxOthers {
			break
		}
	}
	return list
}

// interval is in which time the job will be done four times out of five, by what the
// time rests on: what people expect is off by a half and more, a measured speed is not.
func (e *engine) interval(w *wait, o *option) (from, to time.Time) {
	low, high := 0.5, 2.0
	switch {
	case w.high > 0:
		low, high = float64(w.low)/float64(max(w.lasts, 1)), float64(w.high)/float64(max(w.lasts, 1))
	case w.basis == told:
		low, high = 0.85, 1.25
	case w.basis == guessed:
		low, high = 0.05, 12
	}
	start := e.view.Now.Add(o.ready)
	return start.Add(job.Seconds(o.runs.Seconds() * low)), start.Add(job.Seconds(o.runs.Seconds() * high))
}
