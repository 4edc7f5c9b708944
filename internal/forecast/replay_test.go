package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
)

func TestReplaySeesOnlyWhatWasThere(t *testing.T) {
	t.Parallel()
	past := finished(12, 1)
	lib := NewLibrary(past, nil)
	first := Score(&past[0], lib, nil)
	for _, m := range first.Marks {
		if m.Class != calibrate.ClassAlone {
			t.Errorf("before the first job others had ended: %+v", m)
		}

		if _, ok := m.Residuals[calibrate.MethodMatch]; ok {
			t.Errorf("it was compared with later ones: %+v", m)
		}
	}

	last := Score(&past[11], lib, nil)
	if len(last.Marks) != len(calibrate.ReplayPoints) || last.Job != past[11].Job || last.Finished != past[11].Finished {
		t.Fatalf("%+v", last)
	}

	for i, m := range last.Marks {
		if m.Class != calibrate.ClassLike || math.Abs(m.Residuals[calibrate.MethodMatch]) > 0.5 ||
			math.Abs(m.Progress-calibrate.ReplayPoints[i]) > 0.05 {
			t.Errorf("mark %d: %+v", i, m)
		}
	}

	alone := Score(&past[11], lib.Without(func(*history.Past) bool { return true }), nil)
	if alone.Marks[0].Class != calibrate.ClassAlone {
		t.Errorf("with all left out: %+v", alone.Marks[0])
	}
}

func TestReplayHoldsTheStepTimeAgainstTheMethods(t *testing.T) {
	t.Parallel()
	p := history.Past{Job: "j1", Curve: curve.Curve{Total: 100}, End: 100}

	at := 0.0
	for x := 1.0; x <= 100; x++ {
		if x > 50 {
			at++ // twice as slow
		}

		at++
		p.Curve.X, p.Curve.Y, p.At = append(p.Curve.X, x), append(p.Curve.Y, 1/x), append(p.At, at)
	}

	p.Seconds = at
	s := Score(&p, nil, nil)
	if len(s.Marks) != 4 {
		t.Fatalf("%+v", s)
	}

	for i, want := range []float64{math.Log(130.0 / 80), math.Log(110.0 / 60)} {
		if m := s.Marks[i]; m.Class != calibrate.ClassSteps || math.Abs(m.Residuals[calibrate.MethodSteps]-want) > 1e-9 {
			t.Errorf("mark %d: %+v, want %g", i, m, want)
		}
	}

	p.At = nil
	if m := Score(&p, nil, nil).Marks[0]; m.Residuals[calibrate.MethodSteps] != 0 {
		t.Errorf("without times the steps are right: %+v", m)
	}
}

func TestReplayOfAJobWithoutACurve(t *testing.T) {
	t.Parallel()

	if s := Score(&history.Past{Job: "j1", Seconds: 100}, nil, nil); len(s.Marks) != 0 {
		t.Errorf("nothing can be said: %+v", s)
	}

	if s := Score(&history.Past{Job: "j1"}, nil, nil); len(s.Marks) != 0 {
		t.Errorf("nothing is known: %+v", s)
	}
}

// family is a kind of training: how its error falls.
type family struct {
	name                 string
	floor, height, power float64
	length, spread       float64
	drop                 float64 // the error falls by this factor at two thirds of the way
	noise                float64
}

func families(rng *rand.Rand) []family {
	var all []family
	for i := range 8 {
		all = append(all, family{
			name:   fmt.Sprintf("kind %c", 'a'+i),
			floor:  0.2 + rng.Float64(),
			height: 2 + 5*rng.Float64(),
			power:  0.3 + 0.7*rng.Float64(),
			length: math.Exp(6 + 3*rng.Float64()),
			spread: 0.1 + 0.4*rng.Float64(),
			drop:   0.6 + 0.4*rng.Float64(),
			noise:  0.002 + 0.01*rng.Float64(),
		})
	}

	return all
}

// train makes one job of a family. Its goal is the value at the end of its length.
func (f *family) train(n int, rng *rand.Rand) history.Past {
	length := f.length * math.Exp(f.spread*rng.NormFloat64())
	at := func(x float64) float64 {
		u := x / length
		y := f.floor + f.height*math.Pow(1+100*u, -f.power)
		if u > 2.0/3 {
			y -= (y - f.floor) * (1 - f.drop)
		}

		return y
	}

	goal := curve.Goal{Value: at(length), Set: true}
	p := history.Past{
		Job:      id.Job(fmt.Sprintf("j%d", n)),
		Finished: noon.Add(time.Duration(n) * time.Hour),
		Group:    fmt.Sprint("g", n),
		Features: history.Features{
			Name:   f.name,
			Owner:  "ann",
			Task:   f.name,
			Model:  f.name,
			Metric: "loss",
		},
		Curve: curve.Curve{Goal: goal},
	}

	for k := 1; k < 200; k++ {
		x := length * float64(k) / 100
		y := at(x) * (1 + f.noise*rng.NormFloat64())
		p.Curve.X, p.Curve.Y = append(p.Curve.X, x), append(p.Curve.Y, y)

		if goal.Met(y) {
			break
		}
	}

	p.End = p.Curve.X[len(p.Curve.X)-1]
	p.Seconds = p.End

	return p
}

// TestIntervalsHoldInFourOfFiveCases lets a yard run jobs of several kinds one after the
// other. Whether an interval held is told by the one that was shown before the job
// had ended.
func TestIntervalsHoldInFourOfFiveCases(t *testing.T) {
	t.Parallel()

	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 7))
		kinds := families(rng)
		var past []history.Past
		var rec calibrate.Record

		var lib *Library
		for n := range 160 {
			if n%40 == 0 {
				lib = NewLibrary(past, nil)
			}

			p := kinds[rng.IntN(len(kinds))].train(n, rng)
			rec.Add(Score(&p, lib, &rec))
			past = append(past, p)
		}

		share, n := rec.Coverage()
		if n < 300 || share < 0.7 || share > 0.9 {
			t.Errorf("seed %d: %g of %d intervals held", seed, share, n)
		}

		// The blend is not worse than the worse of its parts.
		worst, blend := 0.0, 0.0
		for _, l := range rec.Table() {
			switch {
			case l.Quarter != 0:
			case l.Method == calibrate.MethodBlend:
				blend = l.Median
			default:
				worst = max(worst, l.Median)
			}
		}

		if blend > worst {
			t.Errorf("seed %d: the blend is off by %g, its parts by at most %g", seed, blend, worst)
		}

		t.Logf("seed %d: %.3f of %d held; %+v", seed, share, n, rec.Table())
	}
}
