package collector

import (
	"context"
	"slices"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/retention"
	"trainyard/internal/store"
)

// movesPerPass is how many logs of earlier versions get the names of this one in a pass: each is copied and synced.
const movesPerPass = 10_000

// printed is what is archived of the output of a job. There may be very many of them.
type printed struct {
	Amount
	known   bool // there is a record of the job
	kept    bool
	settled bool // the job has ended so long ago that nobody waits for its output
	untidy  bool // there is a log with nothing in it, or of an earlier version
}

// archived is the archived output, by the number of its job.
type archived map[uint64]printed

// numberOf returns the number of a log's job.
func numberOf(l archive.Log) uint64 {
	j, _, _ := l.Run.Split()
	number, _ := j.Number()

	return number
}

// outputs adds up the output that is archived.
func (c *Collector) outputs(ctx context.Context) (archived, error) {
	all := archived{}
	if c.Logs == nil {
		return all, nil
	}

	for l, err := range c.Logs.Complete(ctx) {
		if err != nil {
			return nil, err
		}

		of := all[numberOf(l.Log)]
		of.add(l.Bytes)
		of.untidy = of.untidy || l.Bytes == 0 || l.Former
		all[numberOf(l.Log)] = of
	}

	return all, nil
}

// note records what is known of the job whose output it is, and returns how much of it is kept.
func (o archived) note(now time.Time, j *job.Job, l *retention.Limits) Amount {
	number, _ := j.ID.Number()
	of, ok := o[number]
	if !ok {
		return Amount{}
	}

	of.known, of.kept = true, l.KeepsOutput(now, j)
	of.settled = j.State.Final() && now.Sub(j.Ended) > retention.Straggling
	o[number] = of

	if !of.kept {
		return Amount{}
	}

	return of.Amount
}

// tidy reports whether there is nothing to remove and nothing to move.
func (o archived) tidy() bool {
	for _, of := range o {
		if !of.known || !of.kept || of.untidy {
			return false
		}
	}

	return true
}

// surplusOutput chooses the output that is too much, and records for its owners why it is removed.
func (c *Collector) surplusOutput(ctx context.Context, now time.Time, all archived, stock *Stock) error {
	if !stock.tooMuchOutput(&c.Limits) {
		return nil
	}

	list, err := c.printed(ctx, all)
	if err != nil {
		return err
	}

	surplus := c.Limits.SurplusOutput(list)
	var docs []store.Document

	for i := range list {
		p := &list[i]
		why, gone := surplus[p.Job]
		if !gone {
			continue
		}

		number, _ := p.Job.Number()
		of := all[number]
		of.kept = false
		all[number] = of

		docs = append(docs, store.Document{Kind: store.RemovedDocument, ID: string(p.Job), At: now, Text: why})
		stock.Output.Bytes -= p.Bytes
		stock.share(p.Owner, func(of *Share) { of.Output -= p.Bytes })
	}

	for part := range slices.Chunk(docs, page) {
		if err := c.Loop.Held(); err != nil {
			return err
		}
		if err := c.Store.Keep(ctx, part...); err != nil {
			return err
		}
	}

	return nil
}

// printed lists the output of ended jobs that is kept.
func (c *Collector) printed(ctx context.Context, all archived) (list []retention.Printed, err error) {
	err = c.eachJob(ctx, func(j *job.Job) error {
		number, _ := j.ID.Number()
		if of := all[number]; of.kept && of.Bytes > 0 && j.State.Final() {
			list = append(list, retention.Printed{Job: j.ID, Owner: j.Owner, Ended: j.Ended, Bytes: of.Bytes})
		}

		return nil
	})

	return list, err
}

// tidyOutput removes the output that is not kept, and moves that of earlier versions.
func (c *Collector) tidyOutput(ctx context.Context, now time.Time, all archived, report *Report) error {
	if all.tidy() {
		return nil
	}

	moved := 0
	for l, err := range c.Logs.Complete(ctx) {
		if err == nil {
			err = c.Loop.Held()
		}
		if err != nil {
			return err
		}

		switch {
		case c.removable(now, all, &l):
			err = c.removeLog(ctx, l.Log, report)
		case l.Former && moved < c.movesPerPass:
			moved++
			err = c.Logs.Move(ctx, l.Log)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// removable reports whether a log is not kept: that of a job whose output is not, of which there is no record any more,
// or that has ended long ago and printed nothing.
func (c *Collector) removable(now time.Time, all archived, l *archive.Stored) bool {
	of, listed := all[numberOf(l.Log)]

	switch {
	case !listed: // it came meanwhile
		return false
	case !of.known:
		return c.Limits.Unused > 0 && now.Sub(l.At) > c.Limits.Unused
	}

	return !of.kept || of.settled && l.Bytes == 0
}

func (c *Collector) removeLog(ctx context.Context, l archive.Log, report *Report) error {
	bytes, err := c.Logs.Remove(ctx, l)
	if bytes > 0 {
		report.Outputs++
		report.Bytes += job.Bytes(bytes)
	}

	return err
}
