package relocate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/placetest"
	"trainyard/internal/relocate"
	"trainyard/internal/tenant"
)

// offerOf returns an offer of nodes with GPUs at $4 an hour that boot in four minutes.
func offerOf(g fleet.GPU, gpus int) fleet.Offer {
	return fleet.Offer{
		Name: "aws/fast", Provider: "aws", GPU: g.Model, GPUs: gpus, GPUMemory: g.Memory, CPUs: 64000, Memory: 1 << 40,
		Hourly: 4e6, Boot: job.Duration(4 * time.Minute),
	}
}

// late returns a yard in which a job on a slow node will miss its deadline by one to three hours. What could be
// provisioned is four times as fast.
func late() (*yard, *place.Running) {
	y := newYard()
	y.offers = []fleet.Offer{offerOf(a100(), 1)}
	y.Node("slow", fleet.Local, 64000, 1<<40, l4())

	r := y.begin(placetest.Lasting(9*hour, 1), "slow")
	speeds(r, 1, 4)
	r.Outlook.Deadline, r.Outlook.Slow = y.Now.Add(3*hour), place.SlowForecasts
	y.Now = y.Now.Add(hour)
	y.forecast(r, 3*hour, 4*hour, 5*hour)

	return y, r
}

// allow lets quotas and budgets allow a job no more than this.
func allow(y *yard, r *place.Running, a tenant.Allowance) {
	y.limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{r.Job: a}}
}

// bySpecification lets nothing be known of a job but the specification of the GPUs: what is offered has so many times
// the TFLOPS of where it runs.
func bySpecification(y *yard, r *place.Running, times float64) {
	gpu := fleet.GPU{Peak: 100}
	speed, _ := gpu.TFLOPS()

	r.Outlook.Speed, r.Rate, r.Pace = nil, 0, 1
	r.Outlook.Reference = job.Reference{GPU: l4().Model, TFLOPS: speed}
	y.offers[0].TFLOPS = 100 * times
}

// TestNodesAreProvisionedForSlowJobs: if no idle node of the yard helps a job that is too slow, faster ones are
// provisioned for it while it runs, unless something speaks against it.
func TestNodesAreProvisionedForSlowJobs(t *testing.T) {
	t.Parallel()

	const nothing, provisions, noted, moves = "nothing", "provisions", "noted", "moves"

	for name, tc := range map[string]struct {
		set  func(y *yard, r *place.Running)
		want string
	}{
		"an offer is faster":   {func(*yard, *place.Running) {}, provisions},
		"two forecasts say so": {func(_ *yard, r *place.Running) { r.Outlook.Slow = 2 }, nothing},
		"a node of the yard helps": {func(y *yard, _ *place.Running) {
			y.Node("own", fleet.Local, 64000, 1<<40, a100())
		}, moves},
		"a job waits for the node of the yard": {func(y *yard, _ *place.Running) {
			y.Node("fast", fleet.Local, 64000, 1<<40, a100())
			waitForFast(y)
		}, provisions},
		"nothing is offered":         {func(y *yard, _ *place.Running) { y.offers = nil }, noted},
		"the price exceeds the gain": {func(y *yard, _ *place.Running) { y.offers[0].Hourly = 60e6 }, noted},
		"the least price exceeds it": {func(y *yard, _ *place.Running) {
			y.offers[0].MinBilling = job.Duration(24 * hour)
		}, noted},
		"the offer is hardly faster, and costs nearly nothing": {func(y *yard, r *place.Running) {
			speeds(r, 1, 1.1)
			y.offers[0].Hourly = 1000
		}, noted},
		"the offer is faster by its specification": {func(y *yard, r *place.Running) {
			bySpecification(y, r, 1.5)
		}, provisions},
		"the offer is slower by its specification": {func(y *yard, r *place.Running) {
			bySpecification(y, r, 0.9)
		}, noted},
		"the offer is slower": {func(_ *yard, r *place.Running) { speeds(r, 1, 0.5) }, noted},
		"it boots for too long": {func(y *yard, _ *place.Running) {
			y.offers[0].Boot = job.Duration(3 * hour)
		}, noted},
		"its checkpoint takes too long":  {func(y *yard, r *place.Running) { save(y, r, 20<<40, true) }, noted},
		"it has no checkpoint yet":       {func(_ *yard, r *place.Running) { r.Outlook.Saved = job.Saved{} }, noted},
		"its checkpoints are not stored": {func(_ *yard, r *place.Running) { r.Stays = true }, noted},
		"little may be left of it": {func(y *yard, r *place.Running) {
			y.forecast(r, 10*time.Second, 4*hour, 5*hour)
		}, noted},
		"it may run on local nodes only": {func(y *yard, r *place.Running) {
			need(y, r, func(n *fleet.Need) { n.Place = job.PlaceLocal })
		}, noted},
		"it may not use these GPUs": {func(y *yard, r *place.Running) {
			need(y, r, func(n *fleet.Need) { n.GPUMax = 24 << 30 })
		}, noted},
		"its budget does not suffice": {func(y *yard, r *place.Running) {
			a := tenant.Unlimited()
			a.Money = 1
			allow(y, r, a)
		}, noted},
		"its budget suffices": {func(y *yard, r *place.Running) {
			a := tenant.Unlimited()
			a.Money = 10
			allow(y, r, a)
		}, provisions},
		"its quota allows no more nodes": {func(y *yard, r *place.Running) {
			a := tenant.Unlimited()
			a.Nodes = 0
			allow(y, r, a)
		}, noted},
		"its quota allows no more GPUs, and it needs no more": {func(y *yard, r *place.Running) {
			a := tenant.Unlimited()
			a.GPUs, a.Ceiling = 0, 0
			allow(y, r, a)
		}, provisions},
		"it may not spend": {func(y *yard, r *place.Running) {
			a := tenant.Unlimited()
			a.NoProvisioning = true
			allow(y, r, a)
		}, noted},
		"the yard has as many nodes as it may": {func(y *yard, _ *place.Running) {
			y.nodeLimit = place.NodeLimit{Max: 2, InUse: 2}
		}, noted},
		"more GPUs are offered": {func(y *yard, r *place.Running) {
			elastic(y, r, 1)
			y.begin(placetest.Lasting(9*hour, 1), "fast")
			y.offers = []fleet.Offer{offerOf(l4(), 2)}
		}, provisions},
		"more GPUs are offered, and it asks for one": {func(y *yard, _ *place.Running) {
			y.offers = []fleet.Offer{offerOf(l4(), 2)}
		}, noted},
		"more GPUs are offered than its quota allows": {func(y *yard, r *place.Running) {
			elastic(y, r, 1)
			y.begin(placetest.Lasting(9*hour, 1), "fast")
			y.offers = []fleet.Offer{offerOf(l4(), 2)}

			a := tenant.Unlimited()
			a.GPUs, a.Ceiling = 0, 0
			allow(y, r, a)
		}, noted},
		"it was moved lately": {func(y *yard, r *place.Running) {
			r.Outlook.Stops = 1
			r.Began = y.Now.Add(time.Second - hour)
		}, nothing},
		"nodes were provisioned for it lately": {func(y *yard, r *place.Running) {
			r.Hurried = y.Now.Add(time.Second - hour)
		}, noted},
		"nodes were provisioned for it an hour ago": {func(y *yard, r *place.Running) {
			r.Hurried = y.Now.Add(-hour)
		}, provisions},
		"it is cost-sensitive": {func(_ *yard, r *place.Running) { r.Spec.Objective = job.ObjectiveCost }, noted},
		"it is cost-sensitive, and late is expensive": {func(_ *yard, r *place.Running) {
			r.Spec.Objective = job.ObjectiveCost
			r.Outlook.LateCost = 100e6
		}, provisions},
		"it is cost-sensitive and has no deadline": {func(_ *yard, r *place.Running) {
			r.Spec.Objective = job.ObjectiveCost
			r.Outlook.Deadline = time.Time{}
		}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y, r := late()
			tc.set(y, r)

			plan := y.plan(t)
			got := nothing

			switch {
			case len(plan.Provisions) > 0:
				got = provisions
			case slices.Contains(placetest.StoppedBy(plan), r.Job):
				got = moves
			case slices.ContainsFunc(plan.Slow, func(s place.Slow) bool { return s.Running == r }):
				got = noted
			}

			if got != tc.want {
				t.Fatalf("%s, want %s; %+v", got, tc.want, plan)
			}

			if got == provisions {
				p := plan.Provisions[0]
				if p.Running != r || p.Item != r.Item || p.Offer != "aws/fast" || p.Count != 1 || p.Cost <= 0 ||
					len(plan.Stops) > 0 {
					t.Errorf("provisions %+v, stops %v", p, plan.Stops)
				}
			}
		})
	}
}

// TestWhyNodesAreProvisioned: in money and minutes.
func TestWhyNodesAreProvisioned(t *testing.T) {
	t.Parallel()

	y, _ := late()
	plan := y.plan(t)

	for _, part := range []string{
		"too slow on slow (local, 1× L4 24GB): 4h left; provisions aws/fast (1× A100 80GB), est. finish ",
		" earlier, est. cost $",
	} {
		if got := plan.Provisions[0].Reason; !strings.Contains(got, part) {
			t.Errorf("the reason %q does not say %q", got, part)
		}
	}
}

// TestOneBudgetIsSpentOnce: of two jobs of one user whose budget suffices for one node, one gets it.
func TestOneBudgetIsSpentOnce(t *testing.T) {
	t.Parallel()

	y, first := late()
	y.Node("slow2", fleet.Local, 64000, 1<<40, l4())
	second := y.begin(placetest.Lasting(9*hour, 1), "slow2")
	speeds(second, 1, 4)
	second.Outlook.Deadline, second.Outlook.Slow = first.Outlook.Deadline, place.SlowForecasts
	second.Began = first.Began
	second.User = first.User
	y.forecast(second, 3*hour, 4*hour, 5*hour)

	a := tenant.Unlimited()
	a.Money = 6
	y.limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{first.Job: a, second.Job: a}}

	if plan := y.plan(t); len(plan.Provisions) != 1 || len(plan.Slow) != 1 {
		t.Errorf("provisions %v and notes %v, want one of each", plan.Provisions, plan.Slow)
	}
}

// provisionedFor adds the node that was provisioned for a running job half an hour after it began.
func provisionedFor(y *yard, r *place.Running, state fleet.LeaseState) *fleet.Lease {
	l := &fleet.Lease{
		ID: id.NewLease(uint64(len(y.leases) + 1)), State: state, Job: r.Job, Faster: true, Offer: offerOf(a100(), 1),
		Requested: y.Now.Add(-2 * time.Minute), Granted: y.Now.Add(-time.Minute),
	}
	r.Ordered = r.Began

	if state == fleet.LeaseActive {
		y.Node("new", fleet.OnDemand, 64000, 1<<40, a100())
		l.Node = "new"

		room, _ := y.Table.Get("new")
		room.Node.Lease = l.ID
	}

	y.leases = append(y.leases, l)

	return l
}

// TestNodesOfSlowJobs: what becomes of a node that was provisioned for a running job. As long as it boots the job
// waits for it, then it moves there, and if it no longer gains by it the node is released.
func TestNodesOfSlowJobs(t *testing.T) {
	t.Parallel()

	const waits, moves, releases = "waits", "moves", "releases"

	for name, tc := range map[string]struct {
		state fleet.LeaseState
		set   func(y *yard, r *place.Running, l *fleet.Lease)
		want  string
		why   string // the node is released
	}{
		"it is requested": {fleet.LeaseRequested, func(*yard, *place.Running, *fleet.Lease) {}, waits, ""},
		"it boots":        {fleet.LeaseBooting, func(*yard, *place.Running, *fleet.Lease) {}, waits, ""},
		"it is ready":     {fleet.LeaseActive, func(*yard, *place.Running, *fleet.Lease) {}, moves, ""},
		"one forecast says that the job is fast enough": {fleet.LeaseActive, func(_ *yard, r *place.Running, _ *fleet.Lease) {
			r.Outlook.Slow = -1
		}, moves, ""},
		"three forecasts say that it is fast enough": {fleet.LeaseActive, func(_ *yard, r *place.Running, _ *fleet.Lease) {
			r.Outlook.Slow = -place.SlowForecasts
		}, releases, "no longer too slow on slow (local, 1× L4 24GB)"},
		"they do while it boots": {fleet.LeaseBooting, func(_ *yard, r *place.Running, _ *fleet.Lease) {
			r.Outlook.Slow = -place.SlowForecasts
		}, releases, "no longer too slow"},
		"they do, and its owner wants it": {fleet.LeaseActive, func(_ *yard, r *place.Running, l *fleet.Lease) {
			r.Outlook.Slow = -place.SlowForecasts
			l.By = "ada"
		}, moves, ""},
		"the job is nearly done": {fleet.LeaseActive, func(y *yard, r *place.Running, _ *fleet.Lease) {
			y.forecast(r, 0, time.Minute, hour)
		}, releases, "it would not gain enough there any more: 1m left"},
		"the job is nearly done before it has booted": {fleet.LeaseBooting, func(y *yard, r *place.Running, _ *fleet.Lease) {
			y.forecast(r, 0, 2*time.Minute, hour)
		}, releases, "it would not gain enough there any more"},
		"it is not worth its price any more": {fleet.LeaseActive, func(y *yard, r *place.Running, l *fleet.Lease) {
			y.forecast(r, hour, 2*hour, 3*hour)
			r.Outlook.Deadline = y.Now.Add(3 * hour)
			l.Offer.Hourly = 20e6
		}, releases, "it would not gain enough"},
		"it is not worth it, and its owner wants it": {fleet.LeaseActive, func(y *yard, r *place.Running, l *fleet.Lease) {
			y.forecast(r, hour, 2*hour, 3*hour)
			r.Outlook.Deadline = y.Now.Add(3 * hour)
			l.Offer.Hourly, l.By = 20e6, "ada"
		}, moves, ""},
		"checkpoints cannot be stored": {fleet.LeaseActive, func(_ *yard, r *place.Running, _ *fleet.Lease) {
			r.Stays = true
		}, releases, "its checkpoints could not be stored"},
		"the job is being stopped": {fleet.LeaseActive, func(_ *yard, r *place.Running, _ *fleet.Lease) {
			r.Stopping = true
		}, waits, ""},
		"the node is closed": {fleet.LeaseActive, func(y *yard, _ *place.Running, _ *fleet.Lease) {
			room, _ := y.Table.Get("new")
			n := *room.Node
			n.Cordoned = true
			y.Table.Put(&n, 0)
		}, waits, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y, r := late()
			l := provisionedFor(y, r, tc.state)
			tc.set(y, r, l)

			plan := y.plan(t)
			got := waits

			switch {
			case len(plan.Releases) > 0:
				got = releases
			case len(plan.Stops) > 0:
				got = moves
			}

			if got != tc.want || len(plan.Provisions) > 0 || len(plan.Slow) > 0 {
				t.Fatalf("%s, want %s; %+v", got, tc.want, plan)
			}

			if got == moves && !slices.Equal(placetest.Where(plan, r.Job), []id.Node{"new"}) {
				t.Errorf("moves to %v", placetest.Where(plan, r.Job))
			}

			if got == releases && (plan.Releases[0].Lease != l.ID || !strings.Contains(plan.Releases[0].Reason, tc.why)) {
				t.Errorf("releases %+v, want the reason %q", plan.Releases[0], tc.why)
			}
		})
	}
}

// TestAnIdleNodeOfTheYardIsBetter: a job that waits for a provisioned node moves to one of the yard that has become
// idle, and the other is released.
func TestAnIdleNodeOfTheYardIsBetter(t *testing.T) {
	t.Parallel()

	y, r := late()
	l := provisionedFor(y, r, fleet.LeaseBooting)
	y.Node("own", fleet.Local, 64000, 1<<40, a100())

	plan := y.plan(t)
	if !slices.Equal(placetest.Where(plan, r.Job), []id.Node{"own"}) {
		t.Errorf("moves to %v", placetest.Where(plan, r.Job))
	}

	if len(plan.Releases) != 1 || plan.Releases[0].Lease != l.ID ||
		!strings.Contains(plan.Releases[0].Reason, "it moves to own (local, 1× A100 80GB) instead") {
		t.Errorf("releases %+v", plan.Releases)
	}
}

// TestNodesOfSlowJobsAreKept: nobody else may use a node that was provisioned for a running job.
func TestNodesOfSlowJobsAreKept(t *testing.T) {
	t.Parallel()

	for _, mine := range []bool{true, false} {
		y, r := late()
		y.offers = nil
		y.policy = relocate.Wrap(ondemand.Wrap(ordered.FIFO{}, ondemand.Standard()), relocate.Standard())
		l := provisionedFor(y, r, fleet.LeaseActive)
		r.Stopping = true // it is about to move there
		l.Faster = mine

		other := y.Add(placetest.Lasting(hour, 1))
		if plan := y.plan(t); (len(placetest.Where(plan, other.Job)) > 0) == mine {
			t.Errorf("the node is kept for another: %v, and the job starts on %v", mine, placetest.Where(plan, other.Job))
		}
	}
}

// TestEscapedJobsDoNotComeHomeToSlowerNodes: a job for which nodes were provisioned because it was too slow comes home
// only to nodes that are not slower. The same move is made of one that was provisioned for while it was queued.
func TestEscapedJobsDoNotComeHomeToSlowerNodes(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		faster, slow bool
		home         fleet.GPU
		want         bool
	}{
		"it was queued":                          {false, false, l4(), true},
		"it was too slow":                        {true, false, l4(), false},
		"it was queued, and is too slow":         {false, true, l4(), false},
		"it was too slow, and home is as fast":   {true, false, a100(), true},
		"it is too slow, and home is as fast":    {false, true, a100(), true},
		"it was too slow and is; home is slower": {true, true, l4(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			y.Node("own", fleet.Local, 64000, 1<<40, tc.home)
			l := y.provisioned("cloud", 1)
			r := y.begin(placetest.Lasting(20*hour, 1), "cloud")
			r.Spec.Objective = job.ObjectiveCost // it may be delayed
			speeds(r, 3, 4)
			r.Rate = 4
			l.Job, l.Faster = r.Job, tc.faster
			y.Now = y.Now.Add(hour)
			y.forecast(r, 9*hour, 10*hour, 11*hour)

			if tc.slow {
				r.Outlook.Slow = place.SlowForecasts
			}

			plan := y.plan(t)
			if got := slices.Contains(placetest.StoppedBy(plan), r.Job); got != tc.want {
				t.Errorf("comes home: %v, want %v", got, tc.want)
			}
		})
	}
}
