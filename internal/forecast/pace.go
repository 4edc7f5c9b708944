package forecast

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/metric"
	"trainyard/internal/quantile"
)

// pace is the speed of a job.
type pace struct {
	perUnit  float64 // seconds per unit of work; 0 if unknown
	spread   float64 // standard error of the logarithm of perUnit
	interval float64 // seconds from one point to the next
	points   int     // in the measurement
}

// The window in which a pace is measured.
const (
	minWindow = 17 // points, if there are that many
	maxBlocks = 8
	// minSpan is how many seconds points must cover. Output that is written in blocks and steps that are only queued on
	// a GPU are reported several at once: the milliseconds between them are not what a step takes.
	minSpan = 1.0
)

// measure returns the pace of the points of one stretch of running, from the later half of them.
// The window is split into blocks of equal work. Their mean includes pauses that recur, such as
// evaluating or saving; a single block that stands out is ignored, because it says nothing about
// the future. Points that arrive in bursts do no harm either, as they would to a median of
// intervals. A window that is nothing but one burst is extended to all the points, as one block.
func measure(points []metric.Point) pace {
	if extent(points) < minSpan {
		return pace{points: len(points)}
	}

	window, most := points[max(0, min(len(points)/2, len(points)-minWindow)):], maxBlocks
	if extent(window) < minSpan {
		window, most = points, 1
	}

	blocks := blockTimes(window, most)
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
		interval: extent(window) / float64(len(window)-1),
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

// extent returns the seconds from the first point to the last.
func extent(points []metric.Point) float64 {
	if len(points) == 0 {
		return 0
	}

	return points[len(points)-1].At - points[0].At
}

// blockTimes returns the seconds per unit of work in each of at most so many blocks of about equal work. Blocks in
// which no time passed are joined to the next.
func blockTimes(window []metric.Point, most int) []float64 {
	first, last := window[0], window[len(window)-1]
	width := (last.Step - first.Step) / float64(min(most, len(window)-1))
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

		n := len(reported)
		if i == 0 && n > 0 && extent(reported) < minSpan && reported[n-1].Step > 0 {
			all[i] = sinceStart(reported[n-1], unix(runs[0].From)+runs[0].Setup)
			continue
		}

		all[i] = measure(reported)
	}

	return all
}

// A program imports modules and loads data before it works.
const (
	startupSeconds   = 20.0 // typical duration of that, in seconds
	minFirstInterval = 60.0 // seconds after which a first report counts; before that a second one is awaited
)

// sinceStart returns the pace of a program that has reported once: a point, or several at once. It began with no work
// done, but the part of its time that was spent on loading is unknown: between none and half.
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

// unix returns a time in the unit of points: seconds since 1970.
func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func sum(values []float64) float64 {
	s := 0.0
	for _, v := range values {
		s += v
	}

	return s
}
