package andreas

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// drawView draws a yard of which not all jobs can have what they want.
func drawView(t *rapid.T) *place.View {
	now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
	table := fleet.NewTable()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := &fleet.Node{ID: id.Node(fmt.Sprintf("n%d", i)), Class: fleet.Local, State: fleet.Ready}
		model := rapid.SampledFrom([]string{"TESLA", "K80"}).Draw(t, "model")
		for g := range rapid.IntRange(1, 4).Draw(t, "gpus") {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: g, Model: model, Memory: 16 << 30})
		}

		table.Put(n, 0)
	}

	line := queue.New()

	for i := range rapid.IntRange(1, 20).Draw(t, "jobs") {
		rates := []job.Rate{}
		for g, rate := 1, 0.0; g <= 4; g++ {
			rate += rapid.Float64Range(0.1, 1).Draw(t, "more")
			rates = append(
				rates,
				job.Rate{GPU: "TESLA", GPUs: g, PerSecond: rate},
				job.Rate{GPU: "K80", GPUs: g, PerSecond: rate / 2},
			)
		}

		o := &job.Outlook{
			Submitted: now,
			Deadline:  now.Add(time.Duration(rapid.IntRange(-60, 600).Draw(t, "due")) * time.Minute),
			LateCost:  money.PerSecond(rapid.Float64Range(0.001, 0.1).Draw(t, "late")),
			Speed:     job.NewSpeed(float64(rapid.IntRange(600, 36000).Draw(t, "work")), 0, 0, rates...),
			Resumes:   true,
		}

		number := uint64(i + 1)
		line.Add(
			&queue.Item{Job: id.NewJob(number), Number: number, User: "ada", Outlook: o},
			fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 4, Place: job.PlaceAny},
		)
	}

	return &place.View{Now: now, Rooms: table.Rooms(), Queue: line}
}

// TestSearchesNeverLose compares what each search finds with the first solution, and checks the
// indexes.
func TestSearchesNeverLose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)

		for _, search := range []Search{Local, Random, Relink} {
			o := Defaults()
			o.Search, o.Rounds = search, 50
			y := newPlanner(v, &o)
			y.ListCandidates()
			y.price()
			y.greedy()
			first := y.value()
			y.improve()

			if got := y.value(); got < first-1e-9*math.Abs(first) {
				t.Fatalf("%s finds %g where the first answer is %g", search, got, first)
			}

			balanced(t, y)
		}
	})
}

// TestLocalSearchPushesAside has a yard where the first solution is not the best: the first job
// takes the node on which the second could be in time.
func TestLocalSearchPushesAside(t *testing.T) {
	t.Parallel()
	better := 0
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		o := Defaults()
		y := newPlanner(v, &o)
		y.ListCandidates()
		y.price()
		y.greedy()
		first := y.value()
		y.improve()

		if y.value() > first*(1+1e-6) {
			better++
		}
	})

	if better == 0 {
		t.Error("in a hundred yards it never found anything better than the first answer")
	}
}

// balanced checks that the indexes agree with the assignments of the tasks.
func balanced(t *rapid.T, y *planner) {
	fresh := y.NewIndexes()
	for i := range y.Tasks {
		tk := &y.Tasks[i]
		if tk.Assigned < 0 {
			continue
		}

		o := &tk.Candidates[tk.Assigned]
		for n, p := range tk.Positions {
			if int(fresh[o.Kind].Free[p]) < o.On(n) {
				t.Fatalf("job %s has GPUs of a node that has none left", tk.Item.Job)
			}

			fresh[o.Kind].Move(p, o.On(n))
		}
	}

	for k := range fresh {
		for p := range fresh[k].Free {
			if fresh[k].Free[p] != y.Indexes[k].Free[p] {
				t.Fatalf("the shelf says that node %d has %d free, and it has %d", p, y.Indexes[k].Free[p], fresh[k].Free[p])
			}
		}
	}
}

// TestASearchEndsWhenItsTimeIsUp counts how often it asks.
func TestASearchEndsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()

	for _, search := range []Search{Local, Random, Relink} {
		rapid.Check(t, func(t *rapid.T) {
			v := drawView(t)
			asked := 0
			enough := func() bool {
				asked++
				return asked > 5
			}

			o := Defaults()
			o.Search, o.Rounds = search, 0
			New(o).Search(v, enough)

			if asked > 30 { // once for each solution that it keeps after that
				t.Fatalf("%s goes on although its time is up: asked %d times", search, asked)
			}
		})
	}
}

// BenchmarkPlan is one plan for 100 nodes and 450 jobs, of which 200 run.
func BenchmarkPlan(b *testing.B) {
	for _, search := range []Search{Greedy, Local} {
		b.Run(string(search), func(b *testing.B) {
			v := busyView()
			o := Defaults()
			o.Search = search
			p := New(o)
			for b.Loop() {
				p.Plan(v)
			}
		})
	}
}

func busyView() *place.View {
	now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
	table, line := fleet.NewTable(), queue.New()
	for i := range 100 {
		n := &fleet.Node{ID: id.Node(fmt.Sprintf("n%03d", i)), Class: fleet.Local, State: fleet.Ready}
		model := []string{"K80", "M60"}[i%2]
		for g := range 8 {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: g, Model: model, Memory: 16 << 30})
		}

		table.Put(n, 0)
	}

	v := &place.View{Now: now, Queue: line}

	var speeds []*job.Speed
	for s := range 15 {
		rates := []job.Rate{}
		for g := 1; g <= 8; g++ {
			rate := math.Pow(float64(g), 0.2+float64(s)/30)
			rates = append(
				rates,
				job.Rate{GPU: "K80", GPUs: g, PerSecond: rate},
				job.Rate{GPU: "M60", GPUs: g, PerSecond: rate * 0.9},
			)
		}

		speeds = append(speeds, job.NewSpeed(3600*float64(20+s), time.Minute, time.Minute, rates...))
	}

	need := fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 8, Place: job.PlaceAny}

	for i := range 450 {
		number := uint64(i + 1)
		o := &job.Outlook{
			Submitted: now,
			Deadline:  now.Add(time.Duration(i%60) * time.Hour),
			LateCost:  0.005 + money.PerSecond(i%7)/1000,
			Speed:     speeds[i%15],
			Resumes:   true,
			At:        now,
		}

		it := &queue.Item{Job: id.NewJob(number), Number: number, User: "ada", Outlook: o}
		line.Add(it, need)

		if i >= 200 {
			continue
		}

		line.Remove(it)
		node := id.Node(fmt.Sprintf("n%03d", i/2))
		r := &place.Running{
			Item:        it,
			Run:         id.NewRun(it.Job, 1),
			Allocations: []place.Allocation{{Node: node, GPUs: 0xf << (i % 2 * 4)}},
			GPUs:        4,
			Rate:        1.5,
			Ordered:     now.Add(-time.Hour),
			Began:       now.Add(-time.Hour),
		}

		table.Book(node, fleet.Hold{Run: r.Run, Job: it.Job, GPUs: r.Allocations[0].GPUs})
		v.Running = append(v.Running, r)
	}

	v.Rooms = table.Rooms()

	return v
}
