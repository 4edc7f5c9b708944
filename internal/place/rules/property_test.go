package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
)

// same compares plans by what they say; the jobs and runs in them are the same values.
func same(a, b place.Plan) string {
	return cmp.Diff(a, b, cmpopts.EquateComparable(&queue.Item{}, &place.Running{}))
}

// live lets a drawn yard live for some rounds.
func live(t *rapid.T, y *yard) {
	for range rapid.IntRange(0, 6).Draw(t, "rounds") {
		for range rapid.IntRange(0, 5).Draw(t, "jobs") {
			y.submit(drawWant(t))
		}

		y.round(t)
		y.pass(time.Duration(rapid.IntRange(0, 90).Draw(t, "pass")) * time.Minute)
	}
}

// TestPlansAreSound lives with the policy for a while: each plan passes the check and
// gives reasons (see yard.plan), the same view gives the same plan, byte by byte, and
// the view stays as it was.
func TestPlansAreSound(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 6, func(t *rapid.T) {
		y := drawYard(t)
		twin := rules.New(rules.Defaults()) // is told the same

		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 5).Draw(t, "jobs") {
				y.submit(drawWant(t))
			}

			v := y.view()
			before := slices.Clone(v.Rooms)
			other := twin.Plan(v)

			if diff := cmp.Diff(before, v.Rooms); diff != "" {
				t.Fatalf("the plan changed its view: %s", diff)
			}

			p := y.round(t)
			if diff := same(p, other); diff != "" {
				t.Fatalf("same view, another plan: %s", diff)
			}

			y.pass(time.Duration(rapid.IntRange(0, 90).Draw(t, "pass")) * time.Minute)
		}
	})
}

// TestASettledYardStaysAsItIs: once plans are carried out, five more rounds at the same
// time start nothing, stop nothing and provision nothing. It may take some rounds until
// then, at most one for each job: who was stopped may find another node, and what is left of
// a provisioned node is anybody's when its job has started.
func TestASettledYardStaysAsItIs(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 6, func(t *rapid.T) {
		y := drawYard(t)
		live(t, y)
		quiet := func(p place.Plan) bool { return len(p.Starts)+len(p.Stops)+len(p.Provisions) == 0 }

		last := y.round(t)
		for rounds := 0; !quiet(last); rounds++ {
			last = y.round(t)
			if rounds > int(y.last)+4 && !quiet(last) {
				t.Fatalf("the yard does not settle: %+v", last)
			}
		}

		for range 5 {
			p := y.round(t)
			if diff := same(p, last); diff != "" {
				t.Fatalf("nothing has happened, and the plan is another: %s", diff)
			}
		}
	})
}

// TestALoneJobStarts: in an idle yard a job that fits somewhere starts at once.
func TestALoneJobStarts(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 6, func(t *rapid.T) {
		y := drawYard(t)
		y.offers = nil
		it := y.submit(drawWant(t))
		m, fits := fleet.NewMatcher(it.Shape.Need), 0

		rooms := y.table.Rooms()
		for i := range rooms {
			if _, ok := m.Fits(&rooms[i]); ok {
				fits++
			}
		}

		p := y.plan(t)
		if started := len(p.Starts) == 1; started != (fits >= it.Shape.Need.Nodes) {
			t.Fatalf("it fits on %d nodes and needs %d, and it starts: %v", fits, it.Shape.Need.Nodes, started)
		}
	})
}

// TestBookingsAreKept: with run times that are known and exact, and nobody new, a job
// for which nodes are kept starts when that was said, or before. There is an offer that
// is of no use for any of them: where nothing at all is offered only the first of jobs
// that are alike has nodes kept, and who comes after another shape may be late by those.
func TestBookingsAreKept(t *testing.T) {
	t.Parallel()
	placetest.Check(t, 6, func(t *rapid.T) {
		y := newYard()
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			y.node(fmt.Sprintf("n%d", i), fleet.Local, rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "count"), a100())
		}

		y.offer("aws/cpu", 0, fleet.GPU{}, 0.1, time.Minute)

		for range rapid.IntRange(1, 14).Draw(t, "jobs") {
			w := want{
				gpus: rapid.SampledFrom([]int{1, 2, 4, 8}).
					Draw(t, "gpus"),
				lasts:     time.Duration(rapid.IntRange(1, 200).Draw(t, "minutes")) * time.Minute,
				objective: rapid.SampledFrom([]job.Objective{job.ObjectiveBalanced, job.ObjectiveCost}).Draw(t, "objective"),
			}

			if rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
				w.nodes = 2
			}

			y.submit(w)
		}

		promised := map[id.Job]time.Time{}

		for range 60 {
			p := y.round(t)
			kept(t, y, p)

			if h := p.Reservation; h != nil {
				if at, known := promised[h.Job]; !known || h.At.Before(at) {
					promised[h.Job] = h.At
				}
			}

			for _, s := range p.Starts {
				if at, known := promised[s.Item.Job]; known && y.now.After(at) {
					t.Fatalf(
						"job %s starts at %s and was promised %s",
						s.Item.Job,
						y.now.Format(time.TimeOnly),
						at.Format(time.TimeOnly),
					)
				}
			}

			if y.line.Len() == 0 {
				return
			}

			y.pass(y.next(time.Hour))
		}
	})
}

// kept checks that nothing of a plan that was carried out is in the way of the job for
// which nodes are kept.
func kept(t *rapid.T, y *yard, p place.Plan) {
	if p.Reservation == nil {
		return
	}

	at := slices.IndexFunc(y.items, func(it *queue.Item) bool { return it.Job == p.Reservation.Job })
	need := y.items[at].Shape.Need
	m := fleet.NewMatcher(need)
	for _, n := range p.Reservation.Nodes {
		r, _ := y.table.Get(n)
		then := *r
		for _, h := range r.Holds {
			if !h.Ends.After(p.Reservation.At) {
				then.Free |= h.GPUs
				then.CPUs += h.CPUs
				then.Memory += h.Memory
			}
		}

		if _, ok := m.Fits(&then); !ok {
			t.Fatalf(
				"%s is kept for %s at %s and is not free then: %+v",
				n,
				p.Reservation.Job,
				p.Reservation.At.Format(time.TimeOnly),
				r.Holds,
			)
		}
	}
}
