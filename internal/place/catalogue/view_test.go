package catalogue_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// cluster is what a drawn view is made of.
type cluster struct {
	table *fleet.Table
	line  *queue.Queue
	runs  []*place.Running
	last  uint64
}

var (
	users    = []id.User{"ada", "ben", "eve"}
	projects = []id.Project{"", "vision", "speech"}
)

// drawView draws a yard in use, with everything in it that a view may show.
func drawView(t *rapid.T) *place.View {
	c := &cluster{table: fleet.NewTable(), line: queue.New()}

	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		c.table.Put(drawNode(t, i), uint64(rapid.IntRange(0, 1).Draw(t, "foreign")))
	}

	for range rapid.IntRange(0, 6).Draw(t, "earlier jobs") {
		c.submit(t)
	}

	c.start()

	for range rapid.IntRange(0, 8).Draw(t, "jobs") {
		c.submit(t)
	}

	v := &place.View{Now: noon, Rooms: c.table.Rooms(), Queue: c.line, Running: c.runs}
	if rapid.Bool().Draw(t, "arranged") {
		v.Bands = fleet.Arrange(v.Rooms)
	}

	drawPeople(t, v)
	drawMarket(t, v)
	drawPast(t, v)

	return v
}

func drawNode(t *rapid.T, i int) *fleet.Node {
	n := &fleet.Node{
		ID: id.Node(fmt.Sprintf("n%d", i)), Pool: "racks", State: fleet.Ready,
		Class:     rapid.SampledFrom([]fleet.Class{fleet.Local, fleet.Local, fleet.Reserved}).Draw(t, "class"),
		Cordoned:  rapid.IntRange(0, 5).Draw(t, "drained") == 0,
		Inventory: fleet.Inventory{CPUs: 32_000, Memory: 1 << 38, Draw: []float64{100, 400}},
	}

	kind := rapid.SampledFrom([]fleet.GPU{
		{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30, Measured: 250.5},
		{Model: "Tesla T4", Memory: 15 << 30, Peak: 65},
	}).Draw(t, "kind")

	for g := range rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, "gpus") {
		kind.Index = g
		n.Inventory.GPUs = append(n.Inventory.GPUs, kind)
	}

	return n
}

func (c *cluster) submit(t *rapid.T) {
	c.last++
	gpus := rapid.SampledFrom([]int{0, 1, 1, 2, 4}).Draw(t, "wants")
	objectives := []job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}
	places := []job.Place{job.PlaceAny, job.PlaceAny, job.PlaceLocal}
	s := &job.Spec{
		Run:       "train",
		Place:     rapid.SampledFrom(places).Draw(t, "place"),
		Objective: rapid.SampledFrom(objectives).Draw(t, "objective"),
		Resources: job.Resources{
			GPUs:  job.Range{Min: gpus, Max: gpus * rapid.IntRange(1, 2).Draw(t, "elastic")},
			Nodes: job.Range{Min: 1, Max: 1},
			CPUs:  1000,
		},
	}

	if rapid.Bool().Draw(t, "data") {
		s.Data = []string{"films"}
	}

	o := &job.Outlook{
		Submitted: noon.Add(-time.Hour),
		Resumes:   rapid.Bool().Draw(t, "resumes"),
		Every:     10 * time.Minute,
	}

	if rapid.Bool().Draw(t, "speed") {
		o.Speed = job.NewSpeed(1e5, time.Minute, 30*time.Second,
			job.Rate{GPUs: 1, PerSecond: 3.3}, job.Rate{GPUs: 4, PerSecond: 10.1})
		o.Done = rapid.Float64Range(0, 9e4).Draw(t, "done")
	}

	if rapid.Bool().Draw(t, "deadline") {
		o.Deadline = noon.Add(time.Duration(rapid.IntRange(-60, 600).Draw(t, "due")) * time.Minute)
		o.LateCost = 0.1
	}

	it := &queue.Item{
		Job:      id.NewJob(c.last),
		Number:   c.last,
		Priority: rapid.IntRange(0, 2).Draw(t, "priority"),
		User:     rapid.SampledFrom(users).Draw(t, "user"),
		Project:  rapid.SampledFrom(projects).Draw(t, "project"),
		Lasts:    time.Duration(rapid.IntRange(0, 300).Draw(t, "minutes")) * time.Minute,
		Cost:     rapid.Float64Range(0, 1e4).Draw(t, "cost"),
		Since:    noon.Add(-time.Duration(rapid.IntRange(0, 3000).Draw(t, "waits")) * time.Minute),
		Spec:     s,
		Outlook:  o,
	}

	c.line.Add(it, fleet.NeedOf(s, job.Floor{}, nil))
}

// start lets run what fits.
func (c *cluster) start() {
	began := noon.Add(-30 * time.Minute)
	plan := ordered.FIFO{}.Plan(&place.View{Now: began, Rooms: c.table.Rooms(), Queue: c.line})

	for _, s := range plan.Starts {
		c.line.Remove(s.Item)
		run := id.NewRun(s.Item.Job, 1)
		r := &place.Running{Item: s.Item, Run: run, Allocations: s.Allocations, Ordered: began, Began: began.Add(time.Minute)}
		for _, seat := range s.Allocations {
			h := fleet.Hold{Run: r.Run, Job: s.Item.Job, Owner: s.Item.User, GPUs: seat.GPUs, CPUs: 1000, Since: began}
			if s.Item.Lasts > 0 {
				h.Ends = began.Add(s.Item.Lasts)
			}

			c.table.Book(seat.Node, h)
			r.GPUs += len(fleet.Indices(seat.GPUs))
		}

		r.Rate = place.RateOn(s.Item.Outlook.Speed, s.Allocations, c.node)
		c.runs = append(c.runs, r)
	}

	slices.SortFunc(c.runs, func(a, b *place.Running) int { return int(a.Number) - int(b.Number) })
}

func (c *cluster) node(n id.Node) *fleet.Node {
	room, _ := c.table.Get(n)

	return room.Node
}

func drawPeople(t *rapid.T, v *place.View) {
	v.Usage = map[id.User]float64{}
	v.ProjectUsage = map[id.Project]float64{}
	for _, u := range users {
		v.Usage[u] = rapid.Float64Range(0, 1e6).Draw(t, "usage")
	}

	for _, p := range projects[1:] {
		v.ProjectUsage[p] = rapid.Float64Range(0, 1e6).Draw(t, "usage")
	}

	if rapid.Bool().Draw(t, "nobody is limited") {
		return
	}

	v.Limits = &place.Limits{Payers: map[queue.Payer]place.PayerLimit{}, Jobs: map[id.Job]tenant.Allowance{}}
	for _, u := range users {
		for _, p := range projects {
			limit := place.PayerLimit{Allowance: drawAllowance(t), Borrows: rapid.Bool().Draw(t, "borrows")}
			v.Limits.Payers[queue.Payer{User: u, Project: p}] = limit
		}
	}

	v.Limits.Jobs["j1"] = drawAllowance(t)
}

func drawAllowance(t *rapid.T) tenant.Allowance {
	a := tenant.Unlimited()

	switch rapid.IntRange(0, 3).Draw(t, "limit") {
	case 0:
		a.Money = money.Amount(rapid.Float64Range(0, 50).Draw(t, "money"))
		a.LimitedBy.Money = "the budget"
	case 1:
		a.NoProvisioning = true
		a.LimitedBy.Money = "the budget"
	case 2:
		a.HoldReason = "the budget is used up"
	}

	return a
}

func drawMarket(t *rapid.T, v *place.View) {
	v.Tariff = &fleet.Tariff{Energy: 0.3, PUE: 1.2, Nodes: []fleet.NodePrice{
		{Watts: []float64{200, 500, 800}, Hourly: []money.PerHour{0.1, 0.9}},
	}}

	v.Data = dataset.NewCatalogue(dataset.DefaultNetwork())
	copies := []dataset.Copy{{Node: "n0"}, {Pool: "lab"}}
	v.Data.Put(dataset.Dataset{ID: "films", Size: 1 << 40, Rule: job.PlaceAny, Copies: copies})

	if rapid.Bool().Draw(t, "nothing to provision") {
		return
	}

	o := fleet.Offer{
		Name: "aws/a100", Provider: "aws", Type: "a100",
		GPU: "A100", GPUs: 4, GPUMemory: 80 << 30, TFLOPS: 312, CPUs: 32_000, Memory: 1 << 38,
		Hourly: 3_210_000, Boot: job.Duration(4 * time.Minute),
	}

	v.Offers = []fleet.Offer{o}
	v.Leases = []*fleet.Lease{
		{ID: "l1", Offer: o, State: fleet.LeaseBooting, Job: "j2", Owner: "ada", Requested: noon.Add(-time.Minute)},
	}
}

func drawPast(t *rapid.T, v *place.View) {
	v.Past = &queue.Past{}
	for range rapid.SampledFrom([]int{0, 30, 2100}).Draw(t, "past jobs") {
		ran := time.Duration(rapid.IntRange(1, 1e6).Draw(t, "ran")) * time.Millisecond
		v.Past.Add(queue.Kin{
			User:    rapid.SampledFrom(users).Draw(t, "whose"),
			Program: queue.Program{Key: rapid.SampledFrom([]string{"", "train.py"}).Draw(t, "program")},
			GPUs:    rapid.IntRange(0, 2).Draw(t, "gpus"),
		}, ran)
	}
}

// compare says how two plans differ. Jobs and runs are the same if they have one name.
func compare(a, b place.Plan) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(),
		cmp.Comparer(func(x, y *queue.Item) bool { return x.Job == y.Job }),
		cmp.Comparer(func(x, y *place.Running) bool { return x == y || x != nil && y != nil && x.Run == y.Run }))
}

// TestAViewCanBeRecordedAndReplayed: every policy plans the same, reasons included, on a
// view, on a view that was written down and read back, and on a clone.
func TestAViewCanBeRecordedAndReplayed(t *testing.T) {
	t.Parallel()
	all := catalogue.All(nil)

	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)

		text, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("write the view: %v", err)
		}

		var read place.View
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatalf("read the view: %v", err)
		}

		again, err := json.Marshal(&read)
		if err != nil || !bytes.Equal(text, again) {
			t.Fatalf("the view is written in another way when it was read back (%v):\n%s\n%s", err, text, again)
		}

		clone := v.Clone()

		for _, e := range all {
			make, err := all.Make(e.Name)
			if err != nil {
				t.Fatalf("%s: %v", e.Name, err)
			}

			want := make().Plan(v)
			if diff := compare(want, make().Plan(&read)); diff != "" {
				t.Fatalf("%s plans something else on the view that was read back (-view +read):\n%s", e.Name, diff)
			}

			if diff := compare(want, make().Plan(clone)); diff != "" {
				t.Fatalf("%s plans something else on a clone (-view +clone):\n%s", e.Name, diff)
			}
		}
	})
}

// TestAViewIsData: nothing in a view is a function or a channel.
func TestAViewIsData(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}

	var look func(path string, of reflect.Type)
	look = func(path string, of reflect.Type) {
		if seen[of] {
			return
		}

		seen[of] = true

		switch of.Kind() {
		case reflect.Func, reflect.Chan, reflect.UnsafePointer:
			t.Errorf("%s is a %s", path, of)
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(path, of.Elem())
		case reflect.Map:
			look(path, of.Key())
			look(path, of.Elem())
		case reflect.Struct:
			for field := range of.Fields() {
				look(path+"."+field.Name, field.Type)
			}
		default:
		}
	}

	look("View", reflect.TypeFor[place.View]())
}
