package yardmaster_test

import (
	"fmt"
	"strings"
	"testing"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// sweep submits an array of jobs with one GPU each.
func (y *yard) sweep(size, limit int, change func(*job.Spec)) []id.Job {
	y.t.Helper()

	s := spec(1)
	s.Array = &job.Array{Range: job.Steps{Last: size - 1, Step: 1}, Limit: limit}
	if change != nil {
		change(s)
	}

	return y.ok(yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: s}}}).(yardmaster.Submitted).Jobs
}

// states counts jobs by what they do.
func (y *yard) states(jobs []id.Job) map[job.State]int {
	counts := map[job.State]int{}
	for _, j := range jobs {
		counts[y.job(j).State]++
	}

	return counts
}

func TestElementsOfAnArrayAreJobsOfTheirOwn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)

	jobs := y.sweep(3, 0, func(s *job.Spec) {
		s.Run, s.Params = "train {{lr}} {{array.value}}", map[string]any{"lr": 0.5}
		s.Array = &job.Array{Values: []string{"x", "$(y)", "z"}}
	})
	y.round()

	for i, j := range jobs {
		r := y.job(j)
		if r.ID != id.NewJob(uint64(i+1)) || r.Array != "a1" || r.Index != i || r.Pipeline != "j1" || r.State != job.Starting {
			t.Errorf("element %d is %s of %s, %d, %s", i, r.ID, r.Array, r.Index, r.State)
		}

		launch := y.order(j).Launch
		if launch.Command != `train "${TRAINYARD_PARAM_lr}" "${TRAINYARD_ARRAY_VALUE}"` ||
			launch.Env["TRAINYARD_ARRAY_VALUE"] != []string{"x", "$(y)", "z"}[i] ||
			launch.Env["TRAINYARD_ARRAY_INDEX"] != fmt.Sprint(i) || launch.Env["TRAINYARD_ARRAY_SIZE"] != "3" ||
			launch.Env["TRAINYARD_ARRAY_ID"] != "a1" || launch.Env["TRAINYARD_PARAM_lr"] != "0.5" {
			t.Errorf("element %d is launched as %s with %v", i, launch.Command, launch.Env)
		}
	}

	y.check()
}

func TestAnArrayKeepsItsLimit(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)

	jobs := y.sweep(6, 2, func(s *job.Spec) { s.Retry = 1 })
	other := y.submit("alice", spec(1))
	y.round()

	if got := y.states(jobs); got[job.Starting] != 2 || got[job.Pending] != 4 || y.job(other).State != job.Starting {
		t.Fatalf("with a limit of 2: %v; a job of its own is %s", got, y.job(other).State)
	}

	why, waits := y.Why(y.now, jobs[4])
	if want := "at most 2 elements of a1 run at the same time: 2 running, 0 queued; 2 elements before it"; !waits ||
		why.Sentence != want || why.Blocker != "limit" {
		t.Errorf("it waits %v: %s: %s; want %s", waits, why.Blocker, why.Sentence, want)
	}

	// One that ends lets the next follow, one that is retried does so while it is held back.
	y.running(jobs[0], 0)
	y.ends(jobs[0], 0, yardmaster.RankReport{})
	y.round()

	if y.job(jobs[2]).State != job.Starting || y.job(jobs[3]).State != job.Pending {
		t.Errorf("after the first has ended, the next are %s and %s", y.job(jobs[2]).State, y.job(jobs[3]).State)
	}

	y.running(jobs[1], 0)
	y.ends(jobs[1], 0, yardmaster.RankReport{ExitCode: 1})
	y.round()

	if y.job(jobs[1]).State.Final() || y.job(jobs[3]).State != job.Starting {
		t.Errorf("after the second has failed it is %s, and the next %s", y.job(jobs[1]).State, y.job(jobs[3]).State)
	}

	// Paused and cancelled elements make room as well, and an element that is held can be both.
	y.ok(yardmaster.Pause{Job: jobs[4], By: "alice"})
	y.ok(yardmaster.Cancel{Job: jobs[5], By: "alice"})
	y.check()
	y.ok(yardmaster.Resume{Job: jobs[4], By: "alice"})
	y.check()

	for _, j := range []id.Job{jobs[2], jobs[3]} {
		y.running(j, 0)
		y.ends(j, 0, yardmaster.RankReport{})
		y.round()
	}

	if y.job(jobs[4]).State != job.Starting {
		t.Errorf("the last is %s: %s", y.job(jobs[4]).State, y.job(jobs[4]).Reason)
	}

	y.check()
}

func TestTheLimitOfAnArrayHoldsOverARestart(t *testing.T) {
	t.Parallel()
	y := newStoredYard(t, func() yardmaster.Config { return yardmaster.Defaults(ordered.FIFO{}) })
	y.node("a", 8)

	jobs := y.sweep(5, 2, nil)
	y.Round(y.now)
	y.commit()

	for range 3 {
		y.restart()
		y.Round(y.now)
		y.commit()

		if got := y.states(jobs); got[job.Starting] != 2 || got[job.Pending] != 3 {
			t.Fatalf("after a restart: %v", got)
		}
	}

	y.running(jobs[1], 0)
	y.ends(jobs[1], 0, yardmaster.RankReport{})
	y.restart()
	y.Round(y.now)

	if got := y.job(jobs[2]).State; got != job.Starting {
		t.Errorf("after one has ended the next is %s", got)
	}
	if why, waits := y.Why(y.now, jobs[4]); !waits || !strings.HasPrefix(why.Sentence, "at most 2 elements of a1") {
		t.Errorf("after a restart it waits because of %s", why.Sentence)
	}

	y.check()
}

func TestAnArrayIsChangedByOneMessage(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)

	jobs := y.sweep(100, 3, nil)
	other := y.submit("alice", spec(1))
	y.round()
	y.running(jobs[0], 0)
	y.ends(jobs[0], 0, yardmaster.RankReport{})
	y.round()

	change := func(c yardmaster.ArrayChange) yardmaster.ArrayChanged {
		done := y.ok(yardmaster.ChangeArray{Array: "a1", By: "alice", Change: c}).(yardmaster.ArrayChanged)
		y.check()

		return done
	}

	if done := change(yardmaster.PauseElements); done != (yardmaster.ArrayChanged{Changed: 99}) {
		t.Errorf("paused: %+v", done)
	}
	if got := y.states(jobs); got[job.Paused] != 96 || got[job.Pausing] != 3 {
		t.Errorf("paused: %v", got)
	}

	if done := change(yardmaster.ResumeElements); done.Changed != 96 || done.Refused != 3 || done.Reason == "" {
		t.Errorf("resumed: %+v", done)
	}

	y.round()
	if done := change(yardmaster.KillElements); done.Changed != 99 {
		t.Errorf("killed: %+v", done)
	}
	if got := y.states(jobs); got[job.Cancelled]+got[job.Cancelling] != 99 || y.job(other).State != job.Starting {
		t.Errorf("killed: %v; a job that is not of the array is %s", got, y.job(other).State)
	}

	if done := change(yardmaster.CancelElements); done.Changed != 0 || done.Refused != 0 {
		t.Errorf("cancelled again: %+v", done)
	}
}

func TestJobsNeedAllElementsOfAnArray(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)

	train, report := spec(1), spec(0)
	train.Name, train.Array = "train", &job.Array{Values: []string{"x", "y", "z"}, Limit: 1}
	report.Name, report.Needs = "report", []string{"train"}

	jobs := y.ok(yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{
		{Spec: train}, {Spec: report},
	}}).(yardmaster.Submitted).Jobs

	for i, j := range jobs[:3] {
		y.round()
		if r := y.job(jobs[3]); r.State != job.Pending || len(r.Needs) != 3 || y.job(j).State != job.Starting {
			t.Fatalf("with %d ended it is %s and needs %v; the next is %s", i, r.State, r.Needs, y.job(j).State)
		}

		y.running(j, 0)
		y.ends(j, 0, yardmaster.RankReport{})
	}

	y.round()
	if r := y.job(jobs[3]); r.State != job.Starting {
		t.Errorf("after all have ended it is %s: %s", r.State, r.Reason)
	}
}

func TestAnArrayIsSubmittedOnceUnderItsKey(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	s := spec(1)
	s.Array = &job.Array{Range: job.Steps{Last: 9, Step: 1}}
	m := yardmaster.Submit{Owner: "alice", Key: "k", KeyHash: "h", Jobs: []yardmaster.NewJob{{Spec: s}}}

	first := y.ok(m).(yardmaster.Submitted)
	again := y.ok(m).(yardmaster.Submitted)

	if !again.Replay || len(again.Jobs) != 10 || again.Jobs[0] != first.Jobs[0] {
		t.Errorf("submitted again: %+v", again)
	}

	m.KeyHash = "other"
	y.refused(m, "key_reused")
}

func TestTheSpecOfAnArrayIsKeptOnce(t *testing.T) {
	t.Parallel()

	cfg := func() yardmaster.Config {
		c := yardmaster.Defaults(ordered.FIFO{})
		c.MaxJobText = 64 << 10

		return c
	}

	y := newStoredYard(t, cfg)
	script := strings.Repeat("x", 16<<10)
	y.sweep(500, 0, func(s *job.Spec) { s.Run = script })

	for _, when := range []string{"after its submission", "after a restart"} {
		if got := yardmaster.TextInMemory(y.Yard); got > 2*len(script) {
			t.Errorf("%s it keeps %d bytes of text", when, got)
		}

		y.restart()
	}
}
