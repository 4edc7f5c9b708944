package yardmaster_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// TestReasonsKeepWhoActed is newcomer 21: when a job had stopped, its reason did not say any more who had cancelled it.
func TestReasonsKeepWhoActed(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		acts []yardmaster.Message
		want string
	}{
		"cancelled":              {[]yardmaster.Message{yardmaster.Cancel{Job: "j1", By: "alice"}}, "cancelled by alice"},
		"killed":                 {[]yardmaster.Message{yardmaster.Cancel{Job: "j1", By: "bob", Kill: true}}, "killed by bob"},
		"cancelled twice":        {[]yardmaster.Message{yardmaster.Cancel{Job: "j1", By: "alice"}, yardmaster.Cancel{Job: "j1", By: "bob"}}, "cancelled by alice"},
		"cancelled, then killed": {[]yardmaster.Message{yardmaster.Cancel{Job: "j1", By: "alice"}, yardmaster.Cancel{Job: "j1", By: "bob", Kill: true}}, "killed by bob"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			y.node("a", 1)
			j := y.submit("alice", spec(1))
			y.round()
			y.running(j, 0)

			for _, m := range tt.acts {
				y.ok(m)
			}

			y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})

			if got := y.job(j); got.State != job.Cancelled || got.Reason != tt.want {
				t.Errorf("it is %s: %q, want %q", got.State, got.Reason, tt.want)
			}
		})
	}
}

// TestRunTimeCountsNoPauses is newcomer 11: pauses, waits between runs, and the time until a node that was cut off
// reported the end of a run counted as run time.
func TestRunTimeCountsNoPauses(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.pass(time.Minute, "a")
	y.ok(yardmaster.Pause{Job: j, By: "alice"})
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseCancelled, Signalled: true})
	y.pass(time.Hour, "a")

	if got := y.Briefs(y.now, []id.Job{j})[0].Ran; got != time.Minute {
		t.Errorf("while it is paused it has run for %s, want a minute", got)
	}

	y.ok(yardmaster.Resume{Job: j, By: "alice"})
	y.round()
	y.running(j, 0)

	// It ends after 25 s, which its node reports 13 s later.
	ended := y.now.Add(25 * time.Second)
	y.pass(38*time.Second, "a")
	y.report(j, 0, yardmaster.RankReport{State: job.RunEnded, Ended: ended})

	if got := y.job(j); got.State != job.Succeeded || got.Ran != 85*time.Second {
		t.Errorf("it is %s and has run for %s, want 1m25s", got.State, got.Ran)
	}
}

// TestANodeIsIdleSinceItsLastRun is newcomer 20: a local node was idle since it had joined, whatever it had done since.
func TestANodeIsIdleSinceItsLastRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 1)
	y.pass(time.Hour, "a")
	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	y.pass(time.Minute, "a")
	y.ends(j, 0, yardmaster.RankReport{})

	over := y.now
	y.pass(time.Minute, "a")

	n, err := y.NodeByName("a")
	if err != nil || !n.Idle.Equal(over) {
		t.Errorf("it is idle since %s (%v), and its last run ended at %s", n.Idle, err, over)
	}

	// The next server reads it from the store.
	next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now.Add(time.Minute)}
	next.Load(next.now, yardmaster.State{
		Nodes: y.Take().Nodes, IdleSince: map[id.Node]time.Time{"a": over},
	})

	if n, err := next.NodeByName("a"); err != nil || !n.Idle.Equal(over) {
		t.Errorf("after a restart it is idle since %s (%v), and its last run ended at %s", n.Idle, err, over)
	}
}

// TestSameGPUIsRefusedWhereAPolicyDoesNotKnowIt: a promise that the policy would not keep is not made.
func TestSameGPUIsRefusedWhereAPolicyDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	y := newYard(t) // under fifo
	y.node("a", 1)
	y.node("b", 1)

	s := gang(2)
	s.Resources.SameGPU = true

	_, err := y.Step(y.now, yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: s}}})
	if f := (*fault.Error)(nil); !errors.As(err, &f) || f.Code != "not_supported" || f.Field != "resources.same_gpu" {
		t.Errorf("it is answered by %v", err)
	}
}

// TestRemarks: what the owner of a job should know beside its state, as long as it holds.
func TestRemarks(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.smallNode("small")

	remarks := func(j id.Job) []string {
		t.Helper()
		return y.Briefs(y.now, []id.Job{j})[0].Remarks
	}

	want := func(j id.Job, want ...string) {
		t.Helper()

		if got := remarks(j); !slices.Equal(got, want) {
			t.Errorf("remarks on %s are %q, want %q", j, got, want)
		}
	}

	j := y.submit("alice", spec(1))
	y.round()
	y.running(j, 0)
	want(j)

	silent := y.now
	for range 8 { // the yard does not take itself for suspended
		y.now = y.now.Add(5 * time.Second)
		y.ok(yardmaster.Tick{})
	}

	want(j, "node small has not reported since "+humanize.Time(silent, y.now))
	y.ok(yardmaster.NodeReport{Node: "small"})
	want(j)

	y.gpuMemoryNode("larger", 48<<30, 1)
	y.ends(j, 0, gpuOOM)
	want(j, "gets GPUs with more than 24 GB after it ran out of GPU memory")

	hostOOM := yardmaster.RankReport{Cause: job.CauseHostOOM, ExitCode: 137, Reason: "exceeded its memory limit"}
	s := spec(0)
	s.Run, s.Resources.Memory = "another program", 4<<30
	k := y.submit("alice", s)
	y.oomAgain(k, hostOOM)
	want(k, "memory raised from 4 GB to 8 GB after it ran out of memory")
}
