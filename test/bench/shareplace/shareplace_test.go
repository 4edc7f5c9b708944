package shareplace

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace/nodes"
	"trainyard/test/bench/target"
)

// halves are jobs of half a GPU, an hour each, and a whole one.
func halves(n int) []*sim.Job {
	spec := func(part float64) *job.Spec {
		one := job.Range{Min: 1, Max: 1}

		return &job.Spec{
			Run: "simulated", Place: job.PlaceAny, Objective: job.ObjectiveTime, Resources: job.Resources{Nodes: one, GPUs: one, GPUShare: part},
		}
	}

	list := []*sim.Job{{Name: "whole", Owner: "ada", Spec: spec(0), Duration: time.Hour}}
	for i := range n {
		list = append(list, &sim.Job{Name: fmt.Sprintf("half-%d", i), Owner: "ada", Spec: spec(0.5), Duration: time.Hour})
	}

	return list
}

func TestHalvesNeedHalfOfTheGPUs(t *testing.T) {
	t.Parallel()
	cluster := []fleet.Node{nodes.New("a", "P100", 4, 16<<30), nodes.New("b", "P100", 4, 16<<30)}

	for i, s := range sides() {
		r, err := replay(s, cluster, halves(6))
		if err != nil {
			t.Fatal(err)
		}
		if want := []int{7, 4, 4}[i]; r.peak != want || r.Succeeded != 7 {
			t.Errorf("%s: %d GPUs are used by %d jobs, want %d", s.name, r.peak, r.Succeeded, want)
		}

		f, err := fill(s, cluster, halves(20))
		if err != nil {
			t.Fatal(err)
		}
		if want := []float64{4.5, 8, 8}[i]; f.allocated != want || f.failed != 21-[]int{8, 15, 15}[i] {
			t.Errorf("%s: pods get %g GPUs and %d get none, want %g", s.name, f.allocated, f.failed, want)
		}
	}
}

func TestTheBenchmarkRunsWithoutTheTraces(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	if figures, err := Run(&out, target.Options{Data: t.TempDir()}); err != nil || len(figures) > 0 {
		t.Errorf("%v, %v: %s", figures, err, &out)
	}
}
