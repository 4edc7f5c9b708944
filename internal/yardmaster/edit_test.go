package yardmaster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// plain is a spec as the parser makes it.
func plain(gpus int) *job.Spec {
	s := spec(gpus)
	s.Objective, s.Grace = job.ObjectiveBalanced, job.Duration(30*time.Second)

	return s
}

func (y *yard) edit(j id.Job, by id.User, set ...string) (job.Job, error) {
	y.t.Helper()
	reply, err := y.Step(y.now, yardmaster.Edit{Job: j, By: by, Set: set})
	changed, _ := reply.(job.Job)

	return changed, err
}

// Newcomer (c) 9: a job that waits is changed in place, and starts by what it is now.
func TestAQueuedJobIsEdited(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 4)
	y.node("b", 2)

	first := y.submit("alice", plain(8))  // no node has so many
	second := y.submit("alice", plain(9)) // nor this one
	y.Round(y.now)
	y.Take()
	y.now = y.now.Add(time.Minute)

	changed, err := y.edit(first, "alice", "resources.gpus=2", "priority=7", "avoid=a", "objective=time", "expect=2h",
		"deadline=2030-01-01T00:00:00Z", "late_cost=$2")
	if err != nil {
		t.Fatal(err)
	}

	s := changed.Spec
	if s.Resources.GPUs != (job.Range{Min: 2, Max: 2}) || s.Priority != 7 || s.Objective != job.ObjectiveTime ||
		s.Expect != job.Duration(2*time.Hour) || s.Deadline == nil || !slices.Equal(s.Avoid, []string{"a"}) {
		t.Errorf("edited spec %+v", s)
	}

	y.Round(y.now)
	b := y.Take()

	if len(b.Orders) != 1 || b.Orders[0].Node != "b" || b.Orders[0].Job != first {
		t.Fatalf("orders %+v, want %s on b, the node that it does not avoid", b.Orders, first)
	}

	at := slices.IndexFunc(b.Events, func(e yardmaster.Event) bool { return e.Kind == "job.edited" })
	if at < 0 {
		t.Fatalf("no job.edited in %+v", b.Events)
	}

	e := b.Events[at]
	const want = "edited by alice: resources.gpus from 8 to 2, avoid from nothing to a, objective from balanced to time, " +
		"priority from 0 to 7, expect from nothing to 2h, deadline from nothing to 2030-01-01T00:00:00Z, " +
		"late_cost from nothing to $2"
	if e.Actor != "alice" || e.Job != first || e.To != "" || e.Reason != want {
		t.Errorf("event %+v, want %q", e, want)
	}

	if _, err := y.edit(second, "alice", "priority=0"); err != nil { // as it is
		t.Error(err)
	}

	if b := y.Take(); len(b.Events) > 0 || len(b.Jobs) > 0 {
		t.Errorf("an edit that changes nothing stores %+v, %+v", b.Events, b.Jobs)
	}
}

func TestEditsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.RefuseImpossible = true
	cfg.Caps = tenant.Caps{Role: map[tenant.Role]int{tenant.Researcher: 50}} //nolint:exhaustive // of those in the test
	y := newYardOf(t, cfg)
	y.ok(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "alice"})
	y.node("a", 2)

	running := y.submit("ada", plain(2))
	queued := y.submit("ada", plain(2))
	y.Round(y.now)

	for _, tt := range []struct {
		job  id.Job
		by   id.User
		set  string
		code string
	}{
		{running, "ada", "priority=1", "job_state"},
		{"j99", "ada", "priority=1", "job_not_found"},
		{queued, "ada", "run=evil", "not_editable"},
		{queued, "ada", "env.A=1", "not_editable"},
		{queued, "ada", "priority=101", "bad_value"},
		{queued, "ada", "resources.gpu5=1", "unknown_key"},
		{queued, "ada", "deadline=2001-01-01T00:00:00Z", "bad_value"},
		{queued, "ada", "resources.gpus=3", "nothing_fits"},
		{queued, "ada", "nodes=b", "nothing_fits"},
		{queued, "ada", "priority=60", "priority_too_high"},
		{queued, "ada", "priority", "bad_assignment"},
	} {
		_, err := y.edit(tt.job, tt.by, tt.set)
		if got := codeOf(err); got != tt.code {
			t.Errorf("%s of %s: %v (%s), want %s", tt.set, tt.job, err, got, tt.code)
		}
	}

	if _, err := y.edit(queued, "ada"); codeOf(err) != "no_change" {
		t.Errorf("an edit of nothing: %v", err)
	}

	// An admin may give it more than its owner could.
	if changed, err := y.edit(queued, "alice", "priority=60"); err != nil || changed.Spec.Priority != 60 {
		t.Errorf("priority %d, %v", changed.Spec.Priority, err)
	}

	if changed, err := y.edit(queued, "ada", "expect=1h"); err != nil || changed.Spec.Priority != 60 {
		t.Errorf("its owner cannot change anything else then: %v", err)
	}
}

// A job that a quota holds is queued when an edit makes it small enough, and a paused one keeps what was edited.
func TestHeldAndPausedJobsAreEdited(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8)
	y.quota(tenant.Quota{GPUs: 2})

	held := y.submit("alice", plain(4))
	paused := y.submit("alice", plain(1))
	y.ok(yardmaster.Pause{Job: paused, By: "alice"})
	y.Round(y.now)

	if b := y.Take(); len(b.Orders) > 0 {
		t.Fatalf("orders %+v in spite of the quota", b.Orders)
	}

	if _, err := y.edit(paused, "alice", "nodes=a", "priority=9"); err != nil {
		t.Fatal(err)
	}

	changed, err := y.edit(held, "alice", "resources.gpus=1")
	if err != nil {
		t.Fatal(err)
	}

	if strings.Contains(changed.Reason, "quota") {
		t.Errorf("reason %q after the edit", changed.Reason)
	}

	y.ok(yardmaster.Resume{Job: paused, By: "alice"})
	y.Round(y.now)

	b := y.Take()
	if len(b.Orders) != 2 || b.Orders[0].Job != paused {
		t.Errorf("orders %+v, want both, the one with the higher priority first", b.Orders)
	}
}

// A queued job whose GPUs are still to be released is edited like another: it goes back to the queue.
func TestAJobWhoseStartIsPromisedIsEdited(t *testing.T) {
	t.Parallel()
	y, p := scripted(t)
	y.submit("alice", elastic())
	y.plan(p, func(v *place.View) place.Plan { return startOn(v, "a", 0b1) })
	y.runs("a", "j1.1")

	urgent := y.submit("alice", plain(4))
	y.plan(p, func(v *place.View) place.Plan {
		plan := startOn(v, "a", 0b1111)
		plan.Stops = []place.Stop{{Running: v.Running[0], Reason: "preempted"}}

		return plan
	})

	if n := yardmaster.PromiseCount(y.Yard); n != 1 {
		t.Fatalf("%d promises, want that of %s", n, urgent)
	}

	if _, err := y.edit(urgent, "alice", "resources.gpus=2"); err != nil {
		t.Fatal(err)
	}

	y.check()
	y.stops("a", "j1.1")

	b := y.plan(p, func(v *place.View) place.Plan {
		plan := startOn(v, "a", 0b11)
		plan.Starts = slices.DeleteFunc(plan.Starts, func(s place.Start) bool { return s.Item.Job != urgent })

		return plan
	})
	if len(b.Orders) != 1 || b.Orders[0].Job != urgent {
		t.Errorf("orders %+v, want that of %s", b.Orders, urgent)
	}
}

// TestAnEditKeepsTheRest: what the job needs, and its time in the queue.
func TestAnEditKeepsTheRest(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := y.submit("alice", plain(1))
	second := y.submit("alice", plain(1))
	third, err := y.follow("", yardmaster.Needed{Job: first, State: job.Pending})
	if err != nil {
		t.Fatal(err)
	}

	y.now = y.now.Add(time.Hour)

	if _, err := y.edit(first, "alice", "expect=2h"); err != nil {
		t.Fatal(err)
	}

	changed, err := y.edit(third, "alice", "expect=2h")
	if err != nil {
		t.Fatal(err)
	}

	if !slices.Equal(changed.Spec.Needs, []string{"prep@last"}) || !slices.Equal(changed.Needs, []id.Job{first}) {
		t.Errorf("after the edit it needs %v, %v", changed.Spec.Needs, changed.Needs)
	}

	items := y.View(y.now).Queue.Items()
	if len(items) != 2 || items[0].Job != first || !items[0].Since.Equal(items[1].Since) || items[1].Job != second {
		t.Errorf("queued are %+v, want %s first, since its submission", items, first)
	}
}

// TestAnEditedDeadlineIsPlannedFor, and one that has passed does not keep its job from other changes.
func TestAnEditedDeadlineIsPlannedFor(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	j := y.submit("alice", plain(1))

	if _, err := y.edit(j, "alice", "deadline=2026-11-15T12:00:00Z", "late_cost=$36"); err != nil {
		t.Fatal(err)
	}

	due := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	if o := y.View(y.now).Queue.Items()[0].Outlook; !o.Deadline.Equal(due) || o.LateCost.PerHour() != 36 {
		t.Errorf("plans know the deadline %s and $%g an hour", o.Deadline, o.LateCost.PerHour())
	}

	y.now = due.Add(time.Hour)

	if _, err := y.edit(j, "alice", "priority=3"); err != nil {
		t.Errorf("after its deadline: %v", err)
	}
}

// TestAnEditIsNotOneMoreJob: a user may have two jobs.
func TestAnEditIsNotOneMoreJob(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.MaxJobs = 2
	y := newYardOf(t, cfg)
	first := y.submit("alice", plain(1))

	for _, set := range []string{"priority=1", "priority=2", "expect=1h"} {
		if _, err := y.edit(first, "alice", set); err != nil {
			t.Fatal(err)
		}
	}

	y.submit("alice", plain(1))
}

// TestAnEditKeepsWhatIsProvisionedForTheJob, unless the job needs something else now.
func TestAnEditKeepsWhatIsProvisionedForTheJob(t *testing.T) {
	t.Parallel()
	y := provisioningYard(t)

	for _, tt := range []struct{ set, leases string }{
		{"priority=7", "l1 requested, l2 requested, l3 requested"},
		{"resources.memory=1GB", "l1 releasing, l2 releasing, l3 releasing"},
	} {
		if _, err := y.edit("j1", "alice", tt.set); err != nil {
			t.Fatal(err)
		}

		if got := y.leases(); got != tt.leases {
			t.Errorf("after %s the leases are %q, want %q", tt.set, got, tt.leases)
		}
	}
}

// TestAnEditOfTheGPUIsOneOfTheRunTime: what the owner expects is for the GPU that the job asks for.
func TestAnEditOfTheGPUIsOneOfTheRunTime(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.gpuNode("a", "V100", 4)
	y.gpuNode("b", "T4", 2)
	j := y.submit("alice", expecting(1))

	for _, tt := range []struct{ set, want string }{{"priority=1", "V100"}, {"resources.gpu=T4", "T4"}} {
		changed, err := y.edit(j, "alice", tt.set)
		if err != nil || changed.Reference.GPU != tt.want {
			t.Errorf("after %s it takes an hour on %+v, want on %s (%v)", tt.set, changed.Reference, tt.want, err)
		}
	}
}

// TestAJobThatNoNodeCanRunAnyMoreIsEdited: that its nodes have left is no obstacle to changes of something else.
func TestAJobThatNoNodeCanRunAnyMoreIsEdited(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.RefuseImpossible = true
	y := newYardOf(t, cfg)
	y.node("a", 2)
	y.node("b", 1)
	j := y.submit("alice", plain(2))
	y.ok(yardmaster.RemoveNode{Node: "a", By: "alice"})

	if _, err := y.edit(j, "alice", "priority=3"); err != nil {
		t.Errorf("its priority cannot be changed: %v", err)
	}

	if _, err := y.edit(j, "alice", "resources.gpus=3"); codeOf(err) != "nothing_fits" {
		t.Errorf("it was given more GPUs than any node has: %v", err)
	}
}
