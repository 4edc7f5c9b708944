// Package calibrate weighs the estimators of a forecast against each other and gives their blend a prediction
// interval, both from how wrong forecasts of finished jobs were. It stands between the estimators (packages
// curve, match and duration) and the forecast that people see; it makes no estimates and replays no jobs itself.
//
// The weights are stacking weights: each method is weighed by the inverse square of its error on finished
// jobs, shrunk towards a prior while there are few. The residuals of the blend are out-of-fold: weights
// are fitted on four of five folds of job groups and the blend is judged on the fifth (Wolpert, "Stacked
// Generalization"; Breiman, "Stacked Regressions").
//
// The intervals are split-conformal prediction intervals of 80 % coverage: order statistics (n+1)·α from each end
// of the calibration residuals, with α = 0.1, on the logarithm of the remaining work (Vovk, Gammerman and
// Shafer, "Algorithmic Learning in a Random World"; Angelopoulos and Bates, "A Gentle Introduction to
// Conformal Prediction and Distribution-Free Uncertainty Quantification"). Residuals are normalised by a
// difficulty estimate ("normalized nonconformity scores") and kept apart by class, kind of job and quarter of
// predicted progress (Mondrian, that is group-conditional, conformal prediction), wherever there are enough
// jobs. α follows the coverage that past intervals had (Gibbs and Candès, "Adaptive Conformal Inference Under
// Distribution Shift").
//
// With fewer than MinJobs finished jobs of a class the interval is a fixed guess and marked as one.
package calibrate

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/job"
	"trainyard/internal/quantile"
)

const (
	// MinJobs is how many finished jobs an interval needs behind it; with fewer it is a guess.
	MinJobs = 20
	// TailProbability is the part of the outcomes that lies beyond each end of an interval: 80 % are covered.
	TailProbability = 0.1
)

// ReplayPoints are the fractions of its work at which a finished job is replayed.
var ReplayPoints = [...]float64{0.2, 0.4, 0.6, 0.8}

// replay is a mark of a finished job, prepared for the arithmetic.
type replay struct {
	job       int // index in the record
	class     int
	quarter   int     // of progress as predicted with the prior weights
	progress  float64 // true fraction of its work that was done
	residuals PerMethod
	noEnd     [NumMethods]bool
	fewPoints bool
	spread    float64
	covered   *bool // whether the interval shown at the time contained the outcome; nil if that was a guess
}

// tally counts how many intervals covered the outcome.
type tally struct{ n, hits int }

func (t tally) rate() float64 {
	if t.n == 0 {
		return 0
	}

	return float64(t.hits) / float64(t.n)
}

func (t *tally) add(hit bool) {
	t.n++
	if hit {
		t.hits++
	}
}

// weightedResidual is a normalised residual of the blend with its weight.
type weightedResidual struct{ residual, weight float64 }

// residualSet is the calibration set of one group of cases.
type residualSet struct {
	residuals []weightedResidual // sorted once the set is complete
	jobs      int
	lastJob   int // number, from 1, of the job that was added last
}

// add adds a residual of a job. The residuals of one job come one after the other.
func (s *residualSet) add(r weightedResidual, job int) {
	s.residuals = append(s.residuals, r)
	if s.lastJob != job+1 {
		s.lastJob = job + 1
		s.jobs++
	}
}

// residualsByQuarter are the residuals of a class, and of the quarters of predicted progress in it. Those of
// jobs with few points stand apart: they would widen the intervals of all others.
type residualsByQuarter struct {
	all     residualSet
	quarter [quarters + 1]residualSet
}

// fewPoints is the index, behind the quarters, of jobs that have just begun.
const fewPoints = quarters

func (s *residualsByQuarter) add(r weightedResidual, job, quarter int) {
	if quarter != fewPoints {
		s.all.add(r, job)
	}

	s.quarter[quarter].add(r, job)
}

func (s *residualsByQuarter) sort() {
	byResidual := func(a, b weightedResidual) int { return cmp.Compare(a.residual, b.residual) }
	slices.SortFunc(s.all.residuals, byResidual)
	for q := range s.quarter {
		slices.SortFunc(s.quarter[q].residuals, byResidual)
	}
}

// kindClass is a kind of job in a class.
type kindClass struct {
	kind  string
	class int
}

// Calibration is what follows from a record: weights, calibration sets and coverage. It does not change.
type Calibration struct {
	expected     *expectedErrors
	classes      [len(classes)]residualsByQuarter
	kinds        map[kindClass]*residualsByQuarter
	coverage     [len(classes) + 1]tally // of intervals shown at the time, by class; the last is all
	replays      []replay
	residuals    []float64 // of the blend at each replay, out of fold
	medianErrors PerMethod // relative; negative if a method has no record
}

// newCalibration fits weights and collects residuals. The residuals of the blend are those that it has with
// weights fitted on the other folds: with weights that had seen the job they would be too small.
func newCalibration(jobs []JobScore) *Calibration {
	c := &Calibration{replays: replaysOf(jobs)}
	c.expected = fitErrors(c.replays)
	c.residuals = make([]float64, len(c.replays))

	fold := make([]int, len(jobs))
	for i := range jobs {
		fold[i] = foldOf(&jobs[i])
	}

	for f := range folds {
		others := slices.DeleteFunc(slices.Clone(c.replays), func(r replay) bool { return fold[r.job] == f })
		fitted := fitErrors(others)
		for i := range c.replays {
			if r := &c.replays[i]; fold[r.job] == f {
				weights := fitted.weights(r.class, r.quarter, &r.residuals)
				c.residuals[i] = weightedMean(&weights, &r.residuals)
			}
		}
	}

	c.collect(jobs)

	for m := range methods {
		c.medianErrors[m] = -1
		if rows := c.methodAccuracy(m); len(rows) > 0 {
			c.medianErrors[m] = rows[0].Median
		}
	}

	return c
}

// MedianError returns the median relative error of a method, negative if it has no record.
func (c *Calibration) MedianError(method int) float64 { return c.medianErrors[method] }

// Coverage returns how often intervals shown for jobs of a class covered the outcome, and of how many.
func (c *Calibration) Coverage(class Class) (rate float64, intervals int) {
	t := c.coverage[classIndex(class)]
	return t.rate(), t.n
}

// replaysOf prepares the marks of jobs. A mark at which no method gave an estimate teaches nothing about
// the blend.
func replaysOf(jobs []JobScore) []replay {
	prior := priorErrors()
	var all []replay
	for i := range jobs {
		for _, mark := range jobs[i].Marks {
			r := mark.replay(i)
			weights := prior.weights(r.class, 0, &r.residuals)
			if answered(&weights) {
				r.quarter = predictedQuarter(r.progress, weightedMean(&weights, &r.residuals))
				all = append(all, r)
			}
		}
	}

	return all
}

func (m *Mark) replay(job int) replay {
	r := replay{
		job:       job,
		class:     classIndex(m.Class),
		progress:  m.Progress,
		residuals: NoEstimates(),
		fewPoints: m.FewPoints,
		spread:    m.Spread,
		covered:   m.Covered,
	}

	for name, residual := range m.Residuals {
		if at := MethodIndex(name); at >= 0 && !math.IsNaN(residual) && !math.IsInf(residual, 0) {
			r.residuals[at] = residual
		}
	}

	for _, name := range m.NoEnd {
		if at := MethodIndex(name); at >= 0 {
			r.noEnd[at] = true
		}
	}

	return r
}

// collect sorts the blend's residuals by class and quarter, over all kinds of jobs and for each kind. Over
// all, a kind of which there are many counts no more than one of which there are just enough: the next job
// that is like none of them may be of any kind.
func (c *Calibration) collect(jobs []JobScore) {
	c.kinds = map[kindClass]*residualsByQuarter{}
	count := map[kindClass]float64{}
	for i := range c.replays {
		count[kindClass{jobs[c.replays[i].job].Kind, c.replays[i].class}]++
	}

	for i := range c.replays {
		r := &c.replays[i]
		key := kindClass{jobs[r.job].Kind, r.class}
		if c.kinds[key] == nil {
			c.kinds[key] = &residualsByQuarter{}
		}

		normalised := c.residuals[i] / difficulty(r.spread)

		quarter := predictedQuarter(r.progress, c.residuals[i])
		if r.fewPoints {
			quarter = fewPoints
		}

		weight := min(1, float64(MinJobs*len(ReplayPoints))/count[key])
		c.kinds[key].add(weightedResidual{normalised, 1}, r.job, quarter)
		c.classes[r.class].add(weightedResidual{normalised, weight}, r.job, quarter)
	}

	for class := range c.classes {
		c.classes[class].sort()
	}

	for _, s := range c.kinds {
		s.sort()
	}

	for i := range jobs {
		for _, mark := range jobs[i].Marks {
			if mark.Covered != nil {
				c.coverage[classIndex(mark.Class)].add(*mark.Covered)
				c.coverage[len(classes)].add(*mark.Covered)
			}
		}
	}
}

// Case is what the methods estimate of one job.
type Case struct {
	Class     Class
	Kind      string    // of the job
	Done      float64   // work that is done
	Estimates PerMethod // logarithm of the work that is left
	Spread    float64   // logarithm of the ratio of the bounds that the methods themselves give; 0 if they give none
	FewPoints bool      // the job has just begun
}

// Blend is the combined estimate of a case.
type Blend struct {
	Left    float64 // work
	Weights PerMethod
	Bounds  Bounds
}

// Blend combines the estimates of a case and returns false if there are none.
func (c *Calibration) Blend(q *Case) (Blend, bool) {
	class := classIndex(q.Class)
	prior := priorErrors().weights(class, 0, &q.Estimates)
	at := q.quarter(math.Exp(weightedMean(&prior, &q.Estimates)))

	weights := c.expected.weights(class, at, &q.Estimates)
	if !answered(&weights) {
		return Blend{}, false
	}

	left := math.Exp(weightedMean(&weights, &q.Estimates))

	at = q.quarter(left)
	if q.FewPoints {
		at = fewPoints
	}

	return Blend{Left: left, Weights: weights, Bounds: c.bounds(class, q.Kind, at, difficulty(q.Spread))}, true
}

// quarter returns the quarter of predicted progress if so much work is left.
func (q *Case) quarter(left float64) int { return quarter(q.Done / (q.Done + left)) }

// Bounds are the ends and the middle of an interval: logarithms of the ratio of the outcome to the estimate.
type Bounds struct {
	Low, Mid, High float64
	Guess          bool // too few finished jobs back it
	Records        int  // how many residuals, or jobs if it is a guess, back it
}

// PriorBounds returns the interval of a class that no record backs.
func PriorBounds(class Class) Bounds {
	half := math.Log(classes[classIndex(class)].width) / 2
	return Bounds{Low: -half, High: half, Guess: true}
}

// Apply returns the band around an estimate.
func (b Bounds) Apply(estimate float64) job.Band {
	return job.Band{
		Low:  estimate * math.Exp(b.Low),
		Mid:  estimate * math.Exp(b.Mid),
		High: estimate * math.Exp(b.High),
	}
}

// difficulty returns by what residuals are normalised: errors grow with the spread of the past jobs that an
// estimate is based on. Intervals are thus narrow where all past jobs agree. Where they give no spread, all
// cases are equally difficult.
func difficulty(spread float64) float64 { return methods[1].prior + spread }

// bounds returns the interval for a job of a class and kind in a quarter of predicted progress. It is taken from
// finished jobs of its kind if there are enough, else from all of its class; from those in the same quarter
// if there are enough. Other classes are wrong in other ways and do not stand in.
func (c *Calibration) bounds(class int, kind string, quarter int, difficulty float64) Bounds {
	from := &c.classes[class]
	if from.all.jobs < MinJobs {
		guess := PriorBounds(classes[class].class)
		guess.Records = from.all.jobs
		return guess
	}

	if own := c.kinds[kindClass{kind, class}]; own != nil && own.all.jobs >= MinJobs {
		from = own
	}

	set := &from.all
	if q := &from.quarter[quarter]; q.jobs >= MinJobs {
		set = q
	}

	low, mid, high := conformalQuantiles(set.residuals, c.tailProbability(class))
	mid *= float64(set.jobs) / float64(set.jobs+MinJobs) // shrunk towards no bias

	return Bounds{
		Low:     difficulty * low,
		Mid:     difficulty * min(max(mid, low), high),
		High:    difficulty * high,
		Records: len(set.residuals),
	}
}

// tailProbability returns the part of the residuals that an interval of a class leaves out at each end. Residuals
// of long ago may have been greater than today's, when there is more to compare a job with. So intervals that
// covered too often are narrowed, and others widened, by as much as they missed 80 %.
func (c *Calibration) tailProbability(class int) float64 {
	n := float64(c.coverage[class].n)
	excess := c.coverage[class].rate() - (1 - 2*TailProbability)
	adapted := TailProbability + excess*n/(n+MinJobs*float64(len(ReplayPoints)))

	return min(max(adapted, TailProbability/2), 2*TailProbability)
}

// ConformalBand returns the median and the split-conformal interval of an amount from sorted amounts that
// are exchangeable with it.
func ConformalBand(sorted []float64) job.Band {
	residuals := make([]weightedResidual, len(sorted))
	for i, amount := range sorted {
		residuals[i] = weightedResidual{amount, 1}
	}

	low, _, high := conformalQuantiles(residuals, TailProbability)

	return job.Band{Low: low, Mid: quantile.Linear(sorted, 0.5), High: high}
}

// conformalQuantiles returns the bounds between which the next residual falls if it is exchangeable with these
// sorted ones, but for the tail probability at each end, and the median. With n residuals of equal weight the
// bounds are the (n+1)·tail-th from each end.
func conformalQuantiles(sorted []weightedResidual, tail float64) (low, mid, high float64) {
	total := 0.0
	for _, r := range sorted {
		total += r.weight
	}

	n := float64(len(sorted))

	// orderStatistic returns the last residual, counted from one end, before the cumulative weight exceeds rank.
	orderStatistic := func(index func(i int) int, rank float64) float64 {
		cumulative := 0.0
		for i := range sorted {
			cumulative += sorted[index(i)].weight
			if cumulative > rank*(1+1e-9) {
				return sorted[index(max(i-1, 0))].residual
			}
		}

		return sorted[index(len(sorted)-1)].residual
	}

	ascending := func(i int) int { return i }
	descending := func(i int) int { return len(sorted) - 1 - i }

	rank := tail * total * (n + 1) / n
	low = orderStatistic(ascending, rank)
	mid = (orderStatistic(ascending, total/2) + orderStatistic(descending, total/2)) / 2
	high = orderStatistic(descending, rank)

	return low, mid, high
}

// table returns the errors of each method and of the blend.
func (c *Calibration) table() []Accuracy {
	var rows []Accuracy
	for m := range methods {
		rows = append(rows, c.methodAccuracy(m)...)
	}

	blend := func(i int) (float64, bool) { return c.residuals[i], false }

	return append(rows, c.accuracy(MethodBlend, blend)...)
}

func (c *Calibration) methodAccuracy(m int) []Accuracy {
	return c.accuracy(methods[m].name, func(i int) (float64, bool) {
		return c.replays[i].residuals[m], c.replays[i].noEnd[m]
	})
}

// accuracy returns the errors of one method, over all replays and by quarter, relative to what was left.
func (c *Calibration) accuracy(name string, of func(i int) (residual float64, noEnd bool)) []Accuracy {
	var errors [quarters + 1][]float64
	var failed [quarters + 1]int
	for i := range c.replays {
		residual, noEnd := of(i)
		q := c.replays[i].quarter + 1
		switch {
		case noEnd:
			failed[0]++
			failed[q]++
		case !math.IsNaN(residual):
			relative := math.Abs(math.Exp(-residual) - 1)
			errors[0] = append(errors[0], relative)
			errors[q] = append(errors[q], relative)
		}
	}

	var rows []Accuracy

	for q, sorted := range errors {
		if len(sorted)+failed[q] == 0 {
			continue
		}

		row := Accuracy{Method: name, Quarter: q, Failed: failed[q], Forecasts: len(sorted) + failed[q]}

		for range failed[q] {
			sorted = append(sorted, math.Exp(noEndPenalty))
		}

		slices.Sort(sorted)
		row.Median = quantile.Linear(sorted, 0.5)
		row.P80 = quantile.Linear(sorted, 0.8)
		rows = append(rows, row)
	}

	return rows
}
