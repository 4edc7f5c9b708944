package queue_test

import (
	"fmt"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// A walk considers jobs by priority, then users who consumed less recently, then by submission.
func ExampleQueue_Walk() {
	oneGPU := fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 1}

	q := queue.New()
	q.Add(&queue.Item{Job: "j1", Number: 1, User: "ann"}, oneGPU)
	q.Add(&queue.Item{Job: "j2", Number: 2, User: "bob"}, oneGPU)
	q.Add(&queue.Item{Job: "j3", Number: 3, User: "ann", Priority: 50}, oneGPU)

	usage := map[id.User]float64{"ann": 7200, "bob": 60} // GPU-seconds, decayed
	walk := q.Walk(func(u id.User) float64 { return usage[u] })

	every := func(*queue.Shape) bool { return true }
	for it := walk.Next(every); it != nil; it = walk.Next(every) {
		fmt.Println(it.Job, it.User, it.Priority)
	}
	// Output:
	// j3 ann 50
	// j2 bob 0
	// j1 ann 0
}
