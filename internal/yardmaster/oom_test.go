package yardmaster_test

import (
	"testing"

	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// A program that says how much it needed skips the GPUs that have more memory, but less than that.
func TestMemoryThatAProgramNeededIsTheFloor(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		needed job.Bytes
		want   job.State // with another node that has 48 GB
	}{
		"unknown":                {0, job.Starting},
		"less than it had":       {20 << 30, job.Starting},
		"less than another has":  {40 << 30, job.Starting},
		"as much as another has": {48 << 30, job.Paused},
		"more than another has":  {50 << 30, job.Paused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYardOf(t, yardmaster.Defaults(ordered.FIFO{}))
			y.smallNode("small")

			j := y.submit("alice", spec(1))
			y.round()
			y.running(j, 0)
			y.gpuMemoryNode("middle", 48<<30, 1)

			report := gpuOOM
			report.Needed = tc.needed
			y.ends(j, 0, report)

			y.round()

			if got := y.job(j); got.State != tc.want {
				t.Errorf("job is %s, want %s: %s", got.State, tc.want, got.Reason)
			}
		})
	}
}
