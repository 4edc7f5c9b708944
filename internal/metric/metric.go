// Package metric is what a program measures of itself while it trains: points of named
// metrics, as they are heard, put in order and thinned out so that a curve of any
// length keeps its shape and takes bounded room. The agent gathers them, the server
// keeps them, forecast reads them.
package metric

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// The limits on what is kept of a job.
const (
	MaxName   = 128  // bytes of a metric's name
	MaxSeries = 64   // metrics of a job
	MaxPoints = 1024 // points of a metric before it is thinned out
	kept      = MaxPoints / 2
)

// Point is one value of a metric.
type Point struct {
	Step  float64 // as the program counts; its how-manieth value if the program counts nothing
	At    float64 // when it was heard, in seconds of Unix time
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

// Fate is what became of a point that was added.
type Fate int

// The fates.
const (
	Taken     Fate = iota
	Duplicate      // the same step and value were there
	Replaced       // the step was there with another value
	Rewound        // a later run began again before the last step, so that what came after is gone
	Bad            // no number: NaN or infinite
	Stale          // from a run that a later one has overtaken
)

// Series is all that is kept of one metric of a job, over all its runs. Points are in
// order of steps. Its zero value is an empty series; it may be written as JSON.
type Series struct {
	Name   string  `json:"name"`
	Source string  `json:"source"` // where it was heard: "stdout (tqdm)"
	Points []Point `json:"points"`
	Epoch  int     `json:"epoch"` // of the run that the newest point is from
	// From is the lowest step of that run: points before it are of earlier runs.
	From   float64 `json:"from,omitempty"`
	Bad    int     `json:"bad,omitempty"`    // values that were no numbers since the last that was
	BadAll int     `json:"badall,omitempty"` // and in all
	BadAt  float64 `json:"badat,omitempty"`  // when the newest of them was heard
	Heard  int     `json:"heard"`            // points, those thinned out too
}

// Last returns the newest point, and false if there is none.
func (s *Series) Last() (Point, bool) {
	if len(s.Points) == 0 {
		return Point{}, false
	}
	return s.Points[len(s.Points)-1], true
}

// Heed says where the points of a run come from that are added next. Two sources may
// count in different ways, so what another source has told of the same run is dropped.
func (s *Series) Heed(epoch int, source string) {
	if epoch < s.Epoch || source == s.Source {
		return
	}
	if epoch == s.Epoch && s.Source != "" {
		s.Points = s.Points[:s.find(s.From)]
		s.From, s.Bad, s.BadAt = math.MaxFloat64, 0, 0
	}
	s.Source = source
}

// Add takes a point that a run of an epoch has measured. Hearing it again
// changes nothing, and points may come in any order within a run.
func (s *Series) Add(epoch int, p Point) Fate {
	if epoch < s.Epoch {
		return Stale
	}
	if math.IsNaN(p.Step) || math.IsInf(p.Step, 0) || math.IsNaN(p.At) || math.IsInf(p.At, 0) {
		return Bad
	}
	if epoch > s.Epoch {
		s.Epoch, s.From, s.Bad, s.BadAt = epoch, math.MaxFloat64, 0, 0
	}
	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		if p.At > s.BadAt { // else it is told again
			s.Bad++
			s.BadAll++
			s.BadAt = p.At
		}
		return Bad
	}
	if p.At >= s.BadAt {
		s.Bad = 0
	}
	fate := Taken
	if p.Step < s.From && s.rewind(p.Step) {
		fate = Rewound
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
	s.Heard++
	if len(s.Points) > MaxPoints {
		s.Points = Thin(s.Points, kept)
	}
	return fate
}

// rewind makes step the first of the run: what earlier runs did from there on is done anew.
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

// Thin returns at most n of the points, first and last among them, chosen so that
// the line through them keeps its shape: of each stretch of steps the point that makes
// the largest triangle with the one chosen before it and the middle of the stretch that
// follows. Stretches are shorter at the beginning, where curves bend most.
func Thin(points []Point, n int) []Point {
	if len(points) <= n || n < 3 {
		return slices.Clone(points)
	}
	first, last := points[0], points[len(points)-1]
	width := last.Step - first.Step
	bounds := make([]int, 0, n-1) // where stretches begin; the last is the end
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
		out = append(out, largest(out[len(out)-1], points[from:to], middle(points, bounds, k+1)))
	}
	return append(out, last)
}

// middle returns the mean of the next stretch that has points, or the last point.
func middle(points []Point, bounds []int, k int) Point {
	for ; k+1 < len(bounds); k++ {
		if stretch := points[bounds[k]:bounds[k+1]]; len(stretch) > 0 {
			var m Point
			for _, p := range stretch {
				m.Step += p.Step / float64(len(stretch))
				m.Value += p.Value / float64(len(stretch))
			}
			return m
		}
	}
	return points[len(points)-1]
}

// largest returns the point of a stretch that makes the largest triangle with a and c.
func largest(a Point, stretch []Point, c Point) Point {
	best, area := stretch[0], -1.0
	for _, p := range stretch {
		if t := math.Abs((a.Step-c.Step)*(p.Value-a.Value) - (a.Step-p.Step)*(c.Value-a.Value)); t > area {
			best, area = p, t
		}
	}
	return best
}
