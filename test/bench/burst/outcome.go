package burst

import (
	"math"
	"slices"
)

// outcome is what a way to run a window comes to. Times are hours.
type outcome struct {
	cloud     float64 // GPU-hours
	mean, p99 float64 // completion
	wait      float64 // mean
	longest   float64 // wait
	used      float64 // share of the yard's own GPU-hours in use until the last arrival
}

// ends adds up how tasks went.
type ends struct {
	w                 *window
	wait, longestWait float64
	cloud, used       float64
	completion        []float64
}

func newEnds(w *window) *ends { return &ends{w: w, completion: make([]float64, 0, len(w.tasks))} }

// add takes note of a task that started at a time.
func (e *ends) add(t *task, start float64) {
	wait := start - t.at
	e.wait += wait
	e.longestWait = math.Max(e.longestWait, wait)
	e.completion = append(e.completion, wait+t.run)
}

// local takes note of GPUs of the yard's own nodes in use.
func (e *ends) local(gpus int, from, to float64) {
	last := e.w.last()
	e.used += float64(gpus) * (math.Min(to, last) - math.Min(from, last))
}

func (e *ends) outcome() outcome {
	o := outcome{cloud: e.cloud, longest: e.longestWait, used: e.used / (float64(e.w.nodes*perNode) * e.w.last())}
	n := float64(len(e.completion))

	slices.Sort(e.completion)
	for _, c := range e.completion {
		o.mean += c / n
	}

	o.wait = e.wait / n
	o.p99 = e.completion[int(math.Round(0.99*(n-1)))]

	return o
}

// point is a pair of what is better the less it is.
type point struct{ x, y float64 }

// same is by how much two figures may differ that were added up in another order.
const same = 1e-6

// frontier returns the points that no other is better than in both, x rising and y
// falling.
func frontier(list []point) []point {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b point) int {
		if a.x != b.x {
			return int(math.Copysign(1, a.x-b.x))
		}

		return int(math.Copysign(1, a.y-b.y))
	})

	var best []point
	for _, p := range list {
		if len(best) == 0 || p.y < best[len(best)-1].y {
			best = append(best, p)
		}
	}

	return best
}

// at returns the least y for an x. Between two points it is on the straight line
// between them, which days at the one setting and days at the other come to. It is
// NaN left of all points.
func at(front []point, x float64) float64 {
	if len(front) == 0 || x < front[0].x-same {
		return math.NaN()
	}

	for i := 1; i < len(front); i++ {
		if a, b := front[i-1], front[i]; b.x >= x {
			return a.y + max((x-a.x)/(b.x-a.x), 0)*(b.y-a.y)
		}
	}

	return front[len(front)-1].y
}

// Point is what a way to run the first window comes to, for benchmarks of other things.
type Point struct {
	Mean  float64 // completion in hours
	Cloud float64 // GPU-hours
}

// CloudAt returns the cloud that is needed for a mean completion; NaN if no point is so fast.
func CloudAt(list []Point, mean float64) float64 {
	points := make([]point, len(list))
	for i := range list {
		points[i] = point{list[i].Mean, list[i].Cloud}
	}

	return at(frontier(points), mean)
}

// means, tails and turned are frontiers of outcomes: cloud over mean completion,
// cloud over p99, and mean completion over cloud.
func means(list []outcome) []point {
	return front(list, func(o *outcome) point { return point{o.mean, o.cloud} })
}

func tails(list []outcome) []point {
	return front(list, func(o *outcome) point { return point{o.p99, o.cloud} })
}

func turned(list []outcome) []point {
	return front(list, func(o *outcome) point { return point{o.cloud, o.mean} })
}

func front(list []outcome, of func(*outcome) point) []point {
	points := make([]point, len(list))
	for i := range list {
		points[i] = of(&list[i])
	}

	return frontier(points)
}
