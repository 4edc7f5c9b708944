package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/rules"
	"trainyard/internal/tenant"
)

// TestAJobThatWaitsForABetterNodeSaysSo has an idle T4 and an H100 that is free soon.
func TestAJobThatWaitsForABetterNodeSaysSo(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("slow", fleet.Local, 1, t4())
	y.node("fast", fleet.Local, 1, h100())
	y.occupy("fast", 50*time.Minute, want{gpus: 1, lasts: time.Hour, kind: "H100"})
	it := y.submit(want{gpus: 1, lasts: 10 * time.Hour, objective: job.ObjectiveTime})

	p := y.plan(t)
	if len(p.Starts) > 0 || len(p.Waits) != 1 || p.Waits[0].Job != it.Job ||
		!strings.HasPrefix(p.Waits[0].Reason, "waits for 1× H100 80GB on fast, expected to be free at ") ||
		!strings.Contains(p.Waits[0].Reason, "alternative: 1× T4 16GB on slow now") {
		t.Errorf("the plan is %+v, want that %s waits for fast and says so", p, it.Job)
	}
}

func TestAnOfferThatAQuotaForbidsIsNamed(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.offer("aws/h100", 1, h100(), 20, 3*time.Minute)
	it := y.submit(want{gpus: 1, lasts: time.Hour})
	a := tenant.Unlimited()
	a.Nodes, a.LimitedBy.Nodes = 0, "ada's quota of 1 on-demand node"
	y.limits = limitsOf("ada", a)

	want := "offer aws/h100 is not provisioned: ada's quota of 1 on-demand node allows no more on-demand nodes"
	if p := y.plan(t); len(p.Waits) != 1 || p.Waits[0] != (place.Wait{Job: it.Job, Reason: want}) {
		t.Errorf("the plan is %+v, want that %s says %q", p, it.Job, want)
	}
}

// TestAnOfferIsListedOnce asks about a job that runs on a node of the yard, beside the best
// offer and others.
func TestAnOfferIsListedOnce(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.offer("aws/h100", 1, h100(), 20, 3*time.Minute)
	y.offer("aws/h100/spot", 1, h100(), 8, 3*time.Minute).Spot = true
	it := y.submit(want{gpus: 1, lasts: time.Hour})

	listed := map[string]int{}
	for _, o := range y.policy.(place.Adviser).Options(y.view(), it) {
		listed[o.Offer]++
	}

	if listed["aws/h100"] != 1 || listed["aws/h100/spot"] != 1 {
		t.Errorf("the offers are listed %v times, want each once", listed)
	}
}

func TestABusyNodeIsNotCalledIdle(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.occupy("a", 0, want{gpus: 1, lasts: time.Hour})
	it := y.submit(want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveCost})

	first := y.policy.(place.Adviser).Options(y.view(), it)[0]
	if !first.Start.After(y.now) || strings.Contains(first.Verdict, "idle") {
		t.Errorf("the first option is %+v, want one that waits for a node that is not idle", first)
	}
}

// TestOptionsPreempt: what is shown first is what the plan does, also where that stops a job.
func TestOptionsPreempt(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 1, a100())
	y.occupy("a", time.Hour, want{gpus: 1, lasts: 20 * time.Hour, objective: job.ObjectiveCost, resumes: true,
		every: time.Minute})
	it := y.submit(want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveTime})

	first := y.policy.(place.Adviser).Options(y.view(), it)[0]
	if p := y.plan(t); len(p.Stops) != 1 || first.Start.After(y.now.Add(time.Minute)) {
		t.Errorf("the plan is %+v and the first option %+v, want both to preempt", p, first)
	}
}

// TestAJobStartsOnTheNodeThatWasProvisionedForIt although the ledger's price of the node, with
// its energy, is above that of another of the same offer.
func TestAJobStartsOnTheNodeThatWasProvisionedForIt(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.tariff = &fleet.Tariff{Energy: 0.5, Nodes: []fleet.NodePrice{{Watts: []float64{500, 1000}}}}
	y.offer("aws/a100", 1, a100(), 2, 4*time.Minute)
	it := y.submit(want{gpus: 1, lasts: time.Hour, objective: job.ObjectiveCost})

	if p := y.round(t); provisioned(p, it) == nil {
		t.Fatalf("the plan is %+v, want a node for %s", p, it.Job)
	}

	y.pass(4 * time.Minute)

	if p := y.plan(t); where(p, it) == nil {
		t.Errorf("its node has joined and the plan is %+v, want %s to start there", p, it.Job)
	}
}

// TestAJobWaitsForItsNodesAlthoughTheyWereTheLastOfTheirOffer: what else could be provisioned now is no
// reason to start elsewhere.
func TestAJobWaitsForItsNodesAlthoughTheyWereTheLastOfTheirOffer(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("slow", fleet.Local, 1, t4())
	y.offer("aws/a100", 1, a100(), 2, 4*time.Minute)
	y.offer("aws/h100", 1, h100(), 500, 4*time.Minute)
	it := y.submit(want{gpus: 1, speed: job.NewSpeed(3600, 0, 0, job.Rate{GPU: "A100", GPUs: 1, PerSecond: 1},
		job.Rate{GPU: "H100", GPUs: 1, PerSecond: 1}, job.Rate{GPU: "T4", GPUs: 1, PerSecond: 0.1})})

	if p := y.round(t); provisioned(p, it) == nil || provisioned(p, it).Offer != "aws/a100" {
		t.Fatalf("the plan is %+v, want an A100 for %s", p, it.Job)
	}

	y.offers = slices.DeleteFunc(y.offers, func(o fleet.Offer) bool { return o.Name == "aws/a100" })

	if p := y.plan(t); where(p, it) != nil {
		t.Errorf("its node boots and the plan is %+v, want %s to wait for it", p, it.Job)
	}
}

// TestNodesAreProvisionedAgainForAJobThatLostThem ends the leases of jobs that wait for their nodes in a yard that is
// full: each is a job like any other again.
func TestNodesAreProvisionedAgainForAJobThatLostThem(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("full", fleet.Local, 1, a100())
	y.occupy("full", 0, want{gpus: 1, lasts: 1000 * time.Hour})
	y.offer("aws/a100", 1, a100(), 2, 4*time.Minute)
	for range 3 { // the first that finds nothing free speaks for all that are like it
		y.submit(want{gpus: 1, lasts: time.Hour})
	}

	for i, want := range []int{3, 0, 3} {
		if i == 2 {
			y.leases = nil
		}

		if p := y.round(t); len(p.Provisions) != want {
			t.Errorf("in round %d nodes are provisioned for %d jobs, want %d", i+1, len(p.Provisions), want)
		}
	}
}

// TestAnElasticJobGetsNoMoreThanItsQuota: with more GPUs the start would be refused.
func TestAnElasticJobGetsNoMoreThanItsQuota(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	y.submit(want{gpus: 2, most: 4, lasts: time.Hour, speed: job.NewSpeed(3600, 0, 0,
		job.Rate{GPUs: 2, PerSecond: 1}, job.Rate{GPUs: 4, PerSecond: 1.8})})
	a := tenant.Unlimited()
	a.GPUs, a.Ceiling, a.LimitedBy.GPUs = 3, 3, "ada may use 3 GPUs at a time"
	y.limits = limitsOf("ada", a)

	if p := y.plan(t); len(p.Starts) != 1 || p.Starts[0].Allocations[0].GPUs != 0b111 {
		t.Errorf("the plan is %+v, want a start with 3 GPUs", p)
	}
}

// TestARehearsalLeavesNothingBehind: what jobs cost on average is part of what rules decides by,
// and jobs that nobody submitted do not count.
func TestARehearsalLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.offer("aws/h100", 1, h100(), 20, 3*time.Minute)
	y.submit(want{gpus: 1, lasts: time.Hour})
	y.plan(t)

	policy := y.policy.(*rules.Policy)
	before := policy.Known()
	y.submit(want{gpus: 1, lasts: 1000 * time.Hour})
	policy.Rehearsal().Plan(y.view())

	if after := policy.Known(); after != before {
		t.Errorf("it remembers %s, and %s after a rehearsal", before, after)
	}

	y.plan(t)

	if after := policy.Known(); after == before {
		t.Error("it remembers nothing of a job that was planned")
	}
}
