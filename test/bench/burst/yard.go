package burst

import (
	"fmt"
	"math"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/yardmaster"
)

// How the yard is run: the production policy on a cluster whose own nodes cost
// nothing, with as many nodes to hire as it wants.
type yardRun struct {
	value float64 // what an hour of waiting is worth, in GPU-hours of the cloud
	never bool    // nothing can be hired
	blind bool    // nobody says how long a job will run
}

// policy names the policy with its parameters. Jobs are neither aged nor patient
// by other rules than the one that is measured: those times are set beyond all waits.
func (y yardRun) policy() string {
	return fmt.Sprintf("rules:balanced=%s:ageing=90000h:patience=90000h", strings.TrimSuffix(fmt.Sprintf("%f", y.value), ".000000"))
}

// run simulates a window and sums it up. The schedule is what ran on the yard's own nodes.
func (y yardRun) run(w *window) (outcome, []seat, error) {
	make, err := catalogue.All(nil).Make(y.policy())
	if err != nil {
		return outcome{}, nil, err
	}
	sum := newSummary(w)
	cfg := sim.Config{
		Policy: make(), Nodes: local(w.nodes), Jobs: trace.List(y.jobs(w.tasks)),
		Yard: func(c *yardmaster.Config) { c.Keep.Idle, c.Keep.Margin = time.Millisecond, 0 },
		Done: func(o *sim.Outcome) {
			var n int
			if _, err := fmt.Sscanf(o.Job.Name, "philly-%d", &n); err == nil && o.State == job.Succeeded {
				sum.ended(&w.tasks[n], o.Wait().Hours(), o.Completion().Hours())
			}
		},
	}
	if !y.never {
		cfg.Cloud = &sim.Cloud{Offers: offers()}
	}
	r, err := sim.Run(cfg)
	if err != nil {
		return outcome{}, nil, err
	}
	if r.Left > 0 || r.Succeeded != len(w.tasks) {
		return outcome{}, nil, fmt.Errorf("%d of %d jobs succeeded, %d never ended", r.Succeeded, len(w.tasks), r.Left)
	}
	return sum.outcome(r.ByClass[fleet.OnDemand]), nil, nil
}

// local are the yard's own nodes.
func local(count int) []fleet.Node {
	list := make([]fleet.Node, count)
	for i := range list {
		list[i] = fleet.Node{ID: id.Node(fmt.Sprintf("local-%03d", i)), Class: fleet.Local, Inventory: fleet.Inventory{CPUs: 1 << 30, Memory: 1 << 50}}
		for g := range perNode {
			list[i].Inventory.GPUs = append(list[i].Inventory.GPUs, fleet.GPU{Index: g, Model: "P100", Memory: 16 << 30})
		}
	}
	return list
}

// offers are nodes of one to eight GPUs at one an hour for each GPU, there at once and paid by the second.
func offers() []fleet.Offer {
	var list []fleet.Offer
	for gpus := 1; gpus <= perNode; gpus *= 2 {
		o := fleet.Offer{
			Provider: "cloud", Type: fmt.Sprintf("p100x%d", gpus), GPU: "P100", GPUs: gpus, GPUMemory: 16 << 30,
			CPUs: 1 << 30, Memory: 1 << 50, Hourly: job.Money(gpus) * 1e6,
		}
		o.Name = o.NameOf()
		list = append(list, o)
	}
	return list
}

// jobs are the tasks as people would submit them: balanced, anywhere, without
// checkpoints, so that nothing is ever moved.
func (y yardRun) jobs(tasks []task) []*sim.Job {
	list := make([]*sim.Job, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		nodes, each := (t.gpus+perNode-1)/perNode, t.gpus
		if nodes > 1 {
			each = t.gpus / nodes
		}
		spec := &job.Spec{Run: "simulated", Place: job.PlaceAny, Objective: job.ObjectiveBalanced}
		spec.Resources.Nodes, spec.Resources.GPUs = job.Range{Min: nodes, Max: nodes}, job.Range{Min: each, Max: each}
		lasts := job.Seconds(t.run * 3600)
		if !y.blind {
			spec.Expect = job.Duration(lasts)
		}
		list[i] = &sim.Job{Name: t.name, At: time.Duration(math.Round(t.at*3600)) * time.Second, Owner: id.User(t.owner), Lasts: lasts, Spec: spec}
	}
	return list
}
