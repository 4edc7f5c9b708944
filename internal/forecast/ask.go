package forecast

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/match"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// errNoModel says that durations were not learned yet.
var errNoModel = fault.New(fault.NotFound, "no_history", "no history yet")

// Case is a job as the methods see it: on the axis of its work.
type Case struct {
	Job      id.Job // not compared with its own past
	Curve    curve.Curve
	Features history.Features
	Elapsed  float64 // seconds that it has run so far; 0 if that is not known
	PerUnit  float64 // seconds that a unit of work takes now; 0 to take the mean so far, with its loading
	Done     float64 // work that is done, if that is more than at the last point
}

// Say is what one method says of a case.
type Say struct {
	Method string
	Left   float64 // work still to do; +Inf if it sees no end
	Never  float64 // how likely the goal is not reached
	Weight float64 // of the blend, 0 to 1
	Error  float64 // its median relative error on finished jobs; negative if there were none
}

// Answer is what is left of a case, in units of work. A case without points and without a
// declared total is answered in seconds.
type Answer struct {
	Left    job.Band
	Says    []Say // those that could say something; empty if nothing is known
	Never   float64
	Class   Class
	Like    []match.Like // past jobs it was compared with
	Met     bool         // the goal was met before; what is left is until the program ends
	Guess   bool         // the interval is not backed by enough finished jobs
	Records int          // forecasts of finished jobs that back it
	Covered float64      // share of intervals shown for jobs of its class that held
	Checked int          // of how many that is a share
	Fall    bool         // the goal is not expected: what is left is until the program ends by itself
	x       float64      // work done
	said    logs
	blind   [count]bool
	points  int // of the curve
	few     bool
	wide    float64
}

// Known reports whether any method could say how much is left.
func (a *Answer) Known() bool {
	for _, s := range a.Says {
		if s.Weight > 0 {
			return true
		}
	}
	return false
}

// Ask blends what all methods say of a case into one answer.
func Ask(c *Case, l *Library, r *Record) Answer {
	return ask(c, l, r, time.Time{})
}

// ask is Ask with the finished jobs of a time.
func ask(c *Case, l *Library, r *Record, before time.Time) Answer {
	own := *c // the goal may be dropped
	a := Answer{x: own.Elapsed, said: noLogs()}
	switch n := len(own.Curve.X); {
	case n > 0:
		a.x = max(own.Curve.X[n-1], own.Done)
	case own.Done > 0:
		a.x = own.Done
	}
	if met(&own.Curve) {
		a.Met, own.Curve.Goal = true, curve.Goal{}
	}
	a.hear(&own, l, before)
	a.weigh(r.rules(), &own)
	return a
}

// met reports whether a curve has come to its goal.
func met(c *curve.Curve) bool { return slices.ContainsFunc(c.Y, c.Goal.Met) }

// hear asks every method that can answer.
func (a *Answer) hear(c *Case, l *Library, before time.Time) {
	points := len(c.Curve.X)
	a.points, a.few = points, points > 0 && points < 3
	soonest := 0.0 // no goal is reached before the next point
	if points > 1 && c.Curve.Goal.Set {
		gap := c.Curve.X[points-1] - c.Curve.X[points-2]
		soonest = max(c.Curve.X[points-1]+gap-a.x, gap/10)
	}
	if c.Curve.Total > 0 {
		a.say(MethodSteps, max(c.Curve.Total-a.x, 0), 0)
	}
	if m := l.match(c, before); m != nil {
		a.say(MethodMatch, max(m.End-a.x, soonest), m.Never)
		// A few jobs that agree may do so by chance.
		a.Like, a.wide = m.Like, a.apart(m.Low, m.High)*(1+2/float64(max(len(m.Like), 1)))
	}
	if points > 0 && c.Curve.Goal.Set {
		e := curve.Best(&c.Curve)
		a.say(MethodCurve, max(e.End-a.x, soonest), e.Never)
		if len(a.Like) == 0 {
			a.wide = a.apart(e.Low, e.High)
		}
	}
	if c.Elapsed > 0 {
		if d, err := l.duration(c.Features, duration.Progress{Elapsed: c.Elapsed, Done: duration.Way(&c.Curve)}); err == nil {
			perUnit := c.PerUnit
			if perUnit <= 0 {
				perUnit = c.Elapsed / a.x
			}
			a.say(MethodDuration, (d.Mid-c.Elapsed)/perUnit, 0)
		}
	}
	a.Class = ClassAlone
	switch {
	case points == 0 && c.Done == 0 && c.Curve.Total == 0:
		a.Class = ClassBefore
	case c.Curve.Total > 0 && !c.Curve.Goal.Set:
		a.Class = ClassSteps
	case len(a.Like) > 0:
		a.Class = ClassLike
	}
}

// apart returns how far the ends of a method's own interval are from each other, as a
// logarithm of what is left; 0 if it gives none.
func (a *Answer) apart(low, high float64) float64 {
	low, high = max(low-a.x, a.x*1e-4), high-a.x
	if high <= low || math.IsInf(high, 0) {
		return 0
	}
	return math.Log(high / low)
}

// say takes down what a method says. Nothing is left for less than a ten-thousandth of
// what was done: a method that says so cannot know it.
func (a *Answer) say(method string, left, never float64) {
	if math.IsNaN(never) {
		never = 0
	}
	s := Say{Method: method, Left: left, Never: min(max(never, 0), 1), Error: -1}
	at := methodAt(method)
	if math.IsNaN(left) || math.IsInf(left, 1) {
		s.Left = math.Inf(1)
		a.blind[at] = true
	} else {
		s.Left = max(left, a.x*1e-4, 0)
		a.said[at] = math.Log(max(s.Left, math.SmallestNonzeroFloat64))
	}
	a.Says = append(a.Says, s)
}

// weigh blends what was said, if anything was.
func (a *Answer) weigh(r *rule, c *Case) {
	goal, total, kind := c.Curve.Goal.Set, c.Curve.Total, kindOf(&c.Features)
	left := math.Inf(1) // until the program ends by itself
	if total > 0 {
		left = max(total-a.x, 0)
	}
	said := a.said
	if goal && total > 0 {
		// The program's end bounds when the goal is reached, but does not tell it.
		steps := methodAt(MethodSteps)
		if only(&said, steps) {
			a.Class = ClassSteps
		} else {
			said[steps] = math.NaN()
		}
	}
	if a.Class == ClassSteps {
		a.wide = 0 // what other jobs did is no reason to doubt what this one says
	}
	class := classAt(a.Class)
	w := r.beliefs.weights(class, a.quarter(firstBeliefs(), class, &said), &said)
	if sum(w[:]) == 0 {
		return
	}
	mid := math.Exp(mix(&w, &said))
	where := quarter(a.x / (a.x + mid))
	if a.few {
		where = begun
	}
	b := r.bounds(class, kind, where, doubt(a.wide))
	if b.guess && a.Class == ClassAlone { // the first points of a curve say little of how it goes on
		more := math.Log1p(5 / float64(max(a.points, 1)))
		b.low, b.high = b.low-more, b.high+more
	}
	a.Left, a.Guess, a.Records = b.apply(mid), b.guess, b.records
	a.Covered, a.Checked = r.held[class].share(), r.held[class].n
	a.never(&w)
	if goal && total > 0 {
		a.endBy(left)
	}
	for i := range a.Says {
		at := methodAt(a.Says[i].Method)
		a.Says[i].Weight = w[at]
		a.Says[i].Error = r.errorOf(at)
	}
}

// only reports whether a method alone has answered.
func only(said *logs, at int) bool {
	for m := range said {
		if m != at && !math.IsNaN(said[m]) {
			return false
		}
	}
	return !math.IsNaN(said[at])
}

// quarter returns the quarter of the way that the job is in, as far as beliefs tell.
func (a *Answer) quarter(b *beliefs, class int, said *logs) int {
	w := b.weights(class, 0, said)
	return quarter(a.x / (a.x + math.Exp(mix(&w, said))))
}

// never blends how likely the methods think that the goal is not reached. One that saw
// no end counts as much as the one that counts least.
func (a *Answer) never(w *logs) {
	all, never := 0.0, 0.0
	for _, s := range a.Says {
		if s.Method == MethodSteps || s.Method == MethodDuration {
			continue // they know nothing of goals
		}
		weight := max(w[methodAt(s.Method)], 0.05)
		all += weight
		never += weight * s.Never
	}
	if all > 0 {
		a.Never = never / all
	}
}

// endBy bounds the answer by when the program ends by itself, and takes into account
// that the goal may come too late.
func (a *Answer) endBy(left float64) {
	a.Never = max(a.Never, 1-below(a.Left, left))
	switch {
	case a.Never >= 0.5:
		// More likely than not it goes on to its own end.
		a.Left.Mid, a.Left.High, a.Fall = left, left, true
	case a.Never >= tail:
		a.Left.High = left
	}
	a.Left.Low, a.Left.Mid, a.Left.High = min(a.Left.Low, left), min(a.Left.Mid, left), min(a.Left.High, left)
	a.Left.Mid = max(a.Left.Mid, a.Left.Low)
}
