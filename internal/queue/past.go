package queue

import (
	"slices"
	"time"

	"trainyard/internal/id"
)

// Past is how long earlier jobs ran: what there is to go by when nobody says how long
// a job will take. It is learned from jobs that ended by themselves, by user and
// number of GPUs, by number of GPUs, and of all; the narrowest with enough of them
// speaks. The zero value knows nothing.
type Past struct {
	runs map[kin]*sample
}

// kin is what jobs have in common that are expected to run alike.
type kin struct {
	user id.User
	gpus int // -1 for any
}

// sample is the run times of the newest jobs of a kin.
type sample struct {
	order  []time.Duration // as they came; a ring once it is full
	next   int
	sorted []time.Duration
	sum    time.Duration
	shared bool // a clone reads it: it is copied before it changes
}

const (
	enoughRuns = 20   // before a kin says how long a job will run
	enoughOld  = 5    // that got as old, before it says how long one that runs has left
	keptRuns   = 2000 // of each kin
)

func kins(u id.User, gpus int) [3]kin { return [3]kin{{u, gpus}, {"", gpus}, {"", -1}} }

// Add takes note of a job that ran for so long.
func (p *Past) Add(u id.User, gpus int, ran time.Duration) {
	if ran <= 0 {
		return
	}

	if p.runs == nil {
		p.runs = map[kin]*sample{}
	}

	for _, k := range kins(u, gpus) {
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
	if len(s.order) < keptRuns {
		s.order = append(s.order, ran)
	} else {
		old := s.order[s.next]
		s.order[s.next] = ran
		s.next = (s.next + 1) % keptRuns
		at, _ := slices.BinarySearch(s.sorted, old)
		s.sorted = slices.Delete(s.sorted, at, at+1)
		s.sum -= old
	}

	at, _ := slices.BinarySearch(s.sorted, ran)
	s.sorted = slices.Insert(s.sorted, at, ran)
	s.sum += ran
}

// Expect returns how long a job is expected to run, on average, and how many earlier
// ones that rests on. It is 0 if too little is known.
func (p *Past) Expect(u id.User, gpus int) (mean time.Duration, of int) {
	if p == nil {
		return 0, 0
	}

	for _, k := range kins(u, gpus) {
		if s := p.runs[k]; s != nil && len(s.sorted) >= enoughRuns {
			return s.sum / time.Duration(len(s.sorted)), len(s.sorted)
		}
	}

	return 0, 0
}

// Span returns between what times four out of five such jobs ended.
func (p *Past) Span(u id.User, gpus int) (low, high time.Duration) {
	for _, k := range kins(u, gpus) {
		if s := p.runs[k]; s != nil && len(s.sorted) >= enoughRuns {
			return s.sorted[len(s.sorted)/10], s.sorted[len(s.sorted)*9/10]
		}
	}

	return 0, 0
}

// Left returns how much longer a job is expected to run that has run for so long: until
// half of those that got as old had ended. It is 0 if too little is known.
func (p *Past) Left(u id.User, gpus int, age time.Duration) time.Duration {
	if p == nil {
		return 0
	}

	for _, k := range kins(u, gpus) {
		s := p.runs[k]
		if s == nil {
			continue
		}

		at, _ := slices.BinarySearch(s.sorted, age+1)
		if older := len(s.sorted) - at; older >= enoughOld {
			return max(s.sorted[at+older/2]-age, time.Second)
		}
	}

	return 0
}
