package agent_test

import (
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// TestAReportSaysWhatTheRanksUse: the program of the fake runtime is this test itself.
func TestAReportSaysWhatTheRanksUse(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rt := newFakeRuntime()
	stop := launch(t, config(t, y, rt))
	defer stop()

	order := assignment("j1.1")
	order.Launch.GPUs = []int{0}
	y.assign(order)

	var got api.RankReport
	y.await("a report of what j1.1 uses", func() bool {
		last, ok := y.last("j1.1")
		got = last

		return ok && last.Use != nil
	})

	if u := got.Use; u.CPUSeconds <= 0 || u.Memory <= 0 || u.At.IsZero() {
		t.Errorf("it uses %+v", u)
	}

	for r, want := range map[job.Resource]bool{ //nolint:exhaustive // whether disks are is the machine's matter
		job.ResourceCPU: true, job.ResourceMemory: true, job.ResourceGPU: false, job.ResourceNetwork: false,
	} {
		if got.Use.Measures(r) != want {
			t.Errorf("%s measured: %v, want %v (%+v)", r, !want, want, got.Use.Unmeasured)
		}
	}
}
