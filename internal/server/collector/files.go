package collector

import (
	"context"
	"maps"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/retention"
	"trainyard/internal/server/outputs"
)

// retireFiles takes the output files of ended jobs out of the catalogue that are not kept any more. Their chunks are
// removed with all others that nothing refers to.
func (c *Collector) retireFiles(ctx context.Context, now time.Time, stock *Stock) error {
	sets, jobs, err := c.outputFiles(ctx)
	if err != nil {
		return err
	}

	why := map[id.Job]string{}
	var rest []retention.Printed

	for j, of := range jobs {
		bytes := job.Bytes(0)
		for i := range sets[j] {
			bytes += sets[j][i].Bytes
		}

		switch {
		case !c.Limits.KeepsFiles(now, &of):
			why[j] = c.Limits.FilesExpired()
		case of.State.Final():
			rest = append(rest, retention.Printed{Job: j, Owner: of.Owner, Ended: of.Ended, Bytes: bytes})
		}

		stock.share(of.Owner, func(s *Share) { s.Files += bytes })
	}

	maps.Copy(why, c.Limits.SurplusFiles(rest))

	for _, j := range slices.Sorted(maps.Keys(why)) {
		if err := c.Loop.Held(); err != nil {
			return err
		}
		if err := c.files.Remove(ctx, why[j], sets[j]...); err != nil {
			return err
		}

		stock.Removed.OutputFiles += len(sets[j])
		for i := range sets[j] {
			stock.share(jobs[j].Owner, func(s *Share) { s.Files -= sets[j][i].Bytes })
		}
	}

	return nil
}

// outputFiles returns the output files that are kept, with their jobs.
func (c *Collector) outputFiles(ctx context.Context) (map[id.Job][]outputs.Entry, map[id.Job]job.Job, error) {
	sets, jobs := map[id.Job][]outputs.Entry{}, map[id.Job]job.Job{}

	err := c.files.Each(ctx, func(e *outputs.Entry) error {
		if e.Manifest == "" {
			return nil
		}

		j := e.Job()
		if _, known := jobs[j]; !known {
			of, err := c.Store.Job(ctx, j)
			if fault.KindOf(err) == fault.NotFound { // forgotten meanwhile, with its entries
				return nil
			}
			if err != nil {
				return err
			}

			of.Spec = nil // not needed, and large
			jobs[j] = of
		}

		sets[j] = append(sets[j], *e)

		return nil
	})

	return sets, jobs, err
}
