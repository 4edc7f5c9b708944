// Package metric is what a program measures of itself while it trains: points of named
// metrics, as they are heard, put in order and thinned out so that a curve of any
// length keeps its shape and takes bounded room. The agent gathers them, the server
// keeps them, forecast reads them.
package metric

import (
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
	// A program that counts from the beginning again within one run, as a progress bar does in
	// every epoch, goes on where it was: Offset is what its count is behind.
	Offset float64 `json:"offset,omitempty"`
	Bad    int     `json:"bad,omitempty"`    // values that were no numbers since the last that was
	BadAll int     `json:"badall,omitempty"` // and in all
	Heard  int     `json:"heard"`            // points, those thinned out too
	Count  float64 `json:"count,omitempty"`  // the highest of this run as the program says it, without Offset
}

// Last returns the newest point, and false if there is none.
func (s *Series) Last() (Point, bool) {
	if len(s.Points) == 0 {
		return Point{}, false
	}
	return s.Points[len(s.Points)-1], true
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
	fate := Taken
	if epoch > s.Epoch {
		s.Epoch, s.Offset, s.Count, s.Bad = epoch, 0, 0, 0
		if s.rewind(p.Step) {
			fate = Rewound
		}
	}
	if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
		s.Bad++
		s.BadAll++
		return Bad
	}
	s.Bad = 0
	s.place(&p)
	at, found := slices.BinarySearchFunc(s.Points, p.Step, func(q Point, step float64) int {
		switch {
		case q.Step < step:
			return -1
		case q.Step > step:
			return 1
		}
		return 0
	})
	switch {
	case found && s.Points[at].Value == p.Value:
		return Duplicate
	case found:
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

// rewind drops what a run that began again at a step will do anew.
func (s *Series) rewind(step float64) bool {
	at := len(s.Points)
	for at > 0 && s.Points[at-1].Step >= step {
		at--
	}
	gone := at < len(s.Points)
	s.Points = s.Points[:at]
	return gone
}

// place puts a point's step where it belongs in the whole of its run. A count that
// falls below half of what it was has begun again, unless the point is as old as
// its step: then it came late.
func (s *Series) place(p *Point) {
	if last, ok := s.Last(); ok && p.Step < s.Count/2 && p.At >= last.At {
		s.Offset += s.Count
		s.Count = p.Step
	}
	s.Count = max(s.Count, p.Step)
	p.Step += s.Offset
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
