package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/metric"
)

// ticks are points every so many steps, with the seconds that each interval took.
func ticks(every float64, took ...float64) []metric.Point {
	points := []metric.Point{{}}
	at := 0.0
	for i, t := range took {
		at += t
		points = append(points, metric.Point{Step: every * float64(i+1), At: at})
	}

	return points
}

// repeat makes n intervals: of usual seconds, but each k-th of another length.
func repeated(n int, usual float64, k int, other float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = usual
		if k > 0 && (i+1)%k == 0 {
			all[i] = other
		}
	}

	return all
}

func TestStepTime(t *testing.T) {
	t.Parallel()
	hiccup := repeated(32, 1, 0, 0)
	hiccup[27] = 100
	compiled := repeated(12, 1, 0, 0)
	compiled[0] = 60
	faster := append(repeated(40, 2, 0, 0), repeated(40, 1, 0, 0)...)

	bursts := repeated(64, 0, 8, 8)
	burst := repeated(40, 0.003, 0, 0)
	burst[0] = 100
	for name, tt := range map[string]struct {
		points []metric.Point
		want   float64
	}{
		"regular steps":                         {ticks(10, repeated(32, 1, 0, 0)...), 0.1},
		"an evaluation after each eighth":       {ticks(10, repeated(64, 1, 8, 9)...), 0.2},
		"one long pause is no habit":            {ticks(10, hiccup...), 0.1},
		"nor is the first step, which compiles": {ticks(10, compiled...), 0.1},
		"what was long ago does not count":      {ticks(10, faster...), 0.1},
		"points that arrive in bursts":          {ticks(10, bursts...), 0.1},
		"one burst after a long time":           {ticks(10, burst...), 0.25},
		"nothing but a burst":                   {ticks(10, repeated(40, 0.003, 0, 0)...), 0},
		"two points a moment apart":             {ticks(1, 0.003), 0},
		"two points":                            {ticks(10, 3), 0.3},
		"one point":                             {ticks(10), 0},
		"no time passes":                        {ticks(10, 0, 0, 0), 0},
		"no step is made":                       {ticks(0, 1, 1, 1), 0},
	} {
		if got := measure(tt.points).perUnit; got < tt.want*0.99 || got > tt.want*1.01 {
			t.Errorf("%s: a step takes %g s, want %g", name, got, tt.want)
		}
	}

	if got := measure(nil); got != (pace{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestStepTimeFollowsTheClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		millis := rapid.SliceOfN(rapid.IntRange(0, 100_000), 2, 200).Draw(t, "millis")
		by := math.Exp2(float64(rapid.IntRange(0, 6).Draw(t, "by")))
		millis[len(millis)-1] += 1000 // points must cover a second

		took, slow := make([]float64, len(millis)), make([]float64, len(millis))
		for i, ms := range millis {
			took[i], slow[i] = float64(ms)/1000, float64(ms)/1000*by
		}

		a, b := measure(ticks(5, took...)), measure(ticks(5, slow...))
		if a.perUnit < 0 || a.spread < 0 {
			t.Fatalf("%+v", a)
		}

		if d := b.perUnit - a.perUnit*by; d > 1e-6*b.perUnit || d < -1e-6*b.perUnit {
			t.Fatalf("with a clock %g times as slow a step takes %g s, and %g before", by, b.perUnit, a.perUnit)
		}
	})
}
