package metric

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// added makes a series of one run of points whose time is ten times their step.
func added(epoch int, points ...Point) *Series {
	s := &Series{}
	for _, p := range points {
		s.Add(epoch, p)
	}

	return s
}

func at(step, value float64) Point { return Point{Step: step, At: 10 * step, Value: value} }

// steps are those of a series.
func steps(s *Series) []float64 {
	var out []float64
	for _, p := range s.Points {
		out = append(out, p.Step)
	}

	return out
}

func TestFatesOfPoints(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		name  string
		epoch int
		point Point
		want  Outcome
		steps []float64
	}{
		{"a later step", 2, at(4, 1), Added, []float64{1, 2, 3, 4}},
		{"a step between two", 2, at(2.5, 1), Added, []float64{1, 2, 2.5, 3}},
		{"the same again", 2, at(2, 20), Duplicate, []float64{1, 2, 3}},
		{"the same step with another value", 2, at(2, 21), Replaced, []float64{1, 2, 3}},
		{"an earlier run", 1, at(9, 1), Stale, []float64{1, 2, 3}},
		{"a later run that goes on", 3, at(4, 1), Added, []float64{1, 2, 3, 4}},
		{"a later run that begins before the last step", 3, at(2, 1), Rewound, []float64{1, 2}},
		{"a later run that begins anew", 3, at(0, 1), Rewound, []float64{0}},
		{"NaN", 2, Point{4, 40, nan}, NonFinite, []float64{1, 2, 3}},
		{"infinite", 2, Point{4, 40, inf}, NonFinite, []float64{1, 2, 3}},
		{"a step that is no number", 2, Point{nan, 40, 1}, NonFinite, []float64{1, 2, 3}},
		{"a time that is no number", 2, Point{4, inf, 1}, NonFinite, []float64{1, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := added(2, at(1, 10), at(2, 20), at(3, 30))
			if got := s.Add(test.epoch, test.point); got != test.want {
				t.Errorf("its fate is %d, want %d", got, test.want)
			}

			if diff := cmp.Diff(test.steps, steps(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValuesThatAreNoNumbersAreCountedOnce(t *testing.T) {
	t.Parallel()
	s := added(1, at(1, 10))
	bad := Point{2, 20, math.NaN()}
	s.Add(1, bad)
	s.Add(1, bad)
	s.Add(1, at(1, 10)) // told again

	if s.NonFinite != 1 || s.NonFiniteTotal != 1 {
		t.Errorf("told twice it counts %d, %d in all", s.NonFinite, s.NonFiniteTotal)
	}

	s.Add(1, Point{3, 30, math.Inf(-1)})

	if s.NonFinite != 2 || s.NonFiniteTotal != 2 {
		t.Errorf("after another: %d, %d in all", s.NonFinite, s.NonFiniteTotal)
	}

	s.Add(1, at(4, 5))
	s.Add(1, bad)

	if s.NonFinite != 0 || s.NonFiniteTotal != 2 {
		t.Errorf("after a number: %d, %d in all", s.NonFinite, s.NonFiniteTotal)
	}
}

// Of 33 values that were no numbers 16 were counted: those of the same time as the one before, and those that the
// agent did not send, were left out (newcomer 24).
func TestEveryValueThatIsNoNumberCounts(t *testing.T) {
	t.Parallel()
	s := added(1, at(1, 10))
	s.Add(1, Point{2, 20, math.NaN()})
	s.Add(1, Point{3, 20, math.NaN()}) // printed in the same moment
	s.Add(1, Point{2, 20, math.NaN()}) // told again

	if s.NonFinite != 2 || s.NonFiniteTotal != 2 {
		t.Errorf("two of one moment count %d, %d in all", s.NonFinite, s.NonFiniteTotal)
	}

	s.CountNonFinite(1, 33)
	s.CountNonFinite(1, 5) // an earlier report
	s.CountNonFinite(2, 99)

	if s.NonFinite != 33 || s.NonFiniteTotal != 33 {
		t.Errorf("of 33 that the agent counted: %d, %d in all", s.NonFinite, s.NonFiniteTotal)
	}
}

func TestAnotherSourceBeginsTheRunAnew(t *testing.T) {
	t.Parallel()
	s := &Series{}
	s.SetSource(1, "a")
	s.Add(1, at(1, 1))
	s.Add(1, at(5, 1))
	s.SetSource(2, "a")
	s.Add(2, at(4, 2))
	s.Add(2, at(6, 2))
	s.SetSource(2, "a") // the same as before

	if diff := cmp.Diff([]float64{1, 4, 6}, steps(s)); diff != "" {
		t.Fatal(diff)
	}

	s.SetSource(1, "late") // of an earlier run
	s.SetSource(2, "b")

	if diff := cmp.Diff([]float64{1}, steps(s)); diff != "" || s.Source != "b" {
		t.Errorf("what the other source told is still there: %s, source %s", diff, s.Source)
	}

	s.Add(2, at(40, 2))
	s.Add(2, at(30, 2))

	if diff := cmp.Diff([]float64{1, 30, 40}, steps(s)); diff != "" {
		t.Error(diff)
	}

	s.SetSource(3, "c")

	if diff := cmp.Diff([]float64{1, 30, 40}, steps(s)); diff != "" {
		t.Errorf("a new run has told nothing yet: %s", diff)
	}
}

// drawPoints draws points with times that grow, and steps that need not.
func drawPoints(t *rapid.T) []Point {
	n := rapid.IntRange(0, 60).Draw(t, "n")
	out := make([]Point, n)
	for i := range out {
		out[i] = Point{
			Step:  float64(rapid.IntRange(0, 50).Draw(t, "step")),
			At:    float64(i),
			Value: rapid.Float64Range(-1e6, 1e6).Draw(t, "value"),
		}

		if rapid.IntRange(0, 9).Draw(t, "bad") == 0 {
			out[i].Value = math.NaN()
		}
	}

	return out
}

// Whatever comes, points stay in order of steps, each step once, and only numbers.
func TestPointsStayInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &Series{}
		for i, p := range drawPoints(t) {
			s.Add(1+i/20, p)

			for j, q := range s.Points {
				if math.IsNaN(q.Value) || j > 0 && q.Step <= s.Points[j-1].Step {
					t.Fatalf("out of order: %+v", s.Points)
				}
			}
		}
	})
}

// Points that were heard in order of time, one for each step, may be heard again in any order.
func TestHearingAgainChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seen := map[float64]bool{}
		points := slices.DeleteFunc(drawPoints(t), func(p Point) bool {
			again := seen[p.Step]
			seen[p.Step] = true
			return again
		})

		s := added(3, points...)
		before, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}

		for _, p := range rapid.Permutation(points).Draw(t, "again") {
			s.Add(3, p)
		}

		after, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(string(before), string(after)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The order in which the points of a run come does not matter.
func TestOrderWithinARunDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		earlier := drawPoints(t)
		points := drawPoints(t)
		points = slices.DeleteFunc(points, func(p Point) bool { return math.IsNaN(p.Value) })
		slices.SortStableFunc(points, func(a, b Point) int { return int(a.Step - b.Step) })
		points = slices.CompactFunc(points, func(a, b Point) bool { return a.Step == b.Step })

		one, other := added(1, earlier...), added(1, earlier...)
		for _, p := range points {
			one.Add(2, p)
		}

		for _, p := range rapid.Permutation(points).Draw(t, "order") {
			other.Add(2, p)
		}

		if diff := cmp.Diff(one.Points, other.Points); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestASeriesOfAnyLengthTakesBoundedRoom(t *testing.T) {
	t.Parallel()
	s := &Series{}

	const n = 50_000
	for i := range n {
		s.Add(1, at(float64(i), 1/math.Sqrt(float64(i+1))))

		if len(s.Points) > MaxPoints {
			t.Fatalf("%d points are kept", len(s.Points))
		}
	}

	if s.Count != n || s.Points[0].Step != 0 || s.Points[len(s.Points)-1].Step != n-1 {
		t.Errorf("heard %d, from %g to %g", s.Count, s.Points[0].Step, s.Points[len(s.Points)-1].Step)
	}
}

// Thinning keeps the ends, the order, and only what was there, and never more than was asked for.
func TestThinKeepsTheEndsAndTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		points := make([]Point, n)

		step := 0.0
		for i := range points {
			step += float64(rapid.IntRange(1, 100).Draw(t, "gap"))
			points[i] = at(step, rapid.Float64Range(-1e3, 1e3).Draw(t, "value"))
		}

		most := rapid.IntRange(3, 100).Draw(t, "most")
		got := Downsample(points, most)
		if len(got) > most && len(got) != n || got[0] != points[0] || got[len(got)-1] != points[n-1] {
			t.Fatalf("%d of %d points, at most %d", len(got), n, most)
		}

		from := 0
		for _, p := range got {
			at := slices.Index(points[from:], p)
			if at < 0 {
				t.Fatalf("%+v is not one of them, or out of order", p)
			}

			from += at + 1
		}
	})
}

// A curve that was thinned out as it grew is near the one that was not, everywhere.
func TestThinKeepsTheShape(t *testing.T) {
	t.Parallel()
	value := func(step float64) float64 {
		v := 0.5 + 4*math.Exp(-step/2000) + 2/math.Sqrt(1+step)
		if step > 15_000 { // the learning rate drops
			v -= 0.3
		}

		return v
	}

	s := &Series{}
	for i := range 20_000 {
		s.Add(1, at(float64(i), value(float64(i))))
	}

	for i := 1; i < len(s.Points); i++ {
		a, b := s.Points[i-1], s.Points[i]
		middle := (a.Step + b.Step) / 2
		if got, want := (a.Value+b.Value)/2, value(middle); math.Abs(got-want) > 0.16 {
			t.Errorf("between %g and %g it is %g, was %g", a.Step, b.Step, got, want)
		}
	}
}
