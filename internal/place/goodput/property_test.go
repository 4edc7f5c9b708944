package goodput_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/goodput"
	"trainyard/internal/queue"
)

// drawYard draws nodes of up to three kinds.
func drawYard(t *rapid.T) *yard {
	y := newYard()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		y.node(
			fmt.Sprintf("n%d", i),
			rapid.SampledFrom([]string{"V100", "P100", "K80"}).Draw(t, "model"),
			rapid.IntRange(1, 8).Draw(t, "gpus"),
		)
	}

	return y
}

// drawJob adds a waiting job: elastic or not, with or without a speed, on some
// kinds or on all.
func drawJob(t *rapid.T, y *yard) *queue.Item {
	r := elastic()
	if rapid.Bool().Draw(t, "rigid") {
		r = exactly(rapid.IntRange(1, 4).Draw(t, "asks"))
	}

	var s *job.Speed

	if rapid.IntRange(0, 4).Draw(t, "tells") > 0 {
		kinds := rapid.SampledFrom([][]string{{""}, {"V100"}, {"V100", "K80"}, {"V100", "P100", "K80"}}).Draw(t, "kinds")
		work := math.Exp(rapid.Float64Range(0, 12).Draw(t, "work"))
		if rapid.IntRange(0, 5).Draw(t, "no work") == 0 {
			work = 0
		}

		s = scales(work, rapid.Float64Range(0.1, 1).Draw(t, "power"), rapid.IntRange(1, 16).Draw(t, "most"),
			time.Duration(rapid.IntRange(0, 100).Draw(t, "pause"))*time.Second, kinds...)
	}

	it := y.ranks(rapid.SampledFrom([]int{0, 0, 0, 70}).Draw(t, "priority"), r, s)
	it.Lasts = time.Duration(rapid.SampledFrom([]int{0, 0, 100, 10000}).Draw(t, "lasts")) * time.Second
	it.Outlook.Resumes = rapid.IntRange(0, 5).Draw(t, "resumes") > 0
	it.Outlook.Submitted = y.now.Add(-time.Duration(rapid.IntRange(0, 100000).Draw(t, "there")) * time.Second)

	return it
}

// apply lets a plan come true, some time later.
func (y *yard) apply(p place.Plan, later time.Duration) {
	for _, s := range p.Stops {
		for _, seat := range s.Running.Allocations {
			y.table.Release(seat.Node, s.Running.Run)
		}

		o := s.Running.Outlook
		o.Done, o.Served, o.At = s.Running.Done(y.now), s.Running.Served(y.now), y.now
		y.line.Add(s.Running.Item, s.Running.Shape.Need)

		for i, r := range y.running {
			if r == s.Running {
				y.running = append(y.running[:i:i], y.running[i+1:]...)
				break
			}
		}
	}

	for _, s := range p.Starts {
		y.sits(s.Item, s.Allocations, 0)
	}

	y.now = y.now.Add(later)
}

// TestPlansAreSound lets small yards go through several rounds. Every plan can be
// carried out, is the same if asked twice, changes nothing in its view, stops
// nobody who cannot go on, and leaves no GPU idle that a waiting job of one GPU
// could use.
func TestPlansAreSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := drawYard(t)
		p := goodput.Policy{Aim: rapid.SampledFrom(aims()).Draw(t, "aim")}

		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for range rapid.IntRange(0, 5).Draw(t, "jobs") {
				drawJob(t, y)
			}

			v := y.view()
			rooms := y.table.Rooms()

			plan := p.Plan(v)
			if again := p.Plan(v); !cmp.Equal(plan, again, cmpopts.EquateComparable(&queue.Item{}, &place.Running{})) {
				t.Fatalf("same view, another plan:\n%+v\n%+v", plan, again)
			}

			if !cmp.Equal(rooms, v.Rooms) {
				t.Fatal("the plan changed its view")
			}

			if _, bad := place.Check(v, plan); len(bad) > 0 {
				t.Fatalf("the plan cannot be carried out: %v", bad)
			}

			y.apply(plan, time.Duration(rapid.IntRange(0, 4000).Draw(t, "later"))*time.Second)
			noneIdle(t, y)
		}
	})
}

// noneIdle checks that no job of one GPU waits beside one that is free for it.
func noneIdle(t *rapid.T, y *yard) {
	rooms := y.table.Rooms()
	for _, it := range y.line.Items() {
		if it.Shape.Need.GPUs > 1 {
			continue
		}

		match := fleet.NewMatcher(it.Shape.Need)
		for i := range rooms {
			gpu := &rooms[i].Node.Inventory.GPUs[0]
			known := it.Outlook.Speed == nil || it.Outlook.Speed.On(gpu.Model, gpu.Memory).Rate(1, 1) > 0
			if _, fits := match.Fits(&rooms[i]); fits && known {
				t.Fatalf("job %s waits beside a free GPU of %s", it.Job, rooms[i].Node.ID)
			}
		}
	}
}

// TestAnotherNodeNeverSlowsAJobThatIsAlone gives a job more to choose from.
func TestAnotherNodeNeverSlowsAJobThatIsAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		y := drawYard(t)
		it := drawJob(t, y)
		rate := func() float64 {
			for _, s := range (goodput.Policy{}).Plan(y.view()).Starts {
				return place.RateOn(it.Outlook.Speed, s.Allocations, func(n id.Node) *fleet.Node {
					room, _ := y.table.Get(n)
					return room.Node
				})
			}

			return 0
		}

		before := rate()
		y.node("another", "V100", rapid.IntRange(1, 8).Draw(t, "more"))

		if after := rate(); after < before*(1-1e-9) {
			t.Fatalf("it did %v a second, and does %v with one more node", before, after)
		}
	})
}

func aims() []goodput.Aim {
	return []goodput.Aim{goodput.Completion, goodput.Makespan, goodput.Fairness}
}
