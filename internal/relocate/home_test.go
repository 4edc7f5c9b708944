package relocate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
)

const hour = time.Hour

// TestJobsComeHomeIfItPays: a job on a provisioned node, of which four hours are left, comes home to an idle node of
// the yard, unless something speaks against it.
func TestJobsComeHomeIfItPays(t *testing.T) {
	t.Parallel()

	one := func(y *yard) *place.Running {
		y.Box("own", 1)
		y.provisioned("cloud", 1)
		r := y.begin(placetest.Lasting(5*hour, 1), "cloud")
		y.Now = y.Now.Add(hour)
		y.forecast(r, 3*hour, 4*hour, 5*hour)

		return r
	}

	for name, tc := range map[string]struct {
		set   func(y *yard, r *place.Running)
		moves bool
	}{
		"four hours are left": {func(*yard, *place.Running) {}, true},
		"to a reserved node": {func(y *yard, _ *place.Running) {
			y.Table.Remove("own")
			y.Node("res", fleet.Reserved, 8000, 1<<40, fleet.GPU{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30})
		}, true},
		"less than an hour may be left": {func(y *yard, r *place.Running) {
			y.forecast(r, 59*time.Minute, 4*hour, 5*hour)
		}, false},
		"it is not known how much is left": {func(_ *yard, r *place.Running) {
			r.Outlook.Forecast, r.Takes = nil, 0
		}, false},
		"its owner expects so": {func(_ *yard, r *place.Running) { r.Outlook.Forecast = nil }, true},
		"the forecast is older than the run": {func(y *yard, r *place.Running) {
			r.Outlook.Forecast.At, r.Takes = r.Began, 0
		}, false},
		"it writes no checkpoints":  {func(_ *yard, r *place.Running) { r.Outlook.Resumes = false }, false},
		"it has written none yet":   {func(y *yard, r *place.Running) { r.Outlook.Saved = job.Saved{} }, false},
		"its checkpoint travels":    {func(y *yard, r *place.Running) { save(y, r, 1<<30, true) }, true},
		"its checkpoint stays":      {func(y *yard, r *place.Running) { save(y, r, 1<<30, false) }, false},
		"its checkpoint is too big": {func(y *yard, r *place.Running) { save(y, r, 2<<40, true) }, false},
		"transfer is too expensive": {func(y *yard, r *place.Running) {
			save(y, r, 100<<30, true)
			y.network.PerGB = 1
		}, false},
		"its checkpoint is on a file system of both": {func(y *yard, r *place.Running) {
			save(y, r, 100<<30, true)
			y.network.PerGB = 1
			shared(y, r, "own")
		}, true},
		"its checkpoint is on a file system that home lacks": {func(y *yard, r *place.Running) {
			save(y, r, 1<<30, true)
			shared(y, r)
		}, false},
		"it may not run at home": {func(y *yard, r *place.Running) { need(y, r, func(n *fleet.Need) { n.Place = job.PlaceCloud }) }, false},
		"the GPU at home is too small": {func(y *yard, r *place.Running) {
			need(y, r, func(n *fleet.Need) { n.GPUMin = 141 << 30 })
		}, false},
		"it failed at home": {func(y *yard, r *place.Running) { need(y, r, func(n *fleet.Need) { n.Avoid = "|own|" }) }, false},
		"the node at home is closed": {func(y *yard, _ *place.Running) {
			room, _ := y.Table.Get("own")
			n := *room.Node
			n.Cordoned = true
			y.Table.Put(&n, 0)
		}, false},
		"its node stays for another job": {func(y *yard, _ *place.Running) {
			y.Node("cloud", fleet.OnDemand, 64000, 1<<40, slices.Repeat(
				[]fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}, 2)...)
			y.begin(placetest.Job{Lasts: 9 * hour, Spec: placetest.GPUs(1), Stuck: true}, "cloud")
		}, false},
		"the hours are paid for": {func(y *yard, _ *place.Running) {
			y.leases[0].Offer.BillingIncrement = job.Duration(6 * hour)
		}, false},
		"it is being stopped": {func(_ *yard, r *place.Running) { r.Stopping = true }, false},
		"it has not begun":    {func(_ *yard, r *place.Running) { r.Began = time.Time{} }, false},
		"it would miss its deadline": {func(y *yard, r *place.Running) {
			r.Outlook.Deadline = y.Now.Add(5*hour + time.Second)
		}, false},
		"it keeps its deadline": {func(y *yard, r *place.Running) { r.Outlook.Deadline = y.Now.Add(6 * hour) }, true},
		"it misses its deadline anyway": {func(y *yard, r *place.Running) {
			r.Outlook.Deadline = y.Now.Add(hour)
		}, true},
		"every second after its deadline costs a dollar": {func(y *yard, r *place.Running) {
			r.Outlook.Deadline = y.Now.Add(hour)
			r.Outlook.LateCost = 1
		}, false},
		"it was moved an hour ago": {func(y *yard, r *place.Running) { r.Outlook.Stops = 1 }, true},
		"it was moved lately": {func(y *yard, r *place.Running) {
			r.Outlook.Stops = 1
			r.Began = y.Now.Add(time.Second - hour)
		}, false},
		"a job waits for the node": {func(y *yard, _ *place.Running) { y.Add(placetest.Lasting(hour, 1)); waitFor(y) }, false},
		"a job waits for other nodes": {func(y *yard, _ *place.Running) {
			y.Add(placetest.Job{Lasts: hour, Spec: placetest.GPUs(1), Place: job.PlaceCloud})
		}, true},
		"the GPUs at home are half as fast": {func(y *yard, r *place.Running) { slowHome(y, r, 0.5) }, false},
		"the GPUs at home are a little slower": {func(y *yard, r *place.Running) {
			slowHome(y, r, 0.95)
		}, true},
		"it is cost-sensitive and half as fast at home": {func(y *yard, r *place.Running) {
			slowHome(y, r, 0.5)
			r.Spec.Objective = job.ObjectiveCost
		}, true},
		"it is not known to run at home": {func(y *yard, r *place.Running) {
			slowHome(y, r, 0)
			r.Spec.Objective = job.ObjectiveCost
		}, false},
		"it is time-sensitive": {func(_ *yard, r *place.Running) { r.Spec.Objective = job.ObjectiveTime }, true},
		"it is time-sensitive and its checkpoint is large": {func(y *yard, r *place.Running) {
			save(y, r, 60<<30, true)
			r.Spec.Objective = job.ObjectiveTime
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			r := one(y)
			tc.set(y, r)

			plan := y.plan(t)
			if got := slices.Contains(placetest.StoppedBy(plan), r.Job); got != tc.moves {
				t.Fatalf("moves: %v, want %v; starts %v", got, tc.moves, plan.Starts)
			}

			if !tc.moves {
				return
			}

			if where := placetest.Where(plan, r.Job); len(where) != 1 || where[0] != "own" && where[0] != "res" {
				t.Errorf("moves to %v", where)
			}
		})
	}
}

// save lets a job have a checkpoint of a size.
func save(y *yard, r *place.Running, size job.Bytes, travels bool) {
	r.Outlook.Saved = job.Saved{Size: size, At: y.Now, Travels: travels}
}

// need changes what a running job needs.
func need(y *yard, r *place.Running, change func(*fleet.Need)) {
	n := r.Shape.Need
	change(&n)
	r.Shape = y.Queue.ShapeOf(n)
}

// waitFor lets a job of two GPUs wait for the node at home, of which one is in use.
func waitFor(y *yard) {
	y.Node("own", fleet.Local, 64000, 1<<40, slices.Repeat(
		[]fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}, 2)...)
	y.begin(placetest.Lasting(9*hour, 1), "own")
	y.Add(placetest.Lasting(hour, 2))
}

// slowHome lets the GPUs at home be so fast for a job, where those of the provisioned node have speed 1.
func slowHome(y *yard, r *place.Running, speed float64) {
	y.Node("own", fleet.Local, 64000, 1<<40, fleet.GPU{Model: "NVIDIA L4", Memory: 24 << 30})

	rates := []job.Rate{{GPU: "A100", GPUs: 1, PerSecond: 1}}
	if speed > 0 {
		rates = append(rates, job.Rate{GPU: "L4", GPUs: 1, PerSecond: speed})
	}

	r.Outlook.Speed = job.NewSpeed((5 * hour).Seconds(), 0, 0, rates...)
	r.Rate = 1
}

// TestTheLargestSavingComesHomeFirst: if there is room for one, it is the job whose move saves most.
func TestTheLargestSavingComesHomeFirst(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.Box("own", 1)

	for _, n := range []string{"c1", "c2", "c3"} {
		y.provisioned(n, 1)
	}

	lefts := []time.Duration{2 * hour, 9 * hour, 4 * hour}
	var runs []*place.Running

	for i, n := range []id.Node{"c1", "c2", "c3"} {
		runs = append(runs, y.begin(placetest.Lasting(lefts[i], 1), n))
	}

	plan := y.plan(t)
	if got := placetest.StoppedBy(plan); !slices.Equal(got, []id.Job{runs[1].Job}) {
		t.Errorf("%v come home, want %s alone", got, runs[1].Job)
	}
}

// TestAllThatPayComeHome: a gang gets nodes of its own, and a job that fits beside it comes as well.
func TestAllThatPayComeHome(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.Box("own1", 2)
	y.Box("own2", 1)

	for _, n := range []string{"c1", "c2", "c3"} {
		y.provisioned(n, 1)
	}

	gang := placetest.Lasting(9*hour, 1)
	gang.Spec.Nodes = job.Range{Min: 2, Max: 2}
	r := y.begin(gang, "c1", "c2")
	single := y.begin(placetest.Lasting(4*hour, 1), "c3")

	plan := y.plan(t)
	where := placetest.Where(plan, r.Job)
	slices.Sort(where)

	if !slices.Equal(where, []id.Node{"own1", "own2"}) {
		t.Errorf("the gang moves to %v", where)
	}

	if where := placetest.Where(plan, single.Job); !slices.Equal(where, []id.Node{"own1"}) {
		t.Errorf("the single job moves to %v", where)
	}
}

// TestTheReasonHasMoneyAndMinutes: the owner of a job that moves learns what it saves and what it takes.
func TestTheReasonHasMoneyAndMinutes(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.Box("own", 1)
	y.provisioned("cloud", 1)
	r := y.begin(placetest.Lasting(4*hour, 1), "cloud")
	save(y, r, 12<<30, true)

	plan := y.plan(t)
	if len(plan.Stops) != 1 || len(plan.Starts) != 1 || plan.Stops[0].Reason != plan.Starts[0].Reason {
		t.Fatalf("plan %+v", plan)
	}

	// 12 GiB: 12 s to write, 102.4 s to bring them to the store, 12 s from there, 12 s to read. $3 for 4 h less the
	// 114.4 s until the old node is left.
	want := "moves from cloud (on-demand, 1× A100 80GB) to own (local, 1× A100 80GB): saves est. $11.90; 4h left, " +
		"2m18s for save, transfer and restore, est. finish 13:02 UTC, 2m18s later"
	if got := plan.Stops[0].Reason; got != want {
		t.Errorf("the reason is\n%s, want\n%s", got, want)
	}

	if !strings.Contains(plan.Starts[0].Reason, "own") || plan.Stops[0].Kind != place.Move {
		t.Errorf("kind %q", plan.Stops[0].Kind)
	}
}

// TestAWakeIsDueWhenAJobMayMoveAgain: a job that was moved lately is looked at again when it has stayed for
// long enough.
func TestAWakeIsDueWhenAJobMayMoveAgain(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.Box("own", 1)
	y.provisioned("cloud", 1)
	r := y.begin(placetest.Lasting(9*hour, 1), "cloud")
	r.Outlook.Stops = 1

	plan := y.plan(t)
	if want := r.Began.Add(hour); len(plan.Stops) > 0 || !plan.WakeAt.Equal(want) {
		t.Errorf("stops %v, wakes at %v, want none and %v", plan.Stops, plan.WakeAt, want)
	}
}

// shared puts the checkpoint of a job on a shared file system that these nodes see.
func shared(y *yard, r *place.Running, nodes ...id.Node) {
	r.Outlook.Saved.Shared = "lab"
	need(y, r, func(n *fleet.Need) { n.Shared = "lab" })

	for _, name := range nodes {
		room, _ := y.Table.Get(name)
		n := *room.Node
		n.Inventory.Shared = []fleet.Shared{{Name: "lab", OK: true}}
		y.Table.Put(&n, 0)
	}
}

// TestMovesDoNotQueueForTheLine: of eight jobs with large checkpoints as many come home at once as the line carries
// within the delay that is allowed.
func TestMovesDoNotQueueForTheLine(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.Box("own", 8)

	var list []*place.Running
	for i := range 8 {
		name := fmt.Sprint("cloud", i)
		y.provisioned(name, 1)
		list = append(list, y.begin(placetest.Lasting(10*hour, 1), id.Node(name)))
	}

	y.Now = y.Now.Add(hour)
	for _, r := range list {
		y.forecast(r, 8*hour, 9*hour, 10*hour)
		save(y, r, y.network.Across*300, true) // five minutes
	}

	if plan := y.plan(t); len(plan.Stops) != 2 {
		t.Errorf("%d jobs move, want 2", len(plan.Stops))
	}

	list[0].Stopping = true

	plan := y.plan(t)
	if len(plan.Stops) != 1 || !strings.HasPrefix(plan.Stops[0].Reason, "moves from cloud1") {
		t.Errorf("while one is on its way %+v move, want one", plan.Stops)
	}
}
