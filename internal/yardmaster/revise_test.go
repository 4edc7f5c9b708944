package yardmaster_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

// script is a policy that does what a test says.
type script struct {
	plan  func(v *place.View) place.Plan
	asked int
}

func (*script) Name() string  { return "script" }
func (*script) Revises() bool { return true }

func (s *script) Plan(v *place.View) place.Plan {
	s.asked++
	return s.plan(v)
}

// scripted returns a yard with nodes a and b of four GPUs, and its policy.
func scripted(t *testing.T) (*yard, *script) {
	t.Helper()
	p := &script{}
	cfg := yardmaster.Defaults(p)
	y := newYard(t)
	y.Yard = yardmaster.New(cfg)
	seedYard(y)
	y.node("a", 4)
	y.node("b", 4)

	return y, p
}

// seedYard makes the user and the token that newYard makes.
func seedYard(y *yard) {
	fresh := newYard(y.t)
	b := fresh.Take()
	y.Load(y.now, yardmaster.State{Users: b.Users, Tokens: b.Tokens})
}

// elastic is a job of 1,000 units that does ten a second on each of one to four GPUs.
func elastic() *job.Spec {
	s := spec(1)
	s.Resources.GPUs.Max = 4
	s.Checkpoint = &job.Checkpoint{Dir: "ckpt", Every: job.Duration(time.Minute)}
	s.Speed = job.NewSpeed(1000, 10*time.Second, 0, job.Rate{GPUs: 1, PerSecond: 10}, job.Rate{GPUs: 4, PerSecond: 40})

	return s
}

func startOn(v *place.View, node id.Node, gpus uint64) place.Plan {
	var p place.Plan
	for _, it := range v.Queue.Items() {
		p.Starts = append(
			p.Starts,
			place.Start{Item: it, Allocations: []place.Allocation{{Node: node, GPUs: gpus}}, Reason: "the test wants it there"},
		)
	}

	return p
}

// runs lets rank 0 of a run begin.
func (y *yard) runs(node id.Node, run id.Run) {
	y.t.Helper()
	y.ok(
		yardmaster.NodeReport{
			Node: node, Restores: true,
			Ranks: []yardmaster.RankReport{{Run: run, State: job.RunRunning, Started: y.now}},
		},
	)
}

// stops lets it end as it was told to, with a checkpoint.
func (y *yard) stops(node id.Node, run id.Run) {
	y.t.Helper()
	y.ok(yardmaster.AddCheckpoint{Checkpoint: checkpoint.Checkpoint{
		Run: run, Name: "ckpt", Step: -1, Ranks: 1, Written: y.now,
		Parts: []checkpoint.Part{{Node: node, Manifest: "m", Size: 1}},
	}})
	y.ok(
		yardmaster.NodeReport{
			Node:     node,
			Restores: true,
			Ranks:    []yardmaster.RankReport{{Run: run, State: job.RunEnded, Signalled: true, Started: start, Ended: y.now}},
		},
	)
}

func (y *yard) plan(p *script, plan func(*place.View) place.Plan) *yardmaster.Batch {
	y.t.Helper()
	p.plan = plan
	y.Round(y.now)

	return y.Take()
}

func TestAJobMovesWhenItsOldRunHasEnded(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	j := y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.now = y.now.Add(40 * time.Second)
	b := y.plan(p, func(v *place.View) place.Plan {
		r := v.Running[0]
		if got := r.Done(v.Now); got != 300 {
			t.Errorf("after 40 s of which 10 s are the start it is shown to have done %g units, want 300", got)
		}

		return place.Plan{
			Stops: []place.Stop{{Running: r, Reason: "it is faster on b"}},
			Starts: []place.Start{
				{Item: r.Item, Allocations: []place.Allocation{{Node: "b", GPUs: 15}}, Reason: "b has four GPUs"},
			},
		}
	})

	if len(b.Orders) != 1 || b.Orders[0].Stop != job.StopTerm || b.Orders[0].Run != "j1.1" {
		t.Fatalf("orders %+v, want the stop of j1.1 and no start yet", b.Orders)
	}

	v := y.View(y.now)
	if free := v.Rooms[1].Free; free != 0 {
		t.Errorf("GPUs %b of b are free while they are promised", free)
	}

	y.stops("a", "j1.1")

	b = y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Run != "j1.2" || b.Orders[0].Node != "b" || len(b.Orders[0].Launch.GPUs) != 4 {
		t.Fatalf("orders %+v, want j1.2 on the four GPUs of b", b.Orders)
	}

	if y.PlanDue() {
		t.Error("the policy is to be asked again about what it planned itself")
	}

	got, _ := yardmaster.JobOf(y.Yard, j)
	if got.Done != 300 || got.Served != 40 || got.Stops != 1 || got.State != job.Starting {
		t.Errorf(
			"the job is %s with %g units done, %g GPU-seconds and %d stops; want starting, 300, 40 and 1",
			got.State,
			got.Done,
			got.Served,
			got.Stops,
		)
	}
}

func TestAPromiseIsDropped(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(y *yard)
		wants   job.State
	}{
		"when its job is cancelled": {func(y *yard) { y.ok(yardmaster.Cancel{Job: "j1", By: "alice"}) }, job.Cancelled},
		"when its job is paused":    {func(y *yard) { y.ok(yardmaster.Pause{Job: "j1", By: "alice"}) }, job.Paused},
		"when its node is drained":  {func(y *yard) { y.ok(yardmaster.Cordon{Node: "b", By: "alice", On: true}) }, job.Recovering},
		"when its node dies":        {func(y *yard) { y.ok(yardmaster.NodeGone{Node: "b", By: "test", Reason: "its provider took it back"}) }, job.Recovering},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, p := scripted(t)
			y.submit("alice", elastic())
			y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
			y.runs("a", "j1.1")

			y.plan(p, func(v *place.View) place.Plan {
				r := v.Running[0]
				return place.Plan{Stops: []place.Stop{{Running: r, Reason: "moves"}},
					Starts: []place.Start{{Item: r.Item, Allocations: []place.Allocation{{Node: "b", GPUs: 3}}, Reason: "moves"}}}
			})

			tc.happens(y)
			y.stops("a", "j1.1")

			got, _ := yardmaster.JobOf(y.Yard, "j1")
			if got.State != tc.wants || yardmaster.PromiseCount(y.Yard) != 0 {
				t.Errorf(
					"the job is %s and %d promises are kept, want %s and none",
					got.State,
					yardmaster.PromiseCount(y.Yard),
					tc.wants,
				)
			}

			if err := yardmaster.CheckInvariants(y.Yard, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAWaitingJobTakesOverFromOneThatIsStopped(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 15) })
	y.runs("a", "j1.1")
	y.submit("alice", elastic())

	b := y.plan(p, func(v *place.View) place.Plan {
		return place.Plan{
			Stops: []place.Stop{{Running: v.Running[0], Reason: "j2 is more urgent"}},
			Starts: []place.Start{
				{Item: v.Queue.Items()[0], Allocations: []place.Allocation{{Node: "a", GPUs: 7}}, Reason: "urgent"},
			},
		}
	})

	if len(b.Orders) != 1 {
		t.Fatalf("orders %+v, want the stop alone", b.Orders)
	}

	y.stops("a", "j1.1")
	b = y.Take()
	at := slices.IndexFunc(b.Orders, func(o yardmaster.Order) bool { return o.Run == "j2.1" })
	if at < 0 || len(b.Orders[at].Launch.GPUs) != 3 {
		t.Fatalf("orders %+v, want j2.1 on three GPUs", b.Orders)
	}

	ended := slices.IndexFunc(b.Runs, func(r job.Run) bool { return r.ID == "j1.1" })
	if ended < 0 || !strings.Contains(b.Runs[ended].Reason, "more urgent") {
		t.Errorf("the stopped run says %+v, want the plan's reason", b.Runs)
	}

	if got, _ := yardmaster.JobOf(y.Yard, "j1"); got.State != job.Recovering {
		t.Errorf("the stopped job is %s, want it back in line", got.State)
	}
}

func TestARestartForgetsPromisesAndNotJobs(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	b := y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 15) })
	y.runs("a", "j1.1")
	nodes := b.Nodes
	y.submit("alice", elastic())

	p.plan = func(v *place.View) place.Plan {
		return place.Plan{
			Stops: []place.Stop{{Running: v.Running[0], Reason: "j2 is more urgent"}},
			Starts: []place.Start{
				{Item: v.Queue.Items()[0], Allocations: []place.Allocation{{Node: "a", GPUs: 7}}, Reason: "urgent"},
			},
		}
	}

	y.Round(y.now)
	b = y.Take()
	again := yardmaster.New(yardmaster.Defaults(p))
	again.Load(
		y.now,
		yardmaster.State{Users: b.Users, Nodes: nodes, Jobs: b.Jobs, Runs: b.Runs, Orders: b.Orders, LastJob: 2},
	)

	v := again.View(y.now)
	if v.Queue.Len() != 1 || len(v.Running) != 1 || !v.Running[0].Stopping || yardmaster.PromiseCount(again) != 0 {
		t.Errorf(
			"after the restart %d jobs wait, %d run, %d promises are kept; want one, one that is stopping, none",
			v.Queue.Len(),
			len(v.Running),
			yardmaster.PromiseCount(again),
		)
	}
}

func TestAPolicyIsAskedAgainWhenItWantsToBe(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	at := y.now.Add(time.Minute)
	y.plan(p, func(v *place.View) place.Plan {
		plan := startOn(v, "a", 1)
		plan.WakeAt = at
		return plan
	})

	if y.PlanDue() {
		t.Fatal("nothing happened and the policy is wanted")
	}

	y.now = at
	y.ok(yardmaster.Tick{})

	if !y.PlanDue() {
		t.Error("the policy is not asked at the time it wished")
	}
}

func TestADeadRunKeepsItsLastCheckpoint(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")
	y.now = y.now.Add(10*time.Second + 70*time.Second) // start, one checkpoint after 60 s, 10 s more
	y.ok(yardmaster.NodeGone{Node: "a", By: "test", Reason: "it burned"})

	if got, _ := yardmaster.JobOf(y.Yard, "j1"); got.Done != 600 || got.State != job.Recovering {
		t.Errorf("the job is %s with %g units, want recovering with 600 of the 700", got.State, got.Done)
	}

	node, err := y.Step(y.now, yardmaster.NodeGone{Node: "a", By: "test", Reason: "again"})
	if n, ok := node.(fleet.Node); err != nil || !ok || n.State != fleet.Lost {
		t.Errorf("a node that is gone twice is %+v, %v", node, err)
	}
}

func TestTheYardLearnsHowFastAJobIs(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 1) })
	y.runs("a", "j1.1")

	tell := func(after time.Duration, pr job.Progress) *place.Running {
		y.now = y.now.Add(after)
		y.ok(
			yardmaster.NodeReport{
				Node:  "a",
				Ranks: []yardmaster.RankReport{{Run: "j1.1", State: job.RunRunning, Progress: &pr}},
			},
		)

		return y.View(y.now).Running[0]
	}

	tell(20*time.Second, job.Progress{Done: 50})

	r := tell(20*time.Second, job.Progress{Done: 450}) // twenty a second where ten were thought
	if math.Abs(r.Rate-15) > 1e-9 || r.Done(y.now) != 450 {
		t.Errorf("it is taken to do %g a second and to have done %g, want 15 and 450", r.Rate, r.Done(y.now))
	}

	if !y.PlanDue() {
		t.Error("it is half as fast again as thought and the policy is not asked")
	}

	r = tell(
		time.Second,
		job.Progress{Done: 470, Work: 2000, Rates: []job.Rate{{GPUs: 1, PerSecond: 20}, {GPUs: 4, PerSecond: 60}}},
	)

	if left, known := r.RemainingWork(y.now); r.Rate != 20 || !known || left != 1530 {
		t.Errorf("it is taken to do %g a second with %g left, want 20 and 1,530 as it said", r.Rate, left)
	}

	for _, wrong := range []job.Progress{{Done: math.NaN()}, {Done: -1}, {Done: math.Inf(1)},
		{Done: 1, Rates: []job.Rate{{PerSecond: math.NaN()}}}} {
		r = tell(0, wrong)
		if r.Done(y.now) != 470 {
			t.Errorf("%+v was believed: done %g", wrong, r.Done(y.now))
		}
	}
}
