package yardmaster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"trainyard/internal/forecast/history"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// finish ends a run whose ranks have all ended, and decides what becomes of its job.
func (y *Yard) finish(r *jobRecord, run *runRecord) {
	cause, rank := run.Verdict()
	run.State, run.Ended, run.Cause = job.RunEnded, y.now, cause
	switch {
	case cause == job.CauseNone:
		run.Reason = "succeeded"
	case run.stopReason != "" && cause == job.CausePreempted:
		run.Reason = run.stopReason
	case cause == job.CauseTimedOut:
		run.Reason = fmt.Sprintf("ran longer than its max_duration of %s", r.Spec.MaxDuration)
	default:
		run.Reason = run.DescribeFailure(cause, rank)
	}

	if cause == job.CauseNone {
		y.rememberDuration(r, run)
	}

	done := r.Done
	recordWork(y.now, &r.Job, &run.Run, r.running, cause, run.stopOrdered, y.cfg.AssumeSaved)
	y.creditRun(r, run, cause, done)
	y.running.remove(r.running)

	r.running = nil
	if y.limited() {
		y.commit(r)
		y.requeueHeld()
	}

	y.changedRun(run)
	delete(y.runs, run.ID)
	y.timers.Stop(run.timeout)
	y.endGang(run)
	y.endPreparation(run)
	y.endLoan(run)
	r.Suspended = time.Time{}
	r.ExitCode = rank.ExitCode
	y.event(
		Event{Kind: "run.ended", Actor: "node/" + string(rank.Node), Owner: r.Owner, Job: r.ID, Run: run.ID, Node: rank.Node,
			To: string(cause), Reason: run.Reason},
	)

	y.learnMemory(r, run, cause, rank)
	y.decideNext(r, run, cause, rank)
	y.leaveRun(r, run, cause)
	r.run = nil
	y.updateSaved(r)

	if !r.State.Final() && (r.observed != nil || r.outlook.Ran > 0) {
		y.changedObserved(r)
	}
}

// rememberDuration records how long a run that succeeded took, as it would have on what its job asks for. A run that
// continued from a checkpoint is only a part of its job, and tells nothing.
func (y *Yard) rememberDuration(r *jobRecord, run *runRecord) {
	if run.Started.IsZero() || r.running == nil || run.Epoch > 1 && r.outlook.Resumes {
		return
	}

	need := &r.running.Shape.Need
	kin := queue.Kin{User: r.Owner, Program: y.programOf(r.Spec), GPUs: need.GPUs * need.Nodes}
	added, forgotten := y.past.Add(kin, job.Seconds(run.Worked(y.now).Seconds()*r.running.Pace))

	if added.Number > 0 {
		y.pastRuns = append(y.pastRuns, added)
	}

	y.pastForgotten = append(y.pastForgotten, forgotten...)
}

// maxPrograms bounds how many commands are remembered with what they run.
const maxPrograms = 4096

// programOf returns what a job runs, as jobs are compared by it.
func (y *Yard) programOf(s *job.Spec) queue.Program {
	program, known := y.programs[s.Run]
	if !known {
		program = history.ProgramOf(s.Run)
		if y.programs == nil || len(y.programs) >= maxPrograms {
			y.programs = map[string]history.Program{}
		}

		y.programs[s.Run] = program
	}

	name := history.PlainName(s.Name)
	if program.Words == "" {
		return queue.Program{}
	}

	return queue.Program{Key: name + ": " + program.Words, Label: cmp.Or(program.Name, name)}
}

// next decides by the failure catalogue what becomes of a job whose run has ended.
func (y *Yard) decideNext(r *jobRecord, run *runRecord, cause job.Cause, rank *job.Rank) {
	r.Cause = cause
	requested := cause == run.StopFor && (cause == job.CauseCancelled || cause == job.CausePreempted)
	switch {
	case cause == job.CauseNone:
		y.must(y.moveJob(r, job.EventSucceed, theYard, "succeeded"))
		return
	case r.State == job.Cancelling && (requested || cause != job.CauseUserCode):
		r.Cause = job.CauseCancelled
		y.must(y.moveJob(r, job.EventStopped, theYard, r.Reason)) // who cancelled or killed it
		return
	case r.State == job.Pausing && (requested || cause != job.CauseUserCode):
		r.Cause = job.CauseNone
		y.must(y.moveJob(r, job.EventStopped, theYard, r.Reason)) // who paused it, or which budget is used up
		return
	case !r.State.Live() || r.State == job.Cancelling || r.State == job.Pausing:
		y.must(y.moveJob(r, job.EventFail, theYard, run.Reason))
		return
	}

	if run.newestEpoch > 0 && cause == job.CauseLaunchFailed {
		y.skipEpochs(r, run)
		return
	}

	if run.corrupt && cause == job.CauseRestoreFailed {
		y.retry(r, job.Handling{}, cause, run.Reason, false) // from the checkpoint before; no try is lost
		return
	}

	if run.reclaim != nil && cause == job.CauseNodeLost {
		y.retry(r, job.Handling{}, cause, run.Reason, false) // the notice was too short; that is not the job's fault
		return
	}

	h, _ := job.HandlingOf(cause)
	r.Tried = bump(r.Tried, cause)

	limit := h.Limit
	switch h.Next {
	case job.NextRetry:
		limit = r.Spec.Retry
	case job.NextEscalate:
		limit = r.Spec.Attempts(&h)
	case job.NextElsewhere, job.NextRequeue, job.NextGiveUp:
	}

	again := h.Next == job.NextRequeue || h.Next != job.NextGiveUp && r.Tried[cause] <= limit

	reason := run.Reason
	if again && h.Next == job.NextEscalate {
		again, reason = y.escalate(r, cause, rank, reason)
	}

	if again && h.Next == job.NextElsewhere {
		y.avoid(r, rank.Node)
	}

	if !again {
		if r.Tried[cause] > 1 {
			reason = fmt.Sprintf(
				"%s (run %d; not retried after %s of this kind)",
				reason,
				run.Epoch,
				humanize.Count(r.Tried[cause], "failure"),
			)
		}

		if !y.holdFailed(r, h, reason) {
			y.must(y.moveJob(r, job.EventFail, theYard, reason))
		}

		return
	}

	y.retry(r, h, cause, reason, run.stoppedByPlan && cause == job.CausePreempted)

	switch h.Next {
	case job.NextEscalate:
		y.ask(r, inbox.MoreMemory)
	case job.NextRequeue:
		y.ask(r, inbox.Preempted)
	case job.NextRetry, job.NextElsewhere, job.NextGiveUp:
	}
}

// closeJob does what remains to be done when a job has reached its final state.
func (y *Yard) closeJob(r *jobRecord) {
	r.Ended = y.now
	y.settleDecisions(r)
	y.forgetObserved(r)
	y.dequeue(r)
	y.countJob(r, -1)
	y.quotas.Done(r.payer())
	y.settleNeeds(r)

	if y.cfg.KeepFinal == 0 {
		y.expired = append(y.expired, r.ID)
		return
	}

	j := r.ID
	y.after(y.now.Add(y.cfg.KeepFinal), func() { y.forget(j) })
}

// settleNeeds queues the jobs that only waited for this one, or cancels them if it did not end as they need it.
func (y *Yard) settleNeeds(r *jobRecord) {
	waiting := y.needed[r.ID]
	delete(y.needed, r.ID)
	for _, j := range waiting {
		d, ok := y.jobs[j]
		if !ok || d.State.Final() {
			continue
		}

		if !d.Spec.Released(r.State) {
			d.Cause = job.CauseNeedFailed
			y.must(y.moveJob(d, job.EventCancel, theYard,
				fmt.Sprintf("required job %s ended with status %s", r.label(), r.Status())))

			continue
		}

		d.pendingNeeds = slices.DeleteFunc(slices.Clone(d.pendingNeeds), func(n id.Job) bool { return n == r.ID })
		y.touch(d)

		if !d.State.Waiting() {
			continue
		}

		left := len(d.pendingNeeds)
		if left > manyNeeds && left%manyNeeds > 0 {
			continue
		}

		d.Reason = "queued"
		if left > 0 {
			d.Reason = needsReason(d.pendingNeeds)
		}

		y.changedJob(d)
		y.wake(d)
	}
}

// manyNeeds is how many jobs a job may need to be stored with the end of each. One that needs a whole array is stored
// with the end of every hundredth until so few are left.
const manyNeeds = 100

// label names a job for people.
func (r *jobRecord) label() string {
	if r.Spec.Name != "" {
		return fmt.Sprintf("%s (%s)", r.ID, r.Spec.Name)
	}

	return string(r.ID)
}

// forget drops an ended job from memory; the store keeps it.
func (y *Yard) forget(j id.Job) {
	r, ok := y.jobs[j]
	if !ok || !r.State.Final() {
		return
	}

	delete(y.jobs, j)
	y.checkpoints.DropPartial(y.now, &r.Job, r.Epoch+1)

	if r.Key != "" {
		delete(y.keys, submitKey{r.Owner, r.Key})
	}
}
