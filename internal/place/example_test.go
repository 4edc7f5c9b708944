package place_test

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
)

// A policy plans on a view, which is data: nodes with free GPUs, and a queue.
func ExamplePolicy() {
	nodes := fleet.NewTable()
	nodes.Put(&fleet.Node{
		ID: "a", Class: fleet.Local, State: fleet.Ready,
		Inventory: fleet.Inventory{
			CPUs: 8000, Memory: 64 << 30,
			GPUs: []fleet.GPU{{Index: 0, Model: "A100", Memory: 80 << 30}, {Index: 1, Model: "A100", Memory: 80 << 30}},
		},
	}, 0)

	waiting := queue.New()
	for i, name := range []string{"first", "second"} {
		spec := &job.Spec{
			Name: name, Place: job.PlaceAny,
			Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, GPUs: job.Range{Min: 2, Max: 2}},
		}

		item := &queue.Item{Job: "j1", Number: 1, User: "ann", Spec: spec}
		if i > 0 {
			item.Job, item.Number = "j2", 2
		}

		waiting.Add(item, fleet.NeedOf(spec, job.Floor{}, nil))
	}

	var policy place.Policy = ordered.FIFO{}
	plan := policy.Plan(&place.View{
		Now:   time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC),
		Rooms: nodes.Rooms(),
		Queue: waiting,
	})

	for _, s := range plan.Starts {
		fmt.Printf("start %s on node %s, GPU mask %02b\n", s.Item.Spec.Name, s.Allocations[0].Node, s.Allocations[0].GPUs)
	}

	fmt.Println("nodes reserved for", plan.Reservation.Job)
	// Output:
	// start first on node a, GPU mask 11
	// nodes reserved for j2
}
