// Package metric describes the training metrics of a job: series of points, kept in order of steps and downsampled so
// that a curve of any length keeps its shape in bounded memory. The agent collects them, the server stores them,
// package forecast reads them. The package parses no output and stores nothing.
package metric

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// The limits on what is kept of a job.
const (
	MaxName    = 128  // bytes of a metric's name
	MaxSeries  = 64   // metrics of a job
	MaxPoints  = 1024 // points of a metric before it is downsampled
	keptPoints = MaxPoints / 2
)

// Point is one value of a metric.
type Point struct {
	Step  float64 // as the program counts; the index of the value if it does not count
	At    float64 // when it was received, in seconds of Unix time
	Value float64
}

// MarshalJSON writes the point as three numbers: curves are long.
func (p Point) MarshalJSON() ([]byte, error) { return json.Marshal([3]float64{p.Step, p.At, p.Value}) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Point) UnmarshalJSON(text []byte) error {
	var three [3]float64
	if err := json.Unmarshal(text, &three); err != nil {
		return err
	}

	p.Step, p.At, p.Value = three[0], three[1], three[2]

	return nil
}

// Outcome is what Add did with a point.
type Outcome int

// The outcomes.
const (
	Added     Outcome = iota
	Duplicate         // the same step and value were there
	Replaced          // the step was there with another value
	Rewound           // a later run resumed before the last step, so that later points were dropped
	NonFinite         // NaN or infinite: counted, not kept
	Stale             // from an earlier run than the newest
)

// Series is all that is kept of one metric of a job, over all its runs. Points are in
// order of steps. Its zero value is an empty series; it may be written as JSON.
type Series struct {
	Name   string  `json:"name"`
	Source string  `json:"source"` // for example "stdout (tqdm)"
	Points []Point `json:"points"`
	Epoch  int     `json:"epoch"` // of the run that the newest point is from
	// From is the lowest step of that run: points before it are of earlier runs.
	From           float64 `json:"from,omitempty"`
	NonFinite      int     `json:"non_finite,omitempty"`       // NaN or infinite values since the last finite one
	NonFiniteTotal int     `json:"non_finite_total,omitempty"` // over all runs
	NonFiniteAt    float64 `json:"non_finite_at,omitempty"`    // time of the newest
	NonFiniteStep  float64 `json:"non_finite_step,omitempty"`  // step of the newest
	Count          int     `json:"count"`                      // points, including those removed by downsampling
}

// Last returns the newest point, and false if there is none.
func (s *Series) Last() (Point, bool) {
	if len(s.Points) == 0 {
		return Point{}, false
	}

	return s.Points[len(s.Points)-1], true
}

// SetSource sets the source of the points that are added next. Two sources may count steps in different ways, so
// points of another source of the same run are dropped.
func (s *Series) SetSource(epoch int, source string) {
	if epoch < s.Epoch || source == s.Source {
		return
	}

	if epoch == s.Epoch && s.Source != "" {
		s.Points = s.Points[:s.find(s.From)]
		s.From, s.NonFinite, s.NonFiniteAt, s.NonFiniteStep = math.MaxFloat64, 0, 0, 0
	}

	s.Source = source
}

// Add adds a point of the run of an epoch. Adding it again changes nothing, and points may come in any order within
// a run.
func (s *Series) Add(epoch int, p Point) Outcome {
	if epoch < s.Epoch {
		return Stale
	}
	if math.IsNaN(p.Step) || math.IsInf(p.Step, 0) || math.IsNaN(p.At) || math.IsInf(p.At, 0) {
		return NonFinite
	}

	if epoch > s.Epoch {
		s.Epoch = epoch
		s.From = math.MaxFloat64
		s.NonFinite = 0
		s.NonFiniteAt = 0
		s.NonFiniteStep = 0
	}

	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		// Several lines may be written at the same time; whatever is not later is a repetition.
		if p.At > s.NonFiniteAt || p.At == s.NonFiniteAt && p.Step > s.NonFiniteStep {
			s.NonFinite++
			s.NonFiniteTotal++
			s.NonFiniteAt = p.At
			s.NonFiniteStep = p.Step
		}

		return NonFinite
	}

	if p.At >= s.NonFiniteAt {
		s.NonFinite = 0
	}

	outcome := Added
	if p.Step < s.From && s.rewind(p.Step) {
		outcome = Rewound
	}

	at := s.find(p.Step)
	if at < len(s.Points) && s.Points[at].Step == p.Step {
		if s.Points[at].Value == p.Value {
			return Duplicate
		}

		s.Points[at] = p

		return Replaced
	}

	s.Points = slices.Insert(s.Points, at, p)
	s.Count++
	if len(s.Points) > MaxPoints {
		s.Points = Downsample(s.Points, keptPoints)
	}

	return outcome
}

// CountNonFinite raises the number of values that were no numbers to what the source of the series has counted since
// its last number: of many it sends the newest only.
func (s *Series) CountNonFinite(epoch, counted int) {
	if epoch != s.Epoch || counted <= s.NonFinite {
		return
	}

	s.NonFiniteTotal += counted - s.NonFinite
	s.NonFinite = counted
}

// rewind makes step the first of the run: what earlier runs did from there on is done again.
func (s *Series) rewind(step float64) bool {
	from, to := s.find(step), s.find(s.From)
	s.From = step
	s.Points = slices.Delete(s.Points, from, to)

	return to > from
}

// find returns where a step is among the points, or where it would be.
func (s *Series) find(step float64) int {
	at, _ := slices.BinarySearchFunc(s.Points, step, func(p Point, step float64) int { return cmp.Compare(p.Step, step) })
	return at
}

// Downsample returns at most n of the points, first and last among them, chosen so that the line through them keeps
// its shape: the largest-triangle-three-buckets algorithm (Steinarsson, "Downsampling Time Series for Visual
// Representation"). Of each bucket of steps it keeps the point that makes the largest triangle with the one kept
// before it and the mean of the next bucket. Buckets are narrower at the beginning, where curves bend most.
func Downsample(points []Point, n int) []Point {
	if len(points) <= n || n < 3 {
		return slices.Clone(points)
	}

	first, last := points[0], points[len(points)-1]
	width := last.Step - first.Step
	bounds := make([]int, 0, n-1) // where buckets begin; the last is the end

	at := 1
	for k := range n - 2 {
		bounds = append(bounds, at)
		part := float64(k+1) / float64(n-2)
		until := first.Step + width*part*part
		for at < len(points)-1 && points[at].Step <= until {
			at++
		}
	}

	bounds = append(bounds, len(points)-1)

	out := append(make([]Point, 0, n), first)
	for k := range n - 2 {
		from, to := bounds[k], bounds[k+1]
		if from == to {
			continue
		}

		out = append(out, largestTriangle(out[len(out)-1], points[from:to], bucketMean(points, bounds, k+1)))
	}

	return append(out, last)
}

// bucketMean returns the mean of the next bucket that has points, or the last point.
func bucketMean(points []Point, bounds []int, k int) Point {
	for ; k+1 < len(bounds); k++ {
		if bucket := points[bounds[k]:bounds[k+1]]; len(bucket) > 0 {
			var m Point
			for _, p := range bucket {
				m.Step += p.Step / float64(len(bucket))
				m.Value += p.Value / float64(len(bucket))
			}

			return m
		}
	}

	return points[len(points)-1]
}

// largestTriangle returns the point of a bucket that makes the largest triangle with a and c.
func largestTriangle(a Point, bucket []Point, c Point) Point {
	best, area := bucket[0], -1.0
	for _, p := range bucket {
		if t := math.Abs((a.Step-c.Step)*(p.Value-a.Value) - (a.Step-p.Step)*(c.Value-a.Value)); t > area {
			best, area = p, t
		}
	}

	return best
}
