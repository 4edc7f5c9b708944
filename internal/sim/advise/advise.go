// Package advise recommends changes to a yard: what would have been cheaper or faster
// in a past period with one more reserved node, one fewer, another GPU model, spot nodes,
// another idle time before nodes are released, or another value of time.
//
// It comes after the path of a job. Read gets the history of the period from the events
// and the usage report of a yard; Advise replays it in the simulator, once unchanged (the
// baseline) and once for each change, with the yard's own policy and prices. Changes are
// compared with the baseline replay, not with the real period, so that errors of the model
// are on both sides; the report states how far the baseline is from the real period. The
// package changes nothing in a yard and decides nothing for it.
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
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/sim"
	"trainyard/internal/sim/whatif"
)

// Question is a request for recommendations about a period.
type Question struct {
	History *History
	// Policy makes the policies that a text names, with parameters behind colons.
	Policy func(text string) (func() place.Policy, error)
	// More are offers that the yard does not use and might: spot nodes, other GPUs.
	ExtraOffers []fleet.Offer
	// Prices are what one more reserved node costs by kind of GPU, as in
	// A100:80GB, where the tariff has no price.
	Prices   map[string]money.PerHour
	MinJobs  int    // smallest number of jobs; 0 for the constant MinJobs
	Seed     uint64 // of the random times at which spot nodes are reclaimed, and of the resampling
	Parallel int    // replays at once, at least one
	// Progress is called now and then with the progress; it may be nil. Clock is read for it.
	Progress func(whatif.Progress)
	Clock    clock.Clock
}

// MinJobs is the smallest number of jobs that a period must have, unless Question.MinJobs says otherwise.
const MinJobs = 30

// minPeriod is the shortest period that is accepted: shorter ones have too few days to
// tell a pattern from chance.
const minPeriod = 3 * day

const (
	day   = 24 * time.Hour
	month = 30 * day // the unit in which money is reported
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
		return nil, fault.New(fault.Conflict, "no_replay", "none of the %d jobs could be replayed: no known node or offer "+
			"fits them", len(h.Jobs)).
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

// checkSize refuses a period that is too short or has too few jobs.
func (q *Question) checkSize() error {
	h := q.History
	least := q.MinJobs
	if least == 0 {
		least = MinJobs
	}

	if span := h.To.Sub(h.From); span < minPeriod {
		return fault.New(fault.Invalid, "short_period", "the period covers %.1f days; at least %.0f are needed for a "+
			"reliable comparison", span.Hours()/24, minPeriod.Hours()/24).
			WithRemedy("choose a longer period, e.g. --last 30d")
	}

	if n := h.counted(); n < least {
		return fault.New(fault.Conflict, "too_little_data", "only %s in the period; at least %d are needed",
			humanize.Count(n, "job"), least).
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
