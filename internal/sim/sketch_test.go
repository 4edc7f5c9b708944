package sim

import (
	"math"
	"testing"
)

// The median of jobs that all took an hour was shown as 59m 58s (newcomer 27).
func TestQuantilesOfEqualValuesAreExact(t *testing.T) {
	t.Parallel()

	var k sketch
	for range 30 {
		k.add(3600)
	}

	k.add(7200)

	if s := k.summary(); s.P50 != 3600 || s.P99 != 7200 || s.Max != 7200 {
		t.Errorf("of thirty times an hour and once two: %+v", s)
	}
}

func TestQuantilesAreRightToATenthOfAPercent(t *testing.T) {
	t.Parallel()

	var k sketch
	for i := range 10000 {
		k.add(float64(i + 1))
	}

	for _, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		if got, want := k.quantile(q), q*10000; math.Abs(got-want) > 0.001*want {
			t.Errorf("the quantile %g is %g, want %g", q, got, want)
		}
	}
}
