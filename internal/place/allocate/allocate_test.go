package allocate_test

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/queue"
)

// yard is a small yard under test.
type yard struct {
	table   *fleet.Table
	line    *queue.Queue
	running []*place.Running
	number  uint64
}

func newYard() *yard { return &yard{table: fleet.NewTable(), line: queue.New()} }

// node adds a node with a number of GPUs of a model.
func (y *yard) node(name, model string, gpus int, change func(*fleet.Node)) {
	n := &fleet.Node{
		ID:        id.Node(name),
		Class:     fleet.Local,
		State:     fleet.Ready,
		Inventory: fleet.Inventory{CPUs: 64000, Memory: 1 << 40},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model, Memory: 16 << 30})
	}

	if change != nil {
		change(n)
	}

	y.table.Put(n, 0)
}

// ask is a need of lo to hi GPUs on each of nodes to most nodes.
func ask(nodes, most, lo, hi int) job.Resources {
	return job.Resources{Nodes: job.Range{Min: nodes, Max: most}, GPUs: job.Range{Min: lo, Max: hi}, CPUs: 1000}
}

// item is a job with this need.
func (y *yard) item(r job.Resources) *queue.Item {
	y.number++
	it := &queue.Item{Job: id.NewJob(y.number), Number: y.number, User: "ada", Outlook: &job.Outlook{Resumes: true}}
	y.line.Add(it, fleet.NeedOf(&job.Spec{Resources: r, Place: job.PlaceAny}, job.Floor{}, nil))

	return it
}

// run lets a job run on seats, written as in "a:0,1 b:3".
func (y *yard) run(it *queue.Item, text string) *place.Running {
	y.line.Remove(it)
	r := &place.Running{Item: it, Run: id.NewRun(it.Job, 1), Allocations: parse(text)}
	for _, s := range r.Allocations {
		r.GPUs += bits.OnesCount64(s.GPUs)
		y.table.Book(
			s.Node,
			fleet.Hold{Run: r.Run, Job: it.Job, GPUs: s.GPUs, CPUs: it.Shape.Need.CPUs, Memory: it.Shape.Need.Memory},
		)
	}

	y.running = append(y.running, r)

	return r
}

func (y *yard) view() *place.View {
	return &place.View{
		Now:     time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC),
		Rooms:   y.table.Rooms(),
		Queue:   y.line,
		Running: y.running,
	}
}

func parse(text string) []place.Allocation {
	var list []place.Allocation
	for part := range strings.FieldsSeq(text) {
		node, gpus, _ := strings.Cut(part, ":")
		s := place.Allocation{Node: id.Node(node)}
		for g := range strings.SplitSeq(gpus, ",") {
			if g != "" {
				s.GPUs |= 1 << (g[0] - '0')
			}
		}

		list = append(list, s)
	}

	return list
}

func text(list []place.Allocation) string {
	parts := make([]string, len(list))
	for i, s := range list {
		gpus := make([]string, 0, 4)
		for _, g := range fleet.Indices(s.GPUs) {
			gpus = append(gpus, fmt.Sprint(g))
		}

		parts[i] = string(s.Node) + ":" + strings.Join(gpus, ",")
	}

	return strings.Join(parts, " ")
}

// TestDeal has for each situation what each job gets: its seats, with "=" in front if nothing
// changes.
func TestDeal(t *testing.T) {
	t.Parallel()
	elastic := ask(1, 16, 1, 4)

	boxes := func(names ...string) *yard {
		y := newYard()
		for _, n := range names {
			y.node(n, "A100", 4, nil)
		}

		return y
	}

	waits := func(y *yard, r job.Resources, n int) allocate.Request {
		return allocate.Request{Item: y.item(r), GPUs: n}
	}

	runs := func(y *yard, r job.Resources, at string, n int) allocate.Request {
		it := y.item(r)
		return allocate.Request{Item: it, Running: y.run(it, at), GPUs: n}
	}

	for name, tc := range map[string]struct {
		deal func() (*yard, []allocate.Request)
		move bool
		want []string
	}{
		"a job that fits on one node gets one, the tightest": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "b:0", 1), waits(y, elastic, 3)}
			},
			want: []string{"=b:0", "b:1,2,3"},
		},
		"a large one gets the fewest nodes, and its rest the tightest": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c", "d")
				return y, []allocate.Request{runs(y, elastic, "c:0,1", 2), waits(y, elastic, 10)}
			},
			want: []string{"=c:0,1", "a:0,1,2,3 b:0,1,2,3 c:2,3"},
		},
		"who keeps the count keeps the seats, however spread": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c")
				return y, []allocate.Request{runs(y, elastic, "a:0 b:0", 2)}
			},
			want: []string{"=a:0 b:0"},
		},
		"who grows stays on its nodes": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "b:1,2", 4)}
			},
			want: []string{"b:0,1,2,3"},
		},
		"who grows and starts again anyway goes where it fits on one": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c")
				return y, []allocate.Request{runs(y, elastic, "a:0 b:0", 4)}
			},
			want: []string{"a:0,1,2,3"},
		},
		"who shrinks lets go of whole nodes": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "a:0 b:0,1,2,3", 3)}
			},
			want: []string{"b:0,1,2"},
		},
		"what one lets go another gets": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a")
				return y, []allocate.Request{runs(y, elastic, "a:0,1,2,3", 1), waits(y, elastic, 3)}
			},
			want: []string{"a:0", "a:1,2,3"},
		},
		"what is free is given before what others must leave": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "a:0,1,2,3", 0), waits(y, elastic, 4), runs(y, elastic, "b:0,1", 1), waits(y, elastic, 1)}
			},
			want: []string{"", "a:0,1,2,3", "b:0", "b:2"},
		},
		"and so are free nodes": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "a:0,1,2,3", 0), waits(y, elastic, 4)}
			},
			want: []string{"", "b:0,1,2,3"},
		},
		"and for the rest of a large one": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c")
				return y, []allocate.Request{runs(y, elastic, "a:0,1,2,3", 3), waits(y, elastic, 5)}
			},
			want: []string{"a:0,1,2", "b:0,1,2,3 c:0"},
		},
		"nothing wanted is nothing given": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a")
				return y, []allocate.Request{runs(y, elastic, "a:0,1,2,3", 0), waits(y, elastic, 0), waits(y, elastic, 2)}
			},
			want: []string{"", "", "a:0,1"},
		},
		"seats of who is not asked about stay theirs": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a")
				runs(y, elastic, "a:0,1", 0)
				return y, []allocate.Request{waits(y, elastic, 4)}
			},
			want: []string{"a:2,3"},
		},
		"who saves nothing and who is being stopped stay as they are": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				one, two := runs(y, elastic, "a:0,1,2", 0), runs(y, elastic, "b:0,1,2", 1)
				one.Item.Outlook.Resumes, two.Running.Stopping = false, true

				return y, []allocate.Request{one, two, waits(y, elastic, 4)}
			},
			want: []string{"=a:0,1,2", "=b:0,1,2", "a:3 b:3"},
		},
		"too little for its need is nothing": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a")
				return y, []allocate.Request{runs(y, elastic, "a:0,1", 2), waits(y, ask(1, 2, 3, 4), 3)}
			},
			want: []string{"=a:0,1", ""},
		},
		"too little for it is nothing": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a")
				w := waits(y, elastic, 4)
				w.Min = 3

				return y, []allocate.Request{runs(y, elastic, "a:0,1", 2), w}
			},
			want: []string{"=a:0,1", ""},
		},
		"who cannot grow enough stays": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a")
				w := runs(y, elastic, "a:0", 4)
				w.Min = 4

				return y, []allocate.Request{runs(y, elastic, "a:1,2", 2), w}
			},
			want: []string{"=a:1,2", "=a:0"},
		},
		"no seat is smaller than the need allows": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{waits(y, ask(1, 4, 2, 4), 5)}
			},
			want: []string{"a:0,1,2 b:0,1"},
		},
		"one node too many for so little": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{waits(y, ask(1, 4, 3, 4), 5)}
			},
			want: []string{"a:0,1,2,3"},
		},
		"as many nodes as it must have": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c")
				return y, []allocate.Request{waits(y, ask(3, 3, 1, 4), 4)}
			},
			want: []string{"a:0,1 b:0 c:0"},
		},
		"no more nodes than it may have": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c")
				return y, []allocate.Request{waits(y, ask(1, 2, 1, 4), 12)}
			},
			want: []string{"a:0,1,2,3 b:0,1,2,3"},
		},
		"a closed node keeps who stays and gets nobody": {
			deal: func() (*yard, []allocate.Request) {
				y := newYard()
				y.node("a", "A100", 4, func(n *fleet.Node) { n.Cordoned = true })
				y.node("b", "A100", 4, nil)

				return y, []allocate.Request{runs(y, elastic, "a:0", 1), runs(y, elastic, "a:1", 2), waits(y, elastic, 3)}
			},
			want: []string{"=a:0", "b:3", "b:0,1,2"},
		},
		"all seats on one kind": {
			deal: func() (*yard, []allocate.Request) {
				y := newYard()
				y.node("a", "A100", 2, nil)
				y.node("b", "V100", 4, nil)

				return y, []allocate.Request{waits(y, elastic, 6)}
			},
			want: []string{"b:0,1,2,3"},
		},
		"the kind that is wanted": {
			deal: func() (*yard, []allocate.Request) {
				y := newYard()
				y.node("a", "A100", 4, nil)
				y.node("b", "V100", 4, nil)
				w, v := waits(y, elastic, 2), runs(y, elastic, "b:0,1", 2)
				rooms := y.table.Rooms()
				w.Kinds, v.Kinds = []int32{rooms[1].Kind}, []int32{rooms[0].Kind}

				return y, []allocate.Request{w, v}
			},
			want: []string{"b:2,3", "a:0,1"},
		},
		"nodes of a job without GPUs": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b", "c")
				r := ask(1, 3, 0, 0)
				return y, []allocate.Request{runs(y, r, "a: b:", 1), runs(y, r, "c:", 2), waits(y, r, 1)}
			},
			want: []string{"a:", "c: a:", "a:"},
		},
		"without moving the great one gets what is free": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "a:0", 1), runs(y, elastic, "b:0,1", 2), waits(y, ask(1, 1, 1, 4), 4)}
			},
			want: []string{"=a:0", "=b:0,1", "a:1,2,3"},
		},
		"with moving a smaller one makes room": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, elastic, "a:0", 1), runs(y, elastic, "b:0,1", 2), waits(y, ask(1, 1, 1, 4), 4)}
			},
			move: true,
			want: []string{"b:2", "=b:0,1", "a:0,1,2,3"},
		},
		"nobody is moved for nothing": {
			deal: func() (*yard, []allocate.Request) {
				y := boxes("a", "b")
				return y, []allocate.Request{runs(y, ask(1, 1, 3, 3), "a:0,1,2", 3), runs(y, ask(1, 1, 3, 3), "b:0,1,2", 3), waits(y, ask(1, 1, 1, 4), 4)}
			},
			move: true,
			want: []string{"=a:0,1,2", "=b:0,1,2", "a:3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, wants := tc.deal()
			v := y.view()
			given := allocate.Assign(v, wants, allocate.Options{Move: tc.move})
			got := make([]string, len(given))
			for i, g := range given {
				got[i] = text(g.Seats)
				if g.Unchanged {
					got[i] = "=" + got[i]
				}
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}

			p := allocate.Plan(wants, given, func(int, []id.Job) string { return "why not" })
			if _, bad := place.Check(v, p); len(bad) > 0 {
				t.Error(bad)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "A100", 4, nil)
	y.node("b", "A100", 2, nil)
	y.node("c", "V100", 8, nil)
	y.node("d", "V100", 8, func(n *fleet.Node) { n.Cordoned = true })
	y.node("e", "", 0, nil)
	y.run(y.item(ask(1, 1, 2, 2)), "a:0,1")
	y.run(y.item(ask(1, 1, 2, 2)), "c:0,1").Outlook.Resumes = false

	var got []string
	for _, k := range allocate.Kinds(y.view()) {
		model := "none"
		if k.GPU != nil {
			model = k.GPU.Model
		}

		got = append(got, fmt.Sprintf("%d %s: %d GPUs on %d nodes, at most %d", k.ID, model, k.GPUs, k.Nodes, k.Largest))
	}

	want := []string{
		"-1 none: 0 GPUs on 1 nodes, at most 0",
		"0 A100: 6 GPUs on 2 nodes, at most 4",
		"1 V100: 6 GPUs on 1 nodes, at most 6",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// drawDeal draws a yard in which some jobs run, and the number of GPUs that each is to have.
func drawDeal(t *rapid.T) (*yard, []allocate.Request) {
	y := newYard()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		y.node(
			fmt.Sprintf("n%d", i),
			rapid.SampledFrom([]string{"A100", "A100", "V100"}).Draw(t, "model"),
			rapid.IntRange(0, 4).Draw(t, "GPUs"),
			func(n *fleet.Node) {
				n.Cordoned = rapid.IntRange(0, 5).Draw(t, "drained") == 0
				n.Inventory.CPUs = job.CPUs(rapid.IntRange(1, 8).Draw(t, "CPUs")) * 1000
			},
		)
	}

	var wants []allocate.Request

	for range rapid.IntRange(1, 6).Draw(t, "jobs") {
		lo, nodes := rapid.IntRange(0, 3).Draw(t, "lo"), rapid.IntRange(1, 2).Draw(t, "nodes")
		r := ask(nodes, nodes+rapid.IntRange(0, 3).Draw(t, "more nodes"), lo, 0)
		r.GPUs.Max = lo
		if lo > 0 {
			r.GPUs.Max += rapid.IntRange(0, 2).Draw(t, "hi")
		}

		w := allocate.Request{Item: y.item(r)}

		// Its present seats come from an earlier allocation, with the others unchanged.
		if g := allocate.Assign(
			y.view(),
			[]allocate.Request{{Item: w.Item, GPUs: rapid.IntRange(0, 6).Draw(t, "held")}},
			allocate.Options{},
		); len(g[0].Seats) > 0 {
			w.Running = y.run(w.Item, text(g[0].Seats))
			w.Item.Outlook.Resumes = rapid.IntRange(0, 4).Draw(t, "resumes") > 0
		}

		w.GPUs = rapid.IntRange(0, 8).Draw(t, "wanted")
		w.Min = rapid.IntRange(0, w.GPUs).Draw(t, "least")
		if rapid.IntRange(0, 2).Draw(t, "asked") > 0 || len(wants) == 0 {
			wants = append(wants, w)
		}
	}

	return y, wants
}

func TestDealCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y, wants := drawDeal(t)
		v := y.view()
		before := slices.Clone(v.Rooms)
		o := allocate.Options{Move: rapid.Bool().Draw(t, "move")}
		given := allocate.Assign(v, wants, o)
		p := allocate.Plan(wants, given, func(int, []id.Job) string { return "why not" })
		if good, bad := place.Check(v, p); len(bad) > 0 || len(good.Starts) != len(p.Starts) ||
			len(good.Stops) != len(p.Stops) {
			t.Fatalf("the plan does not pass the check: %v", bad)
		}

		if !cmp.Equal(before, v.Rooms) {
			t.Fatal("the deal changed its view")
		}

		if again := allocate.Assign(v, wants, o); !cmp.Equal(given, again) {
			t.Fatalf("same wants, another deal: %s", cmp.Diff(given, again))
		}

		for i, g := range given {
			soundGiven(t, y, &wants[i], &g, o)
		}
	})
}

// soundGiven checks the allocation of one job.
func soundGiven(t *rapid.T, y *yard, w *allocate.Request, g *allocate.Allocation, o allocate.Options) {
	need := &w.Item.Shape.Need
	n := len(g.Seats)
	if need.MaxGPUs > 0 {
		n = 0
		for _, s := range g.Seats {
			n += bits.OnesCount64(s.GPUs)
		}
	}

	held := 0
	if w.Running != nil {
		held = w.Running.GPUs
		if need.MaxGPUs == 0 {
			held = len(w.Running.Allocations)
		}
	}

	loose := w.Running != nil && allocate.Movable(w.Running)
	switch {
	case g.GPUs != n:
		t.Fatalf("%s has %d and is said to have %d", w.Item.Job, n, g.GPUs)
	case g.Unchanged && (w.Running == nil || !slices.Equal(g.Seats, w.Running.Allocations)):
		t.Fatalf("%s stays and has %v", w.Item.Job, g.Seats)
	case w.Running != nil && !loose && !g.Unchanged:
		t.Fatalf("%s cannot be stopped and is given %v", w.Item.Job, g.Seats)
	case !g.Unchanged && n > w.GPUs:
		t.Fatalf("%s wants %d and gets %d", w.Item.Job, w.GPUs, n)
	case !g.Unchanged && n > 0 && n < w.Min:
		t.Fatalf("%s wants at least %d and gets %d", w.Item.Job, w.Min, n)
	case loose && w.GPUs == held && !g.Unchanged && !o.Move:
		t.Fatalf("%s keeps its count and is moved from %v to %v", w.Item.Job, w.Running.Allocations, g.Seats)
	case loose && w.GPUs > held && n < held && !o.Move && y.open(w.Running):
		t.Fatalf("%s is to grow from %d to %d and gets %d", w.Item.Job, held, w.GPUs, n)
	}
}

// open reports whether new work may start on all nodes of a job.
func (y *yard) open(r *place.Running) bool {
	return !slices.ContainsFunc(r.Allocations, func(s place.Allocation) bool {
		room, found := y.table.Get(s.Node)
		return !found || !room.Open
	})
}

// TestEverythingFitsThatIsFine allocates to jobs that take single GPUs anywhere: as long as the sum
// does not exceed the capacity, each gets all it requested.
func TestEverythingFitsThatIsFine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		total := 0
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			n := rapid.IntRange(1, 4).Draw(t, "GPUs")
			total += n
			y.node(fmt.Sprintf("n%d", i), "A100", n, nil)
		}

		var wants []allocate.Request

		left := total
		for left > 0 && len(wants) < 8 {
			n := rapid.IntRange(1, left).Draw(t, "count")
			wants = append(wants, allocate.Request{Item: y.item(ask(1, 16, 1, 4)), GPUs: n})
			left -= n
		}

		for range 3 { // and again with other counts, as they run
			given := allocate.Assign(y.view(), wants, allocate.Options{})
			for i, g := range given {
				if g.GPUs != wants[i].GPUs {
					t.Fatalf("%s gets %d of %d", wants[i].Item.Job, g.GPUs, wants[i].GPUs)
				}
			}

			for i := range wants {
				if r := wants[i].Running; r != nil {
					for _, s := range r.Allocations {
						y.table.Release(s.Node, r.Run)
					}
				}
			}

			y.running = nil
			for i := range wants {
				wants[i].Running = y.run(wants[i].Item, text(given[i].Seats))
			}

			i, j := rapid.IntRange(0, len(wants)-1).Draw(t, "from"), rapid.IntRange(0, len(wants)-1).Draw(t, "to")
			n := rapid.IntRange(0, wants[i].GPUs-1).Draw(t, "moved")
			wants[i].GPUs -= n
			wants[j].GPUs += n
		}
	})
}

// BenchmarkDeal is the largest case of harvesting: 1,024 nodes, all held by jobs of up to 64 nodes,
// of which some change.
func BenchmarkDeal(b *testing.B) {
	y := newYard()
	for i := range 1024 {
		y.node(fmt.Sprintf("n%04d", i), "V100", 6, nil)
	}

	var wants []allocate.Request
	for range 30 {
		wants = append(wants, allocate.Request{Item: y.item(ask(1, 64, 6, 6)), GPUs: 6 * 34})
	}

	for i, g := range allocate.Assign(y.view(), wants, allocate.Options{}) {
		wants[i].Running = y.run(wants[i].Item, text(g.Seats))
	}

	for i := range 5 {
		wants[i].GPUs, wants[i+5].GPUs = 6*30, 6*38
	}

	v := y.view()
	b.ReportAllocs()

	for b.Loop() {
		allocate.Assign(v, wants, allocate.Options{})
	}
}
