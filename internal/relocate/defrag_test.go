package relocate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
	"trainyard/internal/relocate"
	"trainyard/internal/tenant"
)

// scattered is a yard of two nodes with four GPUs each, of which two are in use for five hours, and a queued job that
// needs four on one node.
func scattered(y *yard) (runs []*place.Running, waiting *queue.Item) {
	for _, n := range []id.Node{"a", "b"} {
		y.Box(string(n), 4)
		r := y.begin(placetest.Lasting(6*hour, 2), n)
		runs = append(runs, r)
	}

	y.Now = y.Now.Add(hour)
	for _, r := range runs {
		y.forecast(r, 4*hour, 5*hour, 6*hour)
	}

	waiting = y.Add(placetest.Lasting(2*hour, 4))
	waiting.Spec = &job.Spec{Objective: job.ObjectiveBalanced}

	return runs, waiting
}

// fixedPlan is a policy with one plan.
type fixedPlan struct {
	plan    func(v *place.View) place.Plan
	revises bool
}

func (fixedPlan) Name() string                    { return "fixed" }
func (p fixedPlan) Revises() bool                 { return p.revises }
func (p fixedPlan) Plan(v *place.View) place.Plan { return p.plan(v) }

// TestRoomIsMadeForAJobIfItPays: one of the two running jobs moves to the other's node and the queued one starts,
// unless something speaks against it.
func TestRoomIsMadeForAJobIfItPays(t *testing.T) {
	t.Parallel()

	type set func(y *yard, runs []*place.Running, w *queue.Item)

	both := func(change func(y *yard, r *place.Running)) set {
		return func(y *yard, runs []*place.Running, _ *queue.Item) {
			for _, r := range runs {
				change(y, r)
			}
		}
	}

	for name, tc := range map[string]struct {
		set   set
		moves bool
	}{
		"it would wait for hours": {func(*yard, []*place.Running, *queue.Item) {}, true},
		"a running job may end soon": {func(y *yard, runs []*place.Running, _ *queue.Item) {
			y.forecast(runs[0], 14*time.Minute, 5*hour, 6*hour)
		}, false},
		"a running job may end later": {func(y *yard, runs []*place.Running, _ *queue.Item) {
			y.forecast(runs[0], 20*time.Minute, 5*hour, 6*hour)
		}, true},
		"it is not known when they end": {both(func(_ *yard, r *place.Running) {
			r.Outlook.Forecast, r.Takes = nil, 0
		}), false},
		"they write no checkpoints":       {both(func(_ *yard, r *place.Running) { r.Outlook.Resumes = false }), false},
		"they have written none yet":      {both(func(_ *yard, r *place.Running) { r.Outlook.Saved = job.Saved{} }), false},
		"their checkpoints do not travel": {both(func(y *yard, r *place.Running) { save(y, r, 1<<30, false) }), false},
		"they would be delayed for too long": {func(y *yard, runs []*place.Running, w *queue.Item) {
			for _, r := range runs {
				save(y, r, 2<<40, true)
			}

			w.Spec.Objective = job.ObjectiveTime // it would pay
		}, false},
		"they cannot be stored at present": {both(func(_ *yard, r *place.Running) { r.Stays = true }), false},
		"they are being stopped":           {both(func(_ *yard, r *place.Running) { r.Stopping = true }), false},
		"they were moved an hour ago":      {both(func(_ *yard, r *place.Running) { r.Outlook.Stops = 1 }), true},
		"they were moved lately": {both(func(y *yard, r *place.Running) {
			r.Outlook.Stops, r.Began = 1, y.Now.Add(time.Second-hour)
		}), false},
		"they would miss their deadlines": {both(func(y *yard, r *place.Running) {
			r.Outlook.Deadline = y.Now.Add(6*hour + time.Second)
		}), false},
		"they wait for faster nodes": {both(func(y *yard, r *place.Running) {
			y.leases = append(y.leases, &fleet.Lease{
				ID: "l9", State: fleet.LeaseBooting, Job: r.Job, Faster: true, Requested: y.Now,
			})
		}), false},
		"they may not run elsewhere": {both(func(y *yard, r *place.Running) {
			need(y, r, func(n *fleet.Need) { n.Avoid = "|a|b|" })
		}), false},
		"their time is worth much more": {both(func(y *yard, r *place.Running) {
			save(y, r, 400<<30, true)
			r.Spec.Objective = job.ObjectiveTime
		}), false},
		"its time is worth little": {func(y *yard, runs []*place.Running, w *queue.Item) {
			for _, r := range runs {
				save(y, r, 200<<30, true)
				r.Outlook.Forecast.Remaining.Low = (30 * time.Minute).Seconds()
			}

			w.Spec.Objective = job.ObjectiveCost
		}, false},
		"too few GPUs are free": {func(y *yard, _ []*place.Running, _ *queue.Item) {
			y.begin(placetest.Job{Lasts: 9 * hour, Spec: placetest.GPUs(1), Stuck: true}, "a")
		}, false},
		"the other node is closed": {func(y *yard, _ []*place.Running, _ *queue.Item) {
			room, _ := y.Table.Get("b")
			n := *room.Node
			n.Cordoned = true
			y.Table.Put(&n, 0)
		}, false},
		"it may run in the cloud only": {func(y *yard, _ []*place.Running, w *queue.Item) {
			y.Queue.Remove(w)
			n := w.Shape.Need
			n.Place = job.PlaceCloud
			y.Queue.Add(w, n)
		}, false},
		"its quota does not allow it": {func(y *yard, _ []*place.Running, w *queue.Item) {
			a := tenant.Unlimited()
			a.GPUs = 3
			y.limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{w.Job: a}}
		}, false},
		"its quota just allows it": {func(y *yard, _ []*place.Running, w *queue.Item) {
			a := tenant.Unlimited()
			a.GPUs = 4
			y.limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{w.Job: a}}
		}, true},
		"a node is provisioned for it": {func(y *yard, _ []*place.Running, w *queue.Item) {
			y.leases = append(y.leases, &fleet.Lease{ID: "l9", State: fleet.LeaseBooting, Job: w.Job})
		}, false},
		"the policy revises running jobs": {func(y *yard, _ []*place.Running, _ *queue.Item) {
			y.policy = relocate.Wrap(fixedPlan{ordered.FIFO{}.Plan, true}, relocate.Standard())
		}, false},
		"the policy lets it wait": {func(y *yard, _ []*place.Running, w *queue.Item) {
			y.policy = relocate.Wrap(fixedPlan{plan: func(*place.View) place.Plan {
				return place.Plan{Waits: []place.Wait{{Job: w.Job, Reason: "it is cheaper tomorrow"}}}
			}}, relocate.Standard())
		}, false},
		"the policy has booked nothing": {func(y *yard, _ []*place.Running, _ *queue.Item) {
			y.policy = relocate.Wrap(fixedPlan{plan: func(*place.View) place.Plan { return place.Plan{} }}, relocate.Standard())
		}, true},
		"of several the policy prefers none": {func(y *yard, _ []*place.Running, _ *queue.Item) {
			y.Add(placetest.Lasting(2*hour, 4))
			y.policy = relocate.Wrap(fixedPlan{plan: func(*place.View) place.Plan { return place.Plan{} }}, relocate.Standard())
		}, false},
		"the policy expects it to start soon": {func(y *yard, _ []*place.Running, w *queue.Item) {
			y.policy = relocate.Wrap(fixedPlan{plan: func(v *place.View) place.Plan {
				return place.Plan{Reservation: &place.Reservation{Job: w.Job, At: v.Now.Add(14 * time.Minute)}}
			}}, relocate.Standard())
		}, false},
		"the GPUs are booked for another": {func(y *yard, _ []*place.Running, w *queue.Item) {
			other := y.Add(placetest.Lasting(2*hour, 2))
			y.policy = relocate.Wrap(fixedPlan{plan: func(v *place.View) place.Plan {
				return place.Plan{
					Reservation: &place.Reservation{Job: w.Job, At: v.Now.Add(9 * hour)},
					Bookings: []place.Booking{
						{Item: other, Rooms: []int32{0}, StartsIn: hour, Lasts: 2 * hour},
						{Item: other, Rooms: []int32{1}, StartsIn: hour, Lasts: 2 * hour},
					},
				}
			}}, relocate.Standard())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			runs, w := scattered(y)
			tc.set(y, runs, w)

			plan := y.plan(t)
			if got := len(plan.Stops) == 1; got != tc.moves || !got && len(plan.Stops) > 0 {
				t.Fatalf("moves: %v, want %v; starts %v", placetest.StoppedBy(plan), tc.moves, plan.Starts)
			}

			if started := slices.Contains(placetest.Started(plan), w.Job); started != tc.moves {
				t.Fatalf("started: %v, want %v", started, tc.moves)
			}

			if !tc.moves {
				return
			}

			moved := plan.Stops[0].Running
			if to, now := placetest.Where(plan, moved.Job), placetest.Where(plan, w.Job); to[0] == moved.Allocations[0].Node ||
				now[0] != moved.Allocations[0].Node {
				t.Errorf("%s moves to %v and %s starts on %v", moved.Job, to, w.Job, now)
			}
		})
	}
}

// TestTheCheapestSetMoves: of the ways to make room the one is taken in which least work stands still.
func TestTheCheapestSetMoves(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		set  func(y *yard, runs []*place.Running)
		want int // which job moves
	}{
		"the smaller checkpoint": {func(y *yard, runs []*place.Running) { save(y, runs[0], 60<<30, true) }, 1},
		"the less valuable time": {func(_ *yard, runs []*place.Running) {
			runs[0].Spec = &job.Spec{Objective: job.ObjectiveTime}
		}, 1},
		"that which can be moved": {func(_ *yard, runs []*place.Running) { runs[0].Outlook.Resumes = false }, 1},
		"else the first":          {func(*yard, []*place.Running) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			runs, _ := scattered(y)
			tc.set(y, runs)

			if got := placetest.StoppedBy(y.plan(t)); !slices.Equal(got, []id.Job{runs[tc.want].Job}) {
				t.Errorf("%v moves, want %s", got, runs[tc.want].Job)
			}
		})
	}
}

// TestRoomIsMadeForAGang: two nodes are emptied for a job of two nodes, one that is empty is used as it is.
func TestRoomIsMadeForAGang(t *testing.T) {
	t.Parallel()
	y := newYard()

	for _, n := range []string{"a", "b", "c"} {
		y.Box(n, 4)
	}

	y.Box("d", 2)
	one, two := y.begin(placetest.Lasting(6*hour, 1), "a"), y.begin(placetest.Lasting(6*hour, 1), "b")
	y.begin(placetest.Job{Lasts: 6 * hour, Spec: placetest.GPUs(4), Stuck: true}, "c")

	gang := placetest.Lasting(2*hour, 4)
	gang.Spec.Nodes = job.Range{Min: 2, Max: 2}
	w := y.Add(gang)

	plan := y.plan(t)
	moved := placetest.StoppedBy(plan)
	slices.Sort(moved)

	if !slices.Equal(moved, []id.Job{one.Job, two.Job}) {
		t.Fatalf("%v move", moved)
	}

	where := placetest.Where(plan, w.Job)
	slices.Sort(where)

	if !slices.Equal(where, []id.Node{"a", "b"}) {
		t.Errorf("the gang starts on %v", where)
	}

	for _, j := range moved {
		if to := placetest.Where(plan, j); !slices.Equal(to, []id.Node{"d"}) {
			t.Errorf("%s moves to %v", j, to)
		}
	}
}

// TestAGangMovesToMakeRoom: it is on two nodes, of which one is needed by a job that fits nowhere else. It moves as a
// whole, once, also if both of its nodes are needed.
func TestAGangMovesToMakeRoom(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		nodes int // that the queued job needs
		free  int // GPUs of the nodes to which the gang could move
		moves bool
	}{
		"from one node":                {1, 1, true},
		"from both":                    {2, 1, true},
		"with nowhere to go from one":  {1, 0, false},
		"with nowhere to go from both": {2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()

			for _, n := range []id.Node{"a", "b", "c", "d"} {
				y.Box(string(n), 4)
			}

			gang := placetest.Lasting(6*hour, 1)
			gang.Spec.Nodes = job.Range{Min: 2, Max: 2}
			moved := y.begin(gang, "a", "b")

			for _, n := range []id.Node{"c", "d"} {
				y.begin(placetest.Job{Lasts: 9 * hour, Spec: placetest.GPUs(4 - tc.free), Stuck: true}, n)
			}

			wide := placetest.Lasting(2*hour, 4)
			wide.Spec.Nodes = job.Range{Min: tc.nodes, Max: tc.nodes}
			w := y.Add(wide)

			plan := y.plan(t)
			if !tc.moves {
				if len(plan.Stops) > 0 {
					t.Fatalf("%v move: %+v", placetest.StoppedBy(plan), plan.Starts)
				}

				return
			}

			if got := placetest.StoppedBy(plan); !slices.Equal(got, []id.Job{moved.Job}) {
				t.Fatalf("%v move, want %s", got, moved.Job)
			}

			where, to := placetest.Where(plan, w.Job), placetest.Where(plan, moved.Job)
			if len(where) != tc.nodes || len(to) != 2 ||
				slices.ContainsFunc(to, func(n id.Node) bool { return slices.Contains(where, n) }) {
				t.Errorf("the job starts on %v, and the gang moves to %v", where, to)
			}
		})
	}
}

// TestJobsMoveOnlyWhereTheyFit: if the cheapest way fails because the jobs that leave fit nowhere, the next is taken.
func TestJobsMoveOnlyWhereTheyFit(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.Box("a", 4)
	y.Box("b", 4)
	y.Box("c", 1)
	y.Box("d", 1)
	y.begin(placetest.Lasting(6*hour, 2), "a") // cheap to move, but two GPUs on one node are free nowhere else

	for range 2 {
		save(y, y.begin(placetest.Lasting(6*hour, 1), "b"), 8<<30, true)
	}

	y.begin(placetest.Job{Lasts: 6 * hour, Spec: placetest.GPUs(2), Stuck: true}, "b")

	three := y.Add(placetest.Lasting(2*hour, 3))
	if plan := y.plan(t); len(plan.Stops) > 0 {
		t.Fatalf("%v move although nothing fits", placetest.StoppedBy(plan))
	}

	y.Queue.Remove(three)
	two := y.Add(placetest.Lasting(2*hour, 2))
	y.begin(placetest.Job{Lasts: 6 * hour, Spec: placetest.GPUs(2), Stuck: true}, "a")

	plan := y.plan(t)
	if got := placetest.Where(plan, two.Job); len(plan.Stops) != 2 || !slices.Equal(got, []id.Node{"b"}) {
		t.Errorf("%v move, it starts on %v", placetest.StoppedBy(plan), got)
	}
}

// TestTheReasonsOfRoomHaveMoneyAndMinutes: both owners learn what it costs and what it is good for.
func TestTheReasonsOfRoomHaveMoneyAndMinutes(t *testing.T) {
	t.Parallel()
	y := newYard()
	runs, _ := scattered(y)
	save(y, runs[0], 12<<30, true)
	save(y, runs[1], 24<<30, true)

	plan := y.plan(t)
	if len(plan.Stops) != 1 || len(plan.Starts) != 2 || plan.Reservation != nil {
		t.Fatalf("plan %+v", plan)
	}

	want := "moves from a (local, 2× A100 80GB) to b (local, 2× A100 80GB) to make room for j3, which starts est. 4h " +
		"earlier, worth $7.99; 48s for save, transfer and restore, worth $0.03, est. finish 15:00 UTC"
	if got := plan.Stops[0].Reason; got != want || plan.Starts[0].Reason != want {
		t.Errorf("the reason is\n%s, want\n%s", got, want)
	}

	want = "a (local, 4× A100 80GB): j1 moves to make room; starts est. 4h earlier, worth $7.99; " +
		"the moves cost est. $0.03"
	if got := plan.Starts[1].Reason; got != want {
		t.Errorf("the reason is\n%s, want\n%s", got, want)
	}
}

// TestMovesForRoomNeverFlap: whatever is queued and whatever forecasts say, a plan can be carried out, moves only to
// start a job, and moves no job twice within its minimum stay.
func TestMovesForRoomNeverFlap(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		nodes := rapid.IntRange(2, 5).Draw(t, "nodes")

		for i := range nodes {
			y.Box(fmt.Sprint("n", i), rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "gpus"))
		}

		last := map[id.Job]time.Time{} // moves

		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			y.Now = y.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)
			y.randomChange(t)

			v := y.view()
			plan := y.policy.Plan(v)

			if _, bad := place.Check(v, plan); len(bad) > 0 {
				t.Fatalf("the plan cannot be carried out: %v", bad)
			}

			if len(plan.Stops) > 0 && !slices.ContainsFunc(plan.Starts, func(s place.Start) bool {
				return strings.Contains(s.Reason, "to make room; starts")
			}) {
				t.Fatalf("%v move for nobody", placetest.StoppedBy(plan))
			}

			for _, s := range plan.Stops {
				if before, moved := last[s.Running.Job]; moved && y.Now.Sub(before) < hour {
					t.Fatalf("%s moves %s after its last move", s.Running.Job, y.Now.Sub(before))
				}

				last[s.Running.Job] = y.Now
				y.Leave(s.Running)
				s.Running.Outlook.Stops++
				s.Running.Outlook.Forecast = nil
				y.Queue.Add(s.Running.Item, s.Running.Shape.Need)
			}

			for _, s := range plan.Starts {
				y.Book(s)
				r := y.running(s.Item)
				save(y, r, 4<<30, true)
			}
		}
	})
}

// randomChange lets a job end, or come, and forecasts say something new.
func (y *yard) randomChange(t *rapid.T) {
	if n := rapid.IntRange(-2, len(y.Runs)-1).Draw(t, "ends"); n >= 0 {
		y.Leave(y.Runs[n])
	}

	if y.Queue.Len() < 3 {
		w := placetest.Lasting(time.Duration(rapid.IntRange(1, 20).Draw(t, "lasts"))*hour,
			rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "needs"))
		w.Spec.Nodes.Min = rapid.IntRange(1, 2).Draw(t, "nodes")
		w.Spec.Nodes.Max = w.Spec.Nodes.Min
		y.Add(w).Spec = &job.Spec{Objective: job.ObjectiveBalanced}
	}

	for _, r := range y.Runs {
		mid := time.Duration(rapid.IntRange(1, 600).Draw(t, "left")) * time.Minute
		y.forecast(r, mid/2, mid, 2*mid)
	}
}
