// Package placetest is the test kit of the policies: a small yard with nodes, a queue and
// running jobs (Cluster), and the same under a policy in virtual time (World). Only tests
// import it.
package placetest

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

// Start is the time at which a new cluster begins.
var Start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// Cluster is a small yard: nodes, a queue, running jobs and a clock.
type Cluster struct {
	Now   time.Time
	Table *fleet.Table
	Queue *queue.Queue
	Items map[id.Job]*queue.Item
	Usage map[id.User]float64
	Runs  []*place.Running // by submission
}

// NewCluster returns a yard without nodes and jobs.
func NewCluster() *Cluster {
	return &Cluster{
		Now:   Start,
		Table: fleet.NewTable(),
		Queue: queue.New(),
		Items: map[id.Job]*queue.Item{},
		Usage: map[id.User]float64{},
	}
}

// Node adds a node that is ready.
func (c *Cluster) Node(name string, class fleet.Class, cpus job.CPUs, memory job.Bytes, gpus ...fleet.GPU) {
	for i := range gpus {
		gpus[i].Index = i
	}

	c.Table.Put(
		&fleet.Node{
			ID:        id.Node(name),
			Class:     class,
			State:     fleet.Ready,
			Inventory: fleet.Inventory{CPUs: cpus, Memory: memory, GPUs: gpus, Shares: "1"},
		},
		0,
	)
}

func a100(n int) []fleet.GPU {
	return slices.Repeat([]fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}, n)
}

// Box adds a local node with so many A100s and 8 CPUs for each, at least 8.
func (c *Cluster) Box(name string, gpus int) {
	c.Node(name, fleet.Local, job.CPUs(max(gpus, 1))*8000, 1<<40, a100(gpus)...)
}

// Job is one job of a test. A zero value asks for nothing and may run anywhere.
type Job struct {
	User     id.User
	Priority int
	Lasts    time.Duration
	Spec     job.Resources
	Place    job.Place
	Avoid    []id.Node
	Due      time.Duration // after now; 0 for no deadline
	Speed    *job.Speed
	Stuck    bool // it writes no checkpoints and cannot be stopped
}

// Add queues a job; its number is its place in the order of submission.
func (c *Cluster) Add(w Job) *queue.Item {
	if w.Place == "" {
		w.Place = job.PlaceAny
	}

	if w.User == "" {
		w.User = "ada"
	}

	n := uint64(len(c.Items) + 1)
	need := fleet.NeedOf(&job.Spec{Resources: w.Spec, Place: w.Place}, job.Floor{}, w.Avoid)
	it := &queue.Item{
		Job:      id.NewJob(n),
		Number:   n,
		User:     w.User,
		Priority: w.Priority,
		Lasts:    w.Lasts,
		Cost:     float64(max(need.GPUs, 1)) * time.Hour.Seconds(),
	}

	it.Outlook = &job.Outlook{Submitted: c.Now, Speed: w.Speed, Resumes: !w.Stuck}
	if w.Due > 0 {
		it.Outlook.Deadline = c.Now.Add(w.Due)
	}

	c.Items[it.Job] = it
	c.Queue.Add(it, need)

	return it
}

// GPUs is a need of exactly n GPUs.
func GPUs(n int) job.Resources { return job.Resources{GPUs: job.Range{Min: n, Max: n}, CPUs: 1000} }

// View returns the yard as a policy sees it.
func (c *Cluster) View() *place.View {
	return &place.View{Now: c.Now, Rooms: c.Table.Rooms(), Queue: c.Queue, Running: c.Runs, Usage: c.Usage}
}

// Plan returns what fifo would do.
func (c *Cluster) Plan() place.Plan { return ordered.FIFO{}.Plan(c.View()) }

// Book lets a start of a plan run.
func (c *Cluster) Book(s place.Start) {
	c.Queue.Remove(s.Item)
	r := &place.Running{
		Item:        s.Item,
		Run:         id.NewRun(s.Item.Job, 1),
		Allocations: s.Allocations,
		Ordered:     c.Now,
		Began:       c.Now,
	}

	for _, seat := range s.Allocations {
		c.Table.Book(seat.Node, c.HoldOf(s, seat))
		r.GPUs += bits.OnesCount64(seat.GPUs)
	}

	r.Rate = place.ExpectedRate(s.Item.Outlook, s.Allocations, c.nodeOf)
	r.Pace = place.Pace(s.Item, s.Allocations, c.nodeOf)
	r.Takes = place.RunTimeOn(s.Item, s.Allocations, c.nodeOf)

	c.Runs = append(c.Runs, r)
	slices.SortFunc(c.Runs, func(a, b *place.Running) int { return cmp.Compare(a.Number, b.Number) })
}

func (c *Cluster) nodeOf(n id.Node) *fleet.Node {
	room, ok := c.Table.Get(n)
	if !ok {
		return nil
	}

	return room.Node
}

// Leave takes a job off its nodes, and records its work and usage.
func (c *Cluster) Leave(r *place.Running) {
	for _, seat := range r.Allocations {
		c.Table.Release(seat.Node, r.Run)
	}

	o := r.Outlook
	o.Done, o.Served, o.Ran = r.Done(c.Now), r.Served(c.Now), r.GPUs
	c.Runs = slices.DeleteFunc(c.Runs, func(o *place.Running) bool { return o == r })
}

// stop puts a running job back into the queue.
func (c *Cluster) stop(r *place.Running) {
	c.Leave(r)
	r.Outlook.Stops++
	c.Queue.Add(r.Item, r.Shape.Need)
}

// HoldOf returns what a start holds of one of its nodes.
func (c *Cluster) HoldOf(s place.Start, seat place.Allocation) fleet.Hold {
	h := fleet.Hold{
		Run:    id.NewRun(s.Item.Job, 1),
		Job:    s.Item.Job,
		Owner:  s.Item.User,
		GPUs:   seat.GPUs,
		Share:  seat.Share,
		Cap:    s.Item.Shape.Need.Cap,
		Class:  s.Item.Shape.Need.Class,
		Limit:  s.Item.Shape.Need.Limit,
		CPUs:   s.Item.Shape.Need.CPUs,
		Memory: s.Item.Shape.Need.Memory,
	}

	if takes := place.RunTimeOn(s.Item, s.Allocations, c.nodeOf); takes > 0 {
		h.Ends = c.Now.Add(takes)
	}

	return h
}

// Started names the jobs that a plan starts, in order.
func Started(p place.Plan) []id.Job {
	var jobs []id.Job
	for _, s := range p.Starts {
		jobs = append(jobs, s.Item.Job)
	}

	return jobs
}

// Where names the nodes of a plan's start of a job.
func Where(p place.Plan, j id.Job) []id.Node {
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

// DrawCluster draws nodes of several kinds.
func DrawCluster(t *rapid.T) *Cluster {
	c := NewCluster()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		DrawNode(t, c, fmt.Sprintf("n%d", i))
	}

	return c
}

// DrawNode adds a random node to a cluster.
func DrawNode(t *rapid.T, c *Cluster, name string) {
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
	c.Node(
		name,
		class,
		job.CPUs(rapid.IntRange(1, 8).Draw(t, name+" cpus"))*1000,
		job.Bytes(rapid.IntRange(1, 8).Draw(t, name+" memory"))<<30,
		list...)
}

// DrawJob draws a job; with exact its run time is known.
func DrawJob(t *rapid.T, exact bool) Job {
	w := Job{Place: job.PlaceAny}
	n := rapid.IntRange(0, 4).Draw(t, "gpus")
	w.Spec.GPUs = job.Range{Min: n, Max: n}
	if n > 0 && rapid.IntRange(0, 3).Draw(t, "range") == 0 {
		w.Spec.GPUs.Max = n + rapid.IntRange(0, 3).Draw(t, "more")
	}

	if rapid.IntRange(0, 5).Draw(t, "kind") == 0 && n > 0 {
		w.Spec.GPU = []job.GPUKind{{Model: "L4"}}
	}

	nodes := max(1, rapid.IntRange(-3, 3).Draw(t, "job nodes"))
	w.Spec.Nodes = job.Range{Min: nodes, Max: nodes}
	w.Spec.CPUs = job.CPUs(rapid.IntRange(0, 6).Draw(t, "cpus")) * 500
	w.Spec.Memory = job.Bytes(rapid.IntRange(0, 3).Draw(t, "memory")) << 30
	if rapid.IntRange(0, 6).Draw(t, "place") == 0 {
		w.Place = rapid.SampledFrom([]job.Place{job.PlaceLocal, job.PlaceCloud}).Draw(t, "where")
	}

	if exact || rapid.Bool().Draw(t, "known") {
		w.Lasts = time.Duration(rapid.IntRange(1, 20).Draw(t, "lasts")) * time.Minute
	}

	return w
}
