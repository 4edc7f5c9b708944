package rules_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/rules"
	"trainyard/internal/tenant"
)

// TestWhatIsProvisioned puts one job into a yard that cannot run it, or not soon.
func TestWhatIsProvisioned(t *testing.T) {
	t.Parallel()
	catalogue := func(y *yard) {
		y.offer("t4", 1, t4(), 0.50, 2*time.Minute)     // 100 TFLOPS for a dollar
		y.offer("a100", 1, a100(), 2.00, 2*time.Minute) // 125
		y.offer("h100", 1, h100(), 8.00, 2*time.Minute) // 62
	}

	spot := func(y *yard) {
		catalogue(y)
		o := y.offer("a100/spot", 1, a100(), 0.60, 2*time.Minute)
		o.Spot, o.LossRate = true, 0.05
	}

	limited := func(set func(*tenant.Allowance)) func(*yard) {
		return func(y *yard) {
			catalogue(y)
			a := tenant.Unlimited()
			set(&a)
			y.limits = limitsOf("ada", a)
		}
	}

	const hour = time.Hour
	for _, tc := range []struct {
		name      string
		set       func(*yard)
		want      want
		provision string // "" if nothing is provisioned
	}{
		{"the cheapest for each unit of work for a cost-sensitive job", catalogue, want{gpus: 1, lasts: 10 * hour, objective: job.ObjectiveCost}, "a100"},
		{"the fastest for a time-sensitive one", catalogue, want{gpus: 1, lasts: 10 * hour, objective: job.ObjectiveTime}, "h100"},
		{"only what the job can use", catalogue, want{gpus: 1, kind: "T4", lasts: 10 * hour, objective: job.ObjectiveTime}, "t4"},
		{"spot for a job that saves itself", spot, want{gpus: 1, lasts: 10 * hour, objective: job.ObjectiveCost, resumes: true, every: 10 * time.Minute}, "a100/spot"},
		{"no spot for a long job that saves nothing", spot, want{gpus: 1, lasts: 10 * hour, objective: job.ObjectiveCost}, "a100"},
		{"spot for a short one all the same", spot, want{gpus: 1, lasts: hour, objective: job.ObjectiveCost}, "a100/spot"},
		{"nothing for a job that may not leave", catalogue, want{gpus: 1, lasts: hour, place: job.PlaceLocal, objective: job.ObjectiveTime}, ""},
		{"nothing large enough", catalogue, want{gpus: 4, lasts: hour, objective: job.ObjectiveTime}, ""},
		{"a budget that is used up", limited(func(a *tenant.Allowance) { a.Money = 0 }), want{gpus: 1, lasts: hour, objective: job.ObjectiveTime}, ""},
		{"a budget that is enough", limited(func(a *tenant.Allowance) { a.Money = 100 }), want{gpus: 1, lasts: hour, objective: job.ObjectiveTime}, "h100"},
		{"no more nodes", limited(func(a *tenant.Allowance) { a.Nodes = 0 }), want{gpus: 1, lasts: hour, objective: job.ObjectiveTime}, ""},
		{"only where no rent is paid", limited(func(a *tenant.Allowance) { a.NoProvisioning = true }), want{gpus: 1, lasts: hour, objective: job.ObjectiveTime}, ""},
		{"nothing may start at all", limited(func(a *tenant.Allowance) { a.HoldReason = "the month's money is gone" }), want{gpus: 1, lasts: hour, objective: job.ObjectiveTime}, ""},
		{"a job of unknown length is reckoned with an hour", catalogue, want{gpus: 1, objective: job.ObjectiveTime}, "h100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			tc.set(y)
			it := y.submit(tc.want)
			p := y.plan(t)

			got := ""
			if h := provisioned(p, it); h != nil {
				got = h.Offer
			}

			if got != tc.provision || len(p.Starts) > 0 {
				t.Errorf("%q is provisioned, want %q: %+v", got, tc.provision, p)
			}
		})
	}
}

// TestNothingIsProvisionedTwice: until its nodes are there, and after that, nothing more is
// provisioned for a job; then it starts on them, and nobody else does.
func TestNothingIsProvisionedTwice(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.offer("a100", 4, a100(), 8, 3*time.Minute)
	gang := y.submit(want{gpus: 4, nodes: 3, lasts: 10 * time.Hour, objective: job.ObjectiveTime})

	p := y.round(t)
	if h := provisioned(p, gang); h == nil || h.Count != 3 {
		t.Fatalf("the plan is %+v, want three nodes at once", p)
	}

	other := y.submit(want{gpus: 4, lasts: time.Hour, place: job.PlaceCloud, objective: job.ObjectiveCost})

	for range 5 {
		if p := y.round(t); provisioned(p, gang) != nil {
			t.Fatalf("more is provisioned: %+v", p)
		}

		y.pass(10 * time.Second)
	}

	y.leases[0].State, y.leases[0].Node = fleet.LeaseActive, "first" // one is there before the others
	n := *y.node("first", fleet.OnDemand, 4, a100())
	n.Lease = y.leases[0].ID
	y.table.Put(&n, 0)

	if p := y.round(t); where(p, other) != nil || where(p, gang) != nil || provisioned(p, gang) != nil {
		t.Fatalf("someone starts on a node of a gang that is not there yet: %+v", p)
	}

	y.pass(3 * time.Minute)

	if p := y.round(t); len(where(p, gang)) != 3 {
		t.Errorf("the gang does not start on its nodes: %+v", p)
	}
}

// TestAProvisionedGangNeedsAllItsNodes: three nodes where the quota has two are not provisioned.
func TestAProvisionedGangNeedsAllItsNodes(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.offer("a100", 4, a100(), 8, 3*time.Minute)
	a := tenant.Unlimited()
	a.Nodes = 2
	y.limits = limitsOf("ada", a)
	y.submit(want{gpus: 4, nodes: 3, lasts: time.Hour, objective: job.ObjectiveTime})

	if p := y.plan(t); len(p.Provisions) > 0 {
		t.Errorf("the plan is %+v, want nothing", p)
	}
}

// TestProvisionOrWait: what a wait costs against what the rent costs.
func TestProvisionOrWait(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name       string
		objective  job.Objective
		busy       time.Duration
		provisions bool
	}{
		{"time-sensitive, free in a minute", job.ObjectiveTime, time.Minute, false},
		{"time-sensitive, free in a day", job.ObjectiveTime, 24 * time.Hour, true},
		{"cost-sensitive, free in ten hours", job.ObjectiveCost, 10 * time.Hour, false},
		{"cost-sensitive, free when waiting has cost more than the rent", job.ObjectiveCost, 96 * time.Hour, true},
		{"balanced, free in a minute", job.ObjectiveBalanced, time.Minute, false},
		{"balanced, free in two days", job.ObjectiveBalanced, 48 * time.Hour, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", fleet.Local, 1, a100())
			y.offer("a100", 1, a100(), 3, 3*time.Minute)
			y.occupy("a", 0, want{gpus: 1, lasts: tc.busy})

			it := y.submit(want{gpus: 1, lasts: time.Hour, objective: tc.objective})
			if p := y.plan(t); tc.provisions != (provisioned(p, it) != nil) || tc.provisions == (p.Reservation != nil) {
				t.Errorf("the plan is %+v, want a provision: %v", p, tc.provisions)
			}
		})
	}
}

// TestAgeingProvisionsNothing: a job that costs far more on a provisioned node than its waiting is worth waits for a
// node of the yard, also for longer than the time after which it goes first.
func TestAgeingProvisionsNothing(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("a", fleet.Local, 8, a100())
	y.offer("a100", 8, a100(), 24, 3*time.Minute)
	y.occupy("a", 0, want{gpus: 8, lasts: 60 * time.Hour})

	for range 30 { // the mean cost of a job is small
		y.submit(want{gpus: 1, lasts: time.Minute, objective: job.ObjectiveTime})
	}

	long := y.submit(want{gpus: 8, lasts: 200 * time.Hour})
	for _, waited := range []time.Duration{0, rules.Defaults().Ageing + time.Hour} {
		y.now = start.Add(waited)
		if p := provisioned(y.plan(t), long); p != nil {
			t.Errorf("after %s: %+v, want that it waits", waited, p)
		}
	}
}

// TestDataIsCounted: where bringing the data takes a day, waiting here is better.
func TestDataIsCounted(t *testing.T) {
	t.Parallel()

	for _, there := range []bool{false, true} {
		y := newYard()
		y.node("a", fleet.Local, 1, a100())
		y.offer("a100", 1, a100(), 3, 3*time.Minute)
		y.occupy("a", 0, want{gpus: 1, lasts: 6 * time.Hour})

		y.data = dataAt("films", job.PlaceLocal, 24*time.Hour, 100)
		if there {
			y.data = dataAt("films", job.PlaceAny, 0, 0)
		}

		it := y.submit(want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveTime, data: []string{"films"}})

		p := y.plan(t)
		if h := provisioned(p, it); there != (h != nil) {
			t.Errorf("data is there: %v, and the plan is %+v", there, p)
		}
	}
}

// TestWhatIsProvisionedForIsReckoned: the cost that limits are asked about is rent until the end.
func TestWhatIsProvisionedForIsReckoned(t *testing.T) {
	t.Parallel()
	y := newYard(func(c *rules.Config) { c.Setup = 27 * time.Minute })
	y.offer("a100", 1, a100(), 2, 3*time.Minute)
	it := y.submit(want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveTime})
	h := provisioned(y.plan(t), it)
	if h == nil || math.Abs(float64(h.Cost-3)) > 1e-6 { // half an hour until it works, and an hour
		t.Errorf("the provision is %+v, want $3.00", h)
	}
}
