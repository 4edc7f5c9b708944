package runtime

import (
	"testing"

	"trainyard/internal/job"
)

// TestTheEndOfARunSaysWhatItUsed: also of one that was too short to be measured while it ran.
func TestTheEndOfARunSaysWhatItUsed(t *testing.T) {
	t.Parallel()

	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		run := y.script(`i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`)

		u := y.end(run).Use
		if u == nil || u.CPUSeconds <= 0 || u.MemoryPeak <= 0 || u.At.IsZero() {
			t.Fatalf("it used %+v", u)
		}
		if !u.Measures(job.ResourceCPU) || !u.Measures(job.ResourceMemory) || u.Measures(job.ResourceNetwork) {
			t.Errorf("unmeasured: %+v", u.Unmeasured)
		}
	})
}
