package yardmaster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// round lets the yard place jobs and checks it.
func (y *yard) round() {
	y.t.Helper()

	if y.PlanDue() {
		y.Round(y.now)
	}

	y.check()
}

func (y *yard) check() {
	y.t.Helper()

	if err := yardmaster.CheckInvariants(y.Yard, nil); err != nil {
		y.t.Fatal(err)
	}
}

// pass lets time pass in steps that the yard does not take for its own sleep.
func (y *yard) pass(d time.Duration, heard ...id.Node) {
	y.t.Helper()

	for end := y.now.Add(d); y.now.Before(end); {
		y.now = y.now.Add(min(5*time.Second, end.Sub(y.now)))
		for _, n := range heard {
			y.ok(yardmaster.NodeReport{Node: n})
		}

		y.ok(yardmaster.Tick{})
		y.round()
	}
}

// job returns a job as the yard knows it.
func (y *yard) job(j id.Job) job.Job {
	y.t.Helper()
	r, ok := yardmaster.JobOf(y.Yard, j)
	if !ok {
		y.t.Fatalf("job %s is not in memory", j)
	}

	return r
}

// report tells of a rank of the newest run of a job, by the agent of its node.
func (y *yard) report(j id.Job, rank int, rep yardmaster.RankReport) {
	y.t.Helper()
	rep.Run, rep.Rank = id.NewRun(j, y.job(j).Epoch), rank

	node := id.Node("")
	for _, o := range y.Orders() {
		if o.Run == rep.Run && o.Rank == rank {
			node = o.Node
		}
	}

	y.ok(yardmaster.NodeReport{Node: node, Ranks: []yardmaster.RankReport{rep}})
	y.check()
}

func (y *yard) running(j id.Job, ranks ...int) {
	y.t.Helper()

	for _, k := range ranks {
		y.report(j, k, yardmaster.RankReport{State: job.RunRunning, Started: y.now})
	}
}

// ends reports the end of a rank that ran.
func (y *yard) ends(j id.Job, rank int, rep yardmaster.RankReport) {
	y.t.Helper()
	rep.State = job.RunEnded
	rep.Started = y.now
	rep.Ended = y.now
	y.report(j, rank, rep)
}

func gang(n int) *job.Spec {
	s := spec(1)
	s.Resources.Nodes = job.Range{Min: n, Max: n}
	return s
}

// TestHowJobsEnd runs a job on two nodes, lets people and nodes do something,
// and looks at what becomes of the job.
func TestHowJobsEnd(t *testing.T) {
	t.Parallel()
	well := yardmaster.RankReport{}
	failed := yardmaster.RankReport{Cause: job.CauseUserCode, ExitCode: 3}
	stopped := yardmaster.RankReport{Cause: job.CauseCancelled, ExitCode: 143, Signalled: true}
	cutOff := yardmaster.RankReport{Cause: job.CauseNodeLost, Signalled: true, Reason: "cut off from the yard for 4m"}

	cancel, pause := yardmaster.Cancel{Job: "j1", By: "bob"}, yardmaster.Pause{Job: "j1", By: "bob"}
	for name, tc := range map[string]struct {
		before     func(y *yard)
		ends       [2]yardmaster.RankReport
		retry      int
		state      job.State
		cause      job.Cause
		reason     string
		exitCode   int
		notStarted bool
	}{
		"both end well":                     {ends: [2]yardmaster.RankReport{well, well}, state: job.Succeeded, reason: "succeeded"},
		"one fails and takes the other":     {ends: [2]yardmaster.RankReport{failed, stopped}, state: job.Failed, cause: job.CauseUserCode, exitCode: 3, reason: "rank 0 of 2 on a failed first: the program exited with code 3 on a"},
		"one fails after the other is done": {ends: [2]yardmaster.RankReport{well, failed}, state: job.Failed, cause: job.CauseUserCode, exitCode: 3, reason: "rank 1 of 2 on b failed first: the program exited with code 3 on b"},
		"one fails, and may again": {ends: [2]yardmaster.RankReport{failed, stopped}, retry: 1, state: job.Recovering, cause: job.CauseUserCode, exitCode: 3,
			reason: "rank 0 of 2 on a failed first: the program exited with code 3 on a; retry in 5s at the earliest"},
		"cancelled": {before: func(y *yard) { y.ok(cancel) }, ends: [2]yardmaster.RankReport{stopped, stopped}, state: job.Cancelled, cause: job.CauseCancelled, exitCode: 143,
			reason: "cancelled by bob"},
		"cancelled too late": {before: func(y *yard) { y.ok(cancel) }, ends: [2]yardmaster.RankReport{well, well}, state: job.Succeeded, reason: "succeeded"},
		"cancelled, and failed by itself at that moment": {before: func(y *yard) { y.ok(cancel) }, ends: [2]yardmaster.RankReport{failed, failed}, state: job.Failed,
			cause: job.CauseUserCode, exitCode: 3, reason: "rank 0 of 2 on a failed first: the program exited with code 3 on a"},
		"cancelled before it began": {before: func(y *yard) { y.ok(cancel) }, notStarted: true, ends: [2]yardmaster.RankReport{stopped, stopped}, state: job.Cancelled,
			cause: job.CauseCancelled, exitCode: 143, reason: "cancelled by bob"},
		"paused": {before: func(y *yard) { y.ok(pause) }, ends: [2]yardmaster.RankReport{stopped, stopped}, state: job.Paused, exitCode: 143,
			reason: "paused by bob"},
		"paused, then cancelled": {before: func(y *yard) {
			y.ok(pause)
			y.ok(cancel)
		}, ends: [2]yardmaster.RankReport{stopped, stopped}, state: job.Cancelled,
			cause: job.CauseCancelled, exitCode: 143, reason: "cancelled by bob"},
		"drained": {before: func(y *yard) { y.ok(yardmaster.Cordon{Node: "b", By: "root", On: true, Stop: true}) }, ends: [2]yardmaster.RankReport{stopped, stopped},
			state: job.Recovering, cause: job.CausePreempted, exitCode: 143, reason: "node b was drained by root; requeued"},
		"drained, then cancelled": {before: func(y *yard) {
			y.ok(yardmaster.Cordon{Node: "b", By: "root", On: true, Stop: true})
			y.ok(cancel)
		},
			ends: [2]yardmaster.RankReport{stopped, stopped}, state: job.Cancelled, cause: job.CauseCancelled, exitCode: 143, reason: "cancelled by bob"},
		"both nodes cut off": {ends: [2]yardmaster.RankReport{cutOff, cutOff}, state: job.Recovering, cause: job.CauseNodeLost,
			reason: "cut off from the yard for 4m; retry in 5s at the earliest"},
		"one node cut off": {ends: [2]yardmaster.RankReport{cutOff, stopped}, state: job.Recovering, cause: job.CauseNodeLost,
			reason: "cut off from the yard for 4m; retry in 5s at the earliest"},
		"the other one is done": {ends: [2]yardmaster.RankReport{well, cutOff}, state: job.Recovering, cause: job.CauseNodeLost,
			reason: "cut off from the yard for 4m; retry in 5s at the earliest"},
		"stopped by the machine": {ends: [2]yardmaster.RankReport{{Signalled: true}, stopped}, state: job.Recovering, cause: job.CausePreempted,
			reason: "preempted by other work; requeued"},
		"nonsense with an exit code": {ends: [2]yardmaster.RankReport{{Cause: "x", ExitCode: 4}, stopped}, state: job.Failed, cause: job.CauseUserCode, exitCode: 4,
			reason: "rank 0 of 2 on a failed first: the program exited with code 4 on a"},
		"a signal of its own": {ends: [2]yardmaster.RankReport{{Signal: "SIGSEGV", ExitCode: 139}, stopped}, state: job.Failed, cause: job.CauseUserCode, exitCode: 139,
			reason: "rank 0 of 2 on a failed first: the program was killed by SIGSEGV on a"},
		"set-up fails": {notStarted: true, ends: [2]yardmaster.RankReport{{Cause: job.CauseSetupFailed, ExitCode: 1, Reason: "set-up failed with exit code 1"}, stopped}, state: job.Failed,
			cause: job.CauseSetupFailed, exitCode: 1, reason: "rank 0 of 2 on a failed first: set-up failed with exit code 1"},
		"GPU out of memory, and there is no greater one": {ends: [2]yardmaster.RankReport{{Cause: job.CauseGPUOOM, ExitCode: 1}, stopped}, state: job.Paused,
			cause: job.CauseGPUOOM, exitCode: 1, reason: "rank 0 of 2 on a failed first: out of GPU memory; no node it may use has GPUs with more than 80 GB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.node("a", 1)
			y.node("b", 1)
			s := gang(2)
			s.Retry = tc.retry
			j := y.submit("alice", s)
			y.round()

			if !tc.notStarted {
				y.running(j, 0, 1)
			}

			if tc.before != nil {
				tc.before(y)
			}

			for rank, rep := range tc.ends {
				rep.State, rep.Ended = job.RunEnded, y.now.Add(time.Duration(rank))
				if !tc.notStarted {
					rep.Started = y.now
				}

				y.report(j, rank, rep)

				if rank == 0 && (rep.Cause != job.CauseNone || rep.Signalled) && y.Orders()[0].Stop == job.StopNone {
					t.Error("the other rank was not told to stop")
				}
			}

			got := y.job(j)

			want := []any{tc.state, tc.cause, tc.reason, tc.exitCode}
			if diff := cmp.Diff(want, []any{got.State, got.Cause, got.Reason, got.ExitCode}); diff != "" {
				t.Error(diff)
			}

			if rate := yardmaster.RateOf(y.Yard, "alice"); rate != 0 {
				t.Errorf("alice is charged for %g GPUs and nothing runs", rate)
			}
		})
	}
}

func TestKillHurriesACancelledJob(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.Take()

	for _, want := range []job.StopMode{job.StopTerm, job.StopKill, job.StopKill} {
		y.ok(yardmaster.Cancel{Job: j, By: "alice", Kill: want == job.StopKill})

		if got := y.Orders()[0].Stop; got != want {
			t.Errorf("told to stop by %q, want %q", got, want)
		}
	}

	y.ok(yardmaster.Cancel{Job: j, By: "alice"})

	if got := y.Orders()[0].Stop; got != job.StopKill {
		t.Errorf("told to stop by %q after it was killed", got)
	}
}

func TestReportsOfNoUseChangeNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	y.node("b", 0)
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.ok(yardmaster.NodeReport{Node: "a", Restores: true})
	y.Take()

	run := id.NewRun(j, 1)
	for name, m := range map[string]yardmaster.NodeReport{
		"another node":      {Node: "b", Ranks: []yardmaster.RankReport{{Run: run, State: job.RunEnded}}},
		"another rank":      {Node: "a", Ranks: []yardmaster.RankReport{{Run: run, Rank: 1, State: job.RunEnded}, {Run: run, Rank: -1, State: job.RunEnded}}},
		"another run":       {Node: "a", Ranks: []yardmaster.RankReport{{Run: "j1.2", State: job.RunEnded}, {Run: "x", State: job.RunEnded}}},
		"an earlier state":  {Node: "a", Ranks: []yardmaster.RankReport{{Run: run, State: job.RunPreparing}, {Run: run, State: job.RunOrdered}, {Run: run, State: "x"}}},
		"the same again":    {Node: "a", Ranks: []yardmaster.RankReport{{Run: run, State: job.RunRunning, Started: start}}},
		"absurd GPUs":       {Node: "a", Foreign: []int{-1, 64, 1 << 40}},
		"the same hardware": {Node: "b", Inventory: &fleet.Inventory{Address: "b", CPUs: 64000, Memory: 256 << 30, Disk: 7, Restores: true}},
	} {
		m.Restores = true
		y.ok(m)

		if b := y.Take(); !b.Empty() {
			t.Errorf("%s changed %+v", name, b)
		}
	}

	if _, err := y.Step(y.now, yardmaster.NodeReport{Node: "nobody"}); fault.KindOf(err) != fault.Denied {
		t.Errorf("a report of no node: %v", err)
	}
}

func TestStartThatWasNotToldIsKnownFromTheEnd(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(1))
	y.round()
	y.ends(j, 0, yardmaster.RankReport{})

	if got := y.job(j); got.State != job.Succeeded || got.Started.IsZero() {
		t.Errorf("job %+v, want it to have started and succeeded", got)
	}
}

func TestRunningWithoutATimeCountsFromNow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(1))
	y.round()
	y.report(j, 0, yardmaster.RankReport{State: job.RunStopping}) // stopped before it began

	if got := y.job(j).State; got != job.Starting {
		t.Errorf("job is %s, want starting", got)
	}

	y.report(j, 0, yardmaster.RankReport{State: job.RunRunning})

	if got := y.job(j); got.State != job.Running || !got.Started.Equal(y.now) {
		t.Errorf("job is %s since %s, want running since now", got.State, got.Started)
	}
}

func TestPipelineGoesOnOrEnds(t *testing.T) {
	t.Parallel()
	submit := func(t *testing.T) (*yard, []id.Job) {
		t.Helper()
		y := newYard(t)
		y.node("a", 4)

		var jobs []yardmaster.NewJob
		for _, s := range []struct {
			name  string
			needs []string
		}{{"prepare", nil}, {"train", []string{"prepare", "prepare"}}, {"score", []string{"train", "prepare"}}} {
			sp := spec(1)
			sp.Name, sp.Needs = s.name, s.needs
			jobs = append(jobs, yardmaster.NewJob{Spec: sp})
		}

		sub, _ := y.ok(yardmaster.Submit{Owner: "alice", Jobs: jobs}).(yardmaster.Submitted)
		y.round()

		return y, sub.Jobs
	}

	t.Run("each starts when those it needs have succeeded", func(t *testing.T) {
		t.Parallel()
		y, ids := submit(t)
		if got := y.job(ids[2]).Reason; got != "waiting for required jobs j2 and 1 more" {
			t.Errorf("reason %q", got)
		}

		for i, j := range ids {
			for k, other := range ids {
				if got := y.job(other).State; (k == i) != (got == job.Starting) && k >= i {
					t.Errorf("at step %d job %s is %s", i, other, got)
				}
			}

			y.ends(j, 0, yardmaster.RankReport{})
			y.round()
		}

		if got := y.job(ids[2]).State; got != job.Succeeded {
			t.Errorf("the last is %s", got)
		}
	})

	t.Run("one that fails takes along those behind it", func(t *testing.T) {
		t.Parallel()
		y, ids := submit(t)
		y.ok(yardmaster.Pause{Job: ids[2], By: "alice"})
		y.ends(ids[0], 0, yardmaster.RankReport{ExitCode: 1})

		for i, want := range []string{"the program exited with code 1 on a", "required job j1 (prepare) ended with status FAILED", "required job j2 (train) ended with status CANCELLED"} {
			got := y.job(ids[i])
			if got.Reason != want || !got.State.Final() || i > 0 && got.Cause != job.CauseNeedFailed {
				t.Errorf("job %d is %s (%s): %q, want %q", i+1, got.State, got.Cause, got.Reason, want)
			}
		}

		y.check()
	})

	t.Run("one that was paused waits for its needs when it is resumed", func(t *testing.T) {
		t.Parallel()
		y, ids := submit(t)
		y.ok(yardmaster.Pause{Job: ids[1], By: "alice"})
		y.ok(yardmaster.Resume{Job: ids[1], By: "alice"})
		y.check()

		if got := y.job(ids[1]).Reason; got != "resumed by alice; waiting for required jobs j1 and 1 more" {
			t.Errorf("reason %q", got)
		}

		y.ok(yardmaster.Pause{Job: ids[1], By: "alice"})
		y.ends(ids[0], 0, yardmaster.RankReport{})
		y.ok(yardmaster.Resume{Job: ids[1], By: "alice"})
		y.round()

		if got := y.job(ids[1]).State; got != job.Starting {
			t.Errorf("job 2 is %s, want starting", got)
		}
	})
}

func TestLostNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	y.node("b", 1)
	j := y.submit("alice", gang(2))
	y.round()
	y.running(j, 0, 1)
	y.pass(time.Minute, "a")

	if n, _ := y.NodeByName("b"); n.State != fleet.Suspect || y.job(j).State != job.Running {
		t.Fatalf("b is %s and the job %s, want suspect and running", n.State, y.job(j).State)
	}

	y.pass(5*time.Minute, "a")

	n, _ := y.NodeByName("b")
	if orders := y.Orders(); n.State != fleet.Lost || len(orders) != 1 || orders[0].Node != "a" ||
		orders[0].Stop != job.StopTerm {
		t.Fatalf("b is %s and orders are %+v, want lost, and the rank on a to stop", n.State, orders)
	}

	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})

	got := y.job(j)
	if want := "node b has not reported for 5m and was declared lost; retry in 5s at the earliest"; got.State != job.Recovering ||
		got.Cause != job.CauseNodeLost ||
		got.Reason != want {
		t.Errorf("job is %s of %s: %q, want %q", got.State, got.Cause, got.Reason, want)
	}

	// What b tells when it is back is of a run that is over.
	y.ok(
		yardmaster.NodeReport{
			Node:  "b",
			Ranks: []yardmaster.RankReport{{Run: id.NewRun(j, 1), Rank: 1, State: job.RunEnded}},
		},
	)

	y.check()
	y.pass(10*time.Second, "a", "b")

	if got := y.job(j); got.State != job.Starting || got.Epoch != 2 {
		t.Errorf("job is %s, epoch %d, want starting its second run", got.State, got.Epoch)
	}
}

func TestYardThatSleptBlamesNobody(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.pass(10*time.Second, "a")
	y.now = y.now.Add(time.Hour) // asleep, or the clock was set
	y.ok(yardmaster.Tick{})
	y.now = y.now.Add(-2 * time.Hour)
	y.ok(yardmaster.Tick{})

	if n, _ := y.NodeByName("a"); n.State != fleet.Ready || y.job(j).State != job.Running {
		t.Errorf("a is %s and the job %s, want ready and running", n.State, y.job(j).State)
	}
}

func TestJobIsLetBackOntoANodeThatFailedIt(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	y.node("b", 1)
	y.ok(yardmaster.Cordon{Node: "b", By: "root", On: true})
	j := y.submit("alice", spec(1))
	y.round()
	y.report(j, 0, yardmaster.RankReport{State: job.RunEnded, Cause: job.CauseLaunchFailed, Reason: "no disk left"})

	if got := y.job(j).Avoid; !slices.Equal(got, []id.Node{"a"}) {
		t.Fatalf("avoids %v, want a: b could run it", got)
	}

	y.pass(time.Minute, "a", "b")

	if got := y.job(j).State; got != job.Recovering {
		t.Fatalf("job is %s, want recovering: it waits for b", got)
	}

	y.pass(6*time.Minute, "a", "b")

	if got := y.job(j); got.State != job.Starting || got.Avoid != nil {
		t.Errorf("job is %s and avoids %v, want it on a: b is drained for long", got.State, got.Avoid)
	}
}

func TestMemoryIsDoubledWhileSomeNodeHasIt(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 0) // 256 GB
	s := spec(0)
	s.Resources.Memory = 100 << 30
	j := y.submit("alice", s)
	y.round()
	oom := yardmaster.RankReport{Cause: job.CauseHostOOM, ExitCode: 137, Reason: "out of memory"}
	y.ends(j, 0, oom)

	if got := y.job(j); got.State != job.Recovering || got.Floor.Memory != 200<<30 ||
		got.Reason != "out of memory; the next run gets 200 GB of memory; requeued" {
		t.Errorf("job is %s with at least %s: %s", got.State, got.Floor.Memory, got.Reason)
	}

	y.round()
	y.ends(j, 0, oom)

	want := "out of memory; no node it may use has 400 GB of memory (run 2; not retried after 2 failures of this kind)"
	if got := y.job(j); got.State != job.Paused || got.Reason != want {
		t.Errorf("job is %s: %s, want %s", got.Status(), got.Reason, want)
	}
}

func TestGPUMemoryErrorWithoutAGPUIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(0))
	y.round()
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseGPUOOM, ExitCode: 1})

	if got := y.job(j).State; got != job.Failed {
		t.Errorf("job is %s, want failed: more GPU memory would not help", got)
	}
}

func TestTimeLimitStopsARun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	s := spec(1)
	s.MaxDuration = job.Duration(time.Minute)
	j, other := y.submit("alice", s), y.submit("alice", s)
	y.round()
	y.running(j, 0)
	y.running(other, 0)
	before := yardmaster.TimerCount(y.Yard)
	y.ends(other, 0, yardmaster.RankReport{})

	if after := yardmaster.TimerCount(y.Yard); after != before { // its limit is gone, its forgetting has come
		t.Errorf("%d timers after %d: the limit of a run that is over is kept", after, before)
	}

	y.pass(55*time.Second, "a")

	if got := y.Orders()[0].Stop; got != job.StopNone {
		t.Errorf("told to stop by %q after 55s", got)
	}

	y.pass(10*time.Second, "a")

	if got := y.Orders()[0].Stop; got != job.StopTerm {
		t.Errorf("told to stop by %q after 65s", got)
	}

	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})

	if got := y.job(j); got.Status() != job.StatusTimeout || got.Reason != "ran longer than its max_duration of 1m" {
		t.Errorf("job is %s: %s", got.Status(), got.Reason)
	}
}

func TestRunsOnOneNodeHavePortsOfTheirOwn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)
	first := y.submit("alice", spec(1))
	y.round()
	y.ends(first, 0, yardmaster.RankReport{Cause: job.CauseLaunchFailed}) // its second run would have the next one's port
	y.submit("alice", spec(1))
	y.pass(10*time.Second, "a")

	ports := map[int]bool{}
	for _, o := range y.Orders() {
		ports[o.Launch.MasterPort] = true

		if p := o.Launch.MasterPort; p < 29500 || p >= 32500 {
			t.Errorf("%s has port %d", o.Key(), p)
		}
	}

	if len(y.Orders()) != 2 || len(ports) != 2 {
		t.Errorf("%d runs have the ports %v, want two", len(y.Orders()), ports)
	}
}

func TestSubmissionsUnderOneKey(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	m := yardmaster.Submit{Owner: "alice", Key: "k", KeyHash: "h", Jobs: []yardmaster.NewJob{{Spec: spec(1)}}}
	first := y.ok(m).(yardmaster.Submitted)

	again := y.ok(m).(yardmaster.Submitted)
	if !again.Replay || !slices.Equal(first.Jobs, again.Jobs) {
		t.Errorf("first %+v, then %+v", first, again)
	}

	other := m
	other.KeyHash = "other"
	if _, err := y.Step(y.now, other); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the same key for something else: %v", err)
	}

	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "alice"})

	m.Owner = "bob"
	if bobs := y.ok(m).(yardmaster.Submitted); bobs.Replay {
		t.Errorf("bob's key is taken for alice's: %+v", bobs)
	}
}

func TestLimitsOfASubmission(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	for code, m := range map[string]yardmaster.Submit{
		"no_jobs":       {Owner: "alice", Key: "k"},
		"user_disabled": {Owner: "nobody", Jobs: []yardmaster.NewJob{{Spec: spec(1)}}},
		"unknown_need":  {Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: &job.Spec{Needs: []string{"x"}}}}},
		"too_many_jobs": {Owner: "alice", Jobs: slices.Repeat([]yardmaster.NewJob{{Spec: spec(1)}}, 200_001)},
	} {
		_, err := y.Step(y.now, m)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != code {
			t.Errorf("%v, want %s", err, code)
		}

		y.check()
	}

	if got := y.Counts(); len(got.Jobs) != 0 {
		t.Errorf("jobs that were refused are there: %+v", got)
	}
}

func TestNodesKeptForAJobThatIsGoneAreFree(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	y.submit("alice", spec(1))
	big := y.submit("alice", spec(2))
	y.round()

	if got := yardmaster.HeldJob(y.Yard); got != big {
		t.Fatalf("held for %q, want %s", got, big)
	}

	y.ok(yardmaster.Cancel{Job: big, By: "alice"})

	p := y.preview("ann", spec(1))
	if !p.Starts || p.Why.Blocker != place.BlockNone || !p.Why.Start.Equal(y.now) {
		t.Errorf("a job submitted now would wait: %+v", p.Why)
	}
}

func TestWhyOfAJobThatDoesNotWaitForNodes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j, next := y.submit("alice", spec(1)), y.submit("alice", spec(1))
	y.round()

	if _, waits := y.Why(y.now, j); waits {
		t.Error("a job that starts does not wait")
	}

	why, _ := y.Why(y.now, next)
	if why.Position != 1 || why.Blocker != place.BlockResources {
		t.Errorf("why %+v, want the first in line that waits for a", why)
	}

	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseLaunchFailed, Reason: "no disk left"})

	if why, _ := y.Why(y.now, j); why.Blocker != place.BlockBackoff || !why.NotBefore.Equal(y.now.Add(5*time.Second)) {
		t.Errorf("why %+v, want the wait before it is tried again", why)
	}

	y.ok(yardmaster.Pause{Job: j, By: "bob"})

	if why, _ := y.Why(y.now, j); why.Blocker != place.BlockPaused || why.Sentence != "paused by bob" ||
		why.Remedies[0].Text != "trainyard resume j1" {
		t.Errorf("why %+v, want paused by bob", why)
	}

	if _, waits := y.Why(y.now, "j99"); waits {
		t.Error("a job that is not there waits")
	}
}

func TestUseIsCountedWhileJobsRunAndAcrossARestart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.submit("alice", spec(4))
	store := newRecord()
	y.round()

	if err := store.commit(y.Take()); err != nil {
		t.Fatal(err)
	}

	y.pass(time.Hour, "a")

	want := queue.Decayed(0, 4+1.0/16, time.Hour)
	if got := yardmaster.UsageOf(y.Yard, "alice"); got < want*0.999 || got > want*1.001 {
		t.Errorf("use after an hour is %g, want %g", got, want)
	}

	state, err := store.load(y.now)
	if err != nil {
		t.Fatal(err)
	}

	again := yardmaster.New(yardmaster.Defaults(nil))
	again.Load(y.now, state)

	if got := yardmaster.UsageOf(again, "alice"); got < want*0.999 || got > want*1.001 {
		t.Errorf("use after a restart is %g, want %g", got, want)
	}
}

func TestNodesJoin(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	long := strings.Repeat("x", id.MaxName)

	var names []string
	for _, name := range []string{"a", "a", "a", long, long} {
		n, _ := y.ok(yardmaster.Join{Token: "join", Name: name}).(fleet.Node)
		names = append(names, string(n.ID))
	}

	if want := []string{"a", "a-2", "a-3", long, long[2:] + "-2"}; !cmp.Equal(names, want) {
		t.Errorf("nodes are called %v, want %v", names, want)
	}

	for _, bad := range []string{"", "A", "../x", "a|b", long + "x"} {
		if _, err := y.Step(y.now, yardmaster.Join{Token: "join", Name: bad}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("joined as %q: %v", bad, err)
		}
	}

	y.ok(yardmaster.RemoveNode{Node: "a-2", By: "alice"})

	if n, _ := y.ok(yardmaster.Join{Token: "join", Name: "a-2"}).(fleet.Node); n.ID == "a-2" {
		t.Error("the name of a node that was removed is given again, and its old certificate with it")
	}

	y.check()
}

func TestTokensThatAreUsedUp(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.ok(
		yardmaster.AddToken{
			By: "test",
			Token: tenant.Token{
				ID:       "boot",
				Kind:     tenant.BootstrapToken,
				Owner:    "alice",
				UsesLeft: 1,
				Expires:  start.AddDate(1, 0, 0),
			},
		},
	)

	access := tenant.Token{ID: "join", Kind: tenant.AccessToken, Expires: start.AddDate(1, 0, 0)}
	if _, err := y.Step(
		y.now,
		yardmaster.Exchange{Bootstrap: "boot", Token: access},
	); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a token of a name that is taken: %v", err)
	}

	access.ID = "new"
	if got, _ := y.ok(yardmaster.Exchange{Bootstrap: "boot", Token: access}).(tenant.Token); got.Owner != "alice" {
		t.Errorf("exchanged for %+v, want one of alice's: the failed try must not use it up", got)
	}

	access.ID = "newer"
	for name, m := range map[string]yardmaster.Message{
		"bootstrap twice":      yardmaster.Exchange{Bootstrap: "boot", Token: access},
		"join with bootstrap":  yardmaster.Join{Token: "boot", Name: "x"},
		"join with access":     yardmaster.Join{Token: "new", Name: "x"},
		"join without a token": yardmaster.Join{Token: "", Name: "x"},
	} {
		if _, err := y.Step(y.now, m); fault.KindOf(err) != fault.Unknown {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEndedJobsLeaveMemory(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)

	for i := range 50 {
		reply := y.ok(yardmaster.Submit{Owner: "alice", Key: fmt.Sprint("k", i), Jobs: []yardmaster.NewJob{{Spec: spec(1)}}})
		j := reply.(yardmaster.Submitted).Jobs[0]
		y.round()
		y.ends(j, 0, yardmaster.RankReport{})
	}

	y.pass(11*time.Minute, "a")

	if got := yardmaster.JobsInMemory(y.Yard); len(got) > 0 {
		t.Errorf("%v are still in memory", got)
	}

	if got := yardmaster.TimerCount(y.Yard); got != 1 {
		t.Errorf("%d timers are set, want the one of node a", got)
	}

	if _, err := y.Step(y.now, yardmaster.Cancel{Job: "j1"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("cancel of a job that left memory: %v", err)
	}
}

// TestResumedJobGoesBackToItsCheckpoints lets a job run on a node that would
// not be the first choice, pauses it, and wants it there again, also after a restart.
func TestResumedJobGoesBackToItsCheckpoints(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	store := newRecord()
	y.node("b", 4)
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.node("a", 1) // the tightest fit from now on
	y.ok(yardmaster.Pause{Job: j, By: "alice"})
	y.ends(j, 0, yardmaster.RankReport{Signalled: true, ExitCode: 143})

	if err := store.commit(y.Take()); err != nil {
		t.Fatal(err)
	}

	state, err := store.load(y.now)
	if err != nil {
		t.Fatal(err)
	}

	y.Yard = yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	y.Load(y.now, state)
	y.ok(yardmaster.Resume{Job: j, By: "alice"})
	y.round()

	orders := y.Orders()
	if len(orders) != 1 || orders[0].Node != "b" {
		t.Errorf("orders = %+v, want one on b", orders)
	}

	if got, want := y.job(j).Reason, "b (ran there before): first in the queue and fits"; got != want {
		t.Errorf("reason = %q, want %q", got, want)
	}

	// Another job takes the tightest fit.
	other := y.submit("alice", spec(1))
	y.round()

	if got := y.job(other).Last; got != "a" {
		t.Errorf("the other job is on %q, want a", got)
	}
}
