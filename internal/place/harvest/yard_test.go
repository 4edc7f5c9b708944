package harvest_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/harvest"
	"trainyard/internal/queue"
)

// yard is a small yard under test.
type yard struct {
	now     time.Time
	table   *fleet.Table
	line    *queue.Queue
	running []*place.Running
	number  uint64
	tariff  *fleet.Tariff
}

func newYard() *yard {
	return &yard{now: time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC), table: fleet.NewTable(), line: queue.New()}
}

// node adds an open node, or changes when it opened.
func (y *yard) node(name, gpu string, gpus int, since time.Time) {
	n := &fleet.Node{
		ID:        id.Node(name),
		Class:     fleet.Local,
		State:     fleet.Ready,
		Since:     since,
		Inventory: fleet.Inventory{CPUs: 64_000, Memory: 1 << 40},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: gpu, Memory: 16 << 30})
	}

	y.table.Put(n, 0)
}

// nodes adds nodes n00, n01, … of one GPU that opened long ago.
func (y *yard) nodes(from, to int) {
	for i := from; i < to; i++ {
		y.node(fmt.Sprintf("n%02d", i), "V100", 1, y.now.Add(-1000*time.Hour))
	}
}

// shuffle and vgg are the speeds of ShuffleNet and VGG-16 by number of nodes of Summit.
var (
	shuffle = map[int]float64{1: 2831, 2: 5259, 4: 9988, 8: 20379.2, 16: 38895.3, 32: 74125.1, 64: 145081.5}
	vgg     = map[int]float64{1: 1193.3, 2: 2389.2, 4: 4691.7, 8: 9257.9, 16: 18348.9, 32: 36208.5, 64: 70151.7}
)

func speed(work float64, start time.Duration, rates map[int]float64) *job.Speed {
	var list []job.Rate
	for n := 1; n <= 64; n++ {
		if r, ok := rates[n]; ok {
			list = append(list, job.Rate{GPUs: n, PerSecond: r})
		}
	}

	return job.NewSpeed(work, start, 0, list...)
}

// want is a job of a test. By default it is elastic, with one GPU on each of 1 to 64 nodes, and
// resumes from a checkpoint.
type want struct {
	speed     *job.Speed
	need      fleet.Need
	priority  int
	user      id.User
	submitted time.Duration // so long ago
	served    float64
	ran       int
	every     time.Duration
	dies      bool // cannot be stopped
}

func (y *yard) add(w want) *queue.Item {
	y.number++

	if w.need == (fleet.Need{}) {
		w.need = fleet.Need{Nodes: 1, MaxNodes: 64, GPUs: 1, MaxGPUs: 1}
	}

	w.need.Place = job.PlaceAny
	if w.user == "" {
		w.user = "ada"
	}

	it := &queue.Item{
		Job:      id.NewJob(y.number),
		Number:   y.number,
		User:     w.user,
		Priority: w.priority,
		Outlook: &job.Outlook{
			Submitted: y.now.Add(-w.submitted), Speed: w.speed, Served: w.served, Ran: w.ran, Every: w.every, Resumes: !w.dies,
		},
	}

	y.line.Add(it, w.need)

	return it
}

func (y *yard) view() *place.View {
	return &place.View{Now: y.now, Rooms: y.table.Rooms(), Queue: y.line, Running: y.running, Tariff: y.tariff}
}

// start lets a job run on these seats since some time.
func (y *yard) start(it *queue.Item, seats ...place.Allocation) *place.Running {
	y.line.Remove(it)
	r := &place.Running{
		Item:        it,
		Run:         id.NewRun(it.Job, it.Outlook.Stops+1),
		Allocations: seats,
		Ordered:     y.now,
		Began:       y.now,
	}

	need := &it.Shape.Need
	for _, s := range seats {
		r.GPUs += bits.OnesCount64(s.GPUs)
		y.table.Book(s.Node, fleet.Hold{Run: r.Run, Job: it.Job, GPUs: s.GPUs, CPUs: need.CPUs, Memory: need.Memory})
	}

	r.Rate = place.RateOn(it.Outlook.Speed, seats, func(n id.Node) *fleet.Node {
		room, _ := y.table.Get(n)
		return room.Node
	})

	y.running = append(y.running, r)
	slices.SortFunc(y.running, func(a, b *place.Running) int { return int(a.Number) - int(b.Number) })

	return r
}

// on names nodes n00 … as seats of one GPU.
func on(from, to int) []place.Allocation {
	var list []place.Allocation
	for i := from; i < to; i++ {
		list = append(list, place.Allocation{Node: id.Node(fmt.Sprintf("n%02d", i)), GPUs: 1})
	}

	return list
}

// stop takes a job off its nodes and puts it back into the line.
func (y *yard) stop(r *place.Running) {
	o := r.Outlook
	o.Done, o.Served, o.Ran = r.Done(y.now), r.Served(y.now), r.GPUs
	o.Stops++

	for _, s := range r.Allocations {
		y.table.Release(s.Node, r.Run)
	}

	y.running = slices.DeleteFunc(y.running, func(x *place.Running) bool { return x == r })
	y.line.Add(r.Item, r.Shape.Need)
}

// tester is what a test and a property have in common.
type tester interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

// ask runs the policy, and checks that the whole plan can be carried out.
func (y *yard) ask(t tester, h *harvest.Policy) place.Plan {
	t.Helper()
	p := h.Plan(y.view())
	if _, bad := place.Check(y.view(), p); len(bad) > 0 {
		t.Fatalf("the plan cannot be carried out: %v", bad)
	}

	return p
}

// obey carries a plan out.
func (y *yard) obey(p place.Plan) {
	for _, s := range p.Stops {
		y.stop(s.Running)
	}

	for _, s := range p.Starts {
		y.start(s.Item, s.Allocations...)
	}
}

// counts returns how many GPUs each job has once a plan has been carried out.
func (y *yard) counts() map[id.Job]int {
	m := map[id.Job]int{}
	for _, r := range y.running {
		m[r.Job] = r.GPUs
	}

	return m
}

// policy makes one, and fails if that cannot be.
func policy(t *testing.T, p harvest.Params) *harvest.Policy {
	t.Helper()
	h, err := harvest.New(p)
	if err != nil {
		t.Fatal(err)
	}

	return h
}

// where lists the nodes of a job that runs.
func (y *yard) where(j id.Job) []id.Node {
	var list []id.Node
	for _, r := range y.running {
		for _, s := range r.Allocations {
			if r.Job == j {
				list = append(list, s.Node)
			}
		}
	}

	slices.Sort(list)

	return list
}
