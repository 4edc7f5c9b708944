package place_test

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

var now = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// yard is a table of nodes under test.
type yard struct{ *fleet.Table }

func newYard() yard { return yard{fleet.NewTable()} }

// node adds a node with so many A100s, 16 CPUs and 64 GB; change makes it different.
func (y yard) node(name string, gpus int, change func(*fleet.Node)) {
	n := &fleet.Node{
		ID:        id.Node(name),
		Class:     fleet.Local,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 16000, Memory: 64 << 30},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30})
	}

	if change != nil {
		change(n)
	}

	y.Put(n, 0)
}

// hold lets a job of bob's have GPUs and CPUs of a node.
func (y yard) hold(node string, j id.Job, gpus uint64, cpus job.CPUs, lasts time.Duration) {
	h := fleet.Hold{Run: id.NewRun(j, 1), Job: j, Owner: "bob", GPUs: gpus, CPUs: cpus}
	if lasts > 0 {
		h.Ends = now.Add(lasts)
	}

	y.Book(id.Node(node), h)
}

func (y yard) view() *place.View {
	return &place.View{Now: now, Rooms: y.Rooms(), Queue: queue.New()}
}

// need is what a job asks for that wants GPUs and one CPU.
func need(gpus int, change func(*job.Spec)) fleet.Need {
	s := &job.Spec{Place: job.PlaceAny, Resources: job.Resources{GPUs: job.Range{Min: gpus, Max: gpus}, CPUs: 1000}}
	if change != nil {
		change(s)
	}

	return fleet.NeedOf(s, job.Floor{}, nil)
}
