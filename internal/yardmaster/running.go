package yardmaster

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// expectedEnd returns when a run is expected to end: by the forecast, else by the remaining work at its
// rate, else by how long such a run takes on its nodes. Zero if that is unknown.
func expectedEnd(now time.Time, s *job.Spec, run *job.Run, rn *place.Running) time.Time {
	limit := time.Time{}
	if s.MaxDuration > 0 && !run.Started.IsZero() {
		limit = run.WorkingSince().Add(time.Duration(s.MaxDuration))
	}

	if f := rn.Outlook.Forecast; f != nil && f.Informed() && !run.Started.IsZero() && f.At.After(run.Started) {
		end := earlier(f.End(), limit)
		if end.Before(now) {
			end = now
		}

		return end
	}

	if at, known := rn.ExpectedEnd(now); known {
		return earlier(at, limit)
	}

	switch {
	case rn.Takes == 0:
		return time.Time{}
	case run.Started.IsZero():
		return run.Ordered.Add(rn.Takes)
	}

	return run.WorkingSince().Add(rn.Takes)
}

// earlier returns a time, or the limit if there is one before it.
func earlier(at, limit time.Time) time.Time {
	if !limit.IsZero() && limit.Before(at) {
		return limit
	}

	return at
}

// progressOf returns how far a job has come by now. rn is nil if it does not run.
func progressOf(now time.Time, o *job.Outlook, rn *place.Running) *job.Progress {
	p := &job.Progress{Done: o.Done}
	if o.Speed != nil {
		p.Work = o.Speed.Work
	}

	known := o.Done > 0 || !o.At.IsZero()
	if rn != nil {
		p.Done = rn.Done(now)
		known = known || rn.Rate > 0
	} else {
		known = known || o.Speed != nil // of one that does not run, what it has saved
	}

	if known {
		p.At = now
	}

	return p
}

// recordWork records the work of an ended run in its job. Progress that it reported when it
// ended counts; otherwise a run that ended by itself has done everything, one that was
// ordered to stop has checkpointed what it had done by then, and one that died keeps its
// last checkpoint. Where the catalogue has a checkpoint, that alone counts unless assumeSaved is
// set: the next run continues from it.
func recordWork(
	now time.Time, j *job.Job, run *job.Run, rn *place.Running, cause job.Cause, stopOrdered time.Time, assumeSaved bool,
) {
	o := rn.Outlook

	j.Served += run.Worked(now).Seconds() * rn.GPUCount()
	j.Ran += run.Took(now)

	switch {
	case cause == job.CauseNone:
		if o.Speed != nil {
			j.Done = o.Speed.Work
		}
	case o.Saved.Travels && !assumeSaved:
		j.Done = o.Saved.Work
	case !o.Resumes:
		j.Done = 0
	case run.Suspended(): // it could save nothing
		j.Done = rn.CheckpointedWork(now, run.Started, j.Done)
	case cause == job.CausePreempted && stopOrdered.IsZero():
		j.Done = rn.Done(now)
	case cause == job.CausePreempted:
		j.Done = rn.Done(stopOrdered)
	default:
		j.Done = rn.CheckpointedWork(now, run.Started, j.Done)
	}

	o.Done = j.Done
	o.At = time.Time{}
	o.Served = j.Served
	o.Ran = rn.GPUs
}

// runningJobs is the jobs that hold nodes, by number.
type runningJobs []*place.Running

// add adds a job that was queued as an item.
func (l *runningJobs) add(
	it *queue.Item,
	run *job.Run,
	allocations []place.Allocation,
	node func(id.Node) *fleet.Node,
) *place.Running {
	rn := &place.Running{
		Item: it, Run: run.ID, Allocations: allocations, Rate: place.ExpectedRate(it.Outlook, allocations, node),
		Ordered: run.Ordered, Began: run.WorkingSince(), Stopping: run.Stop != job.StopNone,
		Pace: place.Pace(it, allocations, node), Takes: place.RunTimeOn(it, allocations, node),
	}

	for _, s := range allocations {
		rn.GPUs += bits.OnesCount64(s.GPUs)
	}

	l.insert(rn)

	return rn
}

// insert adds a job at its place.
func (l *runningJobs) insert(rn *place.Running) {
	if at, found := l.find(rn.Number); !found {
		*l = slices.Insert(*l, at, rn)
	}
}

// remove removes a job.
func (l *runningJobs) remove(rn *place.Running) {
	if at, found := l.find(rn.Number); found {
		*l = slices.Delete(*l, at, at+1)
	}
}

func (l *runningJobs) find(number uint64) (int, bool) {
	list := *l
	if n := len(list); n == 0 || list[n-1].Number < number { // mostly the newest
		return n, false
	}

	return slices.BinarySearchFunc(list, number, func(o *place.Running, n uint64) int { return cmp.Compare(o.Number, n) })
}
