package elastic

import (
	"testing"
	"time"

	"trainyard/internal/sim"
)

// Jobs of one second change places, others do not, and none is lost. That the order
// is the reference's shows in the mean completion of the public trace alone.
func TestJobsOfOneSecondArePutInTheReferencesOrder(t *testing.T) {
	t.Parallel()
	jobs := make([]*sim.Job, 40)
	for i := range jobs {
		jobs[i] = &sim.Job{At: time.Duration(i/10) * time.Second}
	}

	sorted := asReference(jobs)
	moved := 0

	seen := map[*sim.Job]bool{}
	for i, j := range sorted {
		if i > 0 && j.At < sorted[i-1].At {
			t.Fatalf("job %d is submitted before the one ahead of it", i)
		}

		if j != jobs[i] {
			moved++
		}

		seen[j] = true
	}

	if len(seen) != len(jobs) {
		t.Fatalf("%d of %d jobs are left", len(seen), len(jobs))
	}

	if moved == 0 {
		t.Error("nothing has moved: the sort is stable, and the reference's is not")
	}

	few := asReference(jobs[:17])
	for i := range few {
		if few[i] != jobs[i] {
			t.Error("a short list is sorted by insertion, which moves nothing that is in order")
		}
	}
}
