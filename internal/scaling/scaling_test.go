package scaling_test

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/scaling"
)

// program is a synthetic truth: how long a unit of work takes.
type program struct{ shared, own, network float64 }

func (p program) rate(gpus, nodes int) float64 {
	t := p.shared/float64(gpus) + p.own
	if nodes > 1 {
		t += p.network
	}

	return 1 / t
}

func TestObservationsOfAProgramShowHowItScales(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := program{
			shared:  rapid.Float64Range(0.1, 10).Draw(t, "shared"),
			own:     rapid.Float64Range(0, 0.5).Draw(t, "own"),
			network: rapid.Float64Range(0, 0.5).Draw(t, "network"),
		}

		var m *scaling.Model
		for range 3 {
			for _, n := range []int{1, 2, 4, 8, 16} {
				m = m.With(scaling.Observation{Kind: "T4", GPUs: n, Nodes: (n + 3) / 4, PerSecond: p.rate(n, (n+3)/4)})
			}
		}

		for _, n := range []int{1, 2, 3, 4, 8, 12, 16} {
			want, got := p.rate(n, (n+3)/4), m.Rate("T4", 0, n, (n+3)/4)
			if math.Abs(got-want) > 0.1*want {
				t.Errorf("on %d GPUs it expects %.4g units a second, the truth is %.4g", n, got, want)
			}
		}
	})
}

func TestWhatWasNotObservedIsTriedAndThenBelieved(t *testing.T) {
	t.Parallel()
	var m *scaling.Model
	m = m.With(scaling.Observation{Kind: "T4", GPUs: 1, Nodes: 1, PerSecond: 10})
	if r := m.Rate("T4", 0, 2, 1); r < 18 {
		t.Errorf("2 GPUs are expected to do %.3g units a second after 10 on one, want nearly 20", r)
	}
	if n := m.MaxGPUs(); n != 4 {
		t.Errorf("up to %d GPUs would be tried after one, want 4", n)
	}

	m = m.With(scaling.Observation{Kind: "T4", GPUs: 2, Nodes: 1, PerSecond: 10.5})
	if r := m.Rate("T4", 0, 4, 1); r > 12 {
		t.Errorf("4 GPUs are expected to do %.3g units a second after 10 on one and 10.5 on two", r)
	}
}

func TestAnotherModelOfGPUIsJudgedByTFLOPSUntilItIsObserved(t *testing.T) {
	t.Parallel()
	var m *scaling.Model
	m = m.With(scaling.Observation{Kind: "T4", TFLOPS: 50, GPUs: 1, Nodes: 1, PerSecond: 10})
	if r := m.Rate("A100", 200, 1, 1); math.Abs(r-40) > 1 {
		t.Errorf("an A100 with 4 times the TFLOPS is expected to do %.3g units a second, want 40", r)
	}

	m = m.With(scaling.Observation{Kind: "A100", TFLOPS: 200, GPUs: 1, Nodes: 1, PerSecond: 20})
	if r := m.Rate("A100", 200, 1, 1); math.Abs(r-20) > 1 {
		t.Errorf("after 20 units a second were observed %.3g are expected", r)
	}
	if r := m.Rate("T4", 50, 1, 1); math.Abs(r-10) > 1 {
		t.Errorf("on the T4 %.3g units a second are expected, 10 were observed", r)
	}
}

// step is a synthetic truth of a step: seconds of a pass, of a sample, and of waiting.
type step struct{ pass, sample, within, across float64 }

func (s step) seconds(each, passes float64, gpus, nodes int) float64 {
	t := passes * (s.pass + s.sample*each)
	switch {
	case gpus < 2:
	case nodes > 1:
		t += s.across
	default:
		t += s.within
	}

	return t
}

func TestTheNoiseOfGradientsSaysWhatMoreGPUsAreWorth(t *testing.T) {
	t.Parallel()
	truth := step{pass: 0.05, sample: 0.002, within: 0.01, across: 0.03}

	observe := func(m *scaling.Model, noise float64, gpus, nodes int, each float64) *scaling.Model {
		r := scaling.Training{
			NoiseScale: noise, BaseBatch: 64, MaxBatch: 4096, MinPerGPU: 16, MaxPerGPU: 128,
			Batch: each * float64(gpus), StepSeconds: truth.seconds(each, 1, gpus, nodes),
		}

		gain := r.Batch / 64 * (noise + 64) / (noise + r.Batch)

		return m.With(scaling.Observation{
			Kind: "T4", GPUs: gpus, Nodes: nodes, PerSecond: gain / r.StepSeconds, Training: &r,
		})
	}

	model := func(noise float64) *scaling.Model {
		var m *scaling.Model
		for _, o := range []struct {
			gpus, nodes int
			each        float64
		}{{1, 1, 64}, {1, 1, 128}, {2, 1, 64}, {4, 1, 100}, {8, 2, 100}} {
			m = observe(m, noise, o.gpus, o.nodes, o.each)
		}

		return m
	}

	// The speed-up of 16 GPUs on 4 nodes, by the model and by the truth.
	for _, noise := range []float64{10, 1000, 1e6} {
		m := model(noise)

		best := func(gpus, nodes int) float64 {
			most := 0.0
			for each := 16.0; each <= 128; each++ {
				if b := each * float64(gpus); b >= 64 && b <= 4096 {
					most = math.Max(most, b/64*(noise+64)/(noise+b)/truth.seconds(each, 1, gpus, nodes))
				}
			}

			return most
		}

		if got, want := m.Rate("T4", 0, 16, 4), best(16, 4); math.Abs(got-want) > 0.1*want {
			t.Errorf("with a noise scale of %g it expects %.4g units a second on 16 GPUs, the truth is %.4g", noise, got, want)
		}
	}

	// What was learned of steps stays; what they are worth follows the newest noise.
	before := model(10)
	after := observe(before, 1e6, 1, 1, 64)
	if before.Rate("T4", 0, 16, 4) > 2*before.Rate("T4", 0, 1, 1) || after.Rate("T4", 0, 16, 4) < 8*after.Rate("T4", 0, 1, 1) {
		t.Errorf("16 GPUs are %.2f times as fast as one with little noise and %.2f times with much",
			before.Rate("T4", 0, 16, 4)/before.Rate("T4", 0, 1, 1), after.Rate("T4", 0, 16, 4)/after.Rate("T4", 0, 1, 1))
	}
}

func TestAnyObservationsGiveUsableSpeeds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m *scaling.Model
		for range rapid.IntRange(1, 40).Draw(t, "observations") {
			n := rapid.IntRange(1, 64).Draw(t, "gpus")
			m = m.With(scaling.Observation{
				Kind: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "kind"), TFLOPS: rapid.Float64Range(0, 1000).Draw(t, "tflops"),
				GPUs: n, Nodes: rapid.IntRange(1, n).Draw(t, "nodes"), PerSecond: rapid.Float64Range(1e-6, 1e6).Draw(t, "rate"),
			})
		}

		last := 0.0
		for n := 1; n <= 128; n++ {
			r := m.Rate("a", 100, n, 1)
			if !(r > 0) || math.IsInf(r, 0) || r < last*(1-1e-9) {
				t.Fatalf("on %d GPUs %g units a second are expected, on one less %g", n, r, last)
			}

			last = r
		}

		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}

		var again scaling.Model
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		if a, b := m.Rate("d", 10, 7, 2), again.Rate("d", 10, 7, 2); a != b {
			t.Errorf("written and read back it expects %g units a second instead of %g", b, a)
		}
	})
}
