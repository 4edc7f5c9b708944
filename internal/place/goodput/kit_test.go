package goodput_test

import (
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/goodput"
	"trainyard/internal/queue"
)

var start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// yard is a small yard: nodes, jobs that wait and jobs that run.
type yard struct {
	now     time.Time
	table   *fleet.Table
	line    *queue.Queue
	running []*place.Running
	number  uint64
}

func newYard() *yard { return &yard{now: start, table: fleet.NewTable(), line: queue.New()} }

// node adds a node with so many GPUs of a model.
func (y *yard) node(name, model string, gpus int) {
	n := &fleet.Node{
		ID:        id.Node(name),
		Class:     fleet.Local,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 64000, Memory: 1 << 40},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model, Memory: 16 << 30})
	}

	y.table.Put(n, 0)
}

// elastic asks for 1 to 8 GPUs on each of 1 to 8 nodes.
func elastic() job.Resources {
	return job.Resources{Nodes: job.Range{Min: 1, Max: 8}, GPUs: job.Range{Min: 1, Max: 8}}
}

// exactly asks for so many GPUs on one node.
func exactly(n int) job.Resources { return job.Resources{GPUs: job.Range{Min: n, Max: n}} }

// scales is the speed of a job that does n to the power of p units a second on n
// GPUs, up to most.
func scales(work, p float64, most int, pause time.Duration, kinds ...string) *job.Speed {
	if len(kinds) == 0 {
		kinds = []string{""}
	}

	var rates []job.Rate
	for _, k := range kinds {
		for n := 1; n <= most; n++ {
			rates = append(rates, job.Rate{GPU: k, GPUs: n, PerSecond: math.Pow(float64(n), p)})
		}
	}

	return job.NewSpeed(work, pause, 0, rates...)
}

// waits adds a job that waits.
func (y *yard) waits(r job.Resources, s *job.Speed) *queue.Item { return y.ranks(0, r, s) }

// ranks adds a job that waits, with a priority.
func (y *yard) ranks(priority int, r job.Resources, s *job.Speed) *queue.Item {
	y.number++
	it := &queue.Item{
		Priority: priority,
		Job:      id.NewJob(y.number),
		Number:   y.number,
		User:     "ada",
		Outlook:  &job.Outlook{Submitted: y.now, Speed: s, Resumes: true},
	}

	y.line.Add(it, fleet.NeedOf(&job.Spec{Resources: r, Place: job.PlaceAny}, job.Floor{}, nil))

	return it
}

// runs lets a job run on so many GPUs of a node, since some time ago.
func (y *yard) runs(it *queue.Item, node id.Node, gpus int, since time.Duration) *place.Running {
	room, _ := y.table.Get(node)
	return y.sits(it, []place.Allocation{{Node: node, GPUs: fleet.LowestGPUs(room.Free, gpus)}}, since)
}

// sits lets a job run on seats.
func (y *yard) sits(it *queue.Item, list []place.Allocation, since time.Duration) *place.Running {
	y.line.Remove(it)
	at := y.now.Add(-since)
	it.Outlook.Submitted, it.Outlook.At = at, at
	r := &place.Running{Item: it, Run: id.NewRun(it.Job, 1), Allocations: list, Ordered: at, Began: at}
	for _, s := range list {
		r.GPUs += bits.OnesCount64(s.GPUs)
		y.table.Book(
			s.Node,
			fleet.Hold{Run: r.Run, Job: it.Job, GPUs: s.GPUs, CPUs: it.Shape.Need.CPUs, Memory: it.Shape.Need.Memory},
		)
	}

	r.Rate = place.RateOn(it.Outlook.Speed, list, func(n id.Node) *fleet.Node {
		room, _ := y.table.Get(n)
		return room.Node
	})

	y.running = append(y.running, r)
	slices.SortFunc(y.running, func(a, b *place.Running) int { return int(a.Number) - int(b.Number) })

	return r
}

func (y *yard) view() *place.View {
	return &place.View{Now: y.now, Rooms: y.table.Rooms(), Queue: y.line, Running: y.running}
}

// has is what a job has after a plan: GPUs and the model of the first.
type has struct {
	gpus  int
	model string
}

// after asks a policy and says what every job has then.
func (y *yard) after(t testing.TB, p goodput.Policy) (map[id.Job]has, place.Plan) {
	t.Helper()
	v := y.view()
	plan := p.Plan(v)
	if good, bad := place.Check(v, plan); len(bad) > 0 || len(good.Starts) != len(plan.Starts) ||
		len(good.Stops) != len(plan.Stops) {
		t.Fatalf("the plan cannot be carried out: %v", bad)
	}

	out := map[id.Job]has{}
	give := func(j id.Job, list []place.Allocation) {
		var h has
		for _, s := range list {
			room, _ := y.table.Get(s.Node)
			h.gpus, h.model = h.gpus+bits.OnesCount64(s.GPUs), room.Node.Inventory.GPUs[0].Model
		}

		out[j] = h
	}

	for _, r := range y.running {
		give(r.Job, r.Allocations)
	}

	for _, s := range plan.Stops {
		delete(out, s.Running.Job)
	}

	for _, s := range plan.Starts {
		give(s.Item.Job, s.Allocations)
	}

	return out, plan
}
