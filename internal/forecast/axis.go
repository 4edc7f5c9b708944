package forecast

import (
	"math"
	"slices"
	"strings"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

// view is what the program of a job reports: the curve of the metric that matters, on the axis of work, and how fast
// the
// job is.
type view struct {
	series        *metric.Series // whose curve; nil if there is none
	goal          curve.Goal
	missingMetric string         // metric of the target, if nothing was reported of it yet
	curve         curve.Curve    // on the axis of work
	reportedAt    []float64      // time of each of its points, in seconds of Unix time
	marks         []metric.Point // work done by time, as densely as it is known
	paces         []pace         // of each stretch, by the marks
	steps         bool           // work is counted in the program's steps, not in units of its own
}

// newView chooses the metric and converts its points to work.
func newView(in *Input) *view {
	v := &view{steps: true}
	v.chooseMetric(in)

	toWork := v.axis(in)
	if v.series != nil {
		for _, p := range v.series.Points {
			x := toWork(p.Step)
			if n := len(v.curve.X); x > 0 && (n == 0 || x > v.curve.X[n-1]) && !math.IsInf(p.Value, 0) && !math.IsNaN(p.Value) {
				v.curve.X, v.curve.Y, v.reportedAt = append(v.curve.X, x), append(v.curve.Y, p.Value), append(v.reportedAt, p.At)
			}
		}
	}

	v.curve.Goal = v.goal
	v.collectMarks(in, toWork)

	if done, _ := v.done(); done > v.curve.Total*1.001 {
		v.curve.Total = 0 // it has done more than it declared
	}

	v.paces = paces(v.marks, in.Runs)

	return v
}

// chooseMetric picks the metric: that of the target, or else the one that looks most like a
// validation loss.
func (v *view) chooseMetric(in *Input) {
	if t := in.Job.Spec.Target; t != nil {
		switch {
		case t.AtMost != nil:
			v.goal = curve.Goal{Value: *t.AtMost, Set: true}
		case t.AtLeast != nil:
			v.goal = curve.Goal{Value: *t.AtLeast, Rising: true, Set: true}
		}

		v.series = findSeries(in.Series, t.Metric)
		if v.series != nil {
			return
		}

		v.missingMetric, v.goal = t.Metric, curve.Goal{}
	}

	best := 0
	for i := range in.Series {
		s := &in.Series[i]
		rank := lossLike(s.Name)
		if rank == 0 || len(s.Points) == 0 {
			continue
		}

		if v.series == nil || rank > best || rank == best && s.Name < v.series.Name {
			v.series, best = s, rank
		}
	}
}

// findSeries returns the series that a target means: of the very name, of the same words, or
// of a name that ends with them.
func findSeries(all []metric.Series, name string) *metric.Series {
	for _, alike := range []func(string) bool{
		func(s string) bool { return s == name },
		func(s string) bool { return plainMetric(s) == plainMetric(name) },
		func(s string) bool { return strings.HasSuffix(plainMetric(s), "_"+plainMetric(name)) },
	} {
		at := slices.IndexFunc(all, func(s metric.Series) bool { return len(s.Points) > 0 && alike(s.Name) })
		if at >= 0 {
			return &all[at]
		}
	}

	return nil
}

// plainMetric returns a name as val_loss for Val/Loss.
func plainMetric(name string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("/.- :", c) {
			return '_'
		}

		return c
	}, strings.ToLower(name))
}

// lossLike ranks the name of a metric by how much it looks like what training lowers: 0
// if not at all.
func lossLike(name string) int {
	name = plainMetric(name)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(name, p) })
	}
	validation := has("val", "eval", "test", "dev")
	switch {
	case has("loss") && validation:
		return 4
	case has("perplexity", "ppl", "error", "wer", "rmse", "mae") && validation:
		return 3
	case name == "loss":
		return 2
	case has("loss", "perplexity", "ppl"):
		return 1
	}

	return 0
}

// axis returns how steps turn into work. A program that says how much it has done in units
// of its own, samples perhaps, is believed: its steps may come to mean more
// when it gets more GPUs. Otherwise a step is a unit. It also settles the total.
func (v *view) axis(in *Input) func(float64) float64 {
	same := func(step float64) float64 { return step }
	t := &in.Progress
	v.curve.Total = t.Total
	if v.curve.Total == 0 && t.Done > 0 && in.Speed != nil {
		v.curve.Total = in.Speed.Work
	}

	points := densest(in.Series, v.series)
	if t.Done <= 0 || len(points) == 0 {
		return same
	}

	var from, to []float64
	for _, m := range append(slices.Clip(t.Marks), metric.Point{Step: t.Done, At: unix(t.At)}) {
		step := stepAt(points, m.At)
		if n := len(from); step > 0 && m.Step > 0 && (n == 0 || step > from[n-1] && m.Step > to[n-1]) {
			from, to = append(from, step), append(to, m.Step)
		}
	}

	if len(from) == 0 {
		return same
	}
	if last := len(from) - 1; math.Abs(to[last]/from[last]-1) < 0.1 {
		return same
	}

	v.steps = false

	return func(step float64) float64 {
		i, _ := slices.BinarySearch(from, step)
		switch {
		case i == 0:
			return step * to[0] / from[0]
		case i == len(from):
			if i == 1 {
				return step * to[0] / from[0]
			}

			return to[i-1] + (step-from[i-1])*(to[i-1]-to[i-2])/(from[i-1]-from[i-2])
		}

		return to[i-1] + (step-from[i-1])*(to[i]-to[i-1])/(from[i]-from[i-1])
	}
}

// stepAt returns the step that a program was at, by the points around that time.
func stepAt(points []metric.Point, at float64) float64 {
	i, _ := slices.BinarySearchFunc(points, at, func(p metric.Point, t float64) int {
		if p.At < t {
			return -1
		}

		return 1
	})

	switch {
	case i == len(points):
		return points[i-1].Step
	case i == 0:
		return points[0].Step
	}

	a, b := points[i-1], points[i]
	if b.At <= a.At {
		return b.Step
	}

	return a.Step + (b.Step-a.Step)*(at-a.At)/(b.At-a.At)
}

// densest returns the points of the series with most of them that counts the same steps
// as the one whose curve is looked at, or any if there is none.
func densest(all []metric.Series, like *metric.Series) []metric.Point {
	var best []metric.Point
	if like != nil {
		best = like.Points
	}

	for i := range all {
		if p := all[i].Points; len(p) > len(best) && (like == nil || sameSteps(like.Points, p)) {
			best = p
		}
	}

	return best
}

// sameSteps reports whether two series count alike: where the first was last heard, the
// other is within a tenth of it.
func sameSteps(a, b []metric.Point) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}

	last := a[len(a)-1]

	return last.Step > 0 && math.Abs(stepAt(b, last.At)/last.Step-1) < 0.1
}

// collectMarks takes down how much was done when: by the densest series, and by what the program
// told if that is all there is.
func (v *view) collectMarks(in *Input, toWork func(float64) float64) {
	for _, p := range densest(in.Series, v.series) {
		v.addMark(toWork(p.Step), p.At)
	}

	// Of metrics whose steps do not advance, only the progress tells when how much was done.
	if len(v.marks) == 1 && len(in.Progress.Marks) > 1 {
		v.marks = nil
	}

	if len(v.marks) > 0 {
		if t := &in.Progress; !t.At.IsZero() {
			v.addMark(t.Done, unix(t.At))
		}

		return
	}

	for _, m := range in.Progress.Marks {
		v.addMark(m.Step, m.At)
	}

	if t := &in.Progress; t.Done > 0 {
		v.steps = false
		v.addMark(t.Done, unix(t.At))
	}
}

// addMark adds a mark that is later than the last in both work and time.
func (v *view) addMark(work, at float64) {
	if math.IsNaN(work) || math.IsInf(work, 0) || work < 0 || math.IsNaN(at) || math.IsInf(at, 0) {
		return
	}

	if n := len(v.marks); n == 0 || work > v.marks[n-1].Step && at >= v.marks[n-1].At {
		v.marks = append(v.marks, metric.Point{Step: work, At: at})
	}
}

// done returns how much work is done, and when that was known.
func (v *view) done() (work, at float64) {
	if n := len(v.marks); n > 0 {
		return v.marks[n-1].Step, v.marks[n-1].At
	}

	return 0, 0
}

// unit names the unit of work for people.
func (v *view) unit() string {
	if v.steps {
		return "steps"
	}

	return "units"
}

// targetOf returns the target as a sentence has it: "val_loss at most 0.35".
func targetOf(t *job.Target) string {
	if t.AtLeast != nil {
		return t.Metric + " at least " + number(*t.AtLeast)
	}
	if t.AtMost != nil {
		return t.Metric + " at most " + number(*t.AtMost)
	}

	return t.Metric
}
