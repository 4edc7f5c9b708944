package sim_test

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

func ExampleRun() {
	spec := &job.Spec{
		Name: "train", Run: "simulated", Place: job.PlaceAny,
		Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, GPUs: job.Range{Min: 1, Max: 1}},
	}

	result, err := sim.Run(sim.Config{
		Policy: ordered.FIFO{},
		Nodes: []fleet.Node{{
			ID: "a", Class: fleet.Local,
			Inventory: fleet.Inventory{CPUs: 8000, Memory: 64 << 30, GPUs: []fleet.GPU{{Model: "V100", Memory: 16 << 30}}},
		}},
		Jobs: trace.List([]*sim.Job{
			{Name: "first", Spec: spec, Duration: time.Hour},
			{Name: "second", At: 5 * time.Minute, Spec: spec, Duration: 30 * time.Minute},
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Printf("%d jobs, makespan %s, mean queueing time %.0f s\n", result.Succeeded, result.Makespan, result.Waiting.Mean)
	// Output: 2 jobs, makespan 1h30m0s, mean queueing time 1650 s
}
