package place

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
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

	switch {
	case len(p.Rates) > 0 || p.Work > 0:
		o.Declare(p)
	case works && !o.At.IsZero() && at.Sub(o.At) >= minObservation && p.Done > o.Done && o.Speed != nil:
		spread := len(r.Allocations) > 1 && slices.ContainsFunc(o.Speed.Rates, func(k job.Rate) bool { return k.Spread })
		o.Speed = o.Speed.WithObservation(job.Rate{
			GPU:       r.kind(node),
			GPUs:      r.GPUs,
			Share:     r.Allocations[0].Share,
			Spread:    spread,
			PerSecond: (p.Done - o.Done) / at.Sub(o.At).Seconds(),
		})
	}

	o.Done, o.At = p.Done, at
	r.Rate = RateOn(o.Speed, r.Allocations, node)

	return math.Abs(r.Rate-expected) > rateTolerance*expected || len(p.Rates) > 0
}

func finite(f float64) bool { return f >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

// kind returns the GPU kind by which the job's speed lists the GPUs of the run.
func (r *Running) kind(node func(id.Node) *fleet.Node) string {
	n := node(r.Allocations[0].Node)
	if n == nil || r.Allocations[0].GPUs == 0 {
		return ""
	}

	g := n.Inventory.GPU(bits.TrailingZeros64(r.Allocations[0].GPUs))
	if g == nil {
		return ""
	}
	if c := r.Outlook.Speed.On(g.Model, g.Memory); c != nil {
		return c.Kind
	}

	return g.Model
}
