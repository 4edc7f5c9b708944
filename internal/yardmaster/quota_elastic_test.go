package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// policyYard returns a yard under a policy of the catalogue, with one offer of two GPUs.
func policyYard(t *testing.T, name string) *yard {
	t.Helper()

	policy, err := catalogue.All(nil).Make(name)
	if err != nil {
		t.Fatal(err)
	}

	cfg := yardmaster.Defaults(policy())
	cfg.Offers = []fleet.Offer{{
		Name: "p/pair/north", Provider: "p", Type: "pair", Region: "north", GPU: "NVIDIA L4", GPUs: 2,
		GPUMemory: 24 << 30, CPUs: 16000, Memory: 64 << 30, Hourly: 1e6, Boot: job.Duration(time.Minute),
	}}

	return newYardOf(t, cfg)
}

// TestElasticJobsStartWithinTheirQuota: a job that could use more GPUs than its owner may has as many
// as are left, under every policy, and is not held.
func TestElasticJobsStartWithinTheirQuota(t *testing.T) {
	t.Parallel()

	for _, name := range catalogue.All(nil).Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := policyYard(t, name)
			y.node("a", 8)
			y.quota(tenant.Quota{GPUs: 3})

			wide := spec(1)
			wide.Resources.GPUs.Max = 8
			wide.Place = job.PlaceLocal
			wide.Speed = job.NewSpeed(3600, 0, 0, job.Rate{GPUs: 1, PerSecond: 1}, job.Rate{GPUs: 8, PerSecond: 6})
			jobs := []id.Job{y.submit("alice", wide), y.submit("alice", wide)}

			for range 4 {
				y.Round(y.now)
				y.check()
				y.now = y.now.Add(time.Second)
			}

			used := 0
			for _, r := range y.View(y.now).Running {
				used += r.GPUs
			}

			first := y.job(jobs[0])
			if used == 0 || used > 3 || first.State != job.Starting {
				t.Errorf("%d GPUs of 3 are used; %s is %s (%s)", used, jobs[0], first.State, first.Reason)
			}
		})
	}
}

// TestAnElasticGangStartsOnItsProvisionedNodes: with a quota of three GPUs it has one on each of
// its two nodes, not two.
func TestAnElasticGangStartsOnItsProvisionedNodes(t *testing.T) {
	t.Parallel()

	y := policyYard(t, "elastic-fifo")
	y.quota(tenant.Quota{GPUs: 3})

	wide := spec(1)
	wide.Resources.GPUs.Max = 2
	wide.Resources.Nodes = job.Range{Min: 2, Max: 2}
	y.submit("alice", wide)
	y.round()

	if got := y.leases(); got != "l1 requested, l2 requested" {
		t.Fatalf("the leases are %q", got)
	}

	y.joins("l1")
	y.joins("l2")

	if got := y.job("j1"); got.State != job.Starting {
		t.Errorf("it is %s: %s", got.State, got.Reason)
	}
}

// TestGPUsAreKeptWhileANodeBoots: no other job takes the quota of one for which a node is
// being provisioned.
func TestGPUsAreKeptWhileANodeBoots(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"fifo", "rules"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			y := policyYard(t, name)
			y.quota(tenant.Quota{GPUs: 2})

			first := spec(2)
			first.Place = job.PlaceCloud
			y.submit("alice", first)
			y.round()

			if got := y.leases(); got != "l1 requested" {
				t.Fatalf("the leases are %q", got)
			}

			y.node("a", 2)
			other := y.submit("alice", spec(1))
			y.round()

			if w, waits := y.Why(y.now, other); !waits || !strings.HasPrefix(w.Sentence, "quota reached: ") {
				t.Errorf("the other job waits: %v, %q", waits, w.Sentence)
			}

			y.joins("l1")

			if got := y.job("j1"); got.State != job.Starting {
				t.Errorf("the first is %s: %s", got.State, got.Reason)
			}
		})
	}
}

// TestAJobThatExceedsItsQuotaHoldsUpNobody: it can never start, and those behind it can.
func TestAJobThatExceedsItsQuotaHoldsUpNobody(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.node("a", 8)
	y.quota(tenant.Quota{GPUs: 2})

	y.startFirst(spec(2))
	large := y.submit("alice", spec(4))
	next := y.submit("alice", spec(2))
	last := y.submit("alice", spec(1))
	y.round()

	y.ok(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{{
		Run: "j1.1", State: job.RunEnded, Started: y.now, Ended: y.now,
	}}})
	y.round()

	if got := y.job(next); got.State != job.Starting {
		t.Errorf("%s is %s: %s", next, got.State, got.Reason)
	}

	for j, want := range map[id.Job]string{large: "; 4 needed, 0 left", last: "; 1 needed, 0 left"} {
		if w, _ := y.Why(y.now, j); !strings.HasSuffix(w.Sentence, want) {
			t.Errorf("%s: %q, want %q", j, w.Sentence, want)
		}
	}
}

// TestAJobBehindAHeldOneSaysSo: its own need is within the quota, and another job is first.
func TestAJobBehindAHeldOneSaysSo(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.node("a", 8)
	y.quota(tenant.Quota{GPUs: 3})
	y.startFirst(spec(2))

	y.submit("alice", spec(3))
	y.quota(tenant.Quota{GPUs: 2})
	behind := y.submit("alice", spec(1))
	y.quota(tenant.Quota{GPUs: 3})

	want := "j2 was submitted before it and is held: quota reached: alice may use 3 GPUs at a time; 3 needed, 1 left"
	if w, _ := y.Why(y.now, behind); w.Sentence != want {
		t.Errorf("it says %q, want %q", w.Sentence, want)
	}
}

// TestAJobThatNoLongerFitsItsQuotaIsHeldAtOnce: not in the next round, when the policy has planned it.
func TestAJobThatNoLongerFitsItsQuotaIsHeldAtOnce(t *testing.T) {
	t.Parallel()

	y := newYard(t)
	y.node("a", 2)
	y.quota(tenant.Quota{GPUs: 2})
	y.submit("alice", spec(2))
	second := y.submit("alice", spec(1))
	y.Round(y.now)

	want := "quota reached: alice may use 2 GPUs at a time; 1 needed, 0 left"
	if w, _ := y.Why(y.now, second); w.Sentence != want {
		t.Errorf("it says %q, want %q", w.Sentence, want)
	}
}

// TestADryRunKnowsWhatAPlanInTheMakingKnew: how long a job waits for a node before one is provisioned
// depends on earlier jobs, also while a slow policy plans.
func TestADryRunKnowsWhatAPlanInTheMakingKnew(t *testing.T) {
	t.Parallel()

	y := policyYard(t, "goodput")
	y.node("a", 1)

	long := spec(1)
	long.Expect = job.Duration(2 * time.Hour)
	y.submit("alice", long)
	y.Round(y.now)

	other := spec(1)
	other.Expect = job.Duration(time.Hour)

	ask := func() string {
		t.Helper()

		h, err := y.Rehearse(y.now, "alice", []yardmaster.Candidate{{Spec: other}})
		if err != nil {
			t.Fatal(err)
		}

		return h.Previews(nil)[0].Why.Sentence
	}

	before := ask()
	planning := y.Begin(y.now)

	if got := ask(); got != before {
		t.Errorf("before the plan %q, meanwhile %q", before, got)
	}

	y.ok(yardmaster.PlanReady{Plan: planning.Plan(func() bool { return false })})
}
