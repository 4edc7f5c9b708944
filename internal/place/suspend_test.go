package place_test

import (
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// lending is j1, which runs on the first of two GPUs of node a with two of its four CPUs and 24 of its 64 GB, and is
// preempted for j2, which takes ten minutes.
type lending struct {
	node    fleet.Node
	running place.Running
	stop    place.Stop
	starts  []place.Start
}

func (l *lending) loan() (*place.Loan, string) {
	y := newYard()
	y.node("a", 2, func(n *fleet.Node) {
		l.node.ID, l.node.Class, l.node.State, l.node.Inventory.GPUs = n.ID, n.Class, n.State, n.Inventory.GPUs
		*n = l.node
	})
	y.node("b", 2, nil)
	y.Book("a", fleet.Hold{Run: "j1.1", Job: "j1", GPUs: l.running.Allocations[0].GPUs, CPUs: 2000, Memory: 24 << 30})
	l.stop.Running = &l.running

	return place.LoanFor(y.view(), &l.stop, l.starts)
}

func startAt(j id.Job, node id.Node, gpus uint64, cpus job.CPUs, memory job.Bytes) place.Start {
	n := need(1, func(s *job.Spec) { s.Resources.CPUs, s.Resources.Memory = cpus, memory })
	item := &queue.Item{Job: j, Shape: &queue.Shape{Need: n}, Lasts: 10 * time.Minute}

	return place.Start{Item: item, Allocations: []place.Allocation{{Node: node, GPUs: gpus}}, Reason: "it is urgent"}
}

func newLending() *lending {
	return &lending{
		node: fleet.Node{Inventory: fleet.Inventory{
			CPUs: 4000, Memory: 64 << 30, Suspends: true, Snapshots: &fleet.Snapshots{Suspend: fleet.Ability{OK: true}},
		}},
		running: place.Running{
			Item: &queue.Item{Job: "j1"}, Run: "j1.1", Began: now, Allocations: []place.Allocation{{Node: "a", GPUs: 1}}, GPUs: 1,
		},
		starts: []place.Start{startAt("j2", "a", 1, 1000, 8<<30)},
	}
}

func TestALoanSaysHowMuchMemoryThereIs(t *testing.T) {
	t.Parallel()

	for _, kind := range []place.DecisionKind{"", place.Preemption} {
		l := newLending()
		l.stop.Kind = kind
		l.starts = append(l.starts, startAt("j3", "a", 2, 1000, 4<<30), startAt("j4", "b", 1, 16000, 60<<30))

		got, why := l.loan()
		if why != "" || got.To.Item.Job != "j2" || got.Runs != 10*time.Minute || got.Room != (64-24-8-4)<<30 {
			t.Errorf("the loan is %+v (%s), want that of j2 with 28 GB", got, why)
		}
	}
}

func TestWhatCannotBeSuspendedSaysWhy(t *testing.T) {
	t.Parallel()

	const oneGPU = "only programs on one whole GPU are suspended"

	for name, tc := range map[string]struct {
		change func(*lending)
		why    string
	}{
		"a job that moves":       {func(l *lending) { l.stop.Kind = place.Move }, ""},
		"a node that never does": {func(l *lending) { l.node.Inventory.Snapshots = nil }, ""},
		"a node that cannot": {func(l *lending) {
			l.node.Inventory.Snapshots.Suspend = fleet.Ability{Reason: "the driver is too old"}
		}, "node a cannot: the driver is too old"},
		"an agent that cannot": {
			func(l *lending) { l.node.Inventory.Suspends = false }, "node a cannot: its agent does not suspend programs",
		},
		"a program that is not there yet": {func(l *lending) { l.running.Began = time.Time{} }, "its program has not started yet"},
		"two GPUs":                        {func(l *lending) { l.running.Allocations[0].GPUs = 3 }, oneGPU},
		"no GPU":                          {func(l *lending) { l.running.Allocations[0].GPUs = 0 }, oneGPU},
		"a part of a GPU":                 {func(l *lending) { l.running.Allocations[0].Share = 0.5 }, oneGPU},
		"two nodes": {func(l *lending) {
			l.running.Allocations = append(l.running.Allocations, place.Allocation{Node: "b", GPUs: 1})
		}, oneGPU},
		"nobody gets it": {func(l *lending) { l.starts = nil }, "no job gets its GPU at once"},
		"another GPU there is taken": {
			func(l *lending) { l.starts[0].Allocations[0].GPUs = 2 }, "no job gets its GPU at once",
		},
		"the same GPU of another node is taken": {
			func(l *lending) { l.starts[0].Allocations[0].Node = "b" }, "no job gets its GPU at once",
		},
		"memory for one": {
			func(l *lending) { l.starts[0] = startAt("j2", "a", 1, 1000, 41<<30) },
			"node a has too little memory for both programs",
		},
		"CPUs of a third": {
			func(l *lending) { l.starts[0] = startAt("j2", "a", 1, 4001, 0) },
			"node a has too few CPUs until other jobs have stopped there",
		},
		"a long job": {
			func(l *lending) { l.starts[0].Item.Lasts = 61 * time.Minute },
			"j2 is expected to run for 1h1m, longer than 1h",
		},
		"a job of which nobody knows": {
			func(l *lending) { l.starts[0].Item.Lasts = 0 }, "how long j2 will run is unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLending()
			tc.change(l)

			if got, why := l.loan(); got != nil || why != tc.why {
				t.Errorf("the loan is %+v, and none because %q; want %q", got, why, tc.why)
			}
		})
	}
}
