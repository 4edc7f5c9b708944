package andreas

import (
	"fmt"
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// Instance is a workload on a cluster.
type Instance struct {
	Jobs   trace.TaskOptions
	Nodes  []fleet.Node
	Tariff *fleet.Tariff
}

// Cost is what a workload cost under a policy.
type Cost struct {
	Energy, Late float64 // money
	Stops        float64 // of a job, by plans
}

// Total is all of it.
func (c Cost) Total() float64 { return c.Energy + c.Late }

// Run simulates the workload under a policy.
func (in Instance) Run(p place.Policy) (Cost, error) {
	jobs, err := in.Jobs.Generate()
	if err != nil {
		return Cost{}, err
	}

	r, err := sim.Run(sim.Config{Policy: p, Nodes: in.Nodes, Jobs: jobs, Tariff: in.Tariff})
	switch {
	case err != nil:
		return Cost{}, err
	case r.Succeeded != r.Jobs:
		return Cost{}, fmt.Errorf("%s: %d of %d jobs succeeded", p.Name(), r.Succeeded, r.Jobs)
	}

	return Cost{Energy: r.Money, Late: r.LateMoney, Stops: float64(r.Stops) / float64(r.Jobs)}, nil
}

// way is how a job may run: how long it takes, and what it costs in a second on a
// node that is used in the best way.
type way struct {
	time float64
	rate money.PerSecond
}

// Bound is what the workload costs at least, whatever the policy: each job begins
// when it is submitted, its nodes are always shared in the cheapest way, starting
// and stopping is free, and it goes from one number of GPUs to another as suits it
// best. No job can cost less alone, and jobs only get into each other's way.
func (in Instance) Bound() (float64, error) {
	jobs, err := in.Jobs.Generate()
	if err != nil {
		return 0, err
	}

	sum := money.Amount(0)

	for {
		j, err := jobs.Next()
		if err != nil {
			return float64(sum), ignoreEnd(err)
		}

		var ways []way
		for i := range in.Nodes {
			ways = in.ways(ways, j, &in.Nodes[i])
		}

		due := j.Spec.Deadline.Sub(sim.Epoch().Add(j.At)).Seconds()
		sum += cheapest(ways, due, j.Spec.LateCost.PerHour().PerSecond())
	}
}

// ways adds how a job may run on nodes like this one.
func (in Instance) ways(list []way, j *sim.Job, n *fleet.Node) []way {
	gpu := &n.Inventory.GPUs[0]
	curve := j.Spec.Speed.On(gpu.Model, gpu.Memory)
	price := in.Tariff.Of(n)

	least := money.PerGPUSecond(math.Inf(1))
	for u := 1; u <= len(n.Inventory.GPUs); u++ {
		least = min(least, in.Tariff.Rate(price, u).PerGPU(u).PerSecond())
	}

	for g := curve.MinGPUs(); g <= min(curve.MaxGPUs(), len(n.Inventory.GPUs)); g++ {
		w := way{time: j.Spec.Speed.Work / curve.Rate(g, 1), rate: least.Of(float64(g))}
		if !slices.Contains(list, w) {
			list = append(list, w)
		}
	}

	return list
}

// cheapest is the least that a job costs: all the way in one way, or in two such
// that it ends just in time. More than two are never better, because two
// conditions, the work and the time, are met by two.
func cheapest(ways []way, due float64, late money.PerSecond) money.Amount {
	best := money.Amount(math.Inf(1))
	for _, a := range ways {
		best = min(best, a.rate.For(a.time)+late.For(math.Max(a.time-due, 0)))
		for _, b := range ways {
			if a.time > due && b.time < due {
				share := (due - b.time) / (a.time - b.time)
				best = min(best, a.rate.For(share*a.time)+b.rate.For((1-share)*b.time))
			}
		}
	}

	return best
}

// Lambda turns a load into the time between two jobs of a cluster of one node: the
// load is the work that is offered, on one TESLA each, for what the cluster does,
// with a TURING for 0.43 of a TESLA.
func Lambda(load float64) time.Duration {
	sum := 0.0
	tasks := trace.AndreasJobs()
	for i := range tasks {
		sum += tasks[i].Single().Seconds() / float64(len(tasks))
	}

	const turing, nodes = 0.43, 2

	return time.Duration(sum / ((4 + 2*turing) / nodes) / load * float64(time.Second))
}
