package forecast

import (
	"math"
	"slices"
	"strings"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/metric"
)

// Score replays a finished job: what would have been forecast when a fraction of its work was done, with the
// points reported by then and the jobs that had finished before it. The record is the one of that time too, so that
// coverage is measured on intervals made before the outcome was known. Of two jobs without a time of their end
// neither is before the other; then the library must leave out what the job may not see.
func Score(p *history.Past, before *Library, r *calibrate.Record) calibrate.JobScore {
	s := calibrate.JobScore{Job: p.Job, Group: p.Group, Kind: kindOf(&p.Features), Finished: p.Finished}

	if before != nil && before.model != nil && !p.Finished.IsZero() && !before.model.Newest.Before(p.Finished) {
		untrained := *before // the model has learned from this very job, or later ones
		untrained.model = nil
		before = &untrained
	}

	for _, fraction := range calibrate.ReplayPoints {
		if m, ok := scoreAt(p, fraction, before, r); ok {
			s.Marks = append(s.Marks, m)
		}
	}

	return s
}

// scoreAt replays a job at a fraction of its work.
func scoreAt(p *history.Past, fraction float64, l *Library, r *calibrate.Record) (calibrate.Mark, bool) {
	c, left, ok := cutAt(p, fraction)
	if !ok {
		return calibrate.Mark{}, false
	}

	a := ask(&c, l, r, p.Finished)
	m := calibrate.Mark{
		Progress:  a.done / (a.done + left),
		Class:     a.Class,
		Residuals: map[string]float64{},
		FewPoints: a.fewPoints,
		Spread:    a.spread,
	}

	for at, estimate := range a.logLeft {
		name := calibrate.MethodName(at)
		switch {
		case a.noEnd[at]:
			m.NoEnd = append(m.NoEnd, name)
		case !math.IsNaN(estimate):
			if c.Curve.Goal.Set && c.Curve.Total > 0 {
				if name == calibrate.MethodSteps && a.Class != calibrate.ClassSteps {
					continue // it bounded the others and was no estimate
				}

				estimate = min(estimate, math.Log(max(c.Curve.Total-a.done, math.SmallestNonzeroFloat64)))
			}

			m.Residuals[name] = math.Log(left) - estimate
		}
	}

	if len(m.Residuals) > 0 && !a.Guess {
		covered := a.Left.Low <= left && left <= a.Left.High
		m.Covered = &covered
	}

	return m, len(m.Residuals)+len(m.NoEnd) > 0
}

// cutAt returns a finished job as it was when a fraction of its work was done, and how much was left then: in units of
// work, at the pace that it had until then, so that a change of pace counts as an error too.
func cutAt(p *history.Past, fraction float64) (Case, float64, bool) {
	c := Case{Job: p.Job, Features: p.Features, Curve: curve.Curve{Goal: p.Curve.Goal, Total: p.Curve.Total}}

	if len(p.Curve.X) == 0 {
		if p.Seconds <= 0 {
			return c, 0, false
		}

		c.Elapsed = fraction * p.Seconds
		c.Reported = reportedAt(p, c.Elapsed)

		return c, p.Seconds - c.Elapsed, true
	}

	if p.End <= 0 {
		return c, 0, false
	}

	n := 0
	for n < len(p.Curve.X) && p.Curve.X[n] <= fraction*p.End {
		n++
	}

	if n == 0 {
		return c, 0, false
	}

	c.Curve.X, c.Curve.Y = p.Curve.X[:n], p.Curve.Y[:n]
	x := p.Curve.X[n-1]
	if met(&c.Curve) || x >= p.End {
		return c, 0, false
	}

	c.Elapsed = p.Seconds * x / p.End

	left := p.End - x
	if len(p.At) == len(p.Curve.X) {
		if seconds, perUnit, ok := remainingTime(p, n); ok {
			c.Elapsed = p.At[n-1]
			c.PerUnit = perUnit
			left = seconds / perUnit
		}
	}

	c.Reported = reportedAt(p, c.Elapsed)

	return c, left, true
}

// reportedAt returns what the program itself estimated to remain when it had run so long; 0 if it did not.
func reportedAt(p *history.Past, elapsed float64) float64 {
	for _, r := range slices.Backward(p.Reported) {
		if r.At <= elapsed {
			return max(r.Remaining-(elapsed-r.At), 0)
		}
	}

	return 0
}

// remainingTime returns the seconds that a job still had to run after its n-th point, and the seconds per unit of
// work that were measured by then.
func remainingTime(p *history.Past, n int) (left, perUnit float64, ok bool) {
	points := make([]metric.Point, n)
	for i := range points {
		points[i] = metric.Point{Step: p.Curve.X[i], At: p.At[i]}
	}

	perUnit = measure(points).perUnit
	left = timeAt(p, p.End) - p.At[n-1]

	return left, perUnit, perUnit > 0 && left > 0
}

// timeAt returns how long a job had run when some work was done.
func timeAt(p *history.Past, work float64) float64 {
	i, found := slices.BinarySearch(p.Curve.X, work)
	last := len(p.Curve.X) - 1
	switch {
	case found:
		return p.At[i]
	case i == 0:
		return p.At[0] * work / p.Curve.X[0]
	case i > last:
		return p.At[last] * work / p.Curve.X[last]
	}

	fraction := (work - p.Curve.X[i-1]) / (p.Curve.X[i] - p.Curve.X[i-1])

	return p.At[i-1] + fraction*(p.At[i]-p.At[i-1])
}

// kindOf returns what similar jobs share: the model and task they train, or their name if they do not declare that, and
// their metric.
func kindOf(f *history.Features) string {
	what := f.Task + "/" + f.Model
	if what == "/" {
		what = "/" + history.PlainName(f.Name)
	}

	return strings.ToLower(what + "/" + f.Metric)
}
