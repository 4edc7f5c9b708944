package sql

import (
	"context"
	"slices"

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
			recordKey{string(store.RemovedDocument), clean(string(j))},
			recordKey{string(store.UseDocument), clean(string(j))})

		for _, kind := range []store.DocumentKind{store.CurveDocument, store.OutputsDocument} {
			list, err := s.Documents(ctx, store.DocumentFilter{Kind: kind, Under: string(j), Limit: maxOfJob})
			if err != nil {
				return err
			}

			for k := range list {
				docs = append(docs, recordKey{string(kind), clean(list[k].ID)})
			}
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

	arrays, err := s.arraysOf(ctx, numbers)
	if err != nil {
		return err
	}

	steps = append(steps, step{stmtKey{table: emptyArrays, remove: true}, len(arrays),
		func(i int, args []any) ([]any, error) { return append(args, arrays[i]), nil }})

	return s.alone(ctx, "delete jobs", steps...)
}

// arraysOf returns the numbers of the arrays of which jobs are elements.
func (s *Store) arraysOf(ctx context.Context, jobs []int64) ([]int64, error) {
	var all []int64

	for part := range slices.Chunk(jobs, maxPage) {
		nums := make([]any, len(part))
		for i := range part {
			nums[i] = part[i]
		}

		var w where
		w.add("num IN ("+marks(len(nums))+")", nums...)
		w.add("array_num > 0")

		found, err := collect(ctx, s.read, "array", "SELECT DISTINCT array_num FROM jobs "+w.conditions(), w.args, readNumber)
		if err != nil {
			return nil, err
		}

		all = append(all, found...)
	}

	slices.Sort(all)

	return slices.Compact(all), nil
}

// maxOfJob is more than a job has metrics, or ranks of runs.
const maxOfJob = 10_000

// ForgetEvents deletes events.
func (s *Store) ForgetEvents(ctx context.Context, seqs ...uint64) error {
	return s.alone(ctx, "delete events",
		step{stmtKey{table: eventRows, remove: true}, len(seqs), func(i int, args []any) ([]any, error) {
			return append(args, int64(seqs[i])), nil
		}})
}
