package yardmaster_test

import (
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// pricedYard has nodes a and b of four GPUs at $4 an hour, so that each GPU costs $1, and a policy
// that does what a test says.
func pricedYard(t *testing.T) (*yard, *script, yardmaster.Config) {
	t.Helper()
	p := &script{}
	cfg := yardmaster.Defaults(p)
	cfg.SuspectAfter = 0
	cfg.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{4}}}}
	y := newYard(t)
	y.Yard = yardmaster.New(cfg)
	seedYard(y)
	y.node("a", 4)
	y.node("b", 4)

	return y, p, cfg
}

// onB is the counterfactual of having two GPUs of b, at half the time, after ten minutes.
func onB() *place.Counterfactual {
	return &place.Counterfactual{
		Kind: place.Placement, What: "wait for 2 GPUs on b", Allocations: []place.Allocation{{Node: "b", GPUs: 3}},
		StartsIn: 10 * time.Minute, ReadyIn: 10 * time.Minute, Ratio: 0.5,
	}
}

// comparedStart starts all jobs on a GPU of a, with that counterfactual.
func comparedStart(v *place.View) place.Plan {
	p := startOn(v, "a", 1)
	for i := range p.Starts {
		p.Starts[i].Counterfactual = onB()
	}

	return p
}

// saved checks what was booked.
func saved(t *testing.T, got []ledger.Saving, want ...ledger.Saving) {
	t.Helper()

	if len(got) != len(want) {
		t.Fatalf("booked %+v, want %+v", got, want)
	}

	for i := range want {
		w, g := want[i], got[i]
		if g.Kind != w.Kind || g.Time != w.Time || g.Money-w.Money > 10 || w.Money-g.Money > 10 || g.Owner != "alice" {
			t.Errorf("booked %+v, want %+v", g, w)
		}
	}
}

func TestADecisionSurvivesARestart(t *testing.T) {
	t.Parallel()
	y, p, cfg := pricedYard(t)
	nodes := y.Take().Nodes
	j := y.submit("alice", spec(1))
	b := y.plan(p, comparedStart)
	y.runs("a", "j1.1")

	if len(b.Ledger.Decisions) != 1 || len(b.Ledger.Savings) != 0 {
		t.Fatalf("stored %+v, want one decision and no saving", b.Ledger)
	}

	state := yardmaster.State{
		Users: b.Users, Nodes: nodes, Jobs: b.Jobs, Runs: b.Runs, Orders: b.Orders, LastJob: 1,
		Ledger: ledger.Stored{Meters: b.Ledger.Meters, Decisions: b.Ledger.Decisions},
	}
	y.now = y.now.Add(time.Hour)
	y.Yard = yardmaster.New(cfg)
	y.Load(y.now, state)
	y.runs("a", "j1.1") // its start was not stored: an hour is not known to have passed
	y.now = y.now.Add(time.Hour)
	y.ends(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: y.now})

	// It holds one GPU for two hours and runs for one of them. The other way it waits ten minutes
	// and has two GPUs for half an hour.
	got := y.Take().Ledger
	saved(t, got.Savings, ledger.Saving{
		Kind: "placement", Money: ledger.NanosOf(1 - 2), Time: ledger.SpanOf(40*time.Minute - 2*time.Hour),
	})

	if len(got.Settled) != 1 || got.Settled[0] != j {
		t.Errorf("settled %v, want %s", got.Settled, j)
	}
}

func TestWorkThatIsLostWithANodeIsNoWork(t *testing.T) {
	t.Parallel()
	y, p, _ := pricedYard(t)
	j := y.submit("alice", spec(1))
	y.plan(p, comparedStart)
	y.runs("a", "j1.1")
	y.now = y.now.Add(time.Hour)
	y.ok(yardmaster.NodeGone{Node: "a", By: "alice", Reason: "burnt down"})
	y.now = y.now.Add(time.Hour)
	y.ok(yardmaster.Tick{})
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "b", 1) })
	y.runs("b", "j1.2")
	y.now = y.now.Add(time.Hour)
	y.ends(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: y.now})

	// Without a checkpoint an hour and its dollar were in vain, and it stood still for another hour.
	// Nothing is known of the second start.
	saved(t, y.Take().Ledger.Savings, ledger.Saving{
		Kind: "placement", Money: ledger.NanosOf(-1), Time: ledger.SpanOf(-2 * time.Hour),
	})
}

func TestEachDecisionAccountsForItsPart(t *testing.T) {
	t.Parallel()
	y, p, _ := pricedYard(t)
	j := y.submit("alice", elastic())
	y.plan(p, comparedStart)
	y.runs("a", "j1.1")
	y.now = y.now.Add(40 * time.Second)

	// It moves from one GPU of a to four of b, where it is four times as fast.
	y.plan(p, func(v *place.View) place.Plan {
		r := v.Running[0]
		return place.Plan{
			Stops: []place.Stop{{Running: r, Reason: "faster"}},
			Starts: []place.Start{
				{Item: r.Item, Allocations: []place.Allocation{{Node: "b", GPUs: 15}}, Reason: "faster"},
			},
		}
	})
	y.now = y.now.Add(10 * time.Second)
	y.stops("a", "j1.1")
	y.runs("b", "j1.2")
	y.now = y.now.Add(27500 * time.Millisecond) // ten seconds to start, then 700 units
	y.ends(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: y.now})

	// The first part is 40 s at $1, against 600 s of waiting and 20 s at $2. Of the second, the job
	// would have needed 70 s at $1; it took 10 s at $1 to stop and 27.5 s at $4.
	lost := money.PerHour(1).For((70 - 10 - 110) * time.Second)
	saved(t, y.Take().Ledger.Savings,
		ledger.Saving{Kind: "placement", Money: 0, Time: ledger.SpanOf(580 * time.Second)},
		ledger.Saving{Kind: "move", Money: ledger.NanosOf(lost), Time: ledger.SpanOf(32500 * time.Millisecond)},
	)
}

func TestAPausedJobIsSettledByTheMoment(t *testing.T) {
	t.Parallel()
	y, p, _ := pricedYard(t)
	j := y.submit("alice", spec(1))
	y.plan(p, comparedStart)
	y.runs("a", "j1.1")
	y.now = y.now.Add(30 * time.Minute)
	y.ok(yardmaster.Pause{Job: j, By: "alice"})
	y.stops("a", "j1.1")
	y.now = y.now.Add(time.Hour)
	y.ok(yardmaster.Cancel{Job: j, By: "alice"})

	// Half an hour of one GPU, or twenty minutes of two. Nobody gains or loses time.
	saved(t, y.Take().Ledger.Savings, ledger.Saving{Kind: "placement", Money: ledger.NanosOf(1)*2/3 - ledger.NanosOf(0.5)})
}

// preempt stops all running jobs.
func preempt(v *place.View) place.Plan {
	var p place.Plan
	for _, r := range v.Running {
		p.Stops = append(p.Stops, place.Stop{Running: r, Reason: "for another"})
	}

	return p
}

// TestAPreemptionIsALossWhateverThePolicySays: the policy says nothing of what would have been
// otherwise. Of the ten seconds that the job takes to start, four were in vain.
func TestAPreemptionIsALossWhateverThePolicySays(t *testing.T) {
	t.Parallel()
	y, p, _ := pricedYard(t)
	j := y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.now = y.now.Add(4 * time.Second)
	y.plan(p, preempt)
	y.now = y.now.Add(6 * time.Second)
	y.stops("a", "j1.1")
	y.now = y.now.Add(time.Minute)
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.2")
	y.now = y.now.Add(110 * time.Second)
	y.ends(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: y.now})

	// It takes six seconds to stop, waits for a minute and starts up for four seconds again.
	saved(t, y.Take().Ledger.Savings, ledger.Saving{
		Kind: "preemption", Money: ledger.NanosOf(-money.PerHour(1).For(10 * time.Second)), Time: ledger.SpanOf(-70 * time.Second),
	})
}

func TestAJobThatEndsBeforeItHasStoppedLosesNothing(t *testing.T) {
	t.Parallel()
	y, p, _ := pricedYard(t)
	j := y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.now = y.now.Add(100 * time.Second)
	y.plan(p, preempt)
	y.now = y.now.Add(10 * time.Second)
	y.ends(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: y.now})

	saved(t, y.Take().Ledger.Savings)
}

// TestAStopByABudgetIsNoDecision: the job may not continue, so there is nothing that it is compared with.
func TestAStopByABudgetIsNoDecision(t *testing.T) {
	t.Parallel()
	y, p, _ := pricedYard(t)
	j := y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.now = y.now.Add(10 * time.Second)
	y.quota(tenant.Quota{Budget: 10_000, Period: tenant.Month, OnExceeded: tenant.ExceededStop})
	y.now = y.now.Add(time.Minute)
	y.ok(yardmaster.Tick{})

	if y.job(j).Stops != 1 {
		t.Fatalf("%+v was not stopped by the budget", y.job(j))
	}

	y.stops("a", "j1.1")
	y.quota(tenant.Quota{Budget: 10_000_000, Period: tenant.Month, OnExceeded: tenant.ExceededStop})
	y.now = y.now.Add(time.Hour)
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.2")
	y.now = y.now.Add(50 * time.Second)
	y.ends(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: y.now})

	saved(t, y.Take().Ledger.Savings)
}
