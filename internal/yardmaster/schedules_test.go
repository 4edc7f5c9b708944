package yardmaster_test

import (
	"slices"
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (y *yard) schedule(every string, overlap job.Overlap) job.Schedule {
	y.t.Helper()
	s := plain(1)
	s.Name, s.Every, s.Overlap = "nightly", every, overlap

	return y.ok(yardmaster.AddSchedule{
		Owner: "alice", Every: every, Overlap: overlap, Jobs: []yardmaster.NewJob{{Spec: s, Workdir: "abc"}},
	}).(job.Schedule)
}

func (y *yard) schedules() job.Schedule {
	y.t.Helper()

	list := y.Schedules()
	if len(list) != 1 {
		y.t.Fatalf("%d schedules", len(list))
	}

	return list[0]
}

// Newcomer (c) 17: a schedule submits at its times, and not while jobs of last time run.
func TestAScheduleSubmitsJobs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	added := y.schedule("1h", "")

	if added.ID != "s1" || !added.Next.Equal(start.Add(time.Hour)) {
		t.Fatalf("added %+v", added)
	}

	y.pass(59 * time.Minute)

	if s := y.schedules(); s.Submitted != 0 {
		t.Fatalf("submitted before its time: %+v", s)
	}

	y.pass(time.Minute)

	s := y.schedules()
	if s.Submitted != 1 || len(s.LastJobs) != 1 || s.LastJobs[0] != "j1" || !s.Next.Equal(start.Add(2*time.Hour)) {
		t.Fatalf("at its time: %+v", s)
	}

	first := y.job("j1")
	if first.Owner != "alice" || first.Spec.Name != "nightly" || first.Spec.Every != "" || first.Workdir != "abc" {
		t.Errorf("submitted %+v, %+v", first, first.Spec)
	}

	y.pass(time.Hour) // j1 is still queued

	if s := y.schedules(); s.Skipped != 1 || s.Submitted != 1 {
		t.Errorf("while j1 waits: %+v", s)
	}

	y.ok(yardmaster.Cancel{Job: "j1", By: "alice"})
	y.pass(time.Hour)

	if s := y.schedules(); s.Submitted != 2 || s.LastJobs[0] != "j2" {
		t.Errorf("after j1 has ended: %+v", s)
	}

	y.ok(yardmaster.StopSchedule{Schedule: "s1", By: "alice"})
	y.pass(10 * time.Hour)

	if s := y.schedules(); s.Submitted != 2 || !s.Next.IsZero() || s.StoppedBy != "alice" {
		t.Errorf("after it was stopped: %+v", s)
	}

	if _, ok := yardmaster.JobOf(y.Yard, "j3"); ok {
		t.Error("a stopped schedule submitted a job")
	}

	if _, err := y.Step(y.now, yardmaster.StopSchedule{Schedule: "s9", By: "alice"}); codeOf(err) != "schedule_not_found" {
		t.Errorf("stopped a schedule that is not there: %v", err)
	}
}

// Times that no server was there for are made up for once, and the jobs are submitted once, whether the server that
// submitted them stored that or not.
func TestAScheduleSurvivesRestarts(t *testing.T) {
	t.Parallel()

	for name, stored := range map[string]bool{"a server that stored what it did": true, "a server that did not": false} {
		y := newYard(t)
		y.schedule("0 * * * *", job.OverlapAllow)
		b := y.Take()

		y.pass(time.Hour)

		if due := y.Take(); stored {
			if len(due.Jobs) != 1 || len(due.Schedules) != 1 {
				t.Fatalf("the jobs and the next time are not stored together: %+v", due)
			}

			b.Jobs, b.Schedules = due.Jobs, due.Schedules
		}

		// The next server, three and a half hours later.
		next := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: start.Add(270 * time.Minute)}
		last := uint64(len(b.Jobs))
		next.Load(next.now, yardmaster.State{Users: b.Users, Jobs: b.Jobs, Schedules: b.Schedules, LastJob: last})
		next.ok(yardmaster.Tick{})
		next.ok(yardmaster.Tick{})

		s := next.schedules()
		want := job.Schedule{Submitted: 1, Missed: 3, LastJobs: []id.Job{"j1"}} // one of 10:00 to 13:00 is made up for
		if stored {
			want = job.Schedule{Submitted: 2, Missed: 2, LastJobs: []id.Job{"j2"}}
		}

		if s.Submitted != want.Submitted || s.Missed != want.Missed || s.LastJobs[0] != want.LastJobs[0] ||
			!s.Next.Equal(start.Add(5*time.Hour)) {
			t.Errorf("%s: %+v, want %+v", name, s, want)
		}

		if added := next.schedule("6h", ""); added.ID != "s2" {
			t.Errorf("%s: the next schedule is %s", name, added.ID)
		}
	}
}

func TestASubmissionOfAScheduleIsRepeated(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	m := yardmaster.AddSchedule{
		Owner: "alice", Key: "k", KeyHash: "h", Every: "1h", Jobs: []yardmaster.NewJob{{Spec: plain(1)}},
	}
	first := y.ok(m).(job.Schedule)

	if again := y.ok(m).(job.Schedule); again.ID != first.ID {
		t.Errorf("the same submission added %s and %s", first.ID, again.ID)
	}

	m.KeyHash = "other"
	if _, err := y.Step(y.now, m); codeOf(err) != "key_reused" {
		t.Errorf("another submission with the same key: %v", err)
	}
}

// What cannot be submitted is tried again at the next time.
func TestAScheduleSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.MaxJobs = 1
	y := newYardOf(t, cfg)
	y.schedule("1h", job.OverlapAllow)
	j := y.submit("alice", plain(1))
	y.pass(time.Hour)

	if s := y.schedules(); s.Problem == "" || s.Submitted != 0 {
		t.Errorf("with too many jobs: %+v", s)
	}

	y.ok(yardmaster.Cancel{Job: j, By: "alice"})
	y.pass(time.Hour)

	if s := y.schedules(); s.Problem != "" || s.Submitted != 1 {
		t.Errorf("after there was room: %+v", s)
	}
}

func TestSchedulesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(ordered.FIFO{})
	cfg.RefuseImpossible = true
	y := newYardOf(t, cfg)
	y.node("a", 1)
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "alice"})

	add := func(owner id.User, gpus int) error {
		_, err := y.Step(y.now, yardmaster.AddSchedule{
			Owner: owner, Every: "1h", Jobs: []yardmaster.NewJob{{Spec: plain(gpus)}},
		})

		return err
	}

	if err := add("alice", 2); codeOf(err) != "nothing_fits" {
		t.Errorf("a schedule of a job that no node can run: %v", err)
	}

	const most = 50
	for range most {
		if err := add("bob", 1); err != nil {
			t.Fatal(err)
		}
	}

	if err := add("bob", 1); codeOf(err) != "too_many_schedules" {
		t.Errorf("one more than %d schedules: %v", most, err)
	}

	if err := add("alice", 1); err != nil {
		t.Errorf("the schedules of another user count: %v", err)
	}

	y.ok(yardmaster.StopSchedule{Schedule: "s1", By: "bob"})

	if err := add("bob", 1); err != nil {
		t.Errorf("a stopped schedule counts: %v", err)
	}

	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, Disabled: true, By: "alice"})
	y.ok(yardmaster.StopSchedule{Schedule: "s2", By: "alice"})

	if err := add("bob", 1); codeOf(err) != "user_disabled" {
		t.Errorf("a schedule of a disabled user: %v", err)
	}
}

// TestAStoppedScheduleNeedsNothing: its files may be removed, and to stop it again changes nothing.
func TestAStoppedScheduleNeedsNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.schedule("1h", "")

	if got := y.ScheduledWorkdirs(); !slices.Equal(got, []string{"abc"}) {
		t.Errorf("working directories of schedules: %q", got)
	}

	y.ok(yardmaster.StopSchedule{Schedule: "s1", By: "alice"})
	y.Take()
	y.now = y.now.Add(time.Minute)

	if again := y.ok(yardmaster.StopSchedule{Schedule: "s1", By: "bob"}).(job.Schedule); again.StoppedBy != "alice" {
		t.Errorf("stopped by %s, want alice", again.StoppedBy)
	}

	if b := y.Take(); len(b.Schedules)+len(b.Events) > 0 {
		t.Errorf("stopped again: %+v, %+v", b.Schedules, b.Events)
	}

	if got := y.ScheduledWorkdirs(); len(got) > 0 {
		t.Errorf("working directories of schedules: %q", got)
	}
}
