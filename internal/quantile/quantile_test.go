package quantile_test

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/quantile"
)

func TestMedian(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		values []float64
		want   float64
	}{
		"one":                 {[]float64{7}, 7},
		"odd, in any order":   {[]float64{9, 1, 5}, 5},
		"even":                {[]float64{4, 1, 2, 8}, 3},
		"does not overflow":   {[]float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
		"of infinite values":  {[]float64{1, math.Inf(1), math.Inf(1)}, math.Inf(1)},
		"beside infinite one": {[]float64{1, 2, math.Inf(1)}, 2},
	} {
		before := slices.Clone(tc.values)

		if got := quantile.Median(tc.values); got != tc.want {
			t.Errorf("%s: %g, want %g", name, got, tc.want)
		}

		if !slices.Equal(before, tc.values) {
			t.Errorf("%s: the values were reordered", name)
		}
	}

	if got := quantile.Median(nil); !math.IsNaN(got) {
		t.Errorf("of nothing it is %g, want NaN", got)
	}
}

func TestLinearInterpolatesAsNumPyDoes(t *testing.T) {
	t.Parallel()
	sorted := []float64{1, 2, 4, 8, 16}
	for p, want := range map[float64]float64{0: 1, 0.1: 1.4, 0.25: 2, 0.8: 9.6, 1: 16} {
		if got := quantile.Linear(sorted, p); math.Abs(got-want) > 1e-12 {
			t.Errorf("at %g it is %g, want %g", p, got, want)
		}
	}
}

func TestNearestRankReturnsAMeasuredValue(t *testing.T) {
	t.Parallel()
	sorted := []time.Duration{10, 20, 30, 40}
	for p, want := range map[float64]time.Duration{0: 10, 0.25: 10, 0.26: 20, 0.5: 20, 0.99: 40, 1: 40} {
		if got := quantile.NearestRank(sorted, p); got != want {
			t.Errorf("at %g it is %d, want %d", p, got, want)
		}
	}

	if got := quantile.NearestRank([]float64(nil), 0.5); got != 0 {
		t.Errorf("of nothing it is %g, want 0", got)
	}
}

func TestQuantilesRiseAndLieBetweenTheValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		weighted := make([]quantile.WeightedValue, n)
		for i := range weighted {
			weighted[i] = quantile.WeightedValue{
				Value:  rapid.Float64Range(-5, 5).Draw(t, "value"),
				Weight: rapid.Float64Range(1e-6, 1).Draw(t, "weight"),
			}
		}

		slices.SortFunc(weighted, func(a, b quantile.WeightedValue) int { return cmp.Compare(a.Value, b.Value) })

		plain := make([]float64, n)
		for i := range weighted {
			plain[i] = weighted[i].Value
		}

		for name, of := range map[string]func(p float64) float64{
			"Linear":      func(p float64) float64 { return quantile.Linear(plain, p) },
			"NearestRank": func(p float64) float64 { return quantile.NearestRank(plain, p) },
			"Weighted":    func(p float64) float64 { return quantile.Weighted(weighted, p) },
		} {
			last := math.Inf(-1)
			for p := 0.0; p <= 1; p += 0.05 {
				v := of(p)
				if v < last-1e-12 || v < plain[0] || v > plain[n-1] {
					t.Fatalf("%s at %g is %g after %g", name, p, v, last)
				}

				last = v
			}
		}
	})
}

func TestWeightedQuantilesRiseDespiteRounding(t *testing.T) {
	t.Parallel()

	values := []quantile.WeightedValue{
		{Value: 6.500000000004748e12, Weight: 1.18e-40}, {Value: 2.4670682856211035e13, Weight: 1},
	}
	low, middle, high := quantile.Weighted(values, 0.1), quantile.Weighted(values, 0.5), quantile.Weighted(values, 0.9)
	if low > middle || middle > high || high > values[1].Value {
		t.Errorf("the quantiles are %v, %v and %v", low, middle, high)
	}
}
