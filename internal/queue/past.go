package queue

import (
	"slices"
	"time"

	"trainyard/internal/id"
)

// Past is the durations of earlier runs, from which the duration of a job is estimated if its
// owner declares none. Runs that ended by themselves are grouped by user and number of GPUs,
// by number of GPUs, and all together; the narrowest group with enough runs is used. The zero
// value is empty.
type Past struct {
	runs map[group]*sample
}

// group is what jobs have in common that are expected to take equally long.
type group struct {
	user id.User
	gpus int // -1 for any
}

// sample is the durations of the newest runs of a group.
type sample struct {
	order  []time.Duration // in order of their ends; a ring buffer once it is full
	next   int
	sorted []time.Duration
	sum    time.Duration
	shared bool // with a clone: it is copied before it changes
}

const (
	minRuns      = 20   // of a group before it is used for an estimate
	minSurvivors = 5    // runs that took longer than the age of a run, before its remaining time is estimated
	maxRuns      = 2000 // kept of each group
)

func groups(u id.User, gpus int) [3]group { return [3]group{{u, gpus}, {"", gpus}, {"", -1}} }

// Add adds the duration of a run.
func (p *Past) Add(u id.User, gpus int, ran time.Duration) {
	if ran <= 0 {
		return
	}

	if p.runs == nil {
		p.runs = map[group]*sample{}
	}

	for _, k := range groups(u, gpus) {
		s := p.runs[k]
		if s == nil {
			s = &sample{}
		}

		s = s.own()
		s.add(ran)
		p.runs[k] = s
	}
}

func (s *sample) add(ran time.Duration) {
	if len(s.order) < maxRuns {
		s.order = append(s.order, ran)
	} else {
		old := s.order[s.next]
		s.order[s.next] = ran
		s.next = (s.next + 1) % maxRuns
		at, _ := slices.BinarySearch(s.sorted, old)
		s.sorted = slices.Delete(s.sorted, at, at+1)
		s.sum -= old
	}

	at, _ := slices.BinarySearch(s.sorted, ran)
	s.sorted = slices.Insert(s.sorted, at, ran)
	s.sum += ran
}

// MeanDuration returns the mean duration of similar runs and their number, both 0 if there are
// too few.
func (p *Past) MeanDuration(u id.User, gpus int) (mean time.Duration, count int) {
	if p == nil {
		return 0, 0
	}

	for _, k := range groups(u, gpus) {
		if s := p.runs[k]; s != nil && len(s.sorted) >= minRuns {
			return s.sum / time.Duration(len(s.sorted)), len(s.sorted)
		}
	}

	return 0, 0
}

// Interval returns the range of the middle 80 % of the durations of similar runs.
func (p *Past) Interval(u id.User, gpus int) (low, high time.Duration) {
	for _, k := range groups(u, gpus) {
		if s := p.runs[k]; s != nil && len(s.sorted) >= minRuns {
			return s.sorted[len(s.sorted)/10], s.sorted[len(s.sorted)*9/10]
		}
	}

	return 0, 0
}

// RemainingTime returns the expected remaining time of a run of this age: the median of the
// similar runs that took longer, less its age. It is 0 if there are too few of them.
func (p *Past) RemainingTime(u id.User, gpus int, age time.Duration) time.Duration {
	if p == nil {
		return 0
	}

	for _, k := range groups(u, gpus) {
		s := p.runs[k]
		if s == nil {
			continue
		}

		at, _ := slices.BinarySearch(s.sorted, age+1)
		if older := len(s.sorted) - at; older >= minSurvivors {
			return max(s.sorted[at+older/2]-age, time.Second)
		}
	}

	return 0
}
