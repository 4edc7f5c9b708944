package yardmaster

import (
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// RequestSave asks the program of a running job to save a checkpoint now and to continue. The answer is the job.
type RequestSave struct {
	Job id.Job
	By  id.User
}

func (m RequestSave) handle(y *Yard) (any, error) {
	r, err := y.find(m.Job)
	if err != nil {
		return nil, err
	}

	switch {
	case r.State != job.Running:
		return nil, fault.New(fault.Conflict, "job_state", "job %s is %s and cannot save a checkpoint", r.ID, r.State).
			WithRemedy("ask it while it is running")
	case r.run.Stop != job.StopNone:
		return nil, fault.New(fault.Conflict, "job_state", "job %s is being stopped, and saves a checkpoint before it ends",
			r.ID)
	}

	y.requestSave(r, string(m.By), "asked to save a checkpoint by "+string(m.By))

	return r.Job, nil
}

// requestSave asks all ranks of a run to save a checkpoint and to continue.
func (y *Yard) requestSave(r *jobRecord, actor, reason string) {
	for i := range r.run.Ranks {
		y.orders.RequestSave(r.run.ID, i)
	}

	y.event(Event{
		Kind:   "run.save_requested",
		Actor:  actor,
		Owner:  r.Owner,
		Job:    r.ID,
		Run:    r.run.ID,
		Node:   r.run.Ranks[0].Node,
		Reason: reason,
	})
}
