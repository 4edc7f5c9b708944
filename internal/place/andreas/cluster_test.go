package andreas_test

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/queue"
	"trainyard/internal/share"
)

var start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// cluster is a small yard: nodes, a line, what runs, and a clock.
type cluster struct {
	beside *share.Interference // how jobs do beside others; nil if unknown

	now     time.Time
	table   *fleet.Table
	line    *queue.Queue
	running []*place.Running
	jobs    uint64
	tariff  *fleet.Tariff
	usage   map[id.User]float64
}

// newCluster has a tariff as published: TESLA with four GPUs, TURING with two, off when unused.
func newCluster() *cluster {
	return &cluster{
		now: start, table: fleet.NewTable(), line: queue.New(), usage: map[id.User]float64{},
		tariff: &fleet.Tariff{Energy: 0.2, Nodes: []fleet.NodePrice{
			{GPU: "TESLA", Watts: []float64{360, 530, 700, 870, 1040}, Off: true},
			{GPU: "TURING", Watts: []float64{320, 400, 480}, Off: true},
			{GPU: "K80", Hourly: []money.PerHour{0, 0.56, 1.13, 1.69, 2.25, 2.81, 3.37, 3.92, 4.48}, Off: true},
		}},
	}
}

// node adds a ready local node with so many GPUs; change makes it different.
func (c *cluster) node(name, model string, gpus int, change ...func(*fleet.Node)) {
	n := &fleet.Node{
		ID:        id.Node(name),
		Class:     fleet.Local,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 64000, Memory: 1 << 40, Shares: "1"},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model, Memory: 16 << 30})
	}

	for _, f := range change {
		f(n)
	}

	c.table.Put(n, 0)
}

// lstm is a published speed: 7 h on one TESLA, 5 h on two, 18 h on one TURING.
func lstm(start, save time.Duration) *job.Speed {
	return job.NewSpeed(
		7*3600,
		start,
		save,
		job.Rate{GPU: "TESLA", GPUs: 1, PerSecond: 1},
		job.Rate{GPU: "TESLA", GPUs: 2, PerSecond: 1.4},
		job.Rate{GPU: "TURING", GPUs: 1, PerSecond: 0.39},
	)
}

// alexnet is hardly faster on many GPUs: 23 h on one K80, 17 h on eight.
func alexnet() *job.Speed {
	return job.NewSpeed(
		23*3600,
		0,
		0,
		job.Rate{GPU: "K80", GPUs: 1, PerSecond: 1},
		job.Rate{GPU: "K80", GPUs: 8, PerSecond: 1.35},
	)
}

// want is one job of a test.
type want struct {
	speed  *job.Speed
	due    time.Duration // from now; 0 for none
	late   money.PerHour // money an hour
	done   float64
	fixed  bool // cannot be stopped
	user   id.User
	lasts  time.Duration
	spec   job.Resources
	place  job.Place
	waited time.Duration

	program string
}

func (c *cluster) item(w want) (*queue.Item, fleet.Need) {
	c.jobs++

	if w.place == "" {
		w.place = job.PlaceAny
	}

	if w.spec.GPUs.Max == 0 {
		w.spec.GPUs = job.Range{Min: 1, Max: 8}
	}

	if w.user == "" {
		w.user = "ada"
	}

	o := &job.Outlook{
		Submitted: c.now.Add(-w.waited),
		LateCost:  w.late.PerSecond(),
		Speed:     w.speed,
		Done:      w.done,
		Resumes:   !w.fixed,
	}

	if w.due != 0 {
		o.Deadline = c.now.Add(w.due)
	}

	need := fleet.NeedOf(&job.Spec{Resources: w.spec, Place: w.place}, job.Floor{}, nil)

	return &queue.Item{
		Job: id.NewJob(c.jobs), Number: c.jobs, User: w.user, Lasts: w.lasts, Cost: 3600, Outlook: o,
		Program: queue.Program{Key: w.program},
	}, need
}

// wait puts a job into the line.
func (c *cluster) wait(w want) *queue.Item {
	it, need := c.item(w)
	c.line.Add(it, need)
	return it
}

// run lets a job run on seats, since an hour ago.
func (c *cluster) run(w want, seats ...place.Allocation) *place.Running {
	it, need := c.item(w)
	it.Shape = &queue.Shape{Need: need}
	return c.launch(it, c.now.Add(-time.Hour), seats)
}

func (c *cluster) launch(it *queue.Item, began time.Time, seats []place.Allocation) *place.Running {
	r := &place.Running{Item: it, Run: id.NewRun(it.Job, 1), Allocations: seats, Ordered: began, Began: began}
	for _, s := range seats {
		r.GPUs += bits.OnesCount64(s.GPUs)
		c.table.Book(s.Node, fleet.Hold{Run: r.Run, Job: it.Job, GPUs: s.GPUs, Share: s.Share, CPUs: it.Shape.Need.CPUs})
	}

	it.Outlook.At = c.now // what is done is known as of now
	r.Rate = place.RateOn(it.Outlook.Speed, seats, func(n id.Node) *fleet.Node {
		room, _ := c.table.Get(n)
		return room.Node
	})

	c.running = append(c.running, r)
	slices.SortFunc(c.running, func(a, b *place.Running) int { return int(a.Number) - int(b.Number) })

	return r
}

func seat(node string, gpus uint64) place.Allocation {
	return place.Allocation{Node: id.Node(node), GPUs: gpus}
}

func (c *cluster) view() *place.View {
	return &place.View{
		Now: c.now, Rooms: c.table.Rooms(), Queue: c.line, Running: c.running, Tariff: c.tariff,
		Usage: c.usage, Beside: c.beside,
	}
}

// plan asks a policy, and fails the test if what it wants cannot be carried out.
func (c *cluster) plan(t *testing.T, p place.Policy) place.Plan {
	t.Helper()
	v := c.view()
	plan := p.Plan(v)
	if _, bad := place.Check(v, plan); len(bad) > 0 {
		t.Fatalf("the plan cannot be carried out: %v", bad)
	}

	return plan
}

func policy() place.Policy { return andreas.New(andreas.Defaults()) }

// given is what a plan gives each job: kind and number of GPUs by node, "" if it is
// stopped or waits, "stays" if it runs on as it is.
func (c *cluster) given(p place.Plan) map[id.Job]string {
	got := map[id.Job]string{}
	for _, it := range c.line.Items() {
		got[it.Job] = ""
	}

	for _, r := range c.running {
		got[r.Job] = "stays"
	}

	for _, s := range p.Stops {
		got[s.Running.Job] = ""
	}

	for _, s := range p.Starts {
		text := ""

		for _, seat := range s.Allocations {
			room, _ := c.table.Get(seat.Node)
			model := "CPU"
			if len(room.Node.Inventory.GPUs) > 0 {
				model = room.Node.Inventory.GPUs[0].Model
			}

			if text != "" {
				text += " + "
			}

			if seat.Share > 0 {
				text += fmt.Sprintf("%g ", seat.Share) + model
				continue
			}

			text += fmt.Sprintf("%d ", bits.OnesCount64(seat.GPUs)) + model
		}

		got[s.Item.Job] = text
	}

	return got
}
