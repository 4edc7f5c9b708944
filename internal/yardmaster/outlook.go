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
)

// newOutlook says what is known of how a job will go when it is submitted or loaded.
func newOutlook(j *job.Job) *job.Outlook {
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

// nowRunning puts a job among those that hold nodes.
func (y *Yard) nowRunning(r *jobRecord, run *runRecord, seats []place.Seat) {
	r.running = &place.Running{
		Item: r.entry, Run: run.ID, Seats: seats, Rate: y.rateOn(r.outlook.Speed, seats),
		Ordered: run.Ordered, Began: run.Started, Stopping: run.Stop != job.StopNone,
	}
	for _, s := range seats {
		r.running.GPUs += bits.OnesCount64(s.GPUs)
	}
	at, found := y.findRunning(r.running.Number)
	if !found {
		y.running = slices.Insert(y.running, at, r.running)
	}
}

// notRunning takes it out again.
func (y *Yard) notRunning(r *jobRecord) {
	if at, found := y.findRunning(r.running.Number); found {
		y.running = slices.Delete(y.running, at, at+1)
	}
	r.running = nil
}

func (y *Yard) findRunning(number uint64) (int, bool) {
	if n := len(y.running); n == 0 || y.running[n-1].Number < number { // mostly the newest
		return n, false
	}
	return slices.BinarySearchFunc(y.running, number, func(o *place.Running, n uint64) int { return cmp.Compare(o.Number, n) })
}

// told takes what a program tells of itself.
func (y *Yard) told(r *jobRecord, run *runRecord, p *job.Progress, works bool) {
	if r.running != nil && r.running.Told(y.now, run.Started, p, works, y.nodeOf) {
		y.hold(r, run)
		y.round = true
	}
}

func (y *Yard) nodeOf(n id.Node) *fleet.Node {
	if r, ok := y.nodes[n]; ok {
		return &r.Node
	}
	return nil
}

// rateOn returns how fast a job is expected to be on seats, 0 if that is not known.
func (y *Yard) rateOn(s *job.Speed, seats []place.Seat) float64 {
	return place.RateOn(s, seats, y.nodeOf)
}

// settle writes down what an ended run has done. What it told when it ended
// counts; otherwise a run that ended by itself has done everything, one that was
// asked to stop has saved what it had done until then, and one that died has kept
// what it had at its last checkpoint.
func (y *Yard) settle(r *jobRecord, run *runRecord, cause job.Cause) {
	o, rn := r.outlook, r.running
	if !run.Started.IsZero() {
		r.Served += y.now.Sub(run.Started).Seconds() * rn.Whole()
	}
	switch {
	case cause == job.CauseNone:
		if o.Speed != nil {
			r.Done = o.Speed.Work
		}
	case !o.Resumes:
		r.Done = 0
	case cause == job.CausePreempted && run.told.IsZero():
		r.Done = rn.Done(y.now)
	case cause == job.CausePreempted:
		r.Done = rn.Done(run.told)
	default:
		r.Done = rn.Kept(y.now, run.Started, r.Done)
	}
	o.Done, o.At, o.Served, o.Ran = r.Done, time.Time{}, r.Served, rn.GPUs
}
