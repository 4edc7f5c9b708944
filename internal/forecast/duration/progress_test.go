package duration_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
)

// gpt is what is known of a job that trains a small language model.
var gpt = history.Features{
	Name: "gpt-small", Owner: "ada", Task: "language", Model: "gpt2", Metric: "val_loss",
}

// shape makes a curve of so many points until a part of its end.
func shape(f func(u float64) float64, end, until float64, n int) curve.Curve {
	var c curve.Curve
	for i := 1; i <= n; i++ {
		if u := float64(i) / float64(n); u <= until {
			c.X, c.Y = append(c.X, u*end), append(c.Y, f(u))
		}
	}

	return c
}

// hiddenUnits is jobs that are alike in all that is known of them and take very different times; their curves go
// straight
// to the goal.
func hiddenUnits(n int) []history.Past {
	rng := rand.New(rand.NewPCG(11, 13))
	past := make([]history.Past, n)
	for i := range past {
		seconds := 1000 * math.Exp(0.8*rng.NormFloat64())
		c := shape(func(u float64) float64 { return 10 * math.Exp(-2*u) }, 500, 1, 20)
		c.Goal = curve.Goal{Value: c.Y[len(c.Y)-1], Set: true}
		p := history.Past{
			Job: id.NewJob(uint64(i + 1)), Group: fmt.Sprintf("g%d", i%10), Features: gpt, Finished: day,
			Seconds: seconds, Curve: c, End: 500,
		}

		for k := range c.X {
			p.At = append(p.At, seconds*float64(k+1)/20)
		}

		past[i] = p
	}

	return past
}

func TestPredictGoesByProgressWhereFeaturesTellNothing(t *testing.T) {
	t.Parallel()
	past := hiddenUnits(70)
	trained := train(t, past[:60])
	if len(trained.Running) != len(trained.Validation) {
		t.Fatalf("judged on running jobs: %+v", trained.Running)
	}

	text, err := json.Marshal(trained)
	if err != nil {
		t.Fatal(err)
	}

	var m duration.Model
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}

	var after float64

	for _, p := range past[60:] {
		c := p.Curve
		c.X, c.Y = c.X[:8], c.Y[:8]
		progress := duration.Progress{Elapsed: p.At[7], Done: duration.FractionDone(&c)}
		if blind, err := m.Predict(p.Features, progress.Elapsed); err == nil {
			t.Errorf("without progress nothing tells how long it takes, it says %+v", blind)
		}

		seen, err := m.PredictAt(p.Features, progress)
		if err != nil {
			t.Fatal(err)
		}

		if !(seen.Low >= 0 && seen.Low <= seen.Mid && seen.Mid <= seen.High && seen.Mid >= progress.Elapsed) {
			t.Errorf("after %.0f s it says %+v", progress.Elapsed, seen)
		}

		after += math.Abs(math.Log(seen.Mid/p.Seconds)) / 10
	}

	if after > 0.25 { // half of the error at which it refuses to answer before they start
		t.Errorf("with progress it is wrong by a factor of %.2f", math.Exp(after))
	}
}

func TestWayIsThePartOfTheWayToTheGoal(t *testing.T) {
	t.Parallel()
	loss := curve.Goal{Value: 1, Set: true}
	for name, tc := range map[string]struct {
		curve curve.Curve
		want  float64
	}{
		"nothing":              {curve.Curve{}, 0},
		"no goal":              {curve.Curve{X: []float64{1, 2}, Y: []float64{3, 2}}, 0},
		"of a declared total":  {curve.Curve{X: []float64{1, 25}, Y: []float64{3, 2}, Total: 100}, 0.25},
		"one point":            {curve.Curve{X: []float64{1}, Y: []float64{8}, Goal: loss}, 0},
		"in logarithms":        {curve.Curve{X: []float64{1, 2}, Y: []float64{16, 4}, Goal: loss}, 0.5},
		"one outlier":          {curve.Curve{X: []float64{1, 2, 3, 4}, Y: []float64{16, 4, 4, 900}, Goal: loss}, 0.5},
		"below nought":         {curve.Curve{X: []float64{1, 2}, Y: []float64{-1, -3}, Goal: curve.Goal{Value: -9, Set: true}}, 0.25},
		"rising":               {curve.Curve{X: []float64{1, 2}, Y: []float64{0, 0.6}, Goal: curve.Goal{Value: 0.8, Rising: true, Set: true}}, 0.75},
		"the wrong way":        {curve.Curve{X: []float64{1, 2}, Y: []float64{4, 8}, Goal: loss}, 0.01},
		"past the goal":        {curve.Curve{X: []float64{1, 2}, Y: []float64{4, 0.5}, Goal: loss}, 1},
		"began where it ends":  {curve.Curve{X: []float64{1, 2}, Y: []float64{1, 2}, Goal: loss}, 0},
		"values that are none": {curve.Curve{X: []float64{1, 2}, Y: []float64{math.NaN(), 2}, Goal: loss}, 0},
	} {
		if got := duration.FractionDone(&tc.curve); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: it is %g, want %g", name, got, tc.want)
		}
	}
}
