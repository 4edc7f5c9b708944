package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/cloud/reconcile"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/server/metrics"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func TestNodesAndGPUsByWhatTheyDo(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{})
	y.node("a", "local", 4)
	y.node("b", "reserved", 2)
	y.node("c", "local", 1)
	y.submit("ann", 2)
	broken := inventory("b", "L4", 2)
	broken.GPUs[1].Error = "fell off the bus"
	y.ok(yardmaster.NodeReport{Node: "b", Inventory: &broken})
	y.ok(yardmaster.NodeReport{Node: "a", Foreign: []int{3}})
	y.ok(yardmaster.Cordon{Node: "c", By: "ann", On: true})

	want(t, y.scrape(), map[string]float64{
		`trainyard_nodes{class="local",state="ready"}`:              2,
		`trainyard_nodes{class="reserved",state="ready"}`:           1,
		`trainyard_nodes{class="ondemand",state="ready"}`:           0,
		`trainyard_cordoned_nodes{class="local"}`:                   1,
		`trainyard_gpus{class="local",model="L4",state="running"}`:  2,
		`trainyard_gpus{class="local",model="L4",state="idle"}`:     1,
		`trainyard_gpus{class="local",model="L4",state="foreign"}`:  1,
		`trainyard_gpus{class="local",model="L4",state="cordoned"}`: 1,
		`trainyard_gpus{class="reserved",model="L4",state="error"}`: 1,
		`trainyard_gpus{class="reserved",model="L4",state="idle"}`:  1,
		`trainyard_tflops{class="local",state="running"}`:           200,
		`trainyard_tflops{class="local",state="idle"}`:              100,
		`trainyard_gpu_allocated_ratio{class="local"}`:              2.0 / 3,
		`trainyard_gpu_allocated_ratio{class="ondemand"}`:           0,
	})

	y.pass(31*time.Second, "b", "c") // a is silent

	want(t, y.scrape(), map[string]float64{
		`trainyard_nodes{class="local",state="suspect"}`:           1,
		`trainyard_gpus{class="local",model="L4",state="running"}`: 2, // left alone
		`trainyard_gpus{class="local",model="L4",state="error"}`:   1,
	})

	y.ok(yardmaster.RemoveNode{Node: "c", By: "ann"})
	got := y.scrape()
	want(t, got, map[string]float64{`trainyard_cordoned_nodes{class="local"}`: 0})

	if _, there := got[`trainyard_gpus{class="local",model="L4",state="cordoned"}`]; there {
		t.Error("the GPUs of a node that was taken out are still shown")
	}
}

func TestMoneyAndTimeRunUpBetweenPostings(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{ByUser: true})
	y.node("a", "local", 2)
	j := y.submit("ann", 1)
	y.reports(j, job.RunRunning)

	// One of two GPUs: half of the rent and of what the node draws at rest, and all that it draws more.
	const power = 400.0 / 1000 * 0.5
	mine := 0.5 + (50+300)/1000.0*0.5
	want(t, y.scrape(), map[string]float64{
		`trainyard_spend_dollars_per_hour{account="use",class="local"}`:  mine,
		`trainyard_spend_dollars_per_hour{account="idle",class="local"}`: 1 + power - mine,
		`trainyard_power_watts{class="local"}`:                           400,
		`trainyard_cost_dollars_total{account="use",class="local"}`:      0,
	})

	y.pass(30*time.Minute, "a") // nothing changes, so nothing is posted

	half := map[string]float64{
		`trainyard_cost_dollars_total{account="use",class="local"}`:   mine / 2,
		`trainyard_gpu_seconds_total{account="use",class="local"}`:    1800,
		`trainyard_gpu_seconds_total{account="idle",class="local"}`:   1800,
		`trainyard_node_seconds_total{account="use",class="local"}`:   1800,
		`trainyard_energy_joules_total{account="use",class="local"}`:  350 * 1800,
		`trainyard_user_cost_dollars_total{class="local",user="ann"}`: mine / 2,
		`trainyard_user_gpu_seconds_total{class="local",user="ann"}`:  1800,
	}

	want(t, y.scrape(), half)
	y.reports(j, job.RunEnded) // now it is
	want(t, y.scrape(), half)
	y.pass(time.Hour, "a")
	delete(half, `trainyard_gpu_seconds_total{account="idle",class="local"}`)
	want(t, y.scrape(), half)
	want(t, y.scrape(), map[string]float64{`trainyard_gpu_seconds_total{account="idle",class="local"}`: 1800 + 7200})
}

func TestUsersAreShownOnlyIfWanted(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{})
	y.node("a", "local", 2)
	y.submit("ann", 1)
	y.pass(time.Minute, "a")

	for name := range y.scrape() {
		if strings.Contains(name, "ann") {
			t.Errorf("%s names a user", name)
		}
	}
}

// TestLifeOfProvisionedNodes goes through all that can happen to a lease.
func TestLifeOfProvisionedNodes(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{Providers: []string{"testcloud"}})
	want(t, y.scrape(), map[string]float64{
		`trainyard_provision_requests_total{provider="testcloud"}`:                    0,
		`trainyard_provision_refusals_total{code="no_capacity",provider="testcloud"}`: 0,
		`trainyard_leases{provider="testcloud",state="requested"}`:                    0,
	})

	y.submit("ann", 2)
	y.ok(yardmaster.OutcomeUnknown{Lease: "l1", Why: "timeout"})
	y.ok(yardmaster.LeaseGranted{Lease: "l1", Provider: "testcloud", Machine: fleet.Instance{ID: "i-1", Lease: "l1"}})
	y.ok(
		yardmaster.LeaseGranted{Lease: "l1", Provider: "testcloud", Machine: fleet.Instance{ID: "i-1", Lease: "l1"}},
	) // again
	y.pass(90 * time.Second)

	want(t, y.scrape(), map[string]float64{
		`trainyard_leases{provider="testcloud",state="booting"}`:            1,
		`trainyard_gpus{class="ondemand",model="L4",state="boot"}`:          2,
		`trainyard_spend_dollars_per_hour{account="boot",class="ondemand"}`: 3,
		`trainyard_cost_dollars_total{account="boot",class="ondemand"}`:     3 * 90.0 / 3600,
		`trainyard_queued_jobs`:           1,
		`trainyard_oldest_queued_seconds`: 90,
	})

	y.token("cloud-1", fleet.OnDemand, "l1")
	n := y.node("cloud-1", "cloud-1", 2)

	y.ok(yardmaster.InstancesListed{Provider: "testcloud", CalledAt: y.now, Machines: []fleet.Instance{
		{
			ID:     "i-1",
			Lease:  "l1",
			State:  fleet.InstanceUp,
			Billed: -1,
		},
		{ID: "i-9", Type: "g1", State: fleet.InstanceUp, Billed: -1},
	}})

	want(t, y.scrape(), map[string]float64{
		`trainyard_leases{provider="testcloud",state="active"}`:             1,
		`trainyard_leases{provider="testcloud",state="releasing"}`:          1, // the stray
		`trainyard_provision_requests_total{provider="testcloud"}`:          1,
		`trainyard_provision_unknown_total{provider="testcloud"}`:           1,
		`trainyard_provisioned_nodes_total{provider="testcloud"}`:           1,
		`trainyard_strays_total{provider="testcloud"}`:                      1,
		`trainyard_lease_releases_total{provider="testcloud"}`:              0,
		`trainyard_provision_join_seconds_count{provider="testcloud"}`:      1,
		`trainyard_provision_join_seconds_sum{provider="testcloud"}`:        90,
		`trainyard_queue_wait_seconds_count{class="ondemand"}`:              1,
		`trainyard_queue_wait_seconds_sum{class="ondemand"}`:                90,
		`trainyard_gpus{class="ondemand",model="L4",state="running"}`:       2,
		`trainyard_nodes{class="ondemand",state="ready"}`:                   1,
		`trainyard_jobs{state="starting"}`:                                  1,
		`trainyard_lease_overdue_seconds{provider="testcloud"}`:             0,
		`trainyard_spend_dollars_per_hour{account="use",class="ondemand"}`:  3,
		`trainyard_spend_dollars_per_hour{account="boot",class="ondemand"}`: 0,
	})

	y.pass(time.Minute, n)

	want(
		t,
		y.scrape(),
		map[string]float64{`trainyard_lease_overdue_seconds{provider="testcloud"}`: 60},
	) // the stray is still there

	y.ok(yardmaster.MachineGone{Lease: "l1", Why: "spot"})
	y.ok(yardmaster.MachineGone{Lease: "l2"})
	y.pass(time.Minute) // the job waits again, and another node is asked for
	y.ok(yardmaster.LeaseRefused{Lease: "l3", Code: fleet.RefusedCapacity, Why: "none left"})

	want(t, y.scrape(), map[string]float64{
		`trainyard_lease_losses_total{provider="testcloud",why="spot"}`:               1,
		`trainyard_lease_losses_total{provider="testcloud",why="other"}`:              0,
		`trainyard_provision_refusals_total{code="no_capacity",provider="testcloud"}`: 1,
		`trainyard_leases{provider="testcloud",state="active"}`:                       0,
		`trainyard_leases{provider="testcloud",state="releasing"}`:                    0,
		`trainyard_nodes{class="ondemand",state="ready"}`:                             0,
		`trainyard_jobs{state="recovering"}`:                                          1,
	})
}

func TestReturnedNodesAreCountedOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{Providers: []string{"testcloud"}})
	y.submit("ann", 2)
	y.ok(yardmaster.LeaseGranted{Lease: "l1", Provider: "testcloud", Machine: fleet.Instance{ID: "i-1", Lease: "l1"}})
	y.ok(yardmaster.Cancel{Job: "j1", By: "ann"})
	y.pass(time.Minute)

	y.ok(
		yardmaster.InstancesListed{
			Provider: "testcloud",
			CalledAt: y.now,
			Machines: []fleet.Instance{{ID: "i-1", Lease: "l1", State: fleet.InstanceGone, Billed: 0.07}},
		},
	)

	want(t, y.scrape(), map[string]float64{
		`trainyard_lease_releases_total{provider="testcloud"}`:           1,
		`trainyard_lease_losses_total{provider="testcloud",why="other"}`: 0,
		`trainyard_jobs_ended_total{state="cancelled"}`:                  1,
		`trainyard_leases{provider="testcloud",state="releasing"}`:       0,
	})
}

// TestSpotLossesWithNoticeAreCountedOnce: a node that is released because its instance is reclaimed soon counts as
// lost.
func TestSpotLossesWithNoticeAreCountedOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{Providers: []string{"testcloud"}})
	y.submit("ann", 2)
	y.ok(yardmaster.LeaseGranted{Lease: "l1", Provider: "testcloud", Machine: fleet.Instance{ID: "i-1", Lease: "l1"}})
	y.token("cloud-1", fleet.OnDemand, "l1")
	n := y.node("cloud-1", "cloud-1", 2)

	left := 2 * time.Minute
	ended := yardmaster.RankReport{Run: "j1.1", State: job.RunEnded, Started: y.now, Ended: y.now}
	y.ok(yardmaster.NodeReport{Node: n, Reclaim: &left, Ranks: []yardmaster.RankReport{ended}})
	y.pass(time.Minute)
	y.ok(yardmaster.MachineGone{Lease: "l1", Why: "spot"})

	want(t, y.scrape(), map[string]float64{
		`trainyard_lease_losses_total{provider="testcloud",why="spot"}`: 1,
		`trainyard_lease_releases_total{provider="testcloud"}`:          0,
	})
}

func TestBudgetsAndWhatTheyHold(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{})
	y.node("a", "local", 2)

	y.ok(
		yardmaster.PutQuota{
			By:    "root",
			Quota: tenant.Quota{Subject: tenant.Subject{User: "ann"}, Budget: 1_000_000, Period: tenant.Day},
		},
	)

	y.ok(
		yardmaster.PutQuota{
			By:    "root",
			Quota: tenant.Quota{Subject: tenant.Subject{Each: "user"}, GPUHours: 3, Period: tenant.Day},
		},
	)

	want(t, y.scrape(), map[string]float64{
		`trainyard_budget_used_ratio{measure="money",period="day",subject="user/ann"}`: 0,
		`trainyard_budget_limit_dollars{period="day",subject="user/ann"}`:              1,
	})

	mine, other := y.submit("ann", 1), y.submit("bob", 1)
	y.reports(mine, job.RunRunning)
	y.reports(other, job.RunRunning)
	y.pass(time.Hour, "a") // both are used: each has half of $1 and of 700 W
	got := y.scrape()
	want(t, got, map[string]float64{
		`trainyard_budget_used_ratio{measure="money",period="day",subject="user/ann"}`: 0.675,
		`trainyard_budget_used_dollars{period="day",subject="user/ann"}`:               0.675,
		`trainyard_budget_overspend{measure="money",period="day",subject="user/ann"}`:  1,
	})

	if _, there := got[`trainyard_budget_used_ratio{measure="gpu_hours",period="day",subject="user/bob"}`]; there {
		t.Error("who is bound by the limit for each, and far from it, is shown")
	}

	y.pass(2*time.Hour, "a")
	y.submit("ann", 1)
	y.submit("bob", 1)

	want(t, y.scrape(), map[string]float64{
		`trainyard_budget_used_ratio{measure="gpu_hours",period="day",subject="user/bob"}`: 1,
		`trainyard_quota_blocked_jobs{limit="money"}`:                                      1,
		`trainyard_quota_blocked_jobs{limit="gpu_hours"}`:                                  1,
		`trainyard_queued_jobs`:                                                            0,
		`trainyard_budget_alerts_total{kind="used_up"}`:                                    2,
		`trainyard_budget_alerts_total{kind="forecast"}`:                                   2,
	})

	y.ok(
		yardmaster.PutQuota{
			By:    "root",
			Quota: tenant.Quota{Subject: tenant.Subject{User: "ann"}, GPUs: 1, Period: tenant.Day},
		},
	)

	want(
		t,
		y.scrape(),
		map[string]float64{`trainyard_quota_blocked_jobs{limit="money"}`: 0, `trainyard_quota_blocked_jobs{limit="gpus"}`: 1},
	)

	y.ok(yardmaster.PutQuota{By: "root", Quota: tenant.Quota{Subject: tenant.Subject{User: "ann"}, Removed: true}})
	y.pass(24*time.Hour, "a") // a new day

	for name, v := range y.scrape() {
		if strings.HasPrefix(name, "trainyard_quota_blocked_jobs") && v != 0 {
			t.Errorf("%s = %v on a new day", name, v)
		}
	}
}

func TestJobThatHasUsedItsBudgetIsPausedAndToldOf(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{})
	y.node("a", "local", 1)
	s := &job.Spec{Run: "true", Place: job.PlaceAny, Budget: 500_000, Checkpoint: &job.Checkpoint{Dir: "ckpt"},
		Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000}}
	j := y.ok(yardmaster.Submit{Owner: "ann", Jobs: []yardmaster.NewJob{{Spec: s}}}).(yardmaster.Submitted).Jobs[0]
	y.reports(j, job.RunRunning)
	y.pass(time.Hour, "a")

	for _, o := range y.Orders() {
		y.ok(yardmaster.NodeReport{Node: o.Node, Ranks: []yardmaster.RankReport{
			{
				Run:       o.Run,
				State:     job.RunEnded,
				Started:   start,
				Ended:     y.now,
				Cause:     job.CausePreempted,
				Signalled: true,
				ExitCode:  143,
			},
		}})
	}

	y.pass(10*time.Minute, "a")

	want(
		t,
		y.scrape(),
		map[string]float64{`trainyard_jobs{state="paused"}`: 1, `trainyard_budget_alerts_total{kind="used_up"}`: 1},
	)
}

func TestLineLeavesOutWhatCouldNotStart(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{}, func(c *yardmaster.Config) { c.Offers = nil })

	one := func(name string, needs ...string) yardmaster.NewJob {
		return yardmaster.NewJob{Spec: &job.Spec{Name: name, Run: "true", Needs: needs, Place: job.PlaceAny,
			Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000}}}
	}

	y.ok(yardmaster.Submit{Owner: "ann", Jobs: []yardmaster.NewJob{one("first"), one("second", "first")}})
	y.pass(time.Minute)

	want(
		t,
		y.scrape(),
		map[string]float64{
			`trainyard_queued_jobs`:           1,
			`trainyard_jobs{state="pending"}`: 2,
			`trainyard_oldest_queued_seconds`: 60,
		},
	)

	y.node("a", "local", 1)
	y.reports("j1", job.RunRunning)
	y.reports("j1", job.RunEnded)

	want(
		t,
		y.scrape(),
		map[string]float64{
			`trainyard_jobs{state="starting"}`:              1,
			`trainyard_jobs_ended_total{state="succeeded"}`: 1,
			`trainyard_queued_jobs`:                         0,
		},
	)
}

// TestBoardAgreesWithTheYard lets random things happen and compares what the board has
// followed from the batches with what the yard itself counts.
func TestBoardAgreesWithTheYard(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		y := newYard(t, metrics.Options{Providers: []string{"testcloud"}})
		var jobs []id.Job
		var nodes []id.Node

		last := map[string]float64{}
		for range rapid.IntRange(5, 20).Draw(rt, "steps") {
			switch rapid.IntRange(0, 7).Draw(rt, "what") {
			case 0, 1:
				jobs = append(
					jobs,
					y.submit(rapid.SampledFrom([]id.User{"ann", "bob"}).Draw(rt, "owner"), rapid.IntRange(1, 3).Draw(rt, "gpus")),
				)
			case 2:
				nodes = append(
					nodes,
					y.node(
						"n",
						rapid.SampledFrom([]id.Token{"local", "reserved"}).Draw(rt, "class"),
						rapid.IntRange(0, 4).Draw(rt, "gpus"),
					),
				)
			case 3, 4:
				if len(jobs) > 0 {
					y.reports(
						rapid.SampledFrom(jobs).Draw(rt, "job"),
						rapid.SampledFrom([]job.RunState{job.RunRunning, job.RunEnded}).Draw(rt, "state"),
					)
				}
			case 5: // one that has ended cannot be cancelled, which is all right
				if len(jobs) > 0 {
					_, _ = y.Step(y.now, yardmaster.Cancel{Job: rapid.SampledFrom(jobs).Draw(rt, "job"), By: "ann"})
				}
			case 6:
				if len(nodes) > 0 {
					n := rapid.SampledFrom(nodes).Draw(rt, "node")
					_, _ = y.Step(y.now, yardmaster.Cordon{Node: n, By: "ann", On: rapid.Bool().Draw(rt, "on")})
				}
			case 7:
				y.pass(time.Duration(rapid.IntRange(1, 60).Draw(rt, "seconds"))*time.Second, nodes...)
			}

			y.ok(yardmaster.Tick{})
			last = agree(rt, y, last)
		}
	})
}

// TestLookingDoesNotDisturb scrapes again and again while things happen.
func TestLookingDoesNotDisturb(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{ByUser: true})
	batch := big(50)

	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for range 20 {
				scrape(t, y.reg)
			}
		})
	}

	for range 200 {
		y.board.Take(batch)
	}

	work.Wait()

	want(t, y.scrape(), map[string]float64{
		`trainyard_nodes{class="local",state="ready"}`:             50,
		`trainyard_gpus{class="local",model="L4",state="running"}`: 200,
	})
}

// TestEveryShareHasItsPlace fails when the books get another account, or nodes another class.
func TestEveryShareHasItsPlace(t *testing.T) {
	t.Parallel()

	if len(ledger.Accounts()) != metrics.AccountCount || len(fleet.Classes()) != metrics.ClassCount {
		t.Errorf("there are %d accounts and %d classes, and the board counts %d and %d",
			len(ledger.Accounts()), len(fleet.Classes()), metrics.AccountCount, metrics.ClassCount)
	}
}

// agree compares a scrape with the yard and with the scrape before it.
func agree(t *rapid.T, y *yard, last map[string]float64) map[string]float64 {
	got, c := y.scrape(), y.Counts()
	same := func(name string, n int) {
		if got[name] != float64(n) {
			t.Fatalf("%s = %v, and the yard counts %d", name, got[name], n)
		}
	}

	for _, s := range job.States() {
		if !s.Final() {
			same(fmt.Sprintf(`trainyard_jobs{state=%q}`, s), c.Jobs[s])
		}
	}

	same("trainyard_queued_jobs", c.Waiting)
	same("trainyard_live_runs", c.Runs)
	same("trainyard_open_orders", c.Orders)

	gpus, nodes := map[string]int{}, map[string]int{}
	for _, n := range y.Nodes("", 1000) {
		nodes[fmt.Sprintf(`trainyard_nodes{class=%q,state=%q}`, n.Class, n.State)]++
		running := 0
		for i := range n.Inventory.GPUs {
			if n.Room.Free&(1<<i) == 0 && n.Room.Sound&(1<<i) != 0 {
				running++
			}
		}

		gpus[fmt.Sprintf(`trainyard_gpus{class=%q,model="L4",state="running"}`, n.Class)] += running
	}

	for _, name := range slices.Sorted(maps.Keys(gpus)) {
		same(name, gpus[name])
	}

	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		same(name, nodes[name])
	}

	for name, v := range last {
		if strings.Contains(name, "_total") && got[name] < v {
			t.Fatalf("%s went down from %v to %v", name, v, got[name])
		}
	}

	return got
}

// someCloud answers as it is told.
type someCloud struct {
	lists   chan error
	created chan error
}

func (c *someCloud) Name() string { return "testcloud" }

func (c *someCloud) Create(context.Context, cloud.Request) (cloud.Instance, error) {
	err := <-c.created
	return cloud.Instance{ID: "i-1", Lease: "l1"}, err
}

func (c *someCloud) Terminate(context.Context, string, string) error { return nil }

func (c *someCloud) List(context.Context) ([]cloud.Instance, error) { return nil, <-c.lists }

// TestCallsToProvidersAreWatched runs the desk that makes the calls, with a board to watch it.
func TestCallsToProvidersAreWatched(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{Providers: []string{"testcloud"}})
	p := &someCloud{lists: make(chan error), created: make(chan error)}
	told := make(chan yardmaster.Message, 100)
	r := &reconcile.Runner{
		Providers: []cloud.Provider{
			p,
		},
		Timing:   reconcile.Timing{List: time.Hour, Idle: time.Hour, Retry: time.Millisecond, MaxRetry: time.Millisecond},
		Timeouts: reconcile.DefaultTimeouts(),
		Clock:    clock.Wall{},
		Log:      slog.New(slog.DiscardHandler),
		Watch:    y.board,
		Deliver: func(_ context.Context, m yardmaster.Message) error {
			told <- m
			return nil
		},
		Prepare: func(_ context.Context, l *fleet.Lease) (cloud.Request, error) { return cloud.Request{Lease: l.ID}, nil },
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)

		r.Run(ctx)
	}()

	p.lists <- errors.New("connection reset")
	<-told

	want(t, y.scrape(), map[string]float64{
		`trainyard_provider_up{provider="testcloud"}`:                                       0,
		`trainyard_provider_calls_total{call="list",outcome="failed",provider="testcloud"}`: 1,
	})

	p.lists <- nil
	<-told
	r.Take([]fleet.Lease{{ID: "l1", Offer: offer, State: fleet.LeaseRequested, Ends: clock.Wall{}.Now().Add(time.Hour)}})
	p.created <- fault.New(fault.OverLimit, fleet.RefusedCapacity, "none")
	<-told
	p.created <- context.DeadlineExceeded
	<-told
	cancel()
	close(p.lists) // which may be under way
	close(p.created)
	<-done
	got := y.scrape()
	want(t, got, map[string]float64{
		`trainyard_provider_up{provider="testcloud"}`:                                          1,
		`trainyard_provider_calls_total{call="list",outcome="failed",provider="testcloud"}`:    1,
		`trainyard_provider_calls_total{call="create",outcome="refused",provider="testcloud"}`: 1,
		`trainyard_provider_calls_total{call="create",outcome="timeout",provider="testcloud"}`: 1,
	})

	if got[`trainyard_provider_call_seconds_count{call="create",provider="testcloud"}`] < 2 {
		t.Error("the time of calls is not measured")
	}
}

func TestSavingsAndWhatTimeWasBoughtFor(t *testing.T) {
	t.Parallel()
	y := newYard(t, metrics.Options{})
	y.board.Take(&yardmaster.Batch{Ledger: savings(2.5, -1, 0.5)})

	want(t, y.scrape(), map[string]float64{
		`trainyard_saved_dollars_total{kind="placement"}`:         3,
		`trainyard_speed_premium_dollars_total{kind="placement"}`: 1,
	})
}

func savings(dollars ...money.Amount) ledger.Changes {
	var out ledger.Changes
	for _, d := range dollars {
		out.Savings = append(out.Savings, ledger.Saving{Kind: "placement", Money: ledger.NanosOf(d)})
	}

	return out
}
