package sql

import (
	"context"

	"trainyard/internal/id"
	"trainyard/internal/store"
)

// The tables with rows of a job, by its number.
var jobRows = []*table{
	{name: "runs", key: "num"},
	{name: "job_nodes", key: "num"},
	{name: "questions", key: "num"},
	{name: "checkpoints", key: "num"},
	{name: "jobs", key: "num"},
}

var eventRows = &table{name: "events", key: "seq"}

// ForgetJobs deletes jobs and all that belongs to them alone.
func (s *Store) ForgetJobs(ctx context.Context, jobs ...id.Job) error {
	numbers := make([]int64, len(jobs))
	var docs []recordKey

	for i, j := range jobs {
		n, err := jobNumber(j)
		if err != nil {
			return err
		}

		numbers[i] = n
		docs = append(docs, recordKey{string(store.ForecastDocument), clean(string(j))},
			recordKey{string(store.RemovedDocument), clean(string(j))})

		curves, err := s.Documents(ctx, store.DocumentFilter{Kind: store.CurveDocument, Under: string(j), Limit: maxCurves})
		if err != nil {
			return err
		}

		for k := range curves {
			docs = append(docs, recordKey{string(store.CurveDocument), clean(curves[k].ID)})
		}
	}

	steps := []step{{stmtKey{table: documentTable, remove: true}, len(docs), func(i int, args []any) ([]any, error) {
		return append(args, docs[i].kind, docs[i].id), nil
	}}}

	for _, t := range jobRows {
		steps = append(steps, step{stmtKey{table: t, remove: true}, len(numbers), func(i int, args []any) ([]any, error) {
			return append(args, numbers[i]), nil
		}})
	}

	return s.alone(ctx, "delete jobs", steps...)
}

// maxCurves is more than a job has metrics.
const maxCurves = 10_000

// ForgetEvents deletes events.
func (s *Store) ForgetEvents(ctx context.Context, seqs ...uint64) error {
	return s.alone(ctx, "delete events",
		step{stmtKey{table: eventRows, remove: true}, len(seqs), func(i int, args []any) ([]any, error) {
			return append(args, int64(seqs[i])), nil
		}})
}
