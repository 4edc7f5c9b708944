// Package advise says what would have been cheaper or faster in a period that is
// over: one more reserved node, one fewer, another kind of GPU, spot nodes, another
// time until idle nodes go back, another value of time.
//
// It comes after the path of a job: what really happened (Read gets it from the feed
// and the books of a yard) is replayed in the simulator, once as it was and once for
// each change, with the yard's own policy and prices. Changes are compared with the
// replay of what was, not with what was, so that what the model does not know is on
// both sides; how far the replay is from what was is told beside it. The package
// changes nothing in a yard and decides nothing for it.
package advise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/place"
	"trainyard/internal/sim"
	"trainyard/internal/sim/whatif"
)

// Question is what is asked: what could have been better in a period.
type Question struct {
	History *History
	// Policy makes the policies that a text names, with parameters behind colons.
	Policy func(text string) (func() place.Policy, error)
	// More are offers that the yard does not use and might: spot nodes, other GPUs.
	ExtraOffers []fleet.Offer
	// Prices are what an hour of one more reserved node costs by kind of GPU, as in
	// A100:80GB, where the tariff does not tell.
	Prices   map[string]float64
	MinJobs  int    // jobs without which nothing is said; 0 for LeastJobs
	Seed     uint64 // of the chances: when spot nodes are taken back, and of the resampling
	Parallel int    // replays at once, at least one
	// Progress is told now and then how far it is; nil if nobody wants to know. Clock
	// is read for it.
	Progress func(whatif.Progress)
	Clock    clock.Clock
}

// LeastJobs is how many jobs there must be at least.
const MinJobs = 30

// leastTime is how long a period must be at least: shorter ones have too few days to
// tell chance from habit.
const minPeriod = 3 * day

const (
	day   = 24 * time.Hour
	month = 30 * day // money is told for so long
)

// Advise replays the period as it was and with each change, and compares.
func Advise(ctx context.Context, q Question) (*Report, error) {
	h := q.History

	if err := q.checkSize(); err != nil {
		return nil, err
	}

	work, err := newWorkload(h, q.ExtraOffers)
	if err != nil {
		return nil, err
	}

	base := asItWas(h)
	bills, err := q.replay(ctx, work, []*variant{base})
	if err != nil {
		return nil, err
	}

	if bills[0].ended() == 0 {
		return nil, fault.New(fault.Conflict, "no_replay", "none of the %d jobs could be replayed: no known node or offer fits them", len(h.Jobs)).
			WithRemedy("the nodes that ran them may have been removed; choose a later period")
	}

	r := newReport(&q, work, bills[0])
	changes, skipped := q.changes(base, bills[0])
	r.LeftOut = append(r.LeftOut, skipped...)

	changed, err := q.replay(ctx, work, changes)
	if err != nil {
		return nil, err
	}

	for i, v := range changes {
		r.Advice = append(r.Advice, q.judge(v, bills[0], changed[i]))
	}

	r.sort()

	return r, nil
}

// enough refuses a period of which nothing can be said.
func (q *Question) checkSize() error {
	h := q.History
	least := q.MinJobs
	if least == 0 {
		least = MinJobs
	}

	if span := h.To.Sub(h.From); span < minPeriod {
		return fault.New(fault.Invalid, "short_period", "the period covers %.1f days; at least %.0f are needed for a reliable comparison", span.Hours()/24, minPeriod.Hours()/24).
			WithRemedy("choose a longer period, e.g. --last 30d")
	}

	if n := h.counted(); n < least {
		return fault.New(fault.Conflict, "too_little_data", "only %s in the period; at least %d are needed", humanize.Count(n, "job"), least).
			WithRemedy("choose a longer period, e.g. --last 90d")
	}

	return nil
}

// replay simulates variants side by side.
func (q *Question) replay(ctx context.Context, work *workload, variants []*variant) ([]*bill, error) {
	bills := make([]*bill, len(variants))
	m := whatif.Matrix{
		Policies: []whatif.Policy{
			{Name: q.History.Policy, New: func() place.Policy { return nil }},
		}, // each variant has its own
		Parallel: q.Parallel,
		Progress: q.Progress,
		Clock:    q.Clock,
	}

	for i, v := range variants {
		newPolicy, err := q.Policy(v.policy)
		if err != nil {
			return nil, err
		}

		p := &play{variant: v, work: work, policy: newPolicy, seed: q.Seed}
		m.Sources = append(m.Sources, whatif.Source{
			Name: v.what, Jobs: len(work.jobs),
			Config: func(float64, uint64) (sim.Config, error) { return sim.Config{}, nil },
			Run: func(cfg sim.Config) (*sim.Result, error) {
				b, result, err := p.run(cfg.OnStep, cfg.Stop)
				bills[i] = b
				return result, err
			},
		})
	}

	if _, err := whatif.Run(ctx, m); err != nil {
		var f *fault.Error
		if errors.As(err, &f) || errors.Is(err, context.Canceled) {
			return nil, err
		}

		return nil, fmt.Errorf("replay the period: %w", err)
	}

	return bills, nil
}
