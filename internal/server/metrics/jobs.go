package metrics

import (
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// jobs are those that have not ended.
type jobs struct {
	all     map[id.Job]*waiter
	byState map[job.State]int
}

// waiter is a job, and since when it waits if it does.
type waiter struct {
	state     job.State
	since     time.Time
	needs     []id.Job
	notBefore time.Time
	reason    string      // why a quota keeps it out of the queue, "" if none does
	hold      tenant.Hold // the kind of that quota
}

func newJobs() jobs { return jobs{all: map[id.Job]*waiter{}, byState: map[job.State]int{}} }

// load takes a job as the store kept it.
func (j *jobs) load(stored *job.Job) {
	if stored.State.Final() {
		return
	}

	j.all[stored.ID] = &waiter{state: stored.State, since: stored.Since, needs: stored.Needs, notBefore: stored.NotBefore}
	j.byState[stored.State]++
}

// event follows the life of a job: how long it had waited if it was started now, and how
// it ended if it did. Every change of a job's state is an event, also those
// that follow each other within one batch.
func (j *jobs) event(e *yardmaster.Event) (waited time.Duration, started bool, ended job.State) {
	if !strings.HasPrefix(e.Kind, "job.") || e.To == "" {
		return 0, false, ""
	}

	w, ok := j.all[e.Job]
	if !ok {
		w = &waiter{}
		j.all[e.Job] = w
	}

	if e.Kind == "job.held" {
		w.reason, w.hold = e.Reason, e.Hold
		return 0, false, ""
	}

	was, to := w.state, job.State(e.To)
	if was != "" {
		j.byState[was]--
	}

	if to.Final() {
		delete(j.all, e.Job)
		return 0, false, to
	}

	j.byState[to]++

	w.state = to
	switch {
	case to.Waiting() && !was.Waiting():
		w.since = e.At
	case to == job.Starting:
		return e.At.Sub(w.since), true, ""
	}

	return 0, false, ""
}

// changed takes what the events do not say.
func (j *jobs) changed(stored *job.Job) {
	w, ok := j.all[stored.ID]
	if !ok {
		return
	}

	w.needs, w.notBefore = stored.Needs, stored.NotBefore
	if !stored.State.Waiting() || stored.Reason != w.reason {
		w.reason, w.hold = "", ""
	}
}

// line is how it stands with the jobs that wait.
type line struct {
	length  int           // jobs that could start if there were a place
	oldest  time.Duration // how long the first of them has waited
	blocked map[tenant.Hold]int
}

// look counts the jobs in line and those that a limit keeps out of it. One that waits for
// other jobs, or for its time to try again, is neither.
func (j *jobs) look(now time.Time) line {
	l := line{blocked: map[tenant.Hold]int{}}
	for _, w := range j.all {
		switch {
		case !w.state.Waiting():
		case w.hold != "":
			l.blocked[w.hold]++
		case w.notBefore.After(now) || j.blocked(w):
		default:
			l.length++
			l.oldest = max(l.oldest, now.Sub(w.since))
		}
	}

	return l
}

// blocked reports whether a job that this one needs has not ended.
func (j *jobs) blocked(w *waiter) bool {
	for _, n := range w.needs {
		if _, live := j.all[n]; live {
			return true
		}
	}

	return false
}
