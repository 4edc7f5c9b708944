package yardmaster

import (
	"cmp"
	"math"
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

// rateOn returns how fast a job is expected to be on seats, 0 if that is not known.
func (y *Yard) rateOn(s *job.Speed, seats []place.Seat) float64 {
	if s == nil {
		return 0
	}
	return place.RateOn(s, seats, func(n id.Node) *fleet.Node {
		if r, ok := y.nodes[n]; ok {
			return &r.Node
		}
		return nil
	})
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
		r.Done = y.kept(r, run)
	}
	o.Done, o.At, o.Served, o.Ran = r.Done, time.Time{}, r.Served, rn.GPUs
}

// kept returns the work that was saved by the last checkpoint of a run that died.
func (y *Yard) kept(r *jobRecord, run *runRecord) float64 {
	o := r.outlook
	if run.Started.IsZero() || o.Every == 0 || o.Speed == nil {
		return r.Done
	}
	worked := y.now.Sub(run.Started) - time.Duration(o.Speed.Start)
	if worked <= 0 {
		return r.Done
	}
	return min(r.Done+r.running.Rate*worked.Truncate(o.Every).Seconds(), r.running.Done(y.now))
}

// leastWatched is how long a run is watched before its speed is taken from what it has done.
const leastWatched = 10 * time.Second

// unlike is by what share a speed must differ from what was expected to be news.
const unlike = 0.1

// told takes what a program tells of itself: how far it is, and how fast it is
// where. What it tells at its end includes what it lost, and says nothing about its speed.
func (y *Yard) told(r *jobRecord, run *runRecord, p *job.Progress, works bool) {
	o, rn := r.outlook, r.running
	if rn == nil || !sensible(p.Done) || !sensible(p.Work) || slices.ContainsFunc(p.Rates, func(k job.Rate) bool { return !sensible(k.PerSecond) }) {
		return
	}
	expected, at := rn.Rate, y.now
	if p.At.After(o.At) && p.At.After(run.Started) && p.At.Before(at) {
		at = p.At // when it wrote that down, which is before we are told
	}
	switch {
	case len(p.Rates) > 0 || p.Work > 0:
		y.declared(o, p)
	case works && !o.At.IsZero() && at.Sub(o.At) >= leastWatched && p.Done > o.Done && o.Speed != nil:
		o.Speed = o.Speed.Learned(job.Rate{
			GPU: y.kindOf(rn, o.Speed), GPUs: rn.GPUs, Share: rn.Seats[0].Share, Spread: len(rn.Seats) > 1 && y.knowsSpread(o.Speed),
			PerSecond: (p.Done - o.Done) / at.Sub(o.At).Seconds(),
		})
	}
	o.Done, o.At = p.Done, at
	rn.Rate = y.rateOn(o.Speed, rn.Seats)
	if math.Abs(rn.Rate-expected) > unlike*expected || len(p.Rates) > 0 {
		y.hold(r, run)
		y.round = true
	}
}

func sensible(f float64) bool { return f >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

// declared replaces what was known of a job's speed by what its program says.
func (y *Yard) declared(o *job.Outlook, p *job.Progress) {
	next := job.Speed{Work: p.Work, Rates: p.Rates}
	if old := o.Speed; old != nil {
		next.Start, next.Save = old.Start, old.Save
		if next.Work == 0 {
			next.Work = old.Work
		}
		if len(next.Rates) == 0 {
			next.Rates = old.Rates
		}
	}
	o.Speed = job.NewSpeed(next.Work, time.Duration(next.Start), time.Duration(next.Save), next.Rates...)
}

// kindOf returns the word by which a speed knows the GPUs of a run.
func (y *Yard) kindOf(rn *place.Running, s *job.Speed) string {
	n, ok := y.nodes[rn.Seats[0].Node]
	if !ok || rn.Seats[0].GPUs == 0 {
		return ""
	}
	g := n.Inventory.GPU(bits.TrailingZeros64(rn.Seats[0].GPUs))
	if g == nil {
		return ""
	}
	if c := s.On(g.Model, g.Memory); c != nil {
		return c.Kind
	}
	return g.Model
}

func (y *Yard) knowsSpread(s *job.Speed) bool {
	return slices.ContainsFunc(s.Rates, func(r job.Rate) bool { return r.Spread })
}
