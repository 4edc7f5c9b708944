package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Jobs that people work in are stopped when they are idle. What counts is what the agents report: a node that does not
// report may be in use, so no timer stops a job.

// idleJitter is by how much the time since which a rank is idle may seem to vary: agents report whole seconds, and
// reports take their time.
const idleJitter = 3 * time.Second

// idleness is how long a run of an interactive job has been idle, as far as it is known.
type idleness struct {
	since []time.Time // by rank; zero if its agent has not said
	stop  time.Time   // when the job is stopped unless it is used; zero if its owner was not warned
}

// watchIdle takes in for how long a rank of an interactive job was idle. It warns the owner of a job that is about to
// be stopped, and stops it.
func (y *Yard) watchIdle(r *jobRecord, run *runRecord, rep *RankReport) {
	i := r.Spec.Interactive
	if i == nil || rep.Idle == nil || r.State != job.Running || run.Stop != job.StopNone || run.Suspended() {
		return
	}

	limit := time.Duration(i.Idle)
	idle := limit
	if *rep.Idle < int64(limit/time.Second) {
		idle = time.Duration(*rep.Idle) * time.Second
	}

	since, known := run.idle.note(len(run.Ranks), rep.Rank, y.now.Add(-idle))
	if !known {
		return
	}

	left := since.Add(limit).Sub(y.now)

	switch warned := !run.idle.stop.IsZero(); {
	case left > i.Warning()+idleJitter && warned: // it is used again
		run.idle.stop = time.Time{}
		y.touch(r)
	case left <= i.Warning() && !warned:
		// After a restart of the server it may be due already, and its owner is warned all the same.
		run.idle.stop = y.now.Add(max(left, i.Warning()))
		y.touch(r)
		y.event(Event{
			Kind: "job.idle", Actor: theYard, Owner: r.Owner, Job: r.ID, Run: run.ID,
			Reason: idleWords(run.idle.stop, y.now),
		})
	case left <= 0 && !run.idle.stop.After(y.now):
		y.must(y.moveJob(r, job.EventCancel, theYard, fmt.Sprintf("idle for %s", i.Idle)))
		y.stop(run, job.StopTerm, job.CauseCancelled)
	}
}

// note records since when a rank is idle, and returns since when all are. It reports false if that is not known of
// each.
func (d *idleness) note(ranks, rank int, since time.Time) (time.Time, bool) {
	if d.since == nil {
		d.since = make([]time.Time, ranks)
	}

	if known := d.since[rank]; known.IsZero() || since.After(known.Add(idleJitter)) {
		d.since[rank] = since
	}

	var last time.Time
	for _, at := range d.since {
		if at.IsZero() {
			return time.Time{}, false
		}

		if at.After(last) {
			last = at
		}
	}

	return last, true
}

// idleWords is what the owner of a job that is about to be stopped is told.
func idleWords(stop, now time.Time) string {
	return fmt.Sprintf("idle; it will be stopped at %s unless it is used", humanize.Time(stop, now.UTC()))
}
