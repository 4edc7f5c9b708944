package agent

import (
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

func TestWhatCountsAsActivity(t *testing.T) {
	t.Parallel()

	began := time.Date(2026, 11, 17, 9, 0, 0, 0, time.UTC)
	unmeasured := []job.Unmeasured{{Resource: job.ResourceCPU, Why: "no process of the run can be seen"}}

	tests := []struct {
		name   string
		uses   func(i int) job.Use // at the measurement i
		tunnel int                 // at which something goes through a tunnel; 0 for never
		idle   int64               // seconds after ten measurements; -1 if it is not known
	}{
		{"nothing", func(int) job.Use { return job.Use{} }, 0, 50},
		{"less than a tenth of a CPU", func(i int) job.Use { return job.Use{CPUSeconds: 0.45 * float64(i)} }, 0, 50},
		{"a tenth of a CPU", func(i int) job.Use { return job.Use{CPUSeconds: 0.5 * float64(i)} }, 0, 0},
		{"a CPU until the fourth", func(i int) job.Use { return job.Use{CPUSeconds: 5 * float64(min(i, 4))} }, 0, 30},
		{
			"a GPU that does nothing",
			func(int) job.Use { return job.Use{GPUs: []job.GPUUse{{Busy: 0.04, Memory: 1 << 30}}} }, 0, 50,
		},
		{"one of two GPUs", func(int) job.Use { return job.Use{GPUs: []job.GPUUse{{}, {Index: 1, Busy: 0.05}}} }, 0, 0},
		{"a tunnel", func(int) job.Use { return job.Use{} }, 7, 15},
		{"what cannot be measured", func(int) job.Use { return job.Use{Unmeasured: unmeasured} }, 0, -1},
	}

	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var a activities
			now := began

			for i := range 11 {
				now = began.Add(time.Duration(i) * useEvery)
				u := tc.uses(i)
				u.At = now
				a.look(now, map[string]job.Use{"j1.1/0": u})

				if i > 0 && i == tc.tunnel {
					a.touch(now, "j1.1/0")
				}
			}

			ranks := []api.RankReport{{Run: "j1.1", State: job.RunRunning}, {Run: "j2.1", State: job.RunRunning}}
			a.add(now, ranks)

			got := int64(-1)
			if ranks[0].Idle != nil {
				got = *ranks[0].Idle
			}

			if got != tc.idle || ranks[1].Idle != nil {
				t.Errorf("idle for %d s, want %d; of a rank that was never measured %v", got, tc.idle, ranks[1].Idle)
			}
		})
	}
}
