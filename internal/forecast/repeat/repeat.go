// Package repeat predicts how long a job takes in all from earlier runs of the same job, or else of the same program
// with other arguments. It is the estimator of a forecast that answers first, before the program has reported
// anything: most jobs are repetitions.
//
// Past jobs are compared at five levels, from the very same job to jobs that share no more than a name; the narrowest
// level with a past job answers. At the wider levels numbers among the arguments count: if past durations follow one
// of them, so does the prediction, and one far outside of what was seen is refused.
//
// Intervals are split-conformal. Every past job is predicted from those that had ended when it was submitted;
// the errors of its level are the calibration set (Prediction.Guess until there are enough of them). Errors of jobs of
// about the same length count most, so that many short jobs do not shape the intervals of long ones. The package is
// pure.
package repeat

import (
	"maps"
	"math"
	"slices"
	"time"

	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Level is how close past jobs are to the one that is predicted.
type Level int

// The levels, the narrowest first.
const (
	SameJob     Level = iota // command, parameters, files and resources are the same
	SameCommand              // of the same owner, with the same command, name and number of GPUs
	SameProgram              // of the same owner and name, with other arguments
	SameScript               // the same script under the same name, whoever runs it
	SameName                 // the same name, and nobody knows what was run
	numLevels
)

const (
	maxRuns   = 25  // past jobs that a prediction is based on: the newest
	maxErrors = 500 // errors that an interval is based on: the newest
	minErrors = 20  // errors that an interval needs; with fewer it is a guess
	fewRuns   = 3   // with fewer past jobs it is not known how much they differ
	// overhead is the seconds that any job takes to start and to end. Durations are compared with it added, because
	// of two jobs of less than a second neither is twice as long as the other in a way that matters.
	overhead = 5.0
	tail     = 0.1 // of the outcomes lie beyond each end of an interval
)

// priorDeviation is the half-width of an interval that no errors back, as a logarithm: factors of 1.5, 2 and 4.
var priorDeviation = [numLevels]float64{math.Log(1.5), math.Log(2), math.Log(4), math.Log(4), math.Log(4)}

// Query is a job to be predicted.
type Query struct {
	Job      id.Job // not compared with itself
	Features history.Features
	Elapsed  float64                  // seconds that it has run
	Before   time.Time                // only jobs that had ended by then; zero means all
	Skip     func(*history.Past) bool // further past jobs to leave out; nil leaves none out
}

// Prediction is how long a job takes in all.
type Prediction struct {
	Seconds job.Band
	Level   Level
	Runs    int     // past jobs that it is based on
	Guess   bool    // too few errors back the interval
	Records int     // errors that back it
	Error   float64 // median relative error of such predictions; negative if there were none
	Covered float64 // rate at which such intervals contained the outcome
	Checked int     // of how many intervals that is the rate
}

// Index is past jobs by what they have in common. It is immutable and safe for concurrent use. A nil Index is empty.
type Index struct {
	groups [numLevels]map[string][]*run
	errors [numLevels][2][]outcome // by level, and whether there were few runs to predict from
}

// run is a past job, prepared for comparison.
type run struct {
	past      *history.Past
	keys      [numLevels]string
	log       float64 // of its duration and the overhead
	arguments map[string]float64
}

// outcome is how wrong the prediction of a past job was.
type outcome struct {
	at       time.Time // when it ended
	residual float64   // actual less predicted logarithm, by the difficulty
	log      float64   // predicted
	relative float64   // error, relative to the duration
	checked  bool      // its interval was no guess
	covered  bool
}

// estimate is a predicted logarithm with what its error depends on.
type estimate struct {
	level      Level
	runs       []*run
	log        float64
	difficulty float64
	few        bool
	own        []float64 // residuals of the runs themselves
}

// New prepares past jobs, in any order, which must not be changed afterwards.
func New(past []history.Past) *Index {
	x := &Index{}
	for level := range x.groups {
		x.groups[level] = map[string][]*run{}
	}

	x.extend(past)

	return x
}

// With returns an index with further past jobs. The original does not change.
func (x *Index) With(past []history.Past) *Index {
	c := *x
	for level := range c.groups {
		c.groups[level] = maps.Clone(c.groups[level])
		for key, group := range c.groups[level] {
			c.groups[level][key] = slices.Clip(group) // what is appended goes elsewhere
		}

		for i := range c.errors[level] {
			c.errors[level][i] = slices.Clip(c.errors[level][i])
		}
	}

	c.extend(past)

	return &c
}

// extend adds past jobs in the order of their ends. Each is first predicted from those that had ended when it was
// submitted.
func (x *Index) extend(past []history.Past) {
	var runs []*run

	for i := range past {
		p := &past[i]
		if p.Seconds <= 0 || math.IsInf(p.Seconds, 0) || math.IsNaN(p.Seconds) {
			continue
		}

		runs = append(runs, &run{
			past: p, keys: keysOf(&p.Features), log: math.Log(p.Seconds + overhead), arguments: arguments(&p.Features),
		})
	}

	slices.SortStableFunc(runs, func(a, b *run) int { return history.Compare(b.past, a.past) })

	for _, r := range runs {
		if !r.past.Finished.IsZero() {
			x.check(r)
		}

		x.add(r)
	}
}

// check predicts a past job as it was when it was submitted, and records how wrong that is.
func (x *Index) check(r *run) {
	submitted := r.past.Finished.Add(-job.Seconds(r.past.Seconds + max(r.past.Wait, 0)))
	q := &Query{Job: r.past.Job, Features: r.past.Features, Before: submitted}

	e, ok := x.estimate(q, &r.keys, r.arguments)
	if !ok {
		return
	}

	p, ok := x.interval(&e, q)
	if !ok {
		return
	}

	seconds := r.past.Seconds
	bucket := &x.errors[e.level][index(e.few)]
	*bucket = append(*bucket, outcome{
		at:       r.past.Finished,
		residual: (r.log - e.log) / e.difficulty,
		log:      e.log,
		relative: math.Abs(p.Seconds.Mid-seconds) / seconds,
		checked:  !p.Guess,
		covered:  p.Seconds.Low <= seconds && seconds <= p.Seconds.High,
	})
}

// add adds a past job to the groups that it belongs to. One whose command is known is not known by its name alone.
func (x *Index) add(r *run) {
	for level, key := range r.keys {
		if key == "" || Level(level) == SameName && r.past.Features.Command != "" {
			continue
		}

		x.groups[level][key] = append(x.groups[level][key], r)
	}
}

func index(yes bool) int {
	if yes {
		return 1
	}

	return 0
}

// Predict returns how long a job takes in all. It returns false if no past job is like it, or if it has run longer than
// all of those; the prediction then has the level and the number of past jobs in the latter case, and no runs in the
// former.
func (x *Index) Predict(q *Query) (Prediction, bool) {
	if x == nil {
		return Prediction{}, false
	}

	keys := keysOf(&q.Features)

	e, ok := x.estimate(q, &keys, arguments(&q.Features))
	if !ok {
		return Prediction{}, false
	}

	return x.interval(&e, q)
}

// estimate returns the estimate of the narrowest level that has one.
func (x *Index) estimate(q *Query, keys *[numLevels]string, arguments map[string]float64) (estimate, bool) {
	for level, key := range keys {
		if key == "" {
			continue
		}

		runs := candidates(x.groups[level][key], q)
		if len(runs) == 0 {
			continue
		}

		if e, ok := fit(Level(level), runs, arguments); ok {
			return e, true
		}
	}

	return estimate{}, false
}

// candidates returns the newest past jobs that a job may be compared with, the newest first: those on the same model of
// GPU, if there are any.
func candidates(group []*run, q *Query) []*run {
	var same, all []*run
	for _, r := range slices.Backward(group) {
		p := r.past
		switch {
		case p.Job == q.Job && q.Job != "",
			!q.Before.IsZero() && !p.Finished.Before(q.Before),
			q.Skip != nil && q.Skip(p):
			continue
		}

		if q.Features.GPU != "" && p.Features.GPU == q.Features.GPU {
			same = append(same, r)
		}

		all = append(all, r)
		if len(same) == maxRuns || len(all) == 4*maxRuns {
			break
		}
	}

	if len(same) > 0 {
		return same
	}

	return all[:min(len(all), maxRuns)]
}
