// Package course is how jobs and their runs go: what agents report of ranks, how far a
// job has come, when its run will end, and what an ended run leaves behind.
//
// It works on one job and one run at a time and decides nothing about them: the
// yardmaster does, by what it finds here.
package course

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

// Outlook says what is known of how a job will go when it is submitted or loaded.
func Outlook(j *job.Job) *job.Outlook {
	o := &job.Outlook{
		Submitted: j.Submitted, LateCost: float64(j.Spec.LateCost) / 1e6 / 3600, Speed: j.Spec.Speed,
		Done: j.Done, Served: j.Served, Stops: j.Stops,
	}
	if d := j.Spec.Deadline; d != nil {
		o.Deadline = *d
	}
	if c := j.Spec.Checkpoint; c != nil {
		o.Resumes, o.Every = true, time.Duration(c.Every)
	}
	return o
}

// Said returns how long a job will run at most as its owner said, 0 if they did not.
func Said(s *job.Spec) time.Duration {
	if s.MaxDuration > 0 {
		return time.Duration(s.MaxDuration)
	}
	return time.Duration(s.Expect)
}

// Lasts returns how long a job will run as far as its owner said, and otherwise how long the
// rest of it takes on as little as it asks for, or is expected to take by what others took.
func Lasts(s *job.Spec, o *job.Outlook, need *fleet.Need) time.Duration {
	if d := Said(s); d > 0 {
		return d
	}
	if f := o.Forecast; o.Speed == nil && f != nil && f.Informed() {
		return job.Seconds(f.Remaining.Mid)
	}
	if o.Speed == nil {
		return 0
	}
	var longest time.Duration
	for _, kind := range o.Speed.Kinds() {
		c := o.Speed.On(kind, 0)
		count := max(need.GPUs*need.Nodes, c.Least())
		if d, known := o.Takes(c.Rate(count, need.Nodes)); known {
			longest = max(longest, d)
		}
	}
	return longest
}

// Ends returns when a run is expected to end: by the forecast, else by what its owner
// said, else by what is left of the work at its rate. Zero if none is known.
func Ends(now time.Time, s *job.Spec, run *job.Run, rn *place.Running) time.Time {
	if f := rn.Outlook.Forecast; f != nil && f.Informed() && !run.Started.IsZero() && f.At.After(run.Started) {
		end := f.End()
		if most := run.Started.Add(time.Duration(s.MaxDuration)); s.MaxDuration > 0 && most.Before(end) {
			end = most
		}
		if end.Before(now) {
			end = now
		}
		return end
	}
	if d := Said(s); d > 0 {
		if !run.Started.IsZero() {
			return run.Started.Add(d)
		}
		return run.Ordered.Add(d)
	}
	at, _ := rn.Ends(now)
	return at
}

// Progress says how far a job has come by now. rn is nil if it does not run.
func Progress(now time.Time, o *job.Outlook, rn *place.Running) *job.Progress {
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

// Settle writes down what an ended run has done. What it told when it ended
// counts; otherwise a run that ended by itself has done everything, one that was
// asked to stop has saved what it had done until it was told, and one that died has
// kept what it had at its last checkpoint.
func Settle(now time.Time, j *job.Job, run *job.Run, rn *place.Running, cause job.Cause, told time.Time) {
	o := rn.Outlook
	if !run.Started.IsZero() {
		j.Served += now.Sub(run.Started).Seconds() * rn.Whole()
	}
	switch {
	case cause == job.CauseNone:
		if o.Speed != nil {
			j.Done = o.Speed.Work
		}
	case !o.Resumes:
		j.Done = 0
	case cause == job.CausePreempted && told.IsZero():
		j.Done = rn.Done(now)
	case cause == job.CausePreempted:
		j.Done = rn.Done(told)
	default:
		j.Done = rn.Kept(now, run.Started, j.Done)
	}
	o.Done, o.At, o.Served, o.Ran = j.Done, time.Time{}, j.Served, rn.GPUs
}

// Running is the jobs that hold nodes, by number.
type Running []*place.Running

// Add puts a job that was in line as an item among them.
func (l *Running) Add(it *queue.Item, run *job.Run, seats []place.Seat, node func(id.Node) *fleet.Node) *place.Running {
	rn := &place.Running{
		Item: it, Run: run.ID, Seats: seats, Rate: place.RateOn(it.Outlook.Speed, seats, node),
		Ordered: run.Ordered, Began: run.Started, Stopping: run.Stop != job.StopNone,
	}
	for _, s := range seats {
		rn.GPUs += bits.OnesCount64(s.GPUs)
	}
	if at, found := l.find(rn.Number); !found {
		*l = slices.Insert(*l, at, rn)
	}
	return rn
}

// Remove takes it out again.
func (l *Running) Remove(rn *place.Running) {
	if at, found := l.find(rn.Number); found {
		*l = slices.Delete(*l, at, at+1)
	}
}

func (l *Running) find(number uint64) (int, bool) {
	list := *l
	if n := len(list); n == 0 || list[n-1].Number < number { // mostly the newest
		return n, false
	}
	return slices.BinarySearchFunc(list, number, func(o *place.Running, n uint64) int { return cmp.Compare(o.Number, n) })
}
