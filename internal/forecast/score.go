package forecast

import (
	"math"
	"slices"
	"strings"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/metric"
)

// Parts are how far a finished job had come at the moments at which it is replayed.
var Parts = [...]float64{0.2, 0.4, 0.6, 0.8}

// Score replays a job that has ended: what would have been said of it when a part of its
// work was done, with the points that were there then and the jobs that had ended
// before it. The record is the one of that time too, so that whether its intervals held is
// told of intervals made before the end was known. Of two jobs without a time of their end
// neither is before the other; then the library must leave out what the job may not see.
func Score(p *history.Past, before *Library, r *Record) Scored {
	s := Scored{Job: p.Job, Group: p.Group, Kind: kindOf(&p.Features), Finished: p.Finished}
	if before != nil && before.model != nil && !p.Finished.IsZero() && !before.model.Newest.Before(p.Finished) {
		blind := *before // the model has learned from this very job, or later ones
		blind.model = nil
		before = &blind
	}
	for _, part := range Parts {
		if m, ok := scoreAt(p, part, before, r); ok {
			s.Marks = append(s.Marks, m)
		}
	}
	return s
}

// scoreAt replays a job at a part of its work.
func scoreAt(p *history.Past, part float64, l *Library, r *Record) (Mark, bool) {
	c, left, ok := cutAt(p, part)
	if !ok {
		return Mark{}, false
	}
	a := ask(&c, l, r, p.Finished)
	m := Mark{Part: a.x / (a.x + left), Class: a.Class, Logs: map[string]float64{}, Few: a.few, Wide: a.wide}
	for at, log := range a.said {
		name := methods[at].name
		switch {
		case a.blind[at]:
			m.Blind = append(m.Blind, name)
		case !math.IsNaN(log):
			if c.Curve.Goal.Set && c.Curve.Total > 0 {
				if name == MethodSteps && a.Class != ClassSteps {
					continue // it was the bound of the others, and no answer
				}
				log = min(log, math.Log(max(c.Curve.Total-a.x, math.SmallestNonzeroFloat64)))
			}
			m.Logs[name] = math.Log(left) - log
		}
	}
	if len(m.Logs) > 0 && !a.Guess {
		held := a.Left.Low <= left && left <= a.Left.High
		m.Held = &held
	}
	return m, len(m.Logs)+len(m.Blind) > 0
}

// cutAt returns a finished job as it was when a part of its work was done, and how much
// was left then: in units of work, at the pace that it had until then, so that a
// change of pace counts as an error too.
func cutAt(p *history.Past, part float64) (Case, float64, bool) {
	c := Case{Job: p.Job, Features: p.Features, Curve: curve.Curve{Goal: p.Curve.Goal, Total: p.Curve.Total}}
	if len(p.Curve.X) == 0 {
		if p.Seconds <= 0 {
			return c, 0, false
		}
		c.Elapsed = part * p.Seconds
		return c, p.Seconds - c.Elapsed, true
	}
	if p.End <= 0 {
		return c, 0, false
	}
	n := 0
	for n < len(p.Curve.X) && p.Curve.X[n] <= part*p.End {
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
		if seconds, was, ok := timed(p, n); ok {
			c.Elapsed, c.PerUnit, left = p.At[n-1], was, seconds/was
		}
	}
	return c, left, true
}

// timed returns the seconds that a job still had to run after its n-th point, and the pace
// that was measured by then.
func timed(p *history.Past, n int) (left, was float64, ok bool) {
	points := make([]metric.Point, n)
	for i := range points {
		points[i] = metric.Point{Step: p.Curve.X[i], At: p.At[i]}
	}
	was = measure(points).perUnit
	left = timeAt(p, p.End) - p.At[n-1]
	return left, was, was > 0 && left > 0
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
	part := (work - p.Curve.X[i-1]) / (p.Curve.X[i] - p.Curve.X[i-1])
	return p.At[i-1] + part*(p.At[i]-p.At[i-1])
}

// kindOf returns what jobs that are alike share: what they train, or their name if they do
// not say that, and what they measure.
func kindOf(f *history.Features) string {
	what := f.Task + "/" + f.Model
	if what == "/" {
		what = "/" + plainName(f.Name)
	}
	return strings.ToLower(what + "/" + f.Metric)
}
