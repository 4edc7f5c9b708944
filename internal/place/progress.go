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

// Kept returns the work that was saved by the last checkpoint of a run that died now,
// with so much saved before it started.
func (r *Running) Kept(now, started time.Time, before float64) float64 {
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

// leastWatched is how long a run is watched before its speed is taken from what it has done.
const leastWatched = 10 * time.Second

// unlike is by what share a speed must differ from what was expected to be news.
const unlike = 0.1

// Told takes what a program tells of itself: how far it is, and how fast it is where.
// What it tells at its end, when it no longer works, includes what it lost, and says
// nothing about its speed. It reports whether its speed is news.
func (r *Running) Told(
	now, started time.Time,
	p *job.Progress,
	works bool,
	node func(id.Node) *fleet.Node,
) (news bool) {
	o := r.Outlook

	if !sensible(p.Done) || !sensible(p.Work) ||
		slices.ContainsFunc(p.Rates, func(k job.Rate) bool { return !sensible(k.PerSecond) }) {
		return false
	}

	expected, at := r.Rate, now
	if p.At.After(o.At) && p.At.After(started) && p.At.Before(at) {
		at = p.At // when it wrote that down, which is before we are told
	}

	switch {
	case len(p.Rates) > 0 || p.Work > 0:
		o.Declare(p)
	case works && !o.At.IsZero() && at.Sub(o.At) >= leastWatched && p.Done > o.Done && o.Speed != nil:
		spread := len(r.Allocations) > 1 && slices.ContainsFunc(o.Speed.Rates, func(k job.Rate) bool { return k.Spread })
		o.Speed = o.Speed.Learned(job.Rate{
			GPU: r.kind(
				node,
			),
			GPUs:      r.GPUs,
			Share:     r.Allocations[0].Share,
			Spread:    spread,
			PerSecond: (p.Done - o.Done) / at.Sub(o.At).Seconds(),
		})
	}

	o.Done, o.At = p.Done, at
	r.Rate = RateOn(o.Speed, r.Allocations, node)

	return math.Abs(r.Rate-expected) > unlike*expected || len(p.Rates) > 0
}

func sensible(f float64) bool { return f >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

// kind returns the word by which the job's speed knows the GPUs of the run.
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
