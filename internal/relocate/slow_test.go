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
	"trainyard/internal/place/placetest"
	"trainyard/internal/tenant"
)

// l4 and a100 are GPUs of nodes of the yard.
func l4() fleet.GPU   { return fleet.GPU{Model: "NVIDIA L4", Memory: 24 << 30} }
func a100() fleet.GPU { return fleet.GPU{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30} }

// speeds sets how fast a job is on each GPU, and that it runs on the slow one.
func speeds(r *place.Running, slow, fast float64) {
	r.Outlook.Speed = job.NewSpeed((9 * hour).Seconds(), 0, 0,
		job.Rate{GPU: "L4", GPUs: 1, PerSecond: slow}, job.Rate{GPU: "A100", GPUs: 1, PerSecond: fast})
	r.Rate = slow
}

// TestSlowJobsMoveToFasterNodes: a job that would miss its deadline moves to an idle node that is faster, unless
// something speaks against it; then its owner is to know.
func TestSlowJobsMoveToFasterNodes(t *testing.T) {
	t.Parallel()

	const stays, moves, noted = 0, 1, 2

	for name, tc := range map[string]struct {
		set  func(y *yard, r *place.Running)
		want int
	}{
		"three forecasts in a row say so": {func(*yard, *place.Running) {}, moves},
		"two forecasts say so":            {func(_ *yard, r *place.Running) { r.Outlook.Slow = 2 }, stays},
		"the other node is in use": {func(y *yard, _ *place.Running) {
			y.begin(placetest.Lasting(9*hour, 1), "fast")
		}, noted},
		"a job waits for the other node":  {func(y *yard, _ *place.Running) { waitForFast(y) }, noted},
		"the other node is hardly faster": {func(_ *yard, r *place.Running) { speeds(r, 1, 1.1) }, noted},
		"the other node is slower":        {func(_ *yard, r *place.Running) { speeds(r, 1, 0.5) }, noted},
		"the other node is too far: its checkpoint takes longer": {func(y *yard, r *place.Running) {
			save(y, r, 20<<40, true)
		}, noted},
		"it has no checkpoint yet":             {func(_ *yard, r *place.Running) { r.Outlook.Saved = job.Saved{} }, noted},
		"it writes no checkpoints":             {func(_ *yard, r *place.Running) { r.Outlook.Resumes = false }, noted},
		"it may have more GPUs":                {func(y *yard, r *place.Running) { elastic(y, r, 2) }, moves},
		"it may have more GPUs than there are": {func(y *yard, r *place.Running) { elastic(y, r, 1) }, noted},
		"it may have more GPUs, and its quota does not allow them": {func(y *yard, r *place.Running) {
			elastic(y, r, 2)
			none := tenant.Unlimited()
			none.GPUs = 0
			y.limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{r.Job: none}}
		}, noted},
		"it is being stopped":      {func(_ *yard, r *place.Running) { r.Stopping = true }, stays},
		"it was moved an hour ago": {func(_ *yard, r *place.Running) { r.Outlook.Stops = 1 }, moves},
		"it was moved lately": {func(y *yard, r *place.Running) {
			r.Outlook.Stops = 1
			r.Began = y.Now.Add(time.Second - hour)
		}, stays},
		"it may not run there": {func(y *yard, r *place.Running) {
			need(y, r, func(n *fleet.Need) { n.GPUMax = 24 << 30 })
		}, noted},
		"it is cost-sensitive": {func(_ *yard, r *place.Running) { r.Spec.Objective = job.ObjectiveCost }, moves},
		"it is cost-sensitive and has no deadline": {func(_ *yard, r *place.Running) {
			r.Spec.Objective = job.ObjectiveCost
			r.Outlook.Deadline = time.Time{}
		}, stays},
		"little may be left of it": {func(y *yard, r *place.Running) {
			y.forecast(r, 10*time.Second, 4*hour, 5*hour)
		}, noted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			y.Node("slow", fleet.Local, 64000, 1<<40, l4())
			y.Node("fast", fleet.Local, 64000, 1<<40, a100())
			r := y.begin(placetest.Lasting(9*hour, 1), "slow")
			speeds(r, 1, 4)
			r.Outlook.Deadline, r.Outlook.Slow = y.Now.Add(3*hour), place.SlowForecasts
			y.Now = y.Now.Add(hour)
			y.forecast(r, 3*hour, 4*hour, 5*hour)
			tc.set(y, r)

			plan := y.plan(t)
			moved := slices.Contains(placetest.StoppedBy(plan), r.Job)
			note := slices.IndexFunc(plan.Slow, func(s place.Slow) bool { return s.Running == r })

			if moved != (tc.want == moves) || note >= 0 != (tc.want == noted) {
				t.Fatalf("moves: %v, noted: %v; starts %v", moved, note >= 0, plan.Starts)
			}

			if where := placetest.Where(plan, r.Job); moved && !slices.Equal(where, []id.Node{"fast"}) {
				t.Errorf("moves to %v", where)
			}
		})
	}
}

// elastic lets a job use two GPUs, with which it is twice as fast, and the other node have so many of its kind.
func elastic(y *yard, r *place.Running, gpus int) {
	y.Node("fast", fleet.Local, 64000, 1<<40, slices.Repeat([]fleet.GPU{l4()}, gpus)...)
	r.Outlook.Speed = job.NewSpeed((9 * hour).Seconds(), 0, 0,
		job.Rate{GPU: "L4", GPUs: 1, PerSecond: 1}, job.Rate{GPU: "L4", GPUs: 2, PerSecond: 2})
	need(y, r, func(n *fleet.Need) { n.MaxGPUs = 2 })
}

// waitForFast lets a job wait for all of the fast node, of which half is in use.
func waitForFast(y *yard) {
	y.Node("fast", fleet.Local, 64000, 1<<40, a100(), a100())
	y.begin(placetest.Lasting(9*hour, 1), "fast")

	w := placetest.Lasting(hour, 2)
	y.Add(w)
}

// TestTheOwnerOfASlowJobIsGivenOptions: with their price and end.
func TestTheOwnerOfASlowJobIsGivenOptions(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.Node("slow", fleet.Local, 64000, 1<<40, l4())
	r := y.begin(placetest.Lasting(9*hour, 1), "slow")
	speeds(r, 1, 4)
	r.Outlook.Slow = place.SlowForecasts
	y.Now = y.Now.Add(hour)
	y.forecast(r, 7*hour, 8*hour, 9*hour)

	dear := offerOf(a100(), 1)
	dear.Hourly = 60e6
	y.offers = []fleet.Offer{dear}

	plan := y.plan(t)
	if len(plan.Slow) != 1 {
		t.Fatalf("noted %v", plan.Slow)
	}

	got := plan.Slow[0].Reason
	for _, part := range []string{
		"too slow on slow (local, 1× L4 24GB): 8h left", "option: aws/fast (1× A100 80GB), est. finish ", "est. cost $",
	} {
		if !strings.Contains(got, part) {
			t.Errorf("the reason %q does not say %q", got, part)
		}
	}
}

// TestSlowJobsNeverFlap: whatever forecasts say, a job that is too slow moves at most once in its minimum stay, always
// to faster GPUs, and so at most once for each kind of them.
func TestSlowJobsNeverFlap(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		y := newYard()
		jobs := rapid.IntRange(1, 3).Draw(t, "jobs")

		for i := range jobs {
			y.Node(fmt.Sprint("slow", i), fleet.Local, 64000, 1<<40, l4())
			y.Node(fmt.Sprint("fast", i), fleet.Local, 64000, 1<<40, a100())

			r := y.begin(placetest.Lasting(100*hour, 1), id.Node(fmt.Sprint("slow", i)))
			speeds(r, 1, 2)
			r.Outlook.Deadline = y.Now.Add(2 * hour)
		}

		moves := map[id.Job]int{}

		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			y.Now = y.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")) * time.Minute)

			for _, r := range y.Runs {
				mid := time.Duration(rapid.IntRange(1, 600).Draw(t, "left")) * time.Minute
				y.forecast(r, mid/2, mid, 2*mid)
				r.Outlook.Slow = rapid.IntRange(0, 5).Draw(t, "slow")
			}

			v := y.view()
			plan := y.policy.Plan(v)

			if _, bad := place.Check(v, plan); len(bad) > 0 {
				t.Fatalf("the plan cannot be carried out: %v", bad)
			}

			for i := range plan.Stops {
				s := &plan.Starts[i]
				moves[s.Item.Job]++

				if moves[s.Item.Job] > 1 || !strings.HasPrefix(string(s.Allocations[0].Node), "fast") {
					t.Fatalf("%s moves for the %d. time, to %s", s.Item.Job, moves[s.Item.Job], s.Allocations[0].Node)
				}

				y.carryOut(plan.Stops[i].Running, *s)
				y.running(s.Item).Rate = 2
			}
		}
	})
}
