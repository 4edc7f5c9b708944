package queue

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/id"
)

// Standings knows how many jobs are ahead of each queued job. A walk would have to come to the job; here the jobs of
// each user and priority are summed up in parts, of which only those are looked at that decide. A Standing of a moment
// stays as it is while the standings go on. They are not safe for concurrent use. The zero value is empty.
type Standings struct {
	lines   []*line // by priority, highest first, then by user
	edit    uint64  // grows with each Standing
	changed bool    // since the last Standing
}

// line is the queued jobs of one user with one priority, in order of submission.
type line struct {
	user     id.User
	priority int
	edit     uint64 // in which it was made; it is copied before it is changed in a later one
	count    int
	cost     float64
	parts    []*part
}

// part is some jobs of a line that follow each other.
type part struct {
	edit uint64
	cost float64
	jobs []charged
}

// charged is a queued job and what its user is charged for it in a walk.
type charged struct {
	number uint64
	cost   float64
}

// maxPart bounds the jobs of a part, which is copied when one of them changes.
const maxPart = 64

// Standing is the order of the queue at one moment. It never changes.
type Standing struct {
	lines []*line
	usage []Decay // of the user of each line
}

// Decay is usage that decays and grows.
type Decay struct {
	Use  float64   // in GPU-seconds, as of At
	Rate float64   // weight of the runs since
	At   time.Time // zero for no usage
}

// By returns the usage at a time.
func (d *Decay) By(now time.Time) float64 { return Decayed(d.Use, d.Rate, now.Sub(d.At)) }

// Add adds a job to the standings.
func (s *Standings) Add(it *Item) {
	l := s.own(it)
	at := max(l.find(it.Number), 0)
	if len(l.parts) == 0 {
		l.parts = append(l.parts, &part{edit: s.edit})
	}

	p := l.ownPart(at, s.edit)
	where, found := p.find(it.Number)
	if found {
		return
	}

	p.jobs = slices.Insert(p.jobs, where, charged{it.Number, it.Cost})
	p.sum()

	if len(p.jobs) > maxPart {
		rest := &part{edit: s.edit, jobs: slices.Clone(p.jobs[maxPart/2:])}
		if where == maxPart { // it was added at the end, as most are: what is full stays full
			rest.jobs = slices.Clone(p.jobs[maxPart:])
		}

		p.jobs = slices.Clip(p.jobs[:len(p.jobs)-len(rest.jobs)])
		p.sum()
		rest.sum()
		l.parts = slices.Insert(l.parts, at+1, rest)
	}

	l.count++
	l.sum()
}

// Remove removes a job from the standings.
func (s *Standings) Remove(it *Item) {
	at, found := s.find(it.Priority, it.User)
	if !found {
		return
	}

	l := s.own(it)
	k := l.find(it.Number)
	if k < 0 {
		return
	}

	p := l.ownPart(k, s.edit)
	where, found := p.find(it.Number)
	if !found {
		return
	}

	p.jobs = slices.Delete(p.jobs, where, where+1)
	p.sum()

	if len(p.jobs) == 0 {
		l.parts = slices.Delete(l.parts, k, k+1)
	}

	l.count--
	l.sum()

	if l.count == 0 {
		s.lines = slices.Delete(s.lines, at, at+1)
	}
}

// Standing returns the standings as they are now, with the usage of each user.
func (s *Standings) Standing(usage func(id.User) Decay) *Standing {
	now := &Standing{lines: slices.Clone(s.lines), usage: make([]Decay, len(s.lines))}
	for i, l := range s.lines {
		now.usage[i] = usage(l.user)
	}

	s.edit++
	s.changed = false

	return now
}

// Changed reports whether a job was added or removed since the last Standing.
func (s *Standings) Changed() bool { return s.changed }

func (s *Standings) find(priority int, user id.User) (int, bool) {
	return findLine(s.lines, priority, user)
}

func findLine(lines []*line, priority int, user id.User) (int, bool) {
	return slices.BinarySearchFunc(lines, user, func(l *line, user id.User) int {
		return cmp.Or(cmp.Compare(priority, l.priority), cmp.Compare(l.user, user))
	})
}

// own returns the line of a job, which may be changed, and creates it if it is missing.
func (s *Standings) own(it *Item) *line {
	s.changed = true
	at, found := s.find(it.Priority, it.User)

	switch {
	case !found:
		s.lines = slices.Insert(s.lines, at, &line{user: it.User, priority: it.Priority, edit: s.edit})
	case s.lines[at].edit != s.edit:
		l := *s.lines[at]
		l.edit, l.parts = s.edit, slices.Clone(l.parts)
		s.lines[at] = &l
	}

	return s.lines[at]
}

// find returns the index of the part in which a job with a number is, or would be; -1 if it comes before all.
func (l *line) find(number uint64) int {
	at, found := slices.BinarySearchFunc(l.parts, number, func(p *part, n uint64) int {
		return cmp.Compare(p.jobs[0].number, n)
	})
	if found {
		return at
	}

	return at - 1
}

// ownPart returns a part of the line that may be changed.
func (l *line) ownPart(at int, edit uint64) *part {
	if p := l.parts[at]; p.edit != edit {
		l.parts[at] = &part{edit: edit, cost: p.cost, jobs: append(make([]charged, 0, maxPart+1), p.jobs...)}
	}

	return l.parts[at]
}

func (p *part) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(p.jobs, number, func(c charged, n uint64) int { return cmp.Compare(c.number, n) })
}

func (p *part) sum() {
	p.cost = 0
	for i := range p.jobs {
		p.cost += p.jobs[i].cost
	}
}

func (l *line) sum() {
	l.cost = 0
	for _, p := range l.parts {
		l.cost += p.cost
	}
}

// Position returns the position of a job in the queue, from 1: how many jobs a walk at a time yields until it yields
// this one. It is 0 if the job is not queued.
func (s *Standing) Position(now time.Time, priority int, user id.User, number uint64) int {
	mine, found := findLine(s.lines, priority, user)
	if !found {
		return 0
	}

	// What users are charged for their jobs of higher priorities, which all come before.
	ahead, before := 0, map[id.User]float64{}
	first := slices.IndexFunc(s.lines, func(l *line) bool { return l.priority == priority })
	for _, l := range s.lines[:first] {
		ahead += l.count
		before[l.user] += l.cost
	}

	charge := s.usage[mine].By(now) + before[user]
	rank, charge, found := s.lines[mine].until(number, charge)
	if !found {
		return 0
	}

	ahead += rank
	for i := first; i < len(s.lines) && s.lines[i].priority == priority; i++ {
		if i != mine {
			ahead += s.lines[i].ahead(s.usage[i].By(now)+before[s.lines[i].user], charge, number)
		}
	}

	return ahead + 1
}

// until returns how many jobs of the line come before one of them, and what their user is charged when it is the turn
// of that one.
func (l *line) until(number uint64, charge float64) (rank int, total float64, found bool) {
	at := l.find(number)
	if at < 0 {
		return 0, 0, false
	}

	for _, p := range l.parts[:at] {
		rank += len(p.jobs)
		charge += p.cost
	}

	where, found := l.parts[at].find(number)
	for _, c := range l.parts[at].jobs[:where] {
		charge += c.cost
	}

	return rank + where, charge, found
}

// ahead returns how many jobs of the line come before a job of another user, which is charged so much when it is the
// turn of that job. The user of the line is charged as from.
func (l *line) ahead(from, charge float64, number uint64) int {
	count := 0

	for _, p := range l.parts {
		if from+p.cost < charge {
			count += len(p.jobs)
			from += p.cost

			continue
		}

		for _, c := range p.jobs {
			if from > charge || from == charge && c.number > number {
				return count
			}

			count++
			from += c.cost
		}
	}

	return count
}
