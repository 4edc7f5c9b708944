package collector

import (
	"context"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/store"
)

// perPass is how many records of a kind are removed at most, so that a pass ends in a yard whose limits were just set.
// The next one continues.
const perPass = 100_000

// forget removes the records of jobs, events and usage that are not kept, oldest first.
func (c *Collector) forget(ctx context.Context, now time.Time, m *marks, report *Report) error {
	var jobs []id.Job
	for _, j := range m.old {
		// A checkpoint that is left is pinned, or its chunks are not removed yet.
		if !m.saved[j.id] && (j.pipeline == "" || !m.pipelines[j.pipeline]) {
			jobs = append(jobs, j.id)
		}
	}

	jobs = jobs[max(0, len(jobs)-c.perPass):] // the oldest come last

	for part := range slices.Chunk(jobs, page) {
		if err := c.Loop.Held(); err != nil {
			return err
		}
		if err := c.Store.ForgetJobs(ctx, part...); err != nil {
			return err
		}

		report.Jobs += len(part)
	}

	if err := c.forgetEvents(ctx, now, report); err != nil {
		return err
	}

	return c.forgetPostings(ctx, now, report)
}

// forgetPostings removes the postings and savings that are not kept, oldest first.
func (c *Collector) forgetPostings(ctx context.Context, now time.Time, report *Report) error {
	since := c.Limits.PostingsSince(now)
	if since.IsZero() {
		return nil
	}

	for _, forget := range []func(context.Context, time.Time, int) (int, error){
		c.Store.ForgetSavings, c.Store.ForgetPostings,
	} {
		for removed := 0; removed < c.perPass; {
			if err := c.Loop.Held(); err != nil {
				return err
			}

			n, err := forget(ctx, since, min(page, c.perPass-removed))
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}

			removed += n
			report.Postings += n
		}
	}

	return nil
}

// forgetEvents removes the events that are not kept, oldest first. The newest stays in any case: the next one is
// numbered after it.
func (c *Collector) forgetEvents(ctx context.Context, now time.Time, report *Report) error {
	if c.Limits.Events == 0 {
		return nil
	}

	for report.Events < c.perPass {
		events, err := c.Store.Events(ctx, store.EventFilter{Limit: min(page, c.perPass-report.Events) + 1})
		if err != nil {
			return err
		}

		var old []uint64
		for i := range events[:max(0, len(events)-1)] {
			if c.Limits.KeepsEvent(now, events[i].At) {
				break
			}

			old = append(old, events[i].Seq)
		}

		if len(old) == 0 {
			return nil
		}
		if err := c.Loop.Held(); err != nil {
			return err
		}
		if err := c.Store.ForgetEvents(ctx, old...); err != nil {
			return err
		}

		report.Events += len(old)
	}

	return nil
}
