package forecast

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/metric"
	"trainyard/internal/quantile"
)

// pace is how fast a job is.
type pace struct {
	perUnit  float64 // seconds that a unit of work takes; 0 if that is not known
	spread   float64 // standard error of its logarithm
	interval float64 // seconds from one point to the next
	points   int     // in the measurement
}

// The window that a pace is measured in.
const (
	minWindow = 17 // points, if there are as many
	maxBlocks = 8
)

// measure returns the pace of points that one stretch of running has brought, by the
// later half of them. The window is cut into blocks of equal work. Their mean
// counts pauses that come again and again, to evaluate or to save; a single block that
// stands out does not count: what happened once is no habit. Points that arrive in bursts do no
// harm either, as they would to a median of intervals.
func measure(points []metric.Point) pace {
	if len(points) < 2 {
		return pace{points: len(points)}
	}

	window := points[max(0, min(len(points)/2, len(points)-minWindow)):]
	blocks := blockTimes(window)
	if len(blocks) == 0 {
		return pace{points: len(points)}
	}

	middle := quantile.Median(blocks)
	if worst := slices.Max(blocks); len(blocks) >= 4 && worst > 2*middle {
		rest := slices.Clone(blocks)
		rest = slices.Delete(rest, slices.Index(rest, worst), slices.Index(rest, worst)+1)
		if slices.Max(rest) <= 2*middle {
			blocks = rest
		}
	}

	mean := sum(blocks) / float64(len(blocks))
	p := pace{
		perUnit:  mean,
		points:   len(points),
		interval: (window[len(window)-1].At - window[0].At) / float64(len(window)-1),
	}

	if n := float64(len(blocks)); n > 1 {
		var squares float64
		for _, b := range blocks {
			squares += (b/mean - 1) * (b/mean - 1)
		}

		p.spread = math.Sqrt(squares / (n - 1) / n)
	}

	return p
}

// blockTimes returns the seconds that a unit took in each of at most blocksMost stretches of
// about equal work. Stretches in which time stood still are joined to the next.
func blockTimes(window []metric.Point) []float64 {
	first, last := window[0], window[len(window)-1]
	width := (last.Step - first.Step) / float64(min(maxBlocks, len(window)-1))
	if width <= 0 {
		return nil
	}

	var blocks []float64

	from := first
	for _, p := range window[1:] {
		if work, took := p.Step-from.Step, p.At-from.At; took > 0 && work >= width*(1-1e-9) {
			blocks = append(blocks, took/work)
			from = p
		}
	}

	if work, took := last.Step-from.Step, last.At-from.At; len(blocks) == 0 && took > 0 && work > 0 {
		blocks = append(blocks, took/work)
	}

	return blocks
}

// pointsDuring returns the points reported during a stretch.
func pointsDuring(points []metric.Point, s *Stretch) []metric.Point {
	from := unix(s.From)
	at := slices.IndexFunc(points, func(p metric.Point) bool { return p.At >= from })
	if at < 0 {
		return nil
	}

	points = points[at:]
	if s.To.IsZero() {
		return points
	}

	until := unix(s.To)

	end := len(points)
	for end > 0 && points[end-1].At > until {
		end--
	}

	return points[:end]
}

// paces returns the pace of each stretch by the points reported during it.
func paces(points []metric.Point, runs []Stretch) []pace {
	all := make([]pace, len(runs))
	for i := range runs {
		reported := pointsDuring(points, &runs[i])
		if i == 0 && len(reported) == 1 && reported[0].Step > 0 {
			all[i] = sinceStart(reported[0], unix(runs[0].From)+runs[0].Setup)
			continue
		}

		all[i] = measure(reported)
	}

	return all
}

// A program imports and loads before it works.
const (
	startupSeconds   = 20.0 // seconds that this takes as a rule
	minFirstInterval = 60.0 // seconds after which a single point counts; before that the second is waited for
)

// sinceStart returns the pace of a program that has reported a single point. It began with no work done, but how much
// of its
// time went into loading is unknown: between nothing and half.
func sinceStart(p metric.Point, began float64) pace {
	took := p.At - began
	if took < minFirstInterval {
		return pace{points: 1}
	}

	began += min(startupSeconds, took/2)
	out := measure([]metric.Point{{At: began}, p})
	out.spread = math.Log(took / (p.At - began))

	return out
}

// unix returns a time as points have it.
func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func sum(values []float64) float64 {
	s := 0.0
	for _, v := range values {
		s += v
	}

	return s
}
