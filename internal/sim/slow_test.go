package sim_test

import (
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
		Memory: 256 << 30, Hourly: hourly, Boot: job.Duration(5 * time.Minute),
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
	for i := range 60 {
		at := time.Duration(i) * 5 * time.Hour
		j := lasting(at, job.Seconds(float64(10+random.IntN(50))*time.Hour.Seconds()), 1)
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

// TestMovesOfSlowJobsAreBounded: over a fortnight, with forecasts that vary by a factor of two from one to the next, a
// job moves at most once to each faster kind of GPU and as often back home, and nodes that are provisioned for running
// jobs are mostly used.
func TestMovesOfSlowJobsAreBounded(t *testing.T) {
	t.Parallel()

	random := rand.New(rand.NewPCG(14, 6))
	moves := map[id.Job]int{}
	provisioned, used := 0, 0

	make, err := catalogue.All(nil).Make("fifo")
	if err != nil {
		t.Fatal(err)
	}

	nodes := []fleet.Node{nodeOf("v", "V100", 1)}
	for _, name := range []string{"t1", "t2", "t3", "t4", "t5", "t6"} {
		nodes = append(nodes, nodeOf(name, "T4", 1))
	}

	result := run(t, sim.Config{
		Policy: make(), Nodes: nodes, Jobs: &list{jobs: sluggish(random)},
		Cloud:   &sim.Cloud{Offers: []fleet.Offer{rentable("V100", 15e5), rentable("A100", 3e6), rentable("H100", 6e6)}},
		Network: &sim.Network{Inside: 1 << 30, Across: 120 << 20, Price: 0.09, Disk: 1 << 30},
		Forecast: func(_ *sim.Job, _, left time.Duration) *job.Forecast {
			mid := left.Seconds() * math.Exp(0.7*random.NormFloat64())

			return &job.Forecast{Basis: job.BasisSteps, Remaining: job.Band{Low: mid * 0.6, Mid: mid, High: mid * 1.6}}
		},
		ForecastEvery: 10 * time.Minute,
		OnEnd:         func(o *sim.Outcome) { moves[o.ID] = o.Stops },
		OnLease: func(l *fleet.Lease) {
			if !l.Faster {
				return
			}

			switch l.State {
			case fleet.LeaseRequested:
				provisioned++
			case fleet.LeaseActive:
				used++
			}
		},
	})

	t.Logf("%d moves of %d jobs; %d nodes provisioned for running jobs, %d became ready", result.Moves, len(moves),
		provisioned, used)

	if provisioned == 0 || result.Moves == 0 {
		t.Fatal("no job was too slow")
	}

	for j, n := range moves {
		if n > 6 {
			t.Errorf("%s was moved %d times", j, n)
		}
	}
}
