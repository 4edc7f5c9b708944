package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/rules"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// cloudYard returns a yard without nodes under the policy rules, with one offer.
func cloudYard(t *testing.T, set func(*yardmaster.Config)) *yard {
	t.Helper()

	cfg := yardmaster.Defaults(rules.New(rules.Defaults()))
	cfg.Offers = []fleet.Offer{{
		Name: "p/small/north", Provider: "p", Type: "small", Region: "north", GPU: "NVIDIA L4", GPUs: 1,
		GPUMemory: 24 << 30, CPUs: 8000, Memory: 32 << 30, Hourly: 1e6, Boot: job.Duration(time.Minute),
	}}
	set(&cfg)

	return newYardOf(t, cfg)
}

// dropped lists the reasons of parts of plans that were not carried out since the last call.
func (y *yard) dropped() []string {
	var list []string
	for _, e := range y.Take().Events {
		if e.Kind == "plan.dropped" {
			list = append(list, e.Reason)
		}
	}

	return list
}

// TestNoPlanIsMadeThatALimitForbids: what is planned in the rounds before and after a limit is
// reached is carried out, and the jobs that wait say which limit it is.
func TestNoPlanIsMadeThatALimitForbids(t *testing.T) {
	t.Parallel()

	short := func() *job.Spec {
		s := spec(1)
		s.Expect = job.Duration(time.Hour)

		return s
	}

	for name, tc := range map[string]struct {
		set    func(*yardmaster.Config)
		quota  tenant.Quota
		leases string
		says   string
	}{
		"of the yard": {
			func(c *yardmaster.Config) { c.Provision.MaxNodes = 2 }, tenant.Quota{},
			"l1 requested, l2 requested",
			"offer p/small/north is not provisioned: limit of 2 provisioned nodes (max_nodes): 2 in use, 1 needed",
		},
		"of the offer": {
			func(c *yardmaster.Config) { c.Offers[0].MaxNodes = 2 }, tenant.Quota{},
			"l1 requested, l2 requested",
			"offer p/small/north is not provisioned: its limit of 2 nodes (max_nodes) is reached",
		},
		"of one offer of two": {
			func(c *yardmaster.Config) {
				c.Provision.MaxNodes = 3
				dear := c.Offers[0]
				dear.Name, dear.Hourly = "p/dear/north", 2e6
				c.Offers[0].MaxNodes = 2
				c.Offers = append(c.Offers, dear)
			}, tenant.Quota{},
			"l1 requested, l2 requested, l3 requested",
			"offer p/dear/north is not provisioned: limit of 3 provisioned nodes (max_nodes): 3 in use, 1 needed",
		},
		"of nodes of a user": {
			func(*yardmaster.Config) {}, tenant.Quota{Nodes: 2},
			"l1 requested, l2 requested",
			"offer p/small/north is not provisioned: alice's quota of 2 on-demand nodes allows no more on-demand nodes",
		},
		"of money of a user": {
			func(*yardmaster.Config) {}, tenant.Quota{Budget: 2_500_000, Period: tenant.Month},
			"l1 requested, l2 requested",
			"offer p/small/north is not provisioned: alice's budget of $2.50 per month has",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := cloudYard(t, tc.set)
			if tc.quota != (tenant.Quota{}) {
				y.quota(tc.quota)
			}

			for range 4 {
				y.submit("alice", short())
			}

			y.Take()

			for range 5 { // one plan, then others in which nothing is left
				y.Round(y.now)

				if got := y.dropped(); len(got) > 0 {
					t.Errorf("dropped is %q", got)
				}

				y.now = y.now.Add(time.Second)
				y.check()
			}

			if got := y.leases(); got != tc.leases {
				t.Errorf("the leases are %q, want %q", got, tc.leases)
			}

			if w, _ := y.Why(y.now, "j4"); !strings.Contains(w.Sentence, tc.says) {
				t.Errorf("j4 is queued because %q, want %q in it", w.Sentence, tc.says)
			}
		})
	}
}

// TestTheLimitOfAnOfferIsKept: no matter what a policy plans.
func TestTheLimitOfAnOfferIsKept(t *testing.T) {
	t.Parallel()

	cfg := yardmaster.Defaults(gangHirer{})
	cfg.Offers = []fleet.Offer{{
		Name: "p/small/north", Provider: "p", Type: "small", Region: "north", GPU: "NVIDIA L4", GPUs: 1,
		GPUMemory: 24 << 30, CPUs: 8000, Memory: 32 << 30, Hourly: 1e6, MaxNodes: 4,
	}}

	y := newYardOf(t, cfg)
	y.submit("alice", gang(3))
	y.submit("alice", gang(2))
	y.round()

	if got, want := y.leases(), "l1 requested, l2 requested, l3 requested"; got != want {
		t.Errorf("the leases are %q, want %q", got, want)
	}

	want := "limit of 4 nodes of p/small/north reached, 3 in use"
	if got := y.dropped(); len(got) != 1 || got[0] != want {
		t.Errorf("dropped is %q, want %q", got, want)
	}
}

// TestGPUsOfAHeldJobArePlannedAtOnce: of two jobs that are together over their owner's quota one is
// held when the plan is carried out, and its GPUs go to another job without anything else happening.
func TestGPUsOfAHeldJobArePlannedAtOnce(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})
	y.node("a", 2)
	y.quota(tenant.Quota{GPUs: 1})

	urgent := spec(1)
	urgent.Priority = 50

	jobs := []id.Job{y.submit("alice", urgent), y.submit("alice", urgent), y.submit("bob", spec(1))}

	for range 3 {
		y.round()
	}

	for i, want := range []job.State{job.Starting, job.Pending, job.Starting} {
		if got := y.job(jobs[i]); got.State != want {
			t.Errorf("%s is %s (%s), want %s", jobs[i], got.State, got.Reason, want)
		}
	}

	if y.PlanDue() {
		t.Error("another plan is due, and nothing has happened")
	}
}

// TestNoNodesAreProvisionedForAJobOverItsQuota: nodes that the job may not use are not provisioned
// for it, in the plan that uses up the quota and in those after it.
func TestNoNodesAreProvisionedForAJobOverItsQuota(t *testing.T) {
	t.Parallel()

	y := cloudYard(t, func(*yardmaster.Config) {})
	y.node("a", 1)
	y.quota(tenant.Quota{GPUs: 1})

	long := spec(1)
	long.Expect = job.Duration(100 * time.Hour)
	y.submit("alice", long)
	y.submit("alice", spec(1))

	for range 3 {
		y.Round(y.now)
		y.check()
		y.now = y.now.Add(time.Second)
	}

	if y.leases() != "" || yardmaster.HeldJob(y.Yard) != "" {
		t.Errorf("reserved for %q, the leases are %q", yardmaster.HeldJob(y.Yard), y.leases())
	}
}

// TestAJobIsHeldByWhatItsOwnPlanProvisions: a node that is provisioned uses up the quota of the job that the same plan
// would start. That job is held, and nothing of the plan is dropped.
func TestAJobIsHeldByWhatItsOwnPlanProvisions(t *testing.T) {
	t.Parallel()

	y := cloudYard(t, func(*yardmaster.Config) {})
	y.node("a", 1)
	y.quota(tenant.Quota{GPUs: 1})

	away := spec(1)
	away.Place = job.PlaceCloud
	y.submit("alice", away)
	here := y.submit("alice", spec(1))

	y.Take()
	y.Round(y.now)
	y.check()

	if dropped := y.dropped(); len(dropped) > 0 || y.leases() != "l1 requested" {
		t.Errorf("dropped %q, the leases are %q", dropped, y.leases())
	}

	if got := y.job(here); got.State != job.Pending || !strings.HasPrefix(got.Reason, "quota reached") {
		t.Errorf("%s is %s (%s)", here, got.State, got.Reason)
	}
}
