package advise_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim/advise"
)

// faster is a node with GPUs that are four times as fast as V100s.
func faster(name string, hourly float64) fleet.Offer {
	o := offer(name, hourly, false, 0)
	o.GPU, o.GPUMemory, o.TFLOPS = "Swift", 32<<30, 500
	o.Name = o.NameOf()

	return o
}

func TestOtherGPUsAreProvisionedWhereTheyAreCheaperForTheWork(t *testing.T) {
	t.Parallel()

	// Each day a job of 20 hours on a provisioned V100 at $2, or 5 hours at $4.
	h := &advise.History{
		Jobs:   daily(lasted(0, 20*hour, job.ObjectiveBalanced), lasted(hour, 20*hour, job.ObjectiveBalanced)),
		Offers: []fleet.Offer{offer("v1", 2, false, 0)},
		Idle:   5 * time.Minute,
	}

	a := find(
		t,
		ask(t, advise.Question{History: h, ExtraOffers: []fleet.Offer{faster("s1", 4)}}),
		"Provision GPUs other than V100:16GB",
	)

	if a.Verdict != advise.Worth {
		t.Error(show(a))
	}

	near(t, "saved", a.Saved, 56*(2*(20+5.0/60)-4*(5+5.0/60))*monthly, 0.05)
	near(t, "mean change", a.Mean, -15*3600, 1)
}

func TestAJobThatAsksForItsGPUCannotRunOnAnother(t *testing.T) {
	t.Parallel()
	j := lasted(0, 2*hour, job.ObjectiveBalanced)
	j.Spec.Resources.GPU = []job.GPUKind{{Model: "V100"}}
	h := &advise.History{
		Jobs:   daily(j, lasted(hour, hour, job.ObjectiveBalanced)),
		Offers: []fleet.Offer{offer("v1", 2, false, 0)},
		Idle:   5 * time.Minute,
	}

	a := find(
		t,
		ask(t, advise.Question{History: h, ExtraOffers: []fleet.Offer{faster("s1", 0.1)}}),
		"Provision GPUs other than V100:16GB",
	)

	if a.Verdict != advise.NotWorth || a.NeverFinished != 28 {
		t.Errorf("%d jobs are never done: %s", a.NeverFinished, show(a))
	}
}

func TestAReservedNodeIsComparedWithAnotherKind(t *testing.T) {
	t.Parallel()

	// One reserved V100 at half its price on demand does 10 hours a day. The other kind
	// costs less, is four times as fast, and is taken to have the same discount.
	h := &advise.History{
		Jobs: daily(lasted(0, 5*hour, job.ObjectiveBalanced), lasted(12*hour, 5*hour, job.ObjectiveBalanced)),
		Nodes: []advise.Node{
			box("res-1", fleet.Reserved, 1),
		},
		Tariff: rent(1),
		Offers: []fleet.Offer{offer("v1", 2, false, 0)},
		Idle:   5 * time.Minute,
	}

	a := find(
		t,
		ask(t, advise.Question{History: h, ExtraOffers: []fleet.Offer{faster("s1", 1.5)}}),
		"Reserve 1× Swift 32GB in place of 1× V100 16GB (res-1)",
	)

	if a.Verdict != advise.Worth || a.Priced != "on-demand price with the discount of the reserved 1× V100 16GB" {
		t.Errorf("%s, priced %s", show(a), a.Priced)
	}

	near(t, "price", *a.Price, 0.75, 0)
	near(t, "saved", a.Saved, 0.25*28*24*monthly, 0.02)
	near(t, "break-even", *a.BreakEven, 1, 0)
	near(t, "mean change", a.Mean, -0.75*5*3600, 1)
}

func TestKeepingIdleNodesCostsWhatTheyCost(t *testing.T) {
	t.Parallel()

	// Two short jobs a day, half a day apart: each has its own node, idle for 5 minutes.
	h := &advise.History{
		Jobs:   daily(lasted(0, hour, job.ObjectiveTime), lasted(12*hour, hour, job.ObjectiveTime)),
		Offers: []fleet.Offer{offer("v1", 6, false, 0)},
		Idle:   5 * time.Minute,
	}

	r := ask(t, advise.Question{History: h})
	near(t, "shorter", find(t, r, "Release idle nodes after 1m instead of 5m").Saved, 56*4.0/60*6*monthly, 0.05)
	longer := find(t, r, "Release idle nodes after 1h instead of 5m")
	near(t, "longer", longer.Saved, -56*55.0/60*6*monthly, 0.05)

	if longer.Verdict != advise.NotWorth {
		t.Error(show(longer))
	}
}

func TestLessValueOfTimeProvisionsLess(t *testing.T) {
	t.Parallel()
	r := ask(t, advise.Question{History: twoADay(3 * hour)})
	less := find(t, r, "Halve the value of an hour of job time")
	if more := find(t, r, "Double the value of an hour of job time"); less.OnDemand < more.OnDemand {
		t.Errorf("with less value %v hours are avoided, with more %v", less.OnDemand, more.OnDemand)
	}

	got := advise.Values("rules:cost=0.2:patience=2h:time=80")
	if d := cmp.Diff(
		map[job.Objective]money.PerHour{job.ObjectiveTime: 80, job.ObjectiveBalanced: 2, job.ObjectiveCost: 0.2},
		got,
	); d != "" {
		t.Error(d)
	}
}

func TestANodeThatCameLaterCostsAndWorksFromThenOn(t *testing.T) {
	t.Parallel()
	half := box("local-2", fleet.Local, 1)
	half.Came = begin.Add(span / 2)
	h := &advise.History{
		Jobs: daily(lasted(0, 8*hour, job.ObjectiveBalanced), lasted(time.Minute, 8*hour, job.ObjectiveBalanced)),
		Nodes: []advise.Node{
			box("local-1", fleet.Local, 1),
			half,
		},
		Tariff: rent(0.3),
		Idle:   5 * time.Minute,
		Cost:   1.5 * 0.3 * 28 * 24,
	}

	r := ask(t, advise.Question{History: h})
	near(t, "cost", r.Base.Cost, 1.5*0.3*28*24*monthly, 0.02)

	// In the first half one of two jobs waits for the other, for 7 h 59 m.
	near(t, "mean", r.Base.Mean, 8*3600+0.25*(8*3600-60), 2)

	if *r.Trust.CostOff != 0 || r.Trust.CompletionOff == nil {
		t.Errorf("trust: %+v", r.Trust)
	}
}

func TestWhatTheReplayCannotDoIsReported(t *testing.T) {
	t.Parallel()
	h := twoADay(2 * hour)
	for i := range h.Jobs {
		spec := *h.Jobs[i].Spec
		h.Jobs[i].Spec = &spec
	}

	h.Jobs[3].Spec.Resources.GPUs = job.Range{}
	h.Jobs[5].Spec.Resources.GPU = []job.GPUKind{{Model: "H100"}}
	h.LeftOut, h.Gaps = []string{"still queued: 1 job"}, []string{"something is not as it was"}
	r := ask(t, advise.Question{History: h})

	want := []string{
		"something is not as it was",
		"never finished in the replay and not compared because no node has the resources: 1 job",
		"assumed to take equally long on every GPU model (no GPU, a shared GPU, or one of unknown speed): 1 job",
	}

	if d := cmp.Diff(want, r.Gaps); d != "" {
		t.Error(d)
	}

	want = []string{
		"still queued: 1 job",
		"GPUs other than V100:16GB were not examined: no offer has any",
		"spot nodes were not examined: there are no spot offers (name a price file that has some with --offers)",
	}

	if d := cmp.Diff(want, r.LeftOut); d != "" {
		t.Error(d)
	}
}
