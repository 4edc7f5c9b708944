package elastic

import (
	"math"
	"testing"

	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

func TestTheBoundIsWhereAllKindsAreBusyWithWhatTheyAreBestAt(t *testing.T) {
	t.Parallel()

	// Two jobs take 100 s on their own kind and for ever on the other, one 100 s on either.
	on := func(a, b float64) *sim.Job {
		return &sim.Job{Spec: &job.Spec{
			Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, GPUs: job.Range{Min: 1, Max: 1}},
			Speed: job.NewSpeed(
				100,
				0,
				0,
				job.Rate{GPU: "A", GPUs: 1, PerSecond: a},
				job.Rate{GPU: "B", GPUs: 1, PerSecond: b},
			),
		}}
	}

	cluster := append(nodes("A", 1, 1), nodes("B", 1, 1)...)
	got, err := bound(cluster, trace.List([]*sim.Job{on(1, 1e-6), on(1e-6, 1), on(1, 1)}))
	if want := 150.0; err != nil || math.Abs(got-want) > 0.5 {
		t.Errorf("the bound is %g (%v), want %g", got, err, want)
	}
}
