package yardmaster

import (
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Cancel ends a job: gently, or at once with Kill. The answer is the job.
type Cancel struct {
	Job  id.Job
	By   id.User
	Kill bool
}

func (m Cancel) handle(y *Yard) (any, error) {
	r, err := y.find(m.Job)
	if err != nil {
		return nil, err
	}

	mode, reason := job.StopTerm, "cancelled by "+string(m.By)
	if m.Kill {
		mode, reason = job.StopKill, "killed by "+string(m.By)
	}

	if r.State == job.Cancelling { // a second request changes nothing, unless it asks to kill
		if m.Kill && r.run.Stop != job.StopKill {
			y.killCancelled(r, m.By, reason)
		}

		return r.Job, nil
	}

	if r.State.Waiting() || r.State == job.Paused {
		r.Cause = job.CauseCancelled
	}

	if err := y.moveJob(r, job.EventCancel, string(m.By), reason); err != nil {
		return nil, err
	}

	if r.run != nil {
		y.stop(r.run, mode, job.CauseCancelled)
	}

	return r.Job, nil
}

// killCancelled ends a job at once that is being cancelled. Who did that is the reason of its end.
func (y *Yard) killCancelled(r *jobRecord, by id.User, reason string) {
	r.Reason = reason
	y.changedJob(r)
	y.event(Event{
		Kind: "run.stopping", Actor: string(by), Owner: r.Owner, Job: r.ID, Run: r.run.ID,
		Node: r.run.Ranks[0].Node, Reason: reason,
	})
	y.stop(r.run, job.StopKill, job.CauseCancelled)
}

// Pause takes a job off its nodes so that it can be resumed. The answer is the job.
type Pause struct {
	Job id.Job
	By  id.User
}

func (m Pause) handle(y *Yard) (any, error) {
	r, err := y.find(m.Job)
	if err != nil {
		return nil, err
	}
	if r.State == job.Paused || r.State == job.Pausing {
		return r.Job, nil
	}
	if err := y.moveJob(r, job.EventPause, string(m.By), "paused by "+string(m.By)); err != nil {
		return nil, err
	}

	y.dequeue(r)

	if r.run != nil {
		y.stop(r.run, job.StopTerm, job.CausePreempted)
	} else {
		y.suspendDecision(r)
	}

	return r.Job, nil
}

// Resume queues a paused job again. The answer is the job.
type Resume struct {
	Job id.Job
	By  id.User
}

func (m Resume) handle(y *Yard) (any, error) {
	r, err := y.find(m.Job)
	if err != nil {
		return nil, err
	}
	if r.State.Waiting() || r.State == job.Starting || r.State == job.Running {
		return r.Job, nil
	}

	if r.State == job.Pausing {
		return nil, fault.New(fault.Conflict, "job_state", "job %s is still being paused", r.ID).
			WithRemedy("resume it once it is paused")
	}

	reason := "queued"
	if len(r.pendingNeeds) > 0 {
		reason = needsReason(r.pendingNeeds)
	}

	if b := r.Spec.Budget.Amount(); b > 0 && r.Cost-r.Paid >= b {
		r.Paid = r.Cost // its owner lets it spend its budget again
	}

	if err := y.moveJob(r, job.EventResume, string(m.By), "resumed by "+string(m.By)+"; "+reason); err != nil {
		return nil, err
	}

	y.wake(r)

	return r.Job, nil
}

func (y *Yard) find(j id.Job) (*jobRecord, error) {
	r, ok := y.jobs[j]
	if !ok {
		// Finished jobs are dropped from memory after KeepFinal; the store still has them.
		return nil, fault.New(fault.NotFound, "job_not_found", "job %s does not exist or has finished", j)
	}

	return r, nil
}
