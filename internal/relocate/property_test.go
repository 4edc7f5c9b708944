package relocate_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
)

// TestJobsNeverFlap: whatever forecasts say, a job moves at most once in its minimum stay, and only to nodes that are
// paid for anyway.
func TestJobsNeverFlap(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		away := rapid.IntRange(1, 4).Draw(t, "jobs")

		for i := range rapid.IntRange(1, 3).Draw(t, "own") {
			y.Box(fmt.Sprint("own", i), 1)
		}

		for i := range away {
			name := fmt.Sprint("cloud", i)
			y.provisioned(name, 1)
			y.begin(placetest.Lasting(100*hour, 1), id.Node(name))
		}

		last := map[id.Job]time.Time{} // moves

		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			y.Now = y.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)

			for _, r := range y.Runs {
				mid := time.Duration(rapid.IntRange(1, 600).Draw(t, "left")) * time.Minute
				y.forecast(r, mid/2, mid, 2*mid)
			}

			if n := rapid.IntRange(-4, away-1).Draw(t, "driven out"); n >= 0 {
				y.driveOut(n)
			}

			v := y.view()
			plan := y.policy.Plan(v)

			if _, bad := place.Check(v, plan); len(bad) > 0 {
				t.Fatalf("the plan cannot be carried out: %v", bad)
			}

			for i := range plan.Stops {
				s := &plan.Starts[i]
				if before, moved := last[s.Item.Job]; moved && y.Now.Sub(before) < hour {
					t.Fatalf("%s moves %s after its last move", s.Item.Job, y.Now.Sub(before))
				}

				room, _ := y.Table.Get(s.Allocations[0].Node)
				if room.Node.Class == fleet.OnDemand {
					t.Fatalf("%s moves to an on-demand node", s.Item.Job)
				}

				last[s.Item.Job] = y.Now
				y.carryOut(plan.Stops[i].Running, *s)
			}
		}
	})
}

// carryOut stops a run and starts its job elsewhere.
func (y *yard) carryOut(r *place.Running, s place.Start) {
	y.Leave(r)
	r.Outlook.Stops++
	r.Outlook.Forecast = nil
	y.Queue.Add(r.Item, r.Shape.Need)
	y.Book(s)
}

// driveOut puts a job that came home back on a node of its own, as a policy does that needs its node for another.
func (y *yard) driveOut(n int) {
	r := y.Runs[n]
	back := id.Node(fmt.Sprint("cloud", n))

	room, _ := y.Table.Get(back)
	if room.Free != 0 && y.Now.Sub(r.Began) > time.Minute {
		y.carryOut(r, place.Start{Item: r.Item, Allocations: []place.Allocation{{Node: back, GPUs: 1}}})
	}
}
