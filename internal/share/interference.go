package share

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"time"

	"trainyard/internal/job"
)

// Interference is how fast jobs are beside others, as it was observed: their speed beside a neighbour, as a part of
// what their share of the GPU gives them alone. It is learned for pairs of kinds of jobs. A pair that was seen little
// is assumed to be like the job is beside others, and a job that was seen little like any other.
//
// A nil Interference has seen nothing.
type Interference struct {
	pairs  map[pair]*seen
	kinds  map[string]*seen
	parted map[pair]bool // the lesser name first
}

type pair struct{ job, beside string }

// seen is the mean of observations, of which older ones count less.
type seen struct {
	mean   float64
	weight float64 // at that time
	at     time.Time
}

const (
	// usual is what a job reaches of its share beside another, as measured on an H200: between 98.0 and 99.8 % with
	// tokens, and 94.5 % without.
	usual = 0.97
	// trust is how many observations count as much as what is assumed without them.
	trust = 3
	// halfLife is after what time an observation counts half: programs, drivers and neighbours change.
	halfLife = 7 * 24 * time.Hour

	// A pair is parted if one of both is slower than partBelow, and stands together again above joinAbove. Between
	// them it stays as it is, so that it does not go back and forth.
	partBelow = 0.70
	joinAbove = 0.85
	// fewSeen is how many observations a pair needs before it is parted.
	fewSeen = 3

	// What is taken for an observation. More than its share is what others left: it says nothing about how they
	// disturb the job, and would hide that one of them does.
	slowest, fastest = 0.01, 1

	// least is the weight below which an observation is forgotten, and maxPairs how many pairs are kept.
	least    = 0.05
	maxPairs = 4096
)

// NewInterference returns one that has seen nothing.
func NewInterference() *Interference {
	return &Interference{pairs: map[pair]*seen{}, kinds: map[string]*seen{}, parted: map[pair]bool{}}
}

// Observe records how fast a job was beside another. A speed that cannot be is left out. It returns the keys of the
// records that it forgets to make room for a pair that was not seen before.
func (t *Interference) Observe(now time.Time, job, beside string, speed float64) (forgotten []string) {
	if job == "" || beside == "" || math.IsNaN(speed) || speed <= 0 {
		return nil
	}

	speed = min(max(speed, slowest), fastest)
	p := pair{job, beside}

	if t.pairs[p] == nil {
		forgotten = t.makeRoom(now)
		t.pairs[p] = &seen{at: now}
	}
	if t.kinds[job] == nil {
		t.kinds[job] = &seen{at: now}
	}

	t.pairs[p].add(now, speed)
	t.kinds[job].add(now, speed)

	switch worst := min(t.pairSpeed(now, job, beside), t.pairSpeed(now, beside, job)); {
	case worst < partBelow && t.pairs[p].weightAt(now) >= fewSeen-tiny:
		t.parted[p.ordered()] = true
	case worst > joinAbove:
		delete(t.parted, p.ordered())
	}

	return forgotten
}

// makeRoom forgets what has faded if no other pair can be kept, and the pair of which the least counts if nothing has.
func (t *Interference) makeRoom(now time.Time) (forgotten []string) {
	if len(t.pairs) < maxPairs {
		return nil
	}

	var lightest pair

	weight := math.Inf(1)
	for p, s := range t.pairs {
		w := s.weightAt(now)
		if w < least {
			forgotten = append(forgotten, t.forget(p))
			continue
		}

		if w < weight || w == weight && cmp.Or(cmp.Compare(p.job, lightest.job), cmp.Compare(p.beside, lightest.beside)) < 0 {
			lightest, weight = p, w
		}
	}

	if len(forgotten) == 0 {
		forgotten = append(forgotten, t.forget(lightest))
	}

	known := map[string]bool{}
	for p := range t.pairs {
		known[p.job] = true
	}

	for kind := range t.kinds {
		if !known[kind] {
			r := t.ofKind(kind)
			forgotten = append(forgotten, r.Key())
			delete(t.kinds, kind)
		}
	}

	slices.Sort(forgotten)

	return forgotten
}

// forget forgets a pair, and returns the key of its record.
func (t *Interference) forget(p pair) string {
	r := t.ofPair(p)
	delete(t.pairs, p)

	if t.pairs[pair{p.beside, p.job}] == nil {
		delete(t.parted, p.ordered())
	}

	return r.Key()
}

func (s *seen) weightAt(now time.Time) float64 {
	if s == nil {
		return 0
	}

	return s.weight * math.Exp2(-max(now.Sub(s.at), 0).Hours()/halfLife.Hours())
}

func (s *seen) add(now time.Time, value float64) {
	old := s.weightAt(now)
	s.mean = (s.mean*old + value) / (old + 1)
	s.weight = old + 1

	if now.After(s.at) {
		s.at = now
	}
}

// towards returns the mean of the observations and of what is assumed without them.
func (s *seen) towards(now time.Time, prior float64) float64 {
	if s == nil {
		return prior
	}

	n := s.weightAt(now)

	return (s.mean*n + prior*trust) / (n + trust)
}

func (p pair) ordered() pair { return pair{min(p.job, p.beside), max(p.job, p.beside)} }

func (t *Interference) pairSpeed(now time.Time, job, beside string) float64 {
	return t.pairs[pair{job, beside}].towards(now, t.kinds[job].towards(now, usual))
}

// Speed returns how fast a job is expected to be beside others, as a part of what its share gives it alone. What
// each of them costs it comes on top of what the others do.
func (t *Interference) Speed(now time.Time, job string, cuts []Cut) float64 {
	speed := 1.0
	for i := range cuts {
		if t == nil {
			speed *= usual
			continue
		}

		speed *= t.pairSpeed(now, job, cuts[i].Kind)
	}

	return max(speed, slowest)
}

// Parted reports whether two kinds of jobs do so badly together that they are kept apart. As time passes without
// observations, what was seen counts less, and they are tried together again.
func (t *Interference) Parted(now time.Time, a, b string) bool {
	return t != nil && t.parted[pair{a, b}.ordered()] &&
		min(t.pairSpeed(now, a, b), t.pairSpeed(now, b, a)) <= joinAbove
}

// AnyParted reports whether some kinds of jobs are kept apart, or were.
func (t *Interference) AnyParted() bool { return t != nil && len(t.parted) > 0 }

// PartedFrom returns the first of the jobs on a GPU from which a job is kept apart, nil if there is none.
func (t *Interference) PartedFrom(now time.Time, job string, cuts []Cut) *Cut {
	if !t.AnyParted() {
		return nil
	}

	for i := range cuts {
		if t.Parted(now, job, cuts[i].Kind) {
			return &cuts[i]
		}
	}

	return nil
}

// Leaving returns the index of the job that leaves a GPU on which two that are kept apart stand together, -1 if there
// are none: of both the one of the lower class, then with the smaller share, then that came later.
func (t *Interference) Leaving(now time.Time, cuts []Cut) int {
	for i := range cuts {
		for k := i + 1; k < len(cuts); k++ {
			if !t.Parted(now, cuts[i].Kind, cuts[k].Kind) {
				continue
			}

			if cmp.Or(cmp.Compare(rank(cuts[i].Class), rank(cuts[k].Class)), cmp.Compare(cuts[i].Share, cuts[k].Share)) < 0 {
				return i
			}

			return k
		}
	}

	return -1
}

// rank orders the classes, the lowest first.
func rank(c job.ShareClass) int {
	switch c {
	case job.ShareOpportunistic:
		return 0
	case job.ShareGuaranteed:
		return 2
	case job.ShareNormal, "":
	}

	return 1
}

// Record is what was seen of one kind of job, beside another or beside all others. It is how an Interference is stored.
type Record struct {
	Job    string    `json:"job"`
	Beside string    `json:"beside,omitempty"` // "" for the job beside all others
	Speed  float64   `json:"speed"`
	Weight float64   `json:"weight"`
	At     time.Time `json:"at"`
	Parted bool      `json:"parted,omitempty"`
}

// MarshalJSON writes what was seen, in order.
func (t *Interference) MarshalJSON() ([]byte, error) {
	list := make([]Record, 0, len(t.pairs)+len(t.kinds))
	for k := range t.kinds {
		list = append(list, t.ofKind(k))
	}

	for p := range t.pairs {
		list = append(list, t.ofPair(p))
	}

	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Beside, b.Beside))
	})

	return json.Marshal(list)
}

func (t *Interference) ofKind(k string) Record {
	s := t.kinds[k]

	return Record{Job: k, Speed: s.mean, Weight: s.weight, At: s.at}
}

func (t *Interference) ofPair(p pair) Record {
	s := t.pairs[p]

	return Record{p.job, p.beside, s.mean, s.weight, s.at, t.parted[p.ordered()]}
}

// Key names what a record is about. No two records of an Interference have the same.
func (r *Record) Key() string { return r.Job + "\n" + r.Beside }

// Records returns what changes when a job is observed beside another.
func (t *Interference) Records(job, beside string) []Record {
	var list []Record
	if t.kinds[job] != nil {
		list = append(list, t.ofKind(job))
	}

	for _, p := range []pair{{job, beside}, {beside, job}} {
		if t.pairs[p] != nil && (p.job != p.beside || len(list) < 2) {
			list = append(list, t.ofPair(p))
		}
	}

	return list
}

// Faded reports whether so little counts of a record by now that it may be forgotten.
func (r *Record) Faded(now time.Time) bool {
	s := seen{r.Speed, r.Weight, r.At}

	return s.weightAt(now) < least
}

// Clone returns a copy that does not change with this one.
func (t *Interference) Clone() *Interference {
	c := NewInterference()
	if t == nil {
		return c
	}

	for p, s := range t.pairs {
		c.pairs[p] = new(*s)
	}

	for k, s := range t.kinds {
		c.kinds[k] = new(*s)
	}

	maps.Copy(c.parted, t.parted)

	return c
}

// Add restores a record.
func (t *Interference) Add(r *Record) {
	s := &seen{r.Speed, r.Weight, r.At}
	if r.Beside == "" {
		t.kinds[r.Job] = s
		return
	}

	p := pair{r.Job, r.Beside}
	t.pairs[p] = s
	if r.Parted {
		t.parted[p.ordered()] = true
	}
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Interference) UnmarshalJSON(text []byte) error {
	var list []Record
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}

	*t = *NewInterference()
	for i := range list {
		t.Add(&list[i])
	}

	return nil
}
