package yardmaster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/cron"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// scheduleRecord is a schedule with what is not stored.
type scheduleRecord struct {
	job.Schedule
	batch.Mark
	recurrence cron.Recurrence
	timer      *timers.Timer
}

// maxSchedules bounds how many schedules a user may have at the same time: their specs are kept in memory.
const maxSchedules = 50

// AddSchedule submits the jobs of one file again and again. The answer is a job.Schedule.
type AddSchedule struct {
	Owner   id.User
	Key     string
	KeyHash string
	Every   string
	Overlap job.Overlap
	Jobs    []NewJob
}

func (m AddSchedule) handle(y *Yard) (any, error) {
	if !y.people.MaySubmit(m.Owner) {
		return nil, fault.New(fault.Denied, "user_disabled", "user %s may not submit jobs", m.Owner)
	}
	if len(m.Jobs) == 0 {
		return nil, fault.New(fault.Invalid, "no_jobs", "the submission has no job")
	}

	recurrence, err := job.ParseEvery(m.Every)
	if err != nil {
		return nil, fault.New(fault.Invalid, "bad_value", "every: %v", err).WithField("every")
	}

	active := 0
	for _, s := range sortedKeys(y.schedules) {
		r := y.schedules[s]
		if r.Owner != m.Owner {
			continue
		}

		if m.Key != "" && r.Key == m.Key {
			return y.replaySchedule(r, m.KeyHash)
		}

		if r.Stopped.IsZero() {
			active++
		}
	}

	if active >= maxSchedules {
		return nil, fault.New(fault.OverLimit, "too_many_schedules", "%s has %d schedules, the limit is %d",
			m.Owner, active, maxSchedules).
			WithRemedy("stop some with: trainyard schedules stop")
	}

	r := &scheduleRecord{recurrence: recurrence, Schedule: job.Schedule{
		Owner: m.Owner, Every: m.Every, Overlap: m.Overlap, Key: m.Key, KeyHash: m.KeyHash, Added: y.now,
		Workdir: m.Jobs[0].Workdir, Next: recurrence.Next(y.now),
	}}
	if err := y.checkScheduled(r, m.Jobs); err != nil {
		return nil, err
	}

	y.lastSchedule++
	r.ID = id.NewSchedule(y.lastSchedule)
	y.schedules[r.ID] = r
	y.arm(r)
	y.changedSchedule(r)
	y.event(Event{
		Kind: "schedule.added", Actor: string(m.Owner), Owner: m.Owner, To: string(r.ID),
		Reason: fmt.Sprintf("schedule %s added by %s: %s every %s",
			r.ID, m.Owner, humanize.Count(len(r.Jobs), "job"), r.Every),
	})

	return r.Schedule, nil
}

func (y *Yard) replaySchedule(r *scheduleRecord, hash string) (any, error) {
	if r.KeyHash != hash {
		return nil, fault.New(fault.Conflict, "key_reused",
			"this idempotency key was used for another submission, schedule %s", r.ID).
			WithField("Idempotency-Key").WithRemedy("use a new key for each submission")
	}

	return r.Schedule, nil
}

// checkScheduled enters the jobs of a schedule, as they will be submitted, if they could be submitted now.
func (y *Yard) checkScheduled(r *scheduleRecord, jobs []NewJob) error {
	for i := range jobs {
		s := *jobs[i].Spec
		s.Every, s.Overlap = "", ""

		trial := &jobRecord{Job: job.Job{
			ID: id.NewJob(y.lastJob + 1 + uint64(i)), Owner: r.Owner, Project: id.Project(s.Project), Spec: &s,
			State: job.Pending, Submitted: y.now, Since: y.now,
		}}
		trial.outlook = job.NewOutlook(&trial.Job)

		if err := y.checkNew(trial); err != nil {
			return err
		}

		r.Jobs = append(r.Jobs, &s)
	}

	return nil
}

// arm sets the timer of the next time.
func (y *Yard) arm(r *scheduleRecord) {
	if !r.Next.IsZero() {
		r.timer = y.after(r.Next, func() { y.fire(r) })
	}
}

// fire submits the jobs of a schedule whose time has come. What it stores is one batch: the jobs, and when the next are
// due. So a server that takes over, or starts again, submits them once, whether this one has stored that or not. Of the
// times that were missed the jobs are submitted once.
func (y *Yard) fire(r *scheduleRecord) {
	next := r.recurrence.Next(r.Next)
	for ; !next.IsZero() && !next.After(y.now); next = r.recurrence.Next(next) {
		r.Missed++
	}

	r.Next = next

	unfinished := slices.IndexFunc(r.LastJobs, func(j id.Job) bool {
		d, ok := y.jobs[j]
		return ok && !d.State.Final()
	})

	if unfinished >= 0 && r.Overlap != job.OverlapAllow {
		r.Skipped++
		y.scheduleEvent(r, "schedule.skipped", fmt.Sprintf("nothing submitted: %s of last time has not ended",
			r.LastJobs[unfinished]))
	} else {
		y.submitScheduled(r)
	}

	y.changedSchedule(r)
	y.arm(r)
}

// submitScheduled submits the jobs of a schedule.
func (y *Yard) submitScheduled(r *scheduleRecord) {
	m := Submit{Owner: r.Owner, Jobs: make([]NewJob, len(r.Jobs))}
	for i, s := range r.Jobs {
		m.Jobs[i] = NewJob{Spec: s, Workdir: r.Workdir}
	}

	reply, err := m.handle(y)
	if err != nil {
		r.Problem = err.Error()
		y.scheduleEvent(r, "schedule.failed", "nothing submitted: "+r.Problem)

		return
	}

	submitted, _ := reply.(Submitted)
	r.Last, r.LastJobs, r.Problem = y.now, submitted.Jobs, ""
	r.Submitted++

	names := make([]string, len(submitted.Jobs))
	for i, j := range submitted.Jobs {
		names[i] = string(j)
	}

	y.scheduleEvent(r, "schedule.submitted", humanize.ListUpTo(maxListed, names...)+" submitted")
}

// maxListed bounds how many jobs an event names.
const maxListed = 5

func (y *Yard) scheduleEvent(r *scheduleRecord, kind, reason string) {
	y.event(Event{
		Kind: kind, Actor: theYard, Owner: r.Owner, To: string(r.ID), Reason: fmt.Sprintf("schedule %s: %s", r.ID, reason),
	})
}

// StopSchedule ends a schedule. What it submitted goes on. The answer is the schedule.
type StopSchedule struct {
	Schedule id.Schedule
	By       id.User
}

func (m StopSchedule) handle(y *Yard) (any, error) {
	r, ok := y.schedules[m.Schedule]
	if !ok {
		return nil, ScheduleNotFound(m.Schedule)
	}
	if !r.Stopped.IsZero() {
		return r.Schedule, nil
	}

	y.timers.Stop(r.timer)
	r.Next, r.Stopped, r.StoppedBy = time.Time{}, y.now, m.By
	y.changedSchedule(r)
	y.event(Event{
		Kind: "schedule.stopped", Actor: string(m.By), Owner: r.Owner, To: string(r.ID),
		Reason: fmt.Sprintf("schedule %s stopped by %s", r.ID, m.By),
	})

	return r.Schedule, nil
}

// ScheduleNotFound is the error for a schedule that is not there.
func ScheduleNotFound(s id.Schedule) error {
	return fault.New(fault.NotFound, "schedule_not_found", "schedule %s not found", s).
		WithRemedy("list schedules with: trainyard schedules")
}

// Schedules returns all schedules by number.
func (y *Yard) Schedules() []job.Schedule {
	list := make([]job.Schedule, 0, len(y.schedules))
	for _, r := range y.schedules {
		list = append(list, r.Schedule)
	}

	slices.SortFunc(list, func(a, b job.Schedule) int {
		m, _ := a.ID.Number()
		n, _ := b.ID.Number()

		return cmp.Compare(m, n)
	})

	return list
}

// ScheduledWorkdirs returns the manifests of the working directories that schedules need.
func (y *Yard) ScheduledWorkdirs() []string {
	var list []string
	for _, s := range sortedKeys(y.schedules) {
		if r := y.schedules[s]; r.Stopped.IsZero() && r.Workdir != "" {
			list = append(list, r.Workdir)
		}
	}

	return list
}

// loadSchedules restores the schedules. One whose time has come meanwhile submits with the next tick.
func (y *Yard) loadSchedules(list []job.Schedule) {
	for i := range list {
		r := &scheduleRecord{Schedule: list[i]}
		var err error
		r.recurrence, err = job.ParseEvery(r.Every)
		y.must(err)

		number, _ := r.ID.Number()
		y.lastSchedule = max(y.lastSchedule, number)
		y.schedules[r.ID] = r
		y.arm(r)
	}
}

func (y *Yard) changedSchedule(r *scheduleRecord) {
	r.Seq++
	y.changedSchedules.Add(r)
}
