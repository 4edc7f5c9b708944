package forecast

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/match"
	"trainyard/internal/forecast/repeat"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// errNoModel says that there is no model of durations yet.
var errNoModel = fault.New(fault.NotFound, "no_history", "no history yet")

// Case is a job as the estimators see it: on the axis of its work.
type Case struct {
	Job      id.Job // not compared with its own past
	Curve    curve.Curve
	Features history.Features
	Elapsed  float64 // seconds that it has run so far; 0 if unknown
	PerUnit  float64 // seconds that a unit of work takes now; 0 for the mean so far, including start-up
	Done     float64 // work that is done, if that is more than at the last point
	Reported float64 // seconds that remain as the program itself estimates; 0 if it does not
}

// Estimate is what one method says of a case.
type Estimate struct {
	Method string
	Left   float64 // work still to do; +Inf if it predicts no end
	Never  float64 // probability that the goal is not reached
	Weight float64 // in the blend, 0 to 1
	Error  float64 // median relative error on finished jobs; negative if there were none
}

// Answer is what is left of a case, in units of work. A case without points and without a declared total is
// answered in seconds.
type Answer struct {
	Left      job.Band
	Estimates []Estimate // of the methods that gave one; empty if nothing is known
	Never     float64    // probability that the goal is not reached
	Class     calibrate.Class
	Similar   []match.Neighbour // past jobs that it was compared with
	Met       bool              // the goal has been met; what is left is until the program ends
	Guess     bool              // too few finished jobs back the interval
	Records   int               // forecasts of finished jobs that back it
	Covered   float64           // rate at which intervals shown for jobs of its class contained the outcome
	Checked   int               // of how many intervals that is the rate
	Misses    bool              // the goal is not expected: what is left is until the program ends by itself

	done      float64             // work
	logLeft   calibrate.PerMethod // logarithm of each method's estimate
	noEnd     [calibrate.NumMethods]bool
	points    int // of the curve
	fewPoints bool
	spread    float64 // log ratio of the bounds that the estimators themselves give
}

// Known reports whether any method could say how much is left.
func (a *Answer) Known() bool {
	return slices.ContainsFunc(a.Estimates, func(e Estimate) bool { return e.Weight > 0 })
}

// Ask blends the estimates of all methods for a case into one answer.
func Ask(c *Case, l *Library, r *calibrate.Record) Answer {
	return ask(c, l, r, time.Time{})
}

// ask is Ask with the jobs that had finished before a time.
func ask(c *Case, l *Library, r *calibrate.Record, before time.Time) Answer {
	own := *c // the goal may be dropped
	a := Answer{done: own.Elapsed, logLeft: calibrate.NoEstimates()}
	switch n := len(own.Curve.X); {
	case n > 0:
		a.done = max(own.Curve.X[n-1], own.Done)
	case own.Done > 0:
		a.done = own.Done
	}

	if met(&own.Curve) {
		a.Met = true
		own.Curve.Goal = curve.Goal{}
	}

	a.estimate(&own, l, before)

	if a.Class == calibrate.ClassBefore {
		if runs, ok := l.repeated(&own, before); ok {
			a.enterRepeats(&runs, own.Elapsed)
			return a
		}
	}

	a.blend(r.Calibration(), &own)

	return a
}

// askModel is Ask without earlier runs of the same program.
func askModel(c *Case, l *Library, r *calibrate.Record) Answer {
	a := Answer{done: c.Elapsed, logLeft: calibrate.NoEstimates()}
	a.estimate(c, l, time.Time{})
	a.blend(r.Calibration(), c)

	return a
}

// enterRepeats answers by earlier runs of the same job or program, which have intervals of their own.
func (a *Answer) enterRepeats(runs *repeat.Prediction, elapsed float64) {
	s := runs.Seconds
	a.add(calibrate.MethodRepeat, s.Mid-elapsed, 0)
	last := &a.Estimates[len(a.Estimates)-1]
	last.Weight, last.Error = 1, runs.Error
	a.Left = job.Band{Low: max(s.Low-elapsed, 0), Mid: max(s.Mid-elapsed, 0), High: max(s.High-elapsed, 0)}
	a.Guess, a.Records, a.Covered, a.Checked = runs.Guess, runs.Records, runs.Covered, runs.Checked
}

// met reports whether a curve has come to its goal.
func met(c *curve.Curve) bool { return slices.ContainsFunc(c.Y, c.Goal.Met) }

// estimate asks every method that can answer.
func (a *Answer) estimate(c *Case, l *Library, before time.Time) {
	a.points = len(c.Curve.X)
	a.fewPoints = a.points > 0 && a.points < 3
	earliest := 0.0 // no goal is reached before the next point

	if a.points > 1 && c.Curve.Goal.Set {
		last := c.Curve.X[a.points-1]
		gap := last - c.Curve.X[a.points-2]
		earliest = max(last+gap-a.done, gap/10)
	}

	if c.Curve.Total > 0 {
		a.add(calibrate.MethodSteps, max(c.Curve.Total-a.done, 0), 0)
	}

	if m := l.match(c, before); m != nil {
		a.add(calibrate.MethodMatch, max(m.End-a.done, earliest), m.Never)
		a.Similar = m.Neighbours
		// A few jobs that agree may do so by chance.
		a.spread = a.logRatio(m.Low, m.High) * (1 + 2/float64(max(len(m.Neighbours), 1)))
	}

	if a.points > 0 && c.Curve.Goal.Set {
		e := curve.Best(&c.Curve)
		a.add(calibrate.MethodCurve, max(e.End-a.done, earliest), e.Never)

		if len(a.Similar) == 0 {
			a.spread = a.logRatio(e.Low, e.High)
		}
	}

	if c.Elapsed > 0 {
		a.addDuration(c, l)
	}

	if c.Reported > 0 && !(c.Curve.Goal.Set && c.Curve.Total > 0) { // it knows nothing of goals
		if perUnit := a.secondsPerUnit(c); perUnit > 0 {
			a.add(calibrate.MethodReported, c.Reported/perUnit, 0)
		}
	}

	a.Class = a.classOf(c)
}

// addDuration adds the estimate of the duration model, in units of work.
func (a *Answer) addDuration(c *Case, l *Library) {
	d, err := l.duration(c.Features, duration.Progress{Elapsed: c.Elapsed, Done: duration.FractionDone(&c.Curve)})
	if err != nil {
		return
	}

	a.add(calibrate.MethodDuration, (d.Mid-c.Elapsed)/a.secondsPerUnit(c), 0)
}

// secondsPerUnit returns how long a unit of work takes: as measured, or on average so far.
func (a *Answer) secondsPerUnit(c *Case) float64 {
	if c.PerUnit > 0 {
		return c.PerUnit
	}

	return c.Elapsed / a.done
}

// classOf returns what kind of evidence there is about a case.
func (a *Answer) classOf(c *Case) calibrate.Class {
	switch {
	case a.points == 0 && c.Done == 0 && c.Curve.Total == 0 && c.Reported > 0:
		return calibrate.ClassAlone
	case a.points == 0 && c.Done == 0 && c.Curve.Total == 0:
		return calibrate.ClassBefore
	case c.Curve.Total > 0 && !c.Curve.Goal.Set:
		return calibrate.ClassSteps
	case len(a.Similar) > 0:
		return calibrate.ClassLike
	}

	return calibrate.ClassAlone
}

// logRatio returns the logarithm of the ratio of the ends of a method's own interval of what is left; 0 if it gives
// none.
func (a *Answer) logRatio(low, high float64) float64 {
	low, high = max(low-a.done, a.done*1e-4), high-a.done
	if high <= low || math.IsInf(high, 0) {
		return 0
	}

	return math.Log(high / low)
}

// add records the estimate of a method. It is at least a ten-thousandth of what was done: no method can
// know less.
func (a *Answer) add(method string, left, never float64) {
	if math.IsNaN(never) {
		never = 0
	}

	e := Estimate{Method: method, Left: left, Never: min(max(never, 0), 1), Error: -1}

	at := calibrate.MethodIndex(method)
	if math.IsNaN(left) || math.IsInf(left, 1) {
		e.Left = math.Inf(1)
		a.noEnd[at] = true
	} else {
		e.Left = max(left, a.done*1e-4, 0)
		a.logLeft[at] = math.Log(max(e.Left, math.SmallestNonzeroFloat64))
	}

	a.Estimates = append(a.Estimates, e)
}

// blend combines the estimates, if there are any.
func (a *Answer) blend(calibration *calibrate.Calibration, c *Case) {
	bounded := c.Curve.Goal.Set && c.Curve.Total > 0 // the program ends by itself, at the goal or not
	estimates := a.logLeft
	if bounded {
		// The program's end bounds when the goal is reached, but is no estimate of it.
		steps := calibrate.MethodIndex(calibrate.MethodSteps)
		if only(&estimates, steps) {
			a.Class = calibrate.ClassSteps
		} else {
			estimates[steps] = math.NaN()
		}
	}

	if a.Class == calibrate.ClassSteps {
		a.spread = 0 // what other jobs did is no reason to doubt what this one declares
	}

	blend, ok := calibration.Blend(&calibrate.Case{
		Class:     a.Class,
		Kind:      kindOf(&c.Features),
		Done:      a.done,
		Estimates: estimates,
		Spread:    a.spread,
		FewPoints: a.fewPoints,
	})

	if !ok {
		return
	}

	bounds := blend.Bounds
	if bounds.Guess && a.Class == calibrate.ClassAlone { // the first points of a curve say little of how it goes on
		more := math.Log1p(5 / float64(max(a.points, 1)))
		bounds.Low -= more
		bounds.High += more
	}

	a.Left = bounds.Apply(blend.Left)
	a.Guess = bounds.Guess
	a.Records = bounds.Records
	a.Covered, a.Checked = calibration.Coverage(a.Class)

	a.blendNever(&blend.Weights)

	if bounded {
		a.boundBy(max(c.Curve.Total-a.done, 0))
	}

	for i := range a.Estimates {
		at := calibrate.MethodIndex(a.Estimates[i].Method)
		a.Estimates[i].Weight = blend.Weights[at]
		a.Estimates[i].Error = calibration.MedianError(at)
	}
}

// only reports whether one method alone has given an estimate.
func only(estimates *calibrate.PerMethod, at int) bool {
	for m := range estimates {
		if m != at && !math.IsNaN(estimates[m]) {
			return false
		}
	}

	return !math.IsNaN(estimates[at])
}

// blendNever averages the probabilities that the goal is not reached. A method that predicted no end has no
// weight in the blend, but counts here.
func (a *Answer) blendNever(weights *calibrate.PerMethod) {
	const minWeight = 0.05
	total, never := 0.0, 0.0
	for _, e := range a.Estimates {
		if e.Method == calibrate.MethodSteps || e.Method == calibrate.MethodDuration ||
			e.Method == calibrate.MethodReported {
			continue // they know nothing of goals
		}

		weight := max(weights[calibrate.MethodIndex(e.Method)], minWeight)
		total += weight
		never += weight * e.Never
	}

	if total > 0 {
		a.Never = never / total
	}
}

// boundBy bounds the answer by when the program ends by itself, and takes into account that the goal may come
// too late.
func (a *Answer) boundBy(left float64) {
	a.Never = max(a.Never, 1-calibrate.CDF(a.Left, left))
	switch {
	case a.Never >= 0.5:
		// More likely than not it goes on to its own end.
		a.Left.Mid = left
		a.Left.High = left
		a.Misses = true
	case a.Never >= calibrate.TailProbability:
		a.Left.High = left
	}

	a.Left.Low = min(a.Left.Low, left)
	a.Left.High = min(a.Left.High, left)
	a.Left.Mid = max(min(a.Left.Mid, left), a.Left.Low)
}
