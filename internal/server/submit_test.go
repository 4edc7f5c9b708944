package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// inMemory counts the jobs that the yardmaster holds.
func inMemory(y *yard) int {
	y.t.Helper()
	n := 0
	y.must(y.loop.Query(y.t.Context(), func(c *yardmaster.Yard) {
		for _, k := range c.Counts().Jobs {
			n += k
		}
	}))

	return n
}

func ids(jobs []api.Job) []id.Job {
	out := make([]id.Job, len(jobs))
	for i := range jobs {
		out[i] = jobs[i].ID
	}

	return out
}

func TestAKeySubmitsOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	const many = 50
	var wg sync.WaitGroup

	replies := make([]api.SubmitReply, many)
	for i := range many {
		wg.Go(func() {
			var err error

			replies[i], err = c.Submit(
				t.Context(),
				api.SubmitRequest{File: "name: a\nrun: a\n---\nname: b\nrun: b\nneeds: [a]"},
				"k",
			)
			if err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()

	firsts := 0
	for i := range replies {
		if !replies[i].Replay {
			firsts++
		}

		if diff := cmp.Diff([]id.Job{"j1", "j2"}, ids(replies[i].Jobs)); diff != "" {
			t.Fatalf("submission %d (-want +got):\n%s", i, diff)
		}
	}

	if firsts != 1 {
		t.Errorf("%d submissions say that they were the first", firsts)
	}

	page, err := c.Jobs(t.Context(), api.JobFilter{})
	y.must(err)

	if len(page.Jobs) != 2 {
		t.Errorf("there are %d jobs", len(page.Jobs))
	}

	_, err = c.Submit(t.Context(), api.SubmitRequest{File: "run: other"}, "k")
	wantFault(t, err, fault.Conflict, "key_reused")

	{
		reply, err := y.researcher("bob").Submit(t.Context(), api.SubmitRequest{File: "run: other"}, "k")
		y.must(err)

		if reply.Replay || reply.Jobs[0].ID != "j3" {
			t.Errorf("the key of one user was that of another: %+v", reply)
		}
	}
}

func TestAKeyHoldsAfterItsJobHasLeftMemory(t *testing.T) {
	t.Parallel()
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.KeepFinal = time.Minute }))
	c := y.researcher("ada")
	request := api.SubmitRequest{File: "run: a"}
	first, err := c.Submit(t.Context(), request, "k")
	y.must(err)
	_, err = c.CancelJob(t.Context(), first.Jobs[0].ID)
	y.must(err)
	y.advance(2 * time.Minute)
	eventually(t, "the job has left memory", func() bool { return inMemory(y) == 0 })
	again, err := c.Submit(t.Context(), request, "k")
	y.must(err)

	if !again.Replay || again.Jobs[0].ID != first.Jobs[0].ID || again.Jobs[0].State != job.Cancelled {
		t.Errorf("got %+v", again)
	}

	_, err = c.Submit(t.Context(), api.SubmitRequest{File: "run: a", Env: map[string]string{"A": "b"}}, "k")
	wantFault(t, err, fault.Conflict, "key_reused")
	_, err = c.ResumeJob(t.Context(), first.Jobs[0].ID)
	wantFault(t, err, fault.Conflict, "job_state")
	detail, err := c.Job(t.Context(), first.Jobs[0].ID)
	y.must(err)

	if detail.State != job.Cancelled || detail.Why != nil {
		t.Errorf("got %+v", detail)
	}
}

func TestTheReplyToASubmissionIsWhatTheJobIs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	jobs := y.submit(
		c,
		"name: prepare\nproject: p\nrun: a\npriority: 7\n---\nname: train\nrun: b\nneeds: [prepare]\nresources: {gpus: 2, gpu: A100}",
	)

	for _, said := range jobs {
		detail, err := c.Job(t.Context(), said.ID)
		y.must(err)
		is := detail.Job
		is.Forecast, is.Reason = nil, said.Reason // they come later: why it waits is known when it was considered
		if diff := cmp.Diff(is, said); diff != "" {
			t.Errorf("(-is +said):\n%s", diff)
		}
	}
}

func TestAPipelineRunsInOrder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	jobs := y.submit(c, "name: a\nrun: a\n---\nname: b\nrun: b\nneeds: [a]")
	run := n.awaitRun(jobs[0].ID, 1)

	if detail, err := c.Job(t.Context(), jobs[1].ID); err != nil || detail.Why == nil || detail.Why.Blocker != "needs" {
		t.Errorf("the second waits for %+v, %v", detail.Why, err)
	}

	n.starts(run, 0)
	n.ends(run, 0, 0)
	n.awaitRun(jobs[1].ID, 1)
}

func TestValuesOfTheEnvironmentReachTheNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	reply, err := c.Submit(t.Context(), api.SubmitRequest{File: "run: a\nenv: {KEY: null, LEVEL: low, PLAIN: x}",
		Env: map[string]string{"KEY": "secret", "LEVEL": "high", "UNASKED": "1"}}, "")
	y.must(err)
	run := id.NewRun(reply.Jobs[0].ID, 1)

	got := n.await(func(a api.Assignments) bool { return len(a.Runs) == 1 })
	if got.Runs[0].Run != run || got.Runs[0].Launch.Owner != "ada" || got.Runs[0].Launch.Command != "a" {
		t.Errorf("got %+v", got.Runs[0])
	}

	if diff := cmp.Diff(
		map[string]string{"KEY": "secret", "LEVEL": "high", "PLAIN": "x"},
		got.Runs[0].Launch.Env,
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	y.join("n1")
	file := "name: a\nrun: a\nresources: {memory: 900GB}\n---\nname: b\nrun: b\n---\nname: c\nrun: c\nneeds: [b]\ndeadline: 2100-01-01T09:00"
	reply, err := c.Submit(t.Context(), api.SubmitRequest{File: file, DryRun: true}, "k")
	y.must(err)

	if len(reply.Jobs) != 0 || len(reply.Plan) != 3 || len(reply.Notes) != 1 ||
		!strings.Contains(reply.Notes[0], "deadline") {
		t.Fatalf("got %+v", reply)
	}

	for i, want := range []struct {
		fits    int
		blocker string
	}{{0, "no_fit"}, {1, "none"}, {1, "needs"}} {
		if p := reply.Plan[i]; p.FitCount != want.fits || len(p.Fits) != want.fits || p.Why == nil ||
			p.Why.Blocker != want.blocker {
			t.Errorf("job %d: %+v %+v, want %+v", i, p, p.Why, want)
		}
	}

	if inMemory(y) != 0 {
		t.Error("a dry run left a job")
	}

	got := y.raw(
		y.http,
		http.MethodPost,
		"/api/v1/jobs",
		y.token("ada", "researcher", "submit"),
		`{"file":"run: a\nresources: {memory: 900GB}","dry_run":true}`,
	)

	if !strings.Contains(string(got.body), `"fits":[`) {
		t.Errorf("a list is null: %s", got.body)
	}

	// The key of a dry run is free.
	y.submit(c, "run: a")
}

func TestWhatCanBeDoneToAJobInEachState(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	ctx := t.Context()
	waiting := y.submit(c, "run: a\nresources: {memory: 900GB}")[0].ID
	running, run := n.started(c)
	steps := []struct {
		do   func() (api.Job, error)
		want string // state, or kind and code
	}{
		{func() (api.Job, error) { return c.ResumeJob(ctx, waiting) }, "pending"},
		{func() (api.Job, error) { return c.PauseJob(ctx, waiting) }, "paused"},
		{func() (api.Job, error) { return c.PauseJob(ctx, waiting) }, "paused"},
		{func() (api.Job, error) { return c.ResumeJob(ctx, waiting) }, "pending"},
		{func() (api.Job, error) { return c.KillJob(ctx, waiting) }, "cancelled"},
		{func() (api.Job, error) { return c.CancelJob(ctx, waiting) }, "conflict job_state"},
		{func() (api.Job, error) { return c.SaveJob(ctx, waiting) }, "conflict job_state"},
		{func() (api.Job, error) { return c.SaveJob(ctx, running) }, "running"},
		{func() (api.Job, error) { return c.PauseJob(ctx, running) }, "pausing"},
		{func() (api.Job, error) { return c.SaveJob(ctx, running) }, "conflict job_state"},
		{func() (api.Job, error) { return c.ResumeJob(ctx, running) }, "conflict job_state"},
		{func() (api.Job, error) { return c.CancelJob(ctx, running) }, "cancelling"},
		{func() (api.Job, error) { return c.PauseJob(ctx, running) }, "conflict job_state"},
		{func() (api.Job, error) { return c.KillJob(ctx, running) }, "cancelling"},
	}

	for i, step := range steps {
		got, err := step.do()
		text := string(got.State)
		if f, ok := err.(*fault.Error); ok { //nolint:errorlint // the client returns it as it is
			text = fmt.Sprint(f.Kind, " ", f.Code)
		}

		if text != step.want {
			t.Errorf("step %d: got %s (%v), want %s", i, text, err, step.want)
		}
	}

	n.await(func(a api.Assignments) bool {
		return len(a.Runs) == 1 && a.Runs[0].Run == run && a.Runs[0].Stop == job.StopKill && a.Runs[0].Save == 1
	})

	n.tell(
		api.RankReport{
			Run:       run,
			State:     job.RunEnded,
			Ended:     y.clock.Now(),
			Signal:    "KILL",
			Cause:     job.CauseCancelled,
			Signalled: true,
		},
	)

	detail, err := c.Job(ctx, running)
	y.must(err)

	if detail.State != job.Cancelled || detail.ExitCode == nil || len(detail.Runs) != 1 ||
		detail.Runs[0].State != job.RunEnded {
		t.Errorf("got %+v", detail)
	}

	n.await(func(a api.Assignments) bool { return len(a.Runs) == 0 && a.Generation > 1 })
}
