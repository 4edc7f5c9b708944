package queue

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
)

// Past is the durations of earlier runs that succeeded, on what their jobs ask for, from which the duration of a
// job is estimated if its owner declares none. They are grouped by what the user ran, by user and number of GPUs,
// by number of GPUs, and all together; the narrowest group with enough runs is used. The zero value is empty.
type Past struct {
	runs map[group]*sample
	last uint64 // number of the newest run
}

// PastRun is one of these runs, as it is stored.
type PastRun struct {
	Number  uint64 // counts the runs that were added
	User    id.User
	Program string // key of the program; "" if unknown
	GPUs    int
	Ran     time.Duration // on what its job asks for
}

// Kin is what jobs are compared by.
type Kin struct {
	User    id.User
	Program Program
	GPUs    int // that it asks for, of all nodes together
}

// Program is what a job runs.
type Program struct {
	Key   string `json:",omitempty"` // the same for runs with other data, numbers or seeds; "" if unknown
	Label string `json:",omitempty"` // for people: train.py
}

// KinOf returns what a queued job is compared by.
func KinOf(it *Item) Kin {
	return Kin{User: it.User, Program: it.Program, GPUs: it.Shape.Need.GPUs * it.Shape.Need.Nodes}
}

// group is what jobs have in common that are expected to take equally long.
type group struct {
	user    id.User
	program string
	gpus    int // -1 for any
}

// sample is the durations of the newest runs of a group.
type sample struct {
	order  []numberedRun // in order of their ends; a ring buffer once it is full
	next   int
	sorted []time.Duration
	sum    time.Duration
	shared bool // with a clone: it is copied before it changes
}

// numberedRun is a run in the sample of a group.
type numberedRun struct {
	number    uint64
	ran       time.Duration
	narrowest bool // the group is the narrowest that it belongs to
}

const (
	minRuns      = 20   // of a group before it is used for an estimate
	minAlike     = 5    // of a group that ran the same program
	minSurvivors = 5    // runs that took longer than the age of a run, before its remaining time is estimated
	maxRuns      = 2000 // kept of each group
)

// groups returns the groups that a job belongs to, the narrowest first, and which of them is the first that counts: a
// job of which it is not known what it runs is in none of the first kind.
func groups(k *Kin) (all [4]group, first int) {
	all = [4]group{{k.User, k.Program.Key, k.GPUs}, {k.User, "", k.GPUs}, {"", "", k.GPUs}, {"", "", -1}}
	if k.Program.Key == "" {
		first = 1
	}

	return all, first
}

// enough is how many runs of a group are needed for an estimate.
func (g *group) enough() int {
	if g.program != "" {
		return minAlike
	}

	return minRuns
}

// describe says what so many runs of a group have in common.
func (g *group) describe(k *Kin, count int) string {
	switch {
	case g.program != "":
		return humanize.Count(count, "past run") + " of " + k.Program.Label
	case g.user != "":
		return humanize.Count(count, "past job") + " of " + string(g.user) + " with " + humanize.Count(g.gpus, "GPU")
	case g.gpus >= 0:
		return humanize.Count(count, "past job") + " with " + humanize.Count(g.gpus, "GPU")
	}

	return humanize.Count(count, "past job")
}

// Add adds the duration of a run that succeeded, as it would have been on what its job asks for. It returns the run
// to store; its number is 0 if it says nothing. forgotten are the numbers of the runs for which there is no room any
// more.
func (p *Past) Add(k Kin, ran time.Duration) (added PastRun, forgotten []uint64) {
	if ran <= 0 {
		return PastRun{}, nil
	}

	added = PastRun{Number: p.last + 1, User: k.User, Program: k.Program.Key, GPUs: k.GPUs, Ran: ran}

	return added, p.add(&added)
}

// Load adds runs that were stored, in any order. It returns the numbers of those for which there is no room.
func (p *Past) Load(runs []PastRun) (forgotten []uint64) {
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b PastRun) int { return cmp.Compare(a.Number, b.Number) })

	for i := range sorted {
		forgotten = append(forgotten, p.add(&sorted[i])...)
	}

	return forgotten
}

// add adds a run to all its groups. A run that leaves the narrowest of them has left the others before, because
// these contain all runs of the narrowest one: it is then forgotten, and its number returned.
func (p *Past) add(run *PastRun) (forgotten []uint64) {
	if p.runs == nil {
		p.runs = map[group]*sample{}
	}

	p.last = max(p.last, run.Number)

	k := Kin{User: run.User, Program: Program{Key: run.Program}, GPUs: run.GPUs}
	all, first := groups(&k)

	for i, g := range all[first:] {
		s := p.runs[g]

		switch {
		case s == nil:
			s = &sample{}
			p.runs[g] = s
		case s.shared:
			s = s.clone()
			p.runs[g] = s
		}

		if old := s.add(numberedRun{run.Number, run.Ran, i == 0}); old.narrowest {
			forgotten = append(forgotten, old.number)
		}
	}

	return forgotten
}

// add adds a run and returns the one whose room it takes.
func (s *sample) add(run numberedRun) (old numberedRun) {
	s.sum += run.ran
	to, _ := slices.BinarySearch(s.sorted, run.ran)

	if len(s.order) < maxRuns {
		s.order = append(s.order, run)
		s.sorted = slices.Insert(s.sorted, to, run.ran)

		return numberedRun{}
	}

	old = s.order[s.next]
	s.order[s.next] = run
	s.next = (s.next + 1) % maxRuns
	s.sum -= old.ran

	// Only the durations between the two move.
	from, _ := slices.BinarySearch(s.sorted, old.ran)
	if from < to {
		to--
		copy(s.sorted[from:to], s.sorted[from+1:to+1])
	} else {
		copy(s.sorted[to+1:from+1], s.sorted[to:from])
	}

	s.sorted[to] = run.ran

	return old
}

// Version changes with every run that is added.
func (p *Past) Version() uint64 {
	if p == nil {
		return 0
	}

	return p.last
}

// Estimate is how long jobs like one took.
type Estimate struct {
	Mean      time.Duration
	Low, High time.Duration // of the middle 80 %
	Basis     string        // which jobs those are: "12 past runs of train.py"
	Guess     bool          // they share no more with it than their user or the number of their GPUs
}

// Estimate returns how long jobs like one took, and false if there are too few.
func (p *Past) Estimate(k Kin) (Estimate, bool) {
	if p == nil {
		return Estimate{}, false
	}

	all, first := groups(&k)

	for _, g := range all[first:] {
		s := p.runs[g]
		if s == nil || len(s.sorted) < g.enough() {
			continue
		}

		n := len(s.sorted)

		return Estimate{
			Mean: s.sum / time.Duration(n), Low: s.sorted[n/10], High: s.sorted[n*9/10], Basis: g.describe(&k, n),
			Guess: g.program == "",
		}, true
	}

	return Estimate{}, false
}

// RemainingTime returns the expected remaining time of a run of this age: the median of the
// similar runs that took longer, less its age. It is 0 if there are too few of them.
func (p *Past) RemainingTime(k Kin, age time.Duration) time.Duration {
	if p == nil {
		return 0
	}

	all, first := groups(&k)

	for _, g := range all[first:] {
		s := p.runs[g]
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
