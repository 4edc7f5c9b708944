package catalogue_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/queue"
)

// gangView is an idle yard of unlike nodes with one queued job that needs several of them.
func gangView(nodes []*fleet.Node, gpus, count int, outlook *job.Outlook) *place.View {
	table := fleet.NewTable()
	for _, n := range nodes {
		table.Put(n, 0)
	}

	s := &job.Spec{Run: "train", Place: job.PlaceAny, Objective: job.ObjectiveBalanced}
	s.Resources = job.Resources{
		GPUs: job.Range{Min: gpus, Max: gpus}, Nodes: job.Range{Min: count, Max: count}, CPUs: 1000,
	}

	line := queue.New()
	line.Add(&queue.Item{
		Job: "j1", Number: 1, User: "ada", Lasts: time.Hour, Since: noon, Spec: s, Outlook: outlook,
	}, fleet.NeedOf(s, job.Floor{}, nil))

	return &place.View{Now: noon, Rooms: table.Rooms(), Queue: line}
}

func gangNode(name string, class fleet.Class, gpus int, model string, memory job.Bytes) *fleet.Node {
	n := &fleet.Node{ID: id.Node(name), Class: class, State: fleet.Ready}
	n.Inventory = fleet.Inventory{CPUs: 32_000, Memory: 1 << 38}
	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model, Memory: memory})
	}

	return n
}

// TestEveryPolicyStartsAGangOnUnlikeNodes: a job on several nodes that fits only on nodes that
// differ starts under every policy: nodes with other GPUs, with other numbers of GPUs, and of
// other classes.
func TestEveryPolicyStartsAGangOnUnlikeNodes(t *testing.T) {
	t.Parallel()

	a100 := func(name string, class fleet.Class, gpus int) *fleet.Node {
		return gangNode(name, class, gpus, "A100", 80<<30)
	}

	v100 := gangNode("v", fleet.Local, 4, "V100", 16<<30)

	for _, tc := range []struct {
		name  string
		nodes []*fleet.Node
		gpus  int
	}{
		{"kinds of GPU", []*fleet.Node{a100("a", fleet.Local, 4), v100}, 4},
		{"numbers of GPUs", []*fleet.Node{a100("a", fleet.Local, 4), a100("b", fleet.Local, 8)}, 4},
		{"classes", []*fleet.Node{a100("a", fleet.Local, 4), a100("b", fleet.Reserved, 4)}, 4},
		{"kinds and classes", []*fleet.Node{a100("a", fleet.Reserved, 4), v100}, 2},
		{"with and without GPUs", []*fleet.Node{a100("a", fleet.Local, 4), gangNode("c", fleet.Local, 0, "", 0)}, 0},
	} {
		for _, e := range catalogue.All(nil) {
			for _, speed := range []*job.Speed{
				nil,
				job.NewSpeed(1e5, time.Minute, 0, job.Rate{GPUs: 4, PerSecond: 1}, job.Rate{GPUs: 8, PerSecond: 2}),
			} {
				t.Run(fmt.Sprint(e.Name, ", ", tc.name, ", speed known: ", speed != nil), func(t *testing.T) {
					t.Parallel()

					policy, err := catalogue.All(nil).Make(e.Name)
					if err != nil {
						t.Fatal(err)
					}

					outlook := &job.Outlook{Submitted: noon, Resumes: true, Speed: speed}
					v := gangView(tc.nodes, tc.gpus, len(tc.nodes), outlook)
					plan := policy().Plan(v)

					if _, bad := place.Check(v, plan); len(bad) > 0 {
						t.Fatalf("the plan cannot be carried out: %v", bad)
					}

					if len(plan.Starts) != 1 {
						t.Errorf("it does not start: %+v", plan)
					}
				})
			}
		}
	}
}

// TestNoGangStarves: where small jobs keep coming, a gang that only unlike nodes can run starts
// sooner or later under every policy, and runs to its end; except where the rule of the policy is
// that small jobs go first for ever, whatever they run on.
func TestNoGangStarves(t *testing.T) {
	t.Parallel()

	smallFirst := []string{"las", "saf", "saf-easy", "unicep"}

	for _, e := range catalogue.All(nil) {
		if slices.Contains(smallFirst, e.Name) {
			continue
		}

		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()

			policy, err := catalogue.All(nil).Make(e.Name)
			if err != nil {
				t.Fatal(err)
			}

			y := &stream{policy: policy(), table: fleet.NewTable(), line: queue.New(), now: noon, done: map[id.Job]bool{}}
			y.table.Put(gangNode("a", fleet.Local, 4, "A100", 80<<30), 0)
			y.table.Put(gangNode("v", fleet.Reserved, 4, "V100", 16<<30), 0)

			for range 4 {
				y.submit(1, 2)
			}

			y.round(t)
			gang := y.submit(2, 4)

			for range 200 {
				y.submit(1, 2)
				y.round(t)
				y.now = y.now.Add(20 * time.Minute)
				if y.done[gang] {
					return
				}
			}

			t.Errorf("the gang has not ended after %s", y.now.Sub(noon))
		})
	}
}

// stream is a yard in which jobs come, run for an hour and leave.
type stream struct {
	policy place.Policy
	table  *fleet.Table
	line   *queue.Queue
	runs   []*place.Running
	now    time.Time
	last   uint64
	done   map[id.Job]bool
}

func (y *stream) submit(nodes, gpus int) id.Job {
	y.last++
	s := &job.Spec{Run: "train", Place: job.PlaceAny, Objective: job.ObjectiveBalanced}
	s.Resources = job.Resources{
		GPUs: job.Range{Min: gpus, Max: gpus}, Nodes: job.Range{Min: nodes, Max: nodes}, CPUs: 1000,
	}

	it := &queue.Item{
		Job: id.NewJob(y.last), Number: y.last, User: "ada", Lasts: time.Hour, Since: y.now, Spec: s,
		Outlook: &job.Outlook{
			Submitted: y.now, Resumes: true, Deadline: y.now.Add(2 * time.Hour),
			Speed: job.NewSpeed(3600, 0, 0, job.Rate{GPUs: 1, PerSecond: 0.25}, job.Rate{GPUs: 8, PerSecond: 2}),
		},
	}

	y.line.Add(it, fleet.NeedOf(s, job.Floor{}, nil))

	return it.Job
}

// round ends what has run for an hour, asks the policy and does what it says.
func (y *stream) round(t *testing.T) {
	t.Helper()

	for _, r := range slices.Clone(y.runs) {
		if !r.Ordered.Add(time.Hour).After(y.now) {
			y.leave(r)
			y.done[r.Job] = true
		}
	}

	v := &place.View{Now: y.now, Rooms: y.table.Rooms(), Queue: y.line, Running: y.runs}
	p := y.policy.Plan(v)
	if _, bad := place.Check(v, p); len(bad) > 0 {
		t.Fatalf("the plan cannot be carried out: %v", bad)
	}

	for _, s := range p.Stops {
		y.leave(s.Running)
		s.Running.Outlook.Stops++
		s.Running.Since = y.now
		y.line.Add(s.Running.Item, s.Running.Shape.Need)
	}

	for _, s := range p.Starts {
		y.line.Remove(s.Item)

		r := &place.Running{
			Item: s.Item, Run: id.NewRun(s.Item.Job, s.Item.Outlook.Stops+1), Allocations: s.Allocations,
			Ordered: y.now, Began: y.now, Rate: 1,
		}

		for _, a := range s.Allocations {
			r.GPUs += len(fleet.Indices(a.GPUs))
			y.table.Book(a.Node, fleet.Hold{
				Run: r.Run, Job: r.Job, Owner: r.User, GPUs: a.GPUs, CPUs: 1000, Since: y.now, Ends: y.now.Add(time.Hour),
			})
		}

		y.runs = append(y.runs, r)
	}

	slices.SortFunc(y.runs, func(a, b *place.Running) int { return cmp.Compare(a.Number, b.Number) })
}

func (y *stream) leave(r *place.Running) {
	for _, a := range r.Allocations {
		y.table.Release(a.Node, r.Run)
	}

	y.runs = slices.DeleteFunc(y.runs, func(o *place.Running) bool { return o == r })
}
