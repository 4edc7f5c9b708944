package andreas

import (
	"math"
	"testing"
)

func TestOverdue(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct{ by, spread, want float64 }{
		{10, 0, 10}, {-10, 0, 0}, {10, 5, 15}, {0, 5, 5}, {-5, 5, 5 / math.E}, {-1e6, 5, 0},
	} {
		if got := expectedLateness(tc.by, tc.spread); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("expectedLateness(%g, %g) = %g, want %g", tc.by, tc.spread, got, tc.want)
		}
	}
}

// TestEndings has the chances that a job ends, which sum to one.
func TestEndings(t *testing.T) {
	t.Parallel()
	y := &planner{o: &Options{Survival: []float64{0.8, 0.4}}}
	for done, want := range map[float64]float64{0: 1, 0.25: 0.9, 0.5: 0.8, 0.75: 0.6, 1: 0.4, 2: 0.4} {
		if got := y.survival(done); math.Abs(got-want) > 1e-12 {
			t.Errorf("when %g is done %g live on, want %g", done, got, want)
		}
	}
}
