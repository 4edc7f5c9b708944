package harvest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/knapsack"
)

// drawYard draws nodes of one or two kinds, of one or several GPUs, opened at several times.
func drawYard(t *rapid.T) *yard {
	y := newYard()
	whole := rapid.Bool().Draw(t, "one GPU each")

	kinds := []string{"V100", "A100"}[:rapid.IntRange(1, 2).Draw(t, "kinds")]
	for i := range rapid.IntRange(0, 14).Draw(t, "nodes") {
		gpus := 1
		if !whole {
			gpus = rapid.IntRange(0, 4).Draw(t, "gpus")
		}

		since := y.now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "opened")) * 20 * time.Minute)
		y.node(fmt.Sprintf("n%02d", i), rapid.SampledFrom(kinds).Draw(t, "kind"), gpus, since)
	}

	return y
}

// drawJob draws a job: elastic, of one size or without GPUs, of known speed or not.
func drawJob(t *rapid.T, y *yard) {
	w := want{
		priority:  10 * rapid.IntRange(0, 1).Draw(t, "priority"),
		submitted: time.Duration(rapid.IntRange(0, 120).Draw(t, "submitted")) * time.Minute,
		dies:      rapid.IntRange(0, 5).Draw(t, "dies") == 0,
		every:     time.Duration(rapid.IntRange(0, 1).Draw(t, "every")) * time.Hour,
		user:      rapid.SampledFrom([]id.User{"ada", "bob"}).Draw(t, "user"),
	}

	nodes := rapid.IntRange(1, 2).Draw(t, "least nodes")
	gpus := rapid.IntRange(0, 2).Draw(t, "least GPUs")
	w.need = fleet.Need{
		Nodes:    nodes,
		MaxNodes: nodes + rapid.IntRange(0, 8).Draw(t, "more nodes"),
		GPUs:     gpus,
		MaxGPUs:  gpus,
		CPUs:     1000,
	}

	if gpus > 0 {
		w.need.MaxGPUs += rapid.IntRange(0, 2).Draw(t, "more GPUs")
	}

	if rapid.IntRange(0, 3).Draw(t, "known") > 0 {
		var rates []job.Rate
		rate := 0.0
		for _, n := range []int{1, 2, 4, 8, 16} {
			rate += float64(rapid.IntRange(1, 20).Draw(t, "rate"))
			rates = append(rates, job.Rate{GPUs: n, PerSecond: rate})
		}

		start := time.Duration(rapid.IntRange(0, 40).Draw(t, "start")) * time.Second
		w.speed = job.NewSpeed(float64(rapid.IntRange(100, 1_000_000).Draw(t, "work")), start, start/4, rates...)
	}

	y.add(w)
}

func TestPlansCanBeCarriedOutAndAreTheSameForTheSameView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := drawYard(t)

		h, err := harvest.New(harvest.Params{
			MaxParallel: rapid.IntRange(1, 6).Draw(t, "at once"),
			Objective:   rapid.SampledFrom([]string{"speedup", "throughput", "fair", "log(n) * speedup"}).Draw(t, "objective"),
			Effort:      knapsack.Effort{Rounds: 20, Prices: 20},
		})
		if err != nil {
			t.Fatal(err)
		}

		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "new jobs") {
				drawJob(t, y)
			}

			drawLoss(t, y)
			p := y.ask(t, h)

			again := h.Plan(y.view())
			if diff := cmp.Diff(words(p), words(again)); diff != "" {
				t.Fatalf("the same view, another plan:\n%s", diff)
			}

			y.obey(p)
			y.now = y.now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
		}
	})
}

// drawLoss lets a node be taken away, or come back.
func drawLoss(t *rapid.T, y *yard) {
	rooms := y.table.Rooms()
	if len(rooms) == 0 || rapid.Bool().Draw(t, "nothing happens") {
		return
	}

	room := rooms[rapid.IntRange(0, len(rooms)-1).Draw(t, "node")]
	n := *room.Node
	n.Cordoned, n.Since = !n.Cordoned, y.now
	y.table.Put(&n, 0)
	for i := 0; i < len(y.running); {
		r := y.running[i]
		if n.Cordoned && on1(r, &n) {
			y.stop(r)
			continue
		}

		i++
	}
}

func on1(r *place.Running, n *fleet.Node) bool {
	for _, s := range r.Allocations {
		if s.Node == n.ID {
			return true
		}
	}

	return false
}

// words writes a plan down to compare it.
func words(p place.Plan) []string {
	var list []string
	for _, s := range p.Stops {
		list = append(list, fmt.Sprint("stop ", s.Running.Run, " ", s.Reason))
	}

	for _, s := range p.Starts {
		list = append(list, fmt.Sprint("start ", s.Item.Job, " ", s.Allocations, " ", s.Reason))
	}

	return append(list, fmt.Sprint("again ", p.WakeAt))
}

func TestAskedAgainAtOnceItChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		y.nodes(0, rapid.IntRange(0, 40).Draw(t, "nodes"))
		h := harvest.Default()

		for range rapid.IntRange(1, 5).Draw(t, "jobs") {
			y.add(want{speed: speed(1e12, 18*time.Second, rapid.SampledFrom([]map[int]float64{shuffle, vgg}).Draw(t, "model"))})
		}

		y.obey(y.ask(t, h))

		for range 3 {
			if p := y.ask(t, h); len(p.Stops)+len(p.Starts) > 0 {
				t.Fatalf("asked again it wants %q", words(p))
			}
		}
	})
}
