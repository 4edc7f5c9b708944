package baseline_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
)

var start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// cluster is a small yard: nodes, a line and a clock.
type cluster struct {
	now   time.Time
	table *fleet.Table
	line  *queue.Queue
	items map[id.Job]*queue.Item
	usage map[id.User]float64
	runs  []*place.Running // by submission
}

func newCluster() *cluster {
	return &cluster{
		now:   start,
		table: fleet.NewTable(),
		line:  queue.New(),
		items: map[id.Job]*queue.Item{},
		usage: map[id.User]float64{},
	}
}

// node adds a node that is ready.
func (c *cluster) node(name string, class fleet.Class, cpus job.CPUs, memory job.Bytes, gpus ...fleet.GPU) {
	for i := range gpus {
		gpus[i].Index = i
	}

	c.table.Put(
		&fleet.Node{
			ID:        id.Node(name),
			Class:     class,
			State:     fleet.Ready,
			Inventory: fleet.Inventory{CPUs: cpus, Memory: memory, GPUs: gpus},
		},
		0,
	)
}

func a100(n int) []fleet.GPU {
	return slices.Repeat([]fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}, n)
}

// box adds a local node with so many A100s and 8 CPUs for each, at least 8.
func (c *cluster) box(name string, gpus int) {
	c.node(name, fleet.Local, job.CPUs(max(gpus, 1))*8000, 1<<40, a100(gpus)...)
}

// want is one job of a test.
type want struct {
	user  id.User
	prio  int
	lasts time.Duration
	spec  job.Resources
	place job.Place
	avoid []id.Node
	due   time.Duration // after now; 0 for no deadline
	speed *job.Speed
	stuck bool // it saves nothing and cannot be stopped
}

// add puts a job into the line; its number is its place in the order of submission.
func (c *cluster) add(w want) *queue.Item {
	if w.place == "" {
		w.place = job.PlaceAny
	}

	if w.user == "" {
		w.user = "ada"
	}

	n := uint64(len(c.items) + 1)
	need := fleet.NeedOf(&job.Spec{Resources: w.spec, Place: w.place}, job.Floor{}, w.avoid)
	it := &queue.Item{
		Job:      id.NewJob(n),
		Number:   n,
		User:     w.user,
		Priority: w.prio,
		Lasts:    w.lasts,
		Cost:     float64(max(need.GPUs, 1)) * 3600,
	}

	it.Outlook = &job.Outlook{Submitted: c.now, Speed: w.speed, Resumes: !w.stuck}
	if w.due > 0 {
		it.Outlook.Deadline = c.now.Add(w.due)
	}

	c.items[it.Job] = it
	c.line.Add(it, need)

	return it
}

func gpus(n int) job.Resources { return job.Resources{GPUs: job.Range{Min: n, Max: n}, CPUs: 1000} }

func (c *cluster) view() *place.View {
	return &place.View{Now: c.now, Rooms: c.table.Rooms(), Queue: c.line, Running: c.runs, Usage: c.usage}
}

func (c *cluster) plan() place.Plan { return ordered.FIFO{}.Plan(c.view()) }

// book lets a start of a plan run.
func (c *cluster) book(s place.Start) {
	c.line.Remove(s.Item)
	r := &place.Running{
		Item:        s.Item,
		Run:         id.NewRun(s.Item.Job, 1),
		Allocations: s.Allocations,
		Ordered:     c.now,
		Began:       c.now,
	}

	for _, seat := range s.Allocations {
		c.table.Book(seat.Node, c.holdOf(s, seat))
		r.GPUs += bits.OnesCount64(seat.GPUs)
	}

	r.Rate = place.RateOn(s.Item.Outlook.Speed, s.Allocations, func(n id.Node) *fleet.Node {
		room, _ := c.table.Get(n)
		return room.Node
	})

	c.runs = append(c.runs, r)
	slices.SortFunc(c.runs, func(a, b *place.Running) int { return cmp.Compare(a.Number, b.Number) })
}

// leave takes a job off its nodes. What it has done and had is written down.
func (c *cluster) leave(r *place.Running) {
	for _, seat := range r.Allocations {
		c.table.Release(seat.Node, r.Run)
	}

	o := r.Outlook
	o.Done, o.Served, o.Ran = r.Done(c.now), r.Served(c.now), r.GPUs
	c.runs = slices.DeleteFunc(c.runs, func(o *place.Running) bool { return o == r })
}

// stop puts a job that runs back into the line.
func (c *cluster) stop(r *place.Running) {
	c.leave(r)
	r.Outlook.Stops++
	c.line.Add(r.Item, r.Shape.Need)
}

func (c *cluster) holdOf(s place.Start, seat place.Allocation) fleet.Hold {
	h := fleet.Hold{
		Run:    id.NewRun(s.Item.Job, 1),
		Job:    s.Item.Job,
		Owner:  s.Item.User,
		GPUs:   seat.GPUs,
		CPUs:   s.Item.Shape.Need.CPUs,
		Memory: s.Item.Shape.Need.Memory,
	}

	if s.Item.Lasts > 0 {
		h.Ends = c.now.Add(s.Item.Lasts)
	}

	return h
}

// started names the jobs that a plan starts, in order.
func started(p place.Plan) []id.Job {
	var jobs []id.Job
	for _, s := range p.Starts {
		jobs = append(jobs, s.Item.Job)
	}

	return jobs
}

// where names the nodes of a plan's start of a job.
func where(p place.Plan, j id.Job) []id.Node {
	var nodes []id.Node
	for _, s := range p.Starts {
		for _, seat := range s.Allocations {
			if s.Item.Job == j {
				nodes = append(nodes, seat.Node)
			}
		}
	}

	return nodes
}

// drawCluster draws nodes of several kinds.
func drawCluster(t *rapid.T) *cluster {
	c := newCluster()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		drawNode(t, c, fmt.Sprintf("n%d", i))
	}

	return c
}

func drawNode(t *rapid.T, c *cluster, name string) {
	models := []fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}, {Model: "NVIDIA L4", Memory: 24 << 30}}
	list := make([]fleet.GPU, rapid.IntRange(0, 4).Draw(t, name+" gpus"))
	mixed := rapid.IntRange(0, 4).Draw(t, name+" mixed") == 0

	model := rapid.IntRange(0, 1).Draw(t, name+" model")
	for i := range list {
		list[i] = models[model]
		if mixed {
			list[i] = models[i%2]
		}
	}

	class := rapid.SampledFrom(fleet.Classes()).Draw(t, name+" class")
	c.node(
		name,
		class,
		job.CPUs(rapid.IntRange(1, 8).Draw(t, name+" cpus"))*1000,
		job.Bytes(rapid.IntRange(1, 8).Draw(t, name+" memory"))<<30,
		list...)
}

// drawWant draws a job; with exact its run time is known.
func drawWant(t *rapid.T, exact bool) want {
	w := want{place: job.PlaceAny}
	n := rapid.IntRange(0, 4).Draw(t, "gpus")
	w.spec.GPUs = job.Range{Min: n, Max: n}
	if n > 0 && rapid.IntRange(0, 3).Draw(t, "range") == 0 {
		w.spec.GPUs.Max = n + rapid.IntRange(0, 3).Draw(t, "more")
	}

	if rapid.IntRange(0, 5).Draw(t, "kind") == 0 && n > 0 {
		w.spec.GPU = []job.GPUKind{{Model: "L4"}}
	}

	nodes := max(1, rapid.IntRange(-3, 3).Draw(t, "job nodes"))
	w.spec.Nodes = job.Range{Min: nodes, Max: nodes}
	w.spec.CPUs = job.CPUs(rapid.IntRange(0, 6).Draw(t, "cpus")) * 500
	w.spec.Memory = job.Bytes(rapid.IntRange(0, 3).Draw(t, "memory")) << 30
	if rapid.IntRange(0, 6).Draw(t, "place") == 0 {
		w.place = rapid.SampledFrom([]job.Place{job.PlaceLocal, job.PlaceCloud}).Draw(t, "where")
	}

	if exact || rapid.Bool().Draw(t, "known") {
		w.lasts = time.Duration(rapid.IntRange(1, 20).Draw(t, "lasts")) * time.Minute
	}

	return w
}
