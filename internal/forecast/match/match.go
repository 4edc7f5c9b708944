// Package match predicts where the learning curve of a running job reaches its goal from the curves of similar
// jobs that have finished. It is one of the estimators of a forecast.
//
// It is a nearest-neighbour method. Similarity of the jobs' features selects the neighbours; each neighbour's
// curve is aligned with the running one by scaling its axis of work; the prediction is the weighted median of
// the aligned ends, with weights that fall with the alignment error (a kernel). The kernel's parameters are
// chosen for each kind of job by leave-one-group-out validation (tune.go). For a job without a similar
// predecessor it returns an error instead of a prediction.
package match

import (
	"cmp"
	"math"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
)

// Query is a running job and the past jobs with which it may be compared.
type Query struct {
	Curve    *curve.Curve
	Features history.Features
	Job      id.Job                   // the job itself, which is not compared with its own past
	Group    string                   // group of past jobs to leave out; "" leaves none out
	Before   time.Time                // only past jobs that had ended by then; zero means all
	Skip     func(*history.Past) bool // further past jobs to leave out; nil leaves none out
}

// Match is a prediction of where a curve reaches its goal.
type Match struct {
	curve.Estimate             // its interval is the 10 % and 90 % quantiles of the neighbours
	Fit            float64     // root mean squared error of the alignments, in logarithms
	Neighbours     []Neighbour // by weight
}

// Neighbour is a past job that contributed to a prediction.
type Neighbour struct {
	Job    id.Job
	Name   string
	End    float64 // predicted from it
	Scale  float64 // units of work here per unit of work there
	Error  float64 // as Fit
	Weight float64 // in the prediction, 0 to 1
}

const (
	maxPoints     = 32 // points of the running curve that are compared
	maxCandidates = 80 // neighbours that are aligned
	maxShown      = 7  // neighbours listed in a prediction
	coarsePoints  = 10 // points of the running curve that are compared to choose the neighbours that are aligned
	coarseStep    = 3  // of the scales that are tried for that
	// maxError is the Fit beyond which no past curve counts as similar.
	maxError = 0.15
)

// Match predicts where a curve reaches its goal. It returns an error if no past job is similar.
func (p *Pool) Match(q Query) (Match, error) {
	w, ok := p.kernels[kindOf(&q.Features)]
	if !ok {
		w = defaultKernel
	}

	return p.predict(&q, w)
}

// predict is Match with a given kernel.
func (p *Pool) predict(q *Query, w kernel) (Match, error) {
	running := newRunningCurve(q.Curve)
	if len(running.sqrtWork) == 0 {
		return Match{}, fault.New(fault.NotFound, "nothing_alike", "the job has no points yet")
	}

	neighbours := p.neighbours(q, &running)
	if len(neighbours) == 0 {
		return Match{}, p.nothingAlike(q)
	}

	alignments := running.alignAll(neighbours, w)
	switch {
	case !slices.ContainsFunc(alignments, func(f alignment) bool { return f.sqrtGoal > 0 }):
		return Match{}, fault.New(fault.NotFound, "nothing_alike", "no similar job that has finished reached this goal")
	case alignments[0].squaredError > maxError*maxError:
		return Match{}, fault.New(
			fault.NotFound,
			"nothing_alike",
			"similar jobs have finished, but none has a curve like this one",
		)
	}

	return running.predict(alignments, w), nil
}

// nothingAlike returns the error for a job without similar past jobs, and says what would change
// that.
func (p *Pool) nothingAlike(q *Query) error {
	e := fault.New(fault.NotFound, "nothing_alike", "no similar job has finished yet")
	if p.Len() == 0 {
		return e.WithRemedy("no finished job has a curve")
	}
	if q.Features.Model == "" && q.Features.Task == "" {
		return e.WithRemedy("declare in the job file what it trains: model: {kind: …, task: …}")
	}

	return e
}

// neighbour is a similar past job.
type neighbour struct {
	*template
	similarity float64
}

// neighbours returns the similar past jobs, the most similar first.
func (p *Pool) neighbours(q *Query, s *runningCurve) []neighbour {
	mine := traitsOf(&q.Features)
	var list []neighbour
	for i := range p.all {
		h := &p.all[i]
		switch {
		case h.rising != s.rising && (h.goal.Set || q.Curve.Goal.Set),
			q.Job != "" && h.past.Job == q.Job,
			q.Group != "" && h.past.Group == q.Group,
			!q.Before.IsZero() && !h.past.Finished.Before(q.Before),
			q.Skip != nil && q.Skip(h.past):
			continue
		}

		if k := similarity(&mine, &h.traits); k > 0.05 {
			list = append(list, neighbour{h, k})
		}
	}

	slices.SortStableFunc(list, func(a, b neighbour) int { return cmp.Compare(b.similarity, a.similarity) })

	if len(list) <= maxCandidates {
		return list
	}

	return s.nearest(list)
}

// nearest returns as many neighbours as are aligned, of more that may be equally similar by their features: those whose
// curves are nearest to the running one. Populations that share a name are told apart by this. The comparison is
// coarse: few points, few scales, and the scale at which both jobs count the same work.
func (s *runningCurve) nearest(list []neighbour) []neighbour {
	coarse := s.coarse()
	grid := coarse.scales()
	costs := make(map[*template]float64, len(list))

	for i := range list {
		h := list[i].template
		c := coarse.pairWith(h)
		least := math.Inf(1)

		if same := math.Sqrt(coarse.done / h.end); same <= 1 {
			least = coarse.meanSquaredError(&c, same)
		}

		for k := 0; k < gridSize; k += coarseStep {
			least = min(least, coarse.meanSquaredError(&c, grid.sqrtProgress[k]))
		}

		costs[h] = (least + minError) / list[i].similarity
	}

	slices.SortStableFunc(list, func(a, b neighbour) int { return cmp.Compare(costs[a.template], costs[b.template]) })

	return list[:maxCandidates]
}

// coarse returns the curve with few of its points.
func (s *runningCurve) coarse() *runningCurve {
	c := *s
	c.sqrtWork, c.values, c.logs, c.weights = nil, nil, nil, nil
	n := len(s.sqrtWork)
	total := 0.0

	for i := range n {
		if n > coarsePoints && i*coarsePoints/n == (i+1)*coarsePoints/n {
			continue // the last of each stretch stays
		}

		c.sqrtWork, c.values = append(c.sqrtWork, s.sqrtWork[i]), append(c.values, s.values[i])
		c.weights = append(c.weights, s.weights[i])
		total += s.weights[i]

		if s.logs != nil {
			c.logs = append(c.logs, s.logs[i])
		}
	}

	for i := range c.weights {
		c.weights[i] /= total
	}

	return &c
}

// runningCurve is the running job's curve, prepared for comparison.
type runningCurve struct {
	done       float64   // work done at its last point
	step       float64   // work between the last two points
	sqrtWork   []float64 // of the fraction of done at each point
	values     []float64
	logs       []float64 // nil if a value is not positive
	weights    []float64 // sum to 1; the newest count most
	goal       curve.Goal
	rising     bool
	valueRange float64 // range of the values
}

// newRunningCurve downsamples a curve and weighs its points.
func newRunningCurve(c *curve.Curve) runningCurve {
	if c == nil {
		return runningCurve{}
	}

	x, y := clean(c.X, c.Y)
	for len(x) > 0 && x[0] <= 0 {
		x, y = x[1:], y[1:]
	}

	if len(x) == 0 {
		return runningCurve{}
	}

	s := runningCurve{done: x[len(x)-1], goal: c.Goal, rising: c.Goal.Rising}
	if len(x) > 1 {
		s.step = s.done - x[len(x)-2]
	}

	if !c.Goal.Set {
		s.rising = y[len(y)-1] > y[0]
	}

	x, y = thin(x, y)
	low, high := y[0], y[0]

	positive := !c.Goal.Set || c.Goal.Value > 0
	for i := range x {
		s.sqrtWork = append(s.sqrtWork, math.Sqrt(x[i]/s.done))
		positive = positive && y[i] > 0
		low, high = min(low, y[i]), max(high, y[i])
	}

	s.values, s.valueRange = y, high-low
	if c.Goal.Set {
		s.valueRange = max(s.valueRange, math.Abs(y[0]-c.Goal.Value))
	}

	if s.valueRange < 1e-100 {
		s.valueRange = max(math.Abs(y[0]), 1e-100)
	}

	if positive {
		for _, v := range y {
			s.logs = append(s.logs, math.Log(v))
		}
	}

	s.setWeights()

	return s
}

// setWeights gives half of the weight to the last fifth of the points, because they show the
// present trend.
func (s *runningCurve) setWeights() {
	n := float64(len(s.sqrtWork))
	sum := 0.0
	for i := range s.sqrtWork {
		w := math.Exp2(-(n - 1 - float64(i)) / max(n/5, 1))
		s.weights = append(s.weights, w)
		sum += w
	}

	for i := range s.weights {
		s.weights[i] /= sum
	}
}

// thin returns at most maxPoints points of a curve: the means of cells as wide as those of a template.
func thin(x, y []float64) (tx, ty []float64) {
	if len(x) <= maxPoints {
		return x, y
	}

	last := x[len(x)-1]
	i := 0

	for k := range maxPoints {
		part := float64(k+1) / maxPoints
		until := last * part * part
		from := i

		sx, sy := 0.0, 0.0
		for i < len(x) && (x[i] <= until || k == maxPoints-1) {
			sx, sy = sx+x[i], sy+y[i]
			i++
		}

		if n := float64(i - from); n > 0 {
			tx, ty = append(tx, sx/n), append(ty, sy/n)
		}
	}

	return tx, ty
}
