package yardmaster_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/ordered"
	"trainyard/internal/relocate"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// fastOffer is an offer of a node that is faster than a small one.
func fastOffer() fleet.Offer {
	return fleet.Offer{
		Name: "p/fast/north", Provider: "p", Type: "fast", Region: "north", GPU: "NVIDIA A100-SXM4-80GB", GPUs: 1,
		GPUMemory: 80 << 30, CPUs: 64000, Memory: 256 << 30, Hourly: 4e6, Boot: job.Duration(4 * time.Minute),
	}
}

func crawlingConfig() yardmaster.Config {
	cfg := yardmaster.Defaults(relocate.Wrap(ondemand.Wrap(ordered.FIFO{}, ondemand.Standard()), relocate.Standard()))
	cfg.Offers = []fleet.Offer{fastOffer()}

	return cfg
}

// crawling returns a yard with a job on a small node of which two forecasts in a row have said that it is too slow.
// It saves on request.
func crawling(t *testing.T, set func(*yardmaster.Config, *job.Spec)) *yard {
	t.Helper()
	cfg := crawlingConfig()
	s := spec(1)
	s.Objective, s.Expect = job.ObjectiveTime, job.Duration(4*time.Hour)
	s.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(time.Minute)}
	s.Speed = job.NewSpeed((4 * time.Hour).Seconds(), 0, 0, job.Rate{GPU: "L4", GPUs: 1, PerSecond: 1},
		job.Rate{GPU: "A100", GPUs: 1, PerSecond: 4})
	set(&cfg, s)

	y := newYardOf(t, cfg)
	y.smallNode("small")
	y.submit("alice", s)
	y.round()
	y.runs("small", "j1.1")
	y.stores("j1.1")

	for range 2 {
		y.pass(time.Minute, "small")
		y.foresee("j1", 20*time.Hour, job.BasisCurve)
	}

	y.pass(time.Minute, "small")

	return y
}

func asIs(*yardmaster.Config, *job.Spec) {}

// tooSlow lets a third forecast say so.
func (y *yard) tooSlow() {
	y.t.Helper()
	y.foresee("j1", 20*time.Hour, job.BasisCurve)
	y.round()
}

// TestAJobMovesToTheNodeThatWasProvisionedForIt follows a job that is too slow: it continues while a node boots,
// nobody else gets that node, and it moves there.
func TestAJobMovesToTheNodeThatWasProvisionedForIt(t *testing.T) {
	t.Parallel()
	y := crawling(t, asIs)

	if got := y.leases(); got != "" {
		t.Fatalf("the leases are %q after two forecasts", got)
	}

	y.tooSlow()

	l := y.Lease("l1")
	if l == nil || l.Job != "j1" || !l.Faster || l.Owner != "alice" {
		t.Fatalf("lease is %+v, want one for j1", l)
	}

	if got := eventsOf(y.Take(), "lease.requested"); len(got) != 1 || !strings.Contains(got[0], "too slow on small") {
		t.Errorf("events %q, want one that says why", got)
	}

	y.tooSlow() // and it is not provisioned for twice

	other := spec(1)
	other.Objective = job.ObjectiveCost // it waits
	y.submit("alice", other)
	y.round()
	y.joins("l1")

	if b := y.Take(); len(b.Orders) != 1 || b.Orders[0].Run != "j1.1" || b.Orders[0].Save != 1 {
		t.Fatalf("orders %+v, want that j1 is asked to save", b.Orders)
	}

	y.pass(2*time.Minute, "small", "cloud-l1") // it saves, and the node is kept meanwhile
	y.stores("j1.1")
	y.stops("small", "j1.1")
	y.round()

	if got := y.leases(); got != "l1 active" || y.nodeOf("j1") != "cloud-l1" || y.nodeOf("j2") != "small" {
		t.Errorf("the leases are %q, j1 runs on %s and j2 on %s", got, y.nodeOf("j1"), y.nodeOf("j2"))
	}
}

// TestANodeIsKeptWhileItsJobSaves: a node that a job moves to is not released because it is idle, however long the job
// takes to save.
func TestANodeIsKeptWhileItsJobSaves(t *testing.T) {
	t.Parallel()
	y := crawling(t, func(c *yardmaster.Config, _ *job.Spec) { c.SaveWait = time.Hour })
	y.tooSlow()
	y.joins("l1")
	y.pass(30*time.Minute, "small", "cloud-l1")

	if got := y.leases(); got != "l1 active" {
		t.Errorf("the leases are %q while the job saves", got)
	}
}

// TestNodesThatARunningJobDoesNotNeedAreReleased: because it has ended, was stopped, or is fast enough after all.
func TestNodesThatARunningJobDoesNotNeedAreReleased(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(y *yard)
		why     string
	}{
		"it succeeds": {func(y *yard) {
			y.ends("j1", 0, yardmaster.RankReport{})
		}, "job j1 does not need it: it is succeeded"},
		"it is cancelled": {func(y *yard) {
			y.ok(yardmaster.Cancel{Job: "j1", By: "alice"})
		}, "job j1 does not need it: it is cancelling"},
		"it is paused": {func(y *yard) {
			y.ok(yardmaster.Pause{Job: "j1", By: "alice"})
		}, "job j1 does not need it: it is pausing"},
		"it is fast enough": {func(y *yard) {
			for range 3 {
				y.pass(time.Minute, "small")
				y.foresee("j1", 3*time.Hour, job.BasisCurve)
			}
		}, "job j1 does not need it: no longer too slow on small (local, 1× L4 24GB)"},
		"it is nearly done": {func(y *yard) {
			y.foresee("j1", time.Minute, job.BasisCurve)
		}, "job j1 does not need it: it would not gain enough there any more: 1m left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := crawling(t, asIs)
			y.tooSlow()
			y.Take()
			tc.happens(y)
			y.round()

			if got := eventsOf(y.Take(), "lease.releasing"); len(got) != 1 || got[0] != tc.why {
				t.Errorf("released because of %q, want %q; the leases are %q", got, tc.why, y.leases())
			}
		})
	}
}

// TestAJobThatFailedStartsOnTheNodeThatWasProvisionedForIt: nothing is thrown away.
func TestAJobThatFailedStartsOnTheNodeThatWasProvisionedForIt(t *testing.T) {
	t.Parallel()
	y := crawling(t, asIs)
	y.tooSlow()
	y.ok(yardmaster.NodeGone{Node: "small", By: "test", Reason: "it burned"})
	y.pass(time.Minute)
	y.joins("l1")
	y.pass(time.Minute, "cloud-l1")

	if got := y.leases(); got != "l1 active" || y.nodeOf("j1") != "cloud-l1" {
		t.Errorf("the leases are %q, j1 runs on %q", got, y.nodeOf("j1"))
	}
}

// TestQuotasBindNodesForRunningJobs: budgets and quotas count for the job that runs, too, and another job cannot spend
// what was set aside.
func TestQuotasBindNodesForRunningJobs(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		set    func(y *yard)
		want   string
		budget job.Money
	}{
		"its budget suffices":                      {func(*yard) {}, "l1 requested", 200e6},
		"its budget does not suffice":              {func(*yard) {}, "", 5e6},
		"the budget of its owner does not suffice": {func(y *yard) { y.quota(tenant.Quota{Budget: 5e6}) }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := crawling(t, func(_ *yardmaster.Config, s *job.Spec) { s.Budget = tc.budget })
			tc.set(y)
			y.tooSlow()

			if got := y.leases(); got != tc.want {
				t.Errorf("the leases are %q, want %q", got, tc.want)
			}
		})
	}
}

// TestANodeForARunningJobSurvivesARestart: it is kept for its job, which moves there.
func TestANodeForARunningJobSurvivesARestart(t *testing.T) {
	t.Parallel()
	y := crawling(t, asIs)
	y.tooSlow()

	b := y.Take()
	state := yardmaster.State{
		Jobs: b.Jobs, Runs: b.Runs, Orders: y.Orders(), Checkpoints: b.Checkpoints, Users: b.Users, Tokens: b.Tokens,
		Leases: []fleet.Lease{*y.Lease("l1")}, LastJob: 1, LastLease: 1,
	}

	for _, room := range y.View(y.now).Rooms {
		state.Nodes = append(state.Nodes, *room.Node)
	}

	y.Yard = yardmaster.New(crawlingConfig())
	y.Load(y.now, state)
	y.foresee("j1", 20*time.Hour, job.BasisCurve)
	y.joins("l1")

	if b := y.Take(); len(b.Orders) != 1 || b.Orders[0].Run != "j1.1" || b.Orders[0].Save != 1 {
		t.Errorf("orders %+v, want that j1 is asked to save", b.Orders)
	}
}
