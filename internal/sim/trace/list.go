package trace

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"trainyard/internal/sim"
)

// list yields jobs that are in memory.
type list struct{ remaining []*sim.Job }

// List yields these jobs in order of submission; jobs submitted together stay in
// their order. The slice is not changed, so one workload serves many simulations.
func List(jobs []*sim.Job) sim.Jobs {
	byTime := func(a, b *sim.Job) int { return cmp.Compare(a.At, b.At) }
	if !slices.IsSortedFunc(jobs, byTime) {
		jobs = slices.Clone(jobs)
		slices.SortStableFunc(jobs, byTime)
	}

	return &list{jobs}
}

// Next returns the next job.
func (l *list) Next() (*sim.Job, error) {
	if len(l.remaining) == 0 {
		return nil, io.EOF
	}

	j := l.remaining[0]
	l.remaining = l.remaining[1:]

	return j, nil
}

// Collect reads all jobs into memory.
func Collect(jobs sim.Jobs) ([]*sim.Job, error) {
	var all []*sim.Job
	for {
		j, err := jobs.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}

		all = append(all, j)
	}
}

// first yields the first n jobs of others.
type first struct {
	jobs      sim.Jobs
	remaining int
}

// First yields the first n jobs of others.
func First(jobs sim.Jobs, n int) sim.Jobs { return &first{jobs, n} }

// Next returns the next job.
func (f *first) Next() (*sim.Job, error) {
	if f.remaining <= 0 {
		return nil, io.EOF
	}

	f.remaining--

	return f.jobs.Next()
}
