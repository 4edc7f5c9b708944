package yardmaster

import (
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// promise is a start whose GPUs are not free yet, because runs that the same plan stops still hold them, or because
// its own job is still stopping or saves a checkpoint before it does. They are booked for it, and it is launched
// when the last of them is free. A promise is not stored: after a restart the job is queued like any other.
type promise struct {
	job   *jobRecord
	start place.Start
	run   id.Run // id of its future run
}

// promise books the allocations of a start that cannot be launched yet.
func (y *Yard) promise(r *jobRecord, s *place.Start) {
	y.dequeue(r)
	need := &s.Item.Shape.Need

	p := &promise{job: r, start: *s, run: id.NewRun(r.ID, r.Epoch+1)}
	for _, allocation := range s.Allocations {
		y.nodes.Rooms.Book(
			allocation.Node,
			fleet.Hold{
				Run:    p.run,
				Job:    r.ID,
				Owner:  r.Owner,
				GPUs:   allocation.GPUs,
				Share:  allocation.Share,
				CPUs:   need.CPUs,
				Memory: need.Memory,
				Cap:    need.Cap,
				Class:  need.Class,
				Limit:  need.Limit,
				MPS:    need.MPS,

				Program: s.Item.Program.Key,
			},
		)
	}

	if s.Counterfactual != nil && (r.run == nil || r.run.move == nil) {
		y.decide(r, s.Counterfactual, decided{awaited: true})
		p.start.Counterfactual = nil
	}

	r.promise = p
	y.touch(r)
	y.promises = append(y.promises, p)
	y.promisesDue = true
	y.reserveGPUs(r)
}

// unpromise releases the allocations that are booked for a job.
func (y *Yard) unpromise(r *jobRecord) {
	p := r.promise
	if p == nil {
		return
	}

	r.promise = nil
	y.touch(r)
	y.promises = slices.DeleteFunc(y.promises, func(o *promise) bool { return o == p })
	for _, allocation := range p.start.Allocations {
		y.nodes.Rooms.Release(allocation.Node, p.run)
	}

	y.reserveGPUs(r)
}

// fulfil launches the promised starts that have become possible, and drops those that never
// will be.
func (y *Yard) fulfil() {
	for repeat := true; repeat; {
		repeat = false

		for _, p := range y.promises {
			ready, possible := y.ready(p)
			if possible && !ready {
				continue
			}

			repeat = true

			if r := p.job; r.run != nil && r.run.move != nil { // it is not ready before the run has ended
				y.abandonMove(r, y.unavailable(p))
				break
			}

			y.unpromise(p.job)

			if ready {
				y.launch(p.job, &p.start)
			} else {
				y.planDue = true
				if p.job.State.Waiting() {
					y.wake(p.job)
				}
			}

			break // the list has changed
		}
	}

	y.promisesDue = false
}

// ready reports whether a promised start can be launched, and whether it may ever be.
func (y *Yard) ready(p *promise) (ready, possible bool) {
	ready, possible = y.nodes.CheckPromise(
		&p.start,
		y.data.Place(&p.job.Job),
		func(run id.Run) (live, leaving bool) {
			r := y.runs[run]

			return r != nil, r != nil && (r.Stop != job.StopNone || r.move != nil || y.suspending(r))
		},
	)

	return ready && p.job.State.Waiting(), possible
}

// stopPlanned takes a job off its nodes because a plan says so.
func (y *Yard) stopPlanned(r *jobRecord, s *place.Stop) {
	run := r.run

	run.stoppedByPlan, run.stopReason = true, s.Reason
	r.running.Stopping = true
	r.Stops++
	r.outlook.Stops = r.Stops
	y.changedJob(r)
	y.stop(run, job.StopTerm, job.CausePreempted)

	y.event(
		Event{
			Kind:   "run.stopping",
			Actor:  theYard,
			Owner:  r.Owner,
			Job:    r.ID,
			Run:    run.ID,
			Node:   run.Ranks[0].Node,
			Reason: s.Reason,
		},
	)
}
