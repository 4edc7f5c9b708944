package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
)

// A small yard of slow nodes, in which jobs take longer than their owners expect, and faster nodes that could be
// provisioned, over a fortnight. Jobs have checkpoints that travel.

// rentable returns an offer of a node with a GPU.
func rentable(model string, hourly job.Money) fleet.Offer {
	gpu := nodeOf("n", model, 1).Inventory.GPUs[0]

	return fleet.Offer{
		Name: "c/" + model, Provider: "c", Type: model, GPU: gpu.Model, GPUs: 1, GPUMemory: gpu.Memory, CPUs: 64000,
		Memory: 256 << 30, Hourly: hourly, Boot: job.Duration(5 * time.Minute), TFLOPS: gpu.Peak,
	}
}

// sluggish returns jobs of every objective, half of them with a deadline, that take up to four times as long as their
// owners expect.
func sluggish(random *rand.Rand) []*sim.Job {
	gpu := nodeOf("n", "T4", 1).Inventory.GPUs[0]
	tflops, _ := gpu.TFLOPS()
	reference := &job.Reference{GPU: gpu.Model, TFLOPS: tflops}
	objectives := []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}

	var jobs []*sim.Job
	for i := range 40 {
		at := time.Duration(i) * 8 * time.Hour
		j := lasting(at, job.Seconds(float64(20+random.IntN(180))*time.Hour.Seconds()), 1)
		j.Reference, j.CheckpointSize = reference, 4<<30
		j.Spec.Objective = objectives[i%len(objectives)]
		j.Spec.Expect = job.Duration(job.Seconds(j.Duration.Seconds() / (1 + 3*random.Float64())))

		if i%2 == 0 {
			due := sim.Epoch().Add(at + j.Duration*3/4)
			j.Spec.Deadline, j.Spec.LateCost = &due, 5e6
		}

		jobs = append(jobs, j)
	}

	return jobs
}

// TestMovesOfSlowJobsAreBounded: over a fortnight, with forecasts that vary by a factor of two from one to the next and
// slow nodes of the yard that idle, a job moves at most once to each kind of GPU that is faster than the slowest, and
// nodes are provisioned for it no more often.
func TestMovesOfSlowJobsAreBounded(t *testing.T) {
	t.Parallel()

	const fasterKinds = 3

	random := rand.New(rand.NewPCG(14, 6))
	moves := map[id.Job]int{}
	provisioned := map[id.Job]int{}

	policy, err := catalogue.All(nil).Make("fifo")
	if err != nil {
		t.Fatal(err)
	}

	nodes := []fleet.Node{nodeOf("v", "V100", 1)}
	for i := range 12 {
		nodes = append(nodes, nodeOf(fmt.Sprint("t", i), "T4", 1))
	}

	run(t, sim.Config{
		Policy: policy(), Nodes: nodes, Jobs: &list{jobs: sluggish(random)},
		Cloud:   &sim.Cloud{Offers: []fleet.Offer{rentable("V100", 15e5), rentable("A100", 3e6), rentable("H100", 6e6)}},
		Network: &sim.Network{Inside: 1 << 30, Across: 120 << 20, Price: 0.09, Disk: 1 << 30},
		Forecast: func(_ *sim.Job, _, left time.Duration) *job.Forecast {
			mid := left.Seconds() * math.Exp(0.7*random.NormFloat64())

			return &job.Forecast{Basis: job.BasisSteps, Remaining: job.Band{Low: mid * 0.6, Mid: mid, High: mid * 1.6}}
		},
		ForecastEvery: 10 * time.Minute,
		OnEnd:         func(o *sim.Outcome) { moves[o.ID] = o.Stops },
		OnLease: func(l *fleet.Lease) {
			if l.Faster && l.State == fleet.LeaseRequested {
				provisioned[l.Job]++
			}
		},
	})

	if len(provisioned) < 20 || len(moves) != 40 {
		t.Fatalf("nodes were provisioned for %d running jobs, and %d have ended", len(provisioned), len(moves))
	}

	for j, n := range moves {
		if n > fasterKinds || provisioned[j] > fasterKinds {
			t.Errorf("%s was moved %d times, and provisioned for %d times", j, n, provisioned[j])
		}
	}
}
