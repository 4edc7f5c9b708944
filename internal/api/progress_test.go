package api

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"trainyard/internal/job"
	"trainyard/internal/scaling"
)

func TestWhatAProgramTellsIsChecked(t *testing.T) {
	t.Parallel()
	kinds := make([]job.Rate, 9)
	for i := range kinds {
		kinds[i] = job.Rate{GPU: fmt.Sprint("k", i), GPUs: 1, PerSecond: 1}
	}

	for name, tt := range map[string]struct {
		progress job.Progress
		good     bool
	}{
		"nothing done":       {job.Progress{}, true},
		"the most":           {job.Progress{Done: 1e18, Work: 1e18, Rates: kinds[:8]}, true},
		"too much":           {job.Progress{Done: 1.1e18}, false},
		"not a number":       {job.Progress{Done: math.NaN()}, false},
		"without an end":     {job.Progress{Work: math.Inf(1)}, false},
		"a rate that is not": {job.Progress{Rates: []job.Rate{{GPUs: 1, PerSecond: math.NaN()}}}, false},
		"too many rates":     {job.Progress{Rates: slices.Repeat(kinds[:1], 65)}, false},
		"negative work":      {job.Progress{Work: -1}, false},
		"too many kinds":     {job.Progress{Rates: kinds}, false},
		"negative GPUs":      {job.Progress{Rates: []job.Rate{{GPUs: -1, PerSecond: 1}}}, false},
		"a very long kind":   {job.Progress{Rates: []job.Rate{{GPU: strings.Repeat("x", 101), PerSecond: 1}}}, false},
		"a rate of nothing":  {job.Progress{Rates: []job.Rate{{GPUs: 1}}}, false},
		"a share":            {job.Progress{Rates: []job.Rate{{GPUs: 1, Share: 0.5, PerSecond: 1}}}, true},
		"a share of two":     {job.Progress{Rates: []job.Rate{{GPUs: 2, Share: 0.5, PerSecond: 1}}}, false},
		"a share of all":     {job.Progress{Rates: []job.Rate{{GPUs: 1, Share: 1, PerSecond: 1}}}, false},
		"a share of a NaN":   {job.Progress{Rates: []job.Rate{{GPUs: 1, Share: math.NaN(), PerSecond: 1}}}, false},
		"a rate without GPU": {job.Progress{Rates: []job.Rate{{PerSecond: 1e-9}}}, true},
	} {
		if err := CheckProgress(&tt.progress); (err == nil) != tt.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatAProgramTellsOfItsBatchIsChecked(t *testing.T) {
	t.Parallel()

	good := scaling.Training{
		Batch: 64, StepSeconds: 0.5, NoiseScale: 100, BaseBatch: 32, MaxBatch: 256, MinPerGPU: 8, MaxPerGPU: 64,
	}
	if err := CheckProgress(&job.Progress{Training: &good}); err != nil {
		t.Fatal(err)
	}

	for name, change := range map[string]func(*scaling.Training){
		"batch":               func(c *scaling.Training) { c.Batch = 0 },
		"step_seconds":        func(c *scaling.Training) { c.StepSeconds = math.NaN() },
		"base_batch":          func(c *scaling.Training) { c.BaseBatch = -1 },
		"max_batch":           func(c *scaling.Training) { c.MaxBatch = math.Inf(1) },
		"min_per_gpu":         func(c *scaling.Training) { c.MinPerGPU = 0 },
		"max_per_gpu":         func(c *scaling.Training) { c.MaxPerGPU = 1.1e18 },
		"noise_scale":         func(c *scaling.Training) { c.NoiseScale = math.NaN() },
		"passes":              func(c *scaling.Training) { c.Passes = -1 },
		"32 to 16":            func(c *scaling.Training) { c.MaxBatch = 16 },
		"8 to 4 per GPU":      func(c *scaling.Training) { c.MaxPerGPU = 4 },
		"between 0 and 16384": func(c *scaling.Training) { c.Passes = job.MaxCount + 1 },
	} {
		bad := good
		change(&bad)

		if err := CheckProgress(&job.Progress{Training: &bad}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}

	none := good
	none.NoiseScale, none.Passes = 0, 0
	if err := CheckProgress(&job.Progress{Training: &none}); err != nil {
		t.Errorf("no noise and one pass: %v", err)
	}
}

func TestPercentIsAHundredOnlyWhenAllIsDone(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ done, work, want float64 }{{0, 3, 0}, {1, 3, 33.3}, {2.9999, 3, 99.9}, {3, 3, 100},
		{4, 3, 100}} {
		j := Job{Work: tt.work}
		j.SetDone(tt.done)

		if *j.Percent != tt.want {
			t.Errorf("%v of %v is %v percent, want %v", tt.done, tt.work, *j.Percent, tt.want)
		}
	}
}
