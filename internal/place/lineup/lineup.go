// Package lineup returns jobs in the order of a policy, without sorting those that the
// policy never looks at, and measures what orders depend on. The policies of packages
// ordered, preemptive and elastic share it. It decides nothing itself.
package lineup

import (
	"trainyard/internal/queue"
)

// Lineup hands out jobs in an order. They are kept apart by shape: one that fits
// nowhere any more is put away whole, and of the others mostly a few are wanted,
// so that sorting all of them would be a waste.
type Lineup struct {
	groups []group
	top    Heap // the first job of each group; at is the group
	shapes map[*queue.Shape]int
}

// group is the jobs of one shape, or those that run.
type group struct {
	shape *queue.Shape // nil for those that run
	jobs  Heap
}

// New returns an empty one.
func New(l *queue.Queue) *Lineup {
	return &Lineup{groups: make([]group, 1, l.Shapes()+1), shapes: make(map[*queue.Shape]int, l.Shapes())}
}

// AddRunning adds a job that runs.
func (l *Lineup) AddRunning(e Entry) { l.groups[0].jobs = append(l.groups[0].jobs, e) }

// AddQueued adds a job that waits.
func (l *Lineup) AddQueued(s *queue.Shape, e Entry) {
	at, known := l.shapes[s]
	if !known {
		at = len(l.groups)
		l.shapes[s] = at
		l.groups = append(l.groups, group{shape: s, jobs: make(Heap, 0, max(s.Count, 1))})
	}

	l.groups[at].jobs = append(l.groups[at].jobs, e)
}

// Sort puts the groups in order, when all jobs are there.
func (l *Lineup) Sort() {
	for i := range l.groups {
		if g := &l.groups[i]; len(g.jobs) > 0 {
			g.jobs.Init()
			l.push(i)
		}
	}
}

func (l *Lineup) push(group int) {
	e := l.groups[group].jobs[0]
	e.At = int32(group)
	l.top.Push(e)
}

// Next returns the next job of a shape that is open, and false after the last.
func (l *Lineup) Next(open func(*queue.Shape) bool) (Entry, bool) {
	for len(l.top) > 0 {
		at := int(l.top.Pop().At)
		g := &l.groups[at]
		if g.shape != nil && !open(g.shape) {
			continue
		}

		e := g.jobs.Pop()

		if len(g.jobs) > 0 {
			l.push(at)
		}

		return e, true
	}

	return Entry{}, false
}
