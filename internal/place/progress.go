package place

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/scaling"
)

// CheckpointedWork returns the units of work in the last checkpoint of a run that died now.
// before is what was saved when it started.
func (r *Running) CheckpointedWork(now, started time.Time, before float64) float64 {
	o := r.Outlook
	if started.IsZero() || o.Every == 0 || o.Speed == nil {
		return before
	}

	worked := now.Sub(started) - time.Duration(o.Speed.Start)
	if worked <= 0 {
		return before
	}

	return min(before+r.Rate*worked.Truncate(o.Every).Seconds(), r.Done(now))
}

// minObservation is how long a run is observed before its speed is derived from its progress.
const minObservation = 10 * time.Second

// rateTolerance is the relative difference from the expected rate that counts as a change.
const rateTolerance = 0.1

// RecordProgress records the progress and the rates that a program reports, and reports
// whether its rate has changed noticeably. With works false the program has ended: its last
// report says nothing about its speed, because the time includes its shutdown.
func (r *Running) RecordProgress(
	now, started time.Time,
	p *job.Progress,
	works bool,
	node func(id.Node) *fleet.Node,
) (changed bool) {
	o := r.Outlook

	if !finite(p.Done) || !finite(p.Work) ||
		slices.ContainsFunc(p.Rates, func(k job.Rate) bool { return !finite(k.PerSecond) }) {
		return false
	}

	expected, at := r.Rate, now
	if p.At.After(o.At) && p.At.After(started) && p.At.Before(at) {
		at = p.At // when it wrote the report, which arrives later
	}

	if len(p.Rates) > 0 || p.Work > 0 {
		o.Declare(p)
	}

	learned := false
	if works && len(p.Rates) == 0 {
		learned = r.observe(started, at, p, node)
	}

	o.Done, o.At = p.Done, at
	r.Rate = ExpectedRate(o, r.Allocations, node)

	return math.Abs(r.Rate-expected) > rateTolerance*expected || len(p.Rates) > 0 || learned
}

// observe learns from a report how fast the job is where it runs, and reports whether that is
// the first observation of such an allocation. The time between two reports counts; the first
// report of a run, if nothing is done yet, shows how long the start took.
func (r *Running) observe(started, at time.Time, p *job.Progress, node func(id.Node) *fleet.Node) (first bool) {
	o := r.Outlook

	switch {
	case o.At.IsZero():
		if p.Done == o.Done && !started.IsZero() && at.After(started) {
			o.Startup = at.Sub(started)
		}

		return false
	case at.Sub(o.At) < minObservation || p.Done <= o.Done:
		return false
	}

	rate := (p.Done - o.Done) / at.Sub(o.At).Seconds()

	if s := o.DeclaredSpeed(); s != nil {
		spread := len(r.Allocations) > 1 && slices.ContainsFunc(s.Rates, func(k job.Rate) bool { return k.Spread })
		o.Speed = s.WithObservation(job.Rate{
			GPU:       r.kind(node),
			GPUs:      r.GPUs,
			Share:     r.Allocations[0].Share,
			Spread:    spread,
			PerSecond: rate,
		})

		return false
	}

	seen, ok := r.allocation(node)
	if !ok {
		return false
	}

	seen.PerSecond, seen.Done, seen.Training = rate, p.Done, p.Training
	first = !o.Learned.Observed(seen.Kind, seen.GPUs, seen.Nodes)
	o.Learned = o.Learned.With(seen)

	return first
}

// allocation describes what a run has, for an observation. It fails for shares of a GPU, which
// say nothing about whole ones, and for GPUs of several models.
func (r *Running) allocation(node func(id.Node) *fleet.Node) (scaling.Observation, bool) {
	if r.GPUs == 0 || r.Allocations[0].Share > 0 {
		return scaling.Observation{}, false
	}

	seen := scaling.Observation{GPUs: r.GPUs, Nodes: len(r.Allocations)}

	for i, a := range r.Allocations {
		g := firstGPU(a, node)
		if g == nil || i > 0 && g.Model != seen.Kind {
			return scaling.Observation{}, false
		}

		seen.Kind = g.Model
		seen.TFLOPS, _ = g.TFLOPS()
	}

	return seen, true
}

// firstGPU returns the first GPU of an allocation, nil if it has none or the node is gone.
func firstGPU(a Allocation, node func(id.Node) *fleet.Node) *fleet.GPU {
	n := node(a.Node)
	if n == nil || a.GPUs == 0 {
		return nil
	}

	return n.Inventory.GPU(bits.TrailingZeros64(a.GPUs))
}

func finite(f float64) bool { return f >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

// kind returns the GPU kind by which the job's speed lists the GPUs of the run.
func (r *Running) kind(node func(id.Node) *fleet.Node) string {
	g := firstGPU(r.Allocations[0], node)
	if g == nil {
		return ""
	}
	if c := r.Outlook.Speed.On(g.Model, g.Memory); c != nil {
		return c.Kind
	}

	return g.Model
}
