package yardmaster_test

import (
	"slices"
	"strings"
	"testing"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// follow submits a job that needs one that was submitted before.
func (y *yard) follow(after job.After, needed yardmaster.Needed) (id.Job, error) {
	s := plain(1)
	s.Needs, s.After = []string{"prep@last"}, after

	reply, err := y.Step(y.now, yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{
		{Spec: s, Needed: map[string]yardmaster.Needed{"prep@last": needed}},
	}})
	if err != nil {
		return "", err
	}

	return reply.(yardmaster.Submitted).Jobs[0], nil
}

// Newcomer (c) 11: a job needs jobs of other files, and starts after their success or after any end.
func TestJobsNeedJobsOfOtherFiles(t *testing.T) {
	t.Parallel()
	y := newYard(t) // without a node, so that all wait
	prep := y.submit("alice", plain(1))
	needed := yardmaster.Needed{Job: prep, State: job.Pending}

	success, err := y.follow("", needed)
	if err != nil {
		t.Fatal(err)
	}

	anyEnd, err := y.follow(job.AfterAny, needed)
	if err != nil {
		t.Fatal(err)
	}

	for _, j := range []id.Job{success, anyEnd} {
		r := y.job(j)
		if !slices.Equal(r.Needs, []id.Job{prep}) || r.Reason != "waiting for required job "+string(prep) {
			t.Errorf("%s needs %v: %s", j, r.Needs, r.Reason)
		}
	}

	y.ok(yardmaster.Cancel{Job: prep, By: "alice"})

	if r := y.job(success); r.Status() != job.StatusCancelled || !strings.Contains(r.Reason, string(prep)) {
		t.Errorf("%s is %s (%s) after %s was cancelled", success, r.Status(), r.Reason, prep)
	}

	if r := y.job(anyEnd); r.State != job.Pending || r.Reason != "queued" {
		t.Errorf("%s is %s (%s), and shall start after any end of %s", anyEnd, r.State, r.Reason, prep)
	}

	// What has ended is not waited for, and what can never be is refused.
	if _, err := y.follow("", needed); codeOf(err) != "need_failed" {
		t.Errorf("a job that needs the success of a cancelled one: %v", err)
	}

	if j, err := y.follow(job.AfterAny, needed); err != nil || len(y.job(j).Needs) > 0 {
		t.Errorf("a job that needs any end of a cancelled one: %v", err)
	}

	old := yardmaster.Needed{Job: "j900", State: job.Succeeded} // left memory long ago
	if j, err := y.follow("", old); err != nil || len(y.job(j).Needs) > 0 {
		t.Errorf("a job that needs one that succeeded: %v", err)
	}

	if _, err := y.follow("", yardmaster.Needed{Job: "j900", State: job.Running}); codeOf(err) != "need_changed" {
		t.Errorf("a job that needs one that ended meanwhile: %v", err)
	}
}

// TestANeedIsAsItIsNow: the job that was looked up may have ended since, and two names may mean the same one.
func TestANeedIsAsItIsNow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	prep := y.submit("alice", plain(1))
	stale := yardmaster.Needed{Job: prep, State: job.Pending}

	s := plain(1)
	s.Needs = []string{"prep@last", string(prep)}
	both := y.ok(yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{
		{Spec: s, Needed: map[string]yardmaster.Needed{"prep@last": stale, string(prep): stale}},
	}}).(yardmaster.Submitted).Jobs[0]

	if r := y.job(both); !slices.Equal(r.Needs, []id.Job{prep}) {
		t.Errorf("it needs %v, want %s once", r.Needs, prep)
	}

	y.ok(yardmaster.Cancel{Job: prep, By: "alice"})

	if j, err := y.follow(job.AfterAny, stale); err != nil || len(y.job(j).Needs) > 0 {
		t.Errorf("a job that needs the end of one that has ended meanwhile: %v, waits for %v", err, y.job(j).Needs)
	}
}
