package forecast

import (
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/job"
)

func TestSpeedsElsewhere(t *testing.T) {
	t.Parallel()
	seen := speeds{source: "measured", samples: []sample{{"A100", 1, 1.1}, {"A100", 2, 0.6}, {"A100", 4, 0.35}}}
	one := speeds{source: "measured", samples: []sample{{"A100", 2, 0.6}}}

	rates := declaredSpeeds(job.NewSpeed(
		0,
		0,
		0,
		job.Rate{
			GPU:       "A100:80GB",
			GPUs:      2,
			PerSecond: 10,
		},
		job.Rate{GPU: "H100", GPUs: 2, PerSecond: 25},
		job.Rate{GPU: "H100", GPUs: 2, Share: 0.5, PerSecond: 99},
	))

	a100 := location{gpu: "A100", gpus: 2}
	for name, tt := range map[string]struct {
		to      location
		sources []speeds
		want    float64
		why     string
	}{
		"seen at that size":              {location{gpu: "A100", gpus: 4}, []speeds{seen}, 0.6 / 0.35, "based on speeds measured on 1, 2 and 4× A100"},
		"between sizes seen":             {location{gpu: "A100", gpus: 3}, []speeds{seen}, 0.6 / (0.1 + 1.0/3), "based on speeds measured on 1, 2 and 4× A100"},
		"twice the greatest":             {location{gpu: "A100", gpus: 8}, []speeds{seen}, 0.6 / 0.225, "based on speeds measured on 1, 2 and 4× A100"},
		"beyond twice the greatest":      {location{gpu: "A100", gpus: 64}, []speeds{seen}, 0.6 / 0.225, "based on speeds measured on 1, 2 and 4× A100; no faster than on 8, twice the largest known count"},
		"another kind, told":             {location{gpu: "H100", gpus: 2}, []speeds{one, rates}, 2.5, "based on speeds declared on 2× H100"},
		"another kind, told at one size": {location{gpu: "H100", gpus: 4}, []speeds{one, rates}, 5, "based on the speed declared on 2× H100, assumed to scale with the number of GPUs"},
		"another kind, by TFLOPS":        {location{gpu: "X", gpus: 4, tflops: 624}, []speeds{seen}, 2 * 0.6 / 0.35, "based on speeds measured on 1, 2 and 4× A100, scaled by TFLOPS"},
		"by TFLOPS alone":                {location{gpu: "X", gpus: 2, tflops: 624}, nil, 2, "based on TFLOPS only"},
		"by data sheets alone":           {location{gpu: "H100", gpus: 2}, []speeds{one}, 989.4 / 312, "based on TFLOPS only"},
		"the same kind, nobody knows it": {location{gpu: "A100", gpus: 1}, nil, 0.5, "based on TFLOPS only"},
	} {
		got, why, ok := speedup(tt.to, a100, tt.sources...)
		if !ok || why != tt.why || got < tt.want*0.999 || got > tt.want*1.001 {
			t.Errorf("%s: %g times as fast %q (%v), want %g %q", name, got, why, ok, tt.want, tt.why)
		}
	}

	for name, to := range map[string]location{"an unknown kind": {gpu: "Quantum", gpus: 2}, "no GPU": {gpu: "H100"}} {
		if got, why, ok := speedup(to, a100, one); ok {
			t.Errorf("%s: %g %q", name, got, why)
		}
	}
}

func TestMoreGPUsThatDoNotHelp(t *testing.T) {
	t.Parallel()
	slower := []sample{{"A100", 1, 1}, {"A100", 4, 1.2}}
	if got := secondsPerUnit(slower, 2); got < 1 || got > 1.2 {
		t.Errorf("between 1 and 1.2 s lies %g", got)
	}

	better := []sample{{"A100", 1, 1}, {"A100", 4, 0.2}} // more than four times as fast
	if got := secondsPerUnit(better, 2); got < 0.2 || got > 1 {
		t.Errorf("between 0.2 and 1 s lies %g", got)
	}
}

func TestMoreGPUsAreNotSlowerByTFLOPS(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := location{
			gpu:    "A",
			gpus:   rapid.IntRange(1, 64).Draw(t, "from"),
			tflops: rapid.Float64Range(1, 1000).Draw(t, "tflops"),
		}

		to := location{
			gpu:    rapid.SampledFrom([]string{"A", "B"}).Draw(t, "gpu"),
			gpus:   rapid.IntRange(1, 64).Draw(t, "to"),
			tflops: rapid.Float64Range(1, 1000).Draw(t, "to tflops"),
		}

		more := to
		more.gpus += rapid.IntRange(1, 64).Draw(t, "more")
		a, _, ok := speedup(to, from)

		b, _, okToo := speedup(more, from)
		if !ok || !okToo || a <= 0 || b < a*(1-1e-12) {
			t.Fatalf("%d GPUs are %g times as fast, %d are %g", to.gpus, a, more.gpus, b)
		}
	})
}

func TestElsewhereHasTimeAndCost(t *testing.T) {
	t.Parallel()
	in := trained(100)
	in.Progress = Progress{Total: 1000, Done: 200, At: after(100)}
	in.Runs[0].From, in.Runs[0].Setup = after(-20), 20
	in.Places = []Place{
		{GPU: "A100", GPUs: 2, Hourly: 4},
		{GPU: "A100", GPUs: 4, Hourly: 36},
		{GPU: "H100", GPUs: 2, Hourly: 18},
		{GPU: "Quantum", GPUs: 1},
	}

	f := Make(in)
	if len(f.Elsewhere) != 2 {
		t.Fatalf("elsewhere: %+v", f.Elsewhere)
	}

	four, hopper := f.Elsewhere[0], f.Elsewhere[1]
	near(t, "on four", four.Remaining, 200+20, 0.01)
	near(t, "its cost", float64(four.Cost), 2.2, 0.01)
	near(t, "on H100", hopper.Remaining, 400*312/989.4+20, 0.01)

	if four.Why != "based on TFLOPS only" {
		t.Errorf("why: %q", four.Why)
	}
}
