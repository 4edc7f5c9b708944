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
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
	"trainyard/internal/relocate"
	"trainyard/internal/tenant"
)

// offered is what can be provisioned: eight GPUs at $24 an hour.
func offered() []fleet.Offer {
	return []fleet.Offer{{
		Name: "aws/a100x8", Provider: "aws", Type: "a100x8", GPU: "NVIDIA A100-SXM4-80GB", GPUs: 8, GPUMemory: 80 << 30,
		CPUs: 64000, Memory: 1 << 40, Hourly: 24e6,
	}}
}

// eightAway lets eight jobs of one GPU run on provisioned nodes, each with nine hours left.
func eightAway(y *yard) []*place.Running {
	var list []*place.Running
	for i := range 8 {
		name := fmt.Sprint("cloud", i)
		y.provisioned(name, 1)
		list = append(list, y.begin(placetest.Lasting(10*hour, 1), id.Node(name)))
	}

	y.Now = y.Now.Add(hour)
	for _, r := range list {
		y.forecast(r, 8*hour, 9*hour, 10*hour)
	}

	return list
}

// own adds a node of the yard.
func (y *yard) own(gpus int) {
	y.Node("own", fleet.Local, 64000, 1<<40, slices.Repeat(
		[]fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}, gpus)...)
}

// wide queues a job of eight GPUs.
func (y *yard) wide(lasts time.Duration) *queue.Item {
	it := y.Add(placetest.Lasting(lasts, 8))
	it.Spec = &job.Spec{Objective: job.ObjectiveBalanced}
	it.Since = y.Now

	return it
}

// TestWhoGetsANodeThatIsFree: a long job of eight GPUs lets eight jobs come home that pay $24 an hour together, unless
// something speaks against it.
func TestWhoGetsANodeThatIsFree(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		set    func(y *yard, it *queue.Item)
		yields bool
	}{
		"its time is worth less than they pay": {func(*yard, *queue.Item) {}, true},
		"it is short":                          {func(_ *yard, it *queue.Item) { it.Lasts = hour }, false},
		"it is not known how long it is":       {func(_ *yard, it *queue.Item) { it.Lasts = 0 }, false},
		"it is time-sensitive": {func(_ *yard, it *queue.Item) {
			it.Spec.Objective = job.ObjectiveTime
		}, false},
		"it goes before them": {func(_ *yard, it *queue.Item) { it.Priority = 60 }, false},
		"it has a deadline": {func(y *yard, it *queue.Item) {
			it.Outlook = &job.Outlook{Deadline: y.Now.Add(100 * hour)}
		}, false},
		"nothing can be provisioned": {func(y *yard, _ *queue.Item) { y.offers = nil }, false},
		"nothing may be provisioned for it": {func(y *yard, it *queue.Item) {
			none := tenant.Unlimited()
			none.NoProvisioning = true
			y.limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{it.Job: none}}
		}, false},
		"they pay less": {func(y *yard, _ *queue.Item) {
			for _, l := range y.leases {
				l.Offer.Hourly = 3e5
			}
		}, false},
		"seven of them are nearly done": {func(y *yard, _ *queue.Item) {
			for _, r := range y.Runs[1:] {
				y.forecast(r, 0, hour/2, hour)
			}

			y.leases[0].Offer.Hourly = 2e6
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			y.own(8)
			y.offers = offered()
			list := eightAway(y)
			it := y.wide(60 * hour)
			tc.set(y, it)

			plan := y.plan(t)
			starts := placetest.Where(plan, it.Job) != nil

			if starts == tc.yields {
				t.Fatalf("starts: %v, want %v; plan %+v", starts, !tc.yields, plan)
			}

			if !tc.yields {
				return
			}

			for _, r := range list {
				if where := placetest.Where(plan, r.Job); len(where) != 1 || where[0] != "own" {
					t.Errorf("%s moves to %v", r.Job, where)
				}
			}

			want := "job " + string(list[0].Job) + " and 7 others moved here from on-demand nodes, which saves $24.00 an hour"
			if len(plan.Waits) != 1 || plan.Waits[0].Job != it.Job || plan.Waits[0].Reason != want {
				t.Errorf("says %+v, want %q", plan.Waits, want)
			}
		})
	}
}

// TestBookingsYield: a node that is kept for a long job of eight GPUs takes one home that is not done before, and one
// that is kept for a more urgent job does not.
func TestBookingsYield(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		priority int
		moves    bool
	}{
		"a long job waits":        {0, true},
		"a more urgent job waits": {60, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			y.policy = relocate.Wrap(rules.New(rules.Defaults()), relocate.Standard())
			y.own(8)
			y.offers = offered()
			y.begin(placetest.Lasting(2*hour, 1), "own")
			y.provisioned("cloud", 1)
			r := y.begin(placetest.Lasting(10*hour, 1), "cloud")
			y.Now = y.Now.Add(hour)
			y.forecast(r, 8*hour, 9*hour, 10*hour)

			it := y.wide(60 * hour)
			it.Priority = tc.priority
			plan := y.plan(t)

			booked := func(b place.Booking) bool { return b.Item == it }
			if !slices.ContainsFunc(plan.Bookings, booked) {
				t.Fatalf("nothing is kept for the job of eight GPUs: %+v", plan)
			}

			if got := slices.Contains(placetest.StoppedBy(plan), r.Job); got != tc.moves {
				t.Errorf("moves: %v, want %v", got, tc.moves)
			}
		})
	}
}

// TestMovesDoNotQueueForTheLine: of eight jobs with large checkpoints as many come home at once as the line carries
// within the delay that is allowed.
func TestMovesDoNotQueueForTheLine(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.own(8)

	list := eightAway(y)
	for _, r := range list {
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
