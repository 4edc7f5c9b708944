package baseline

import "trainyard/internal/queue"

// lineup hands out jobs in an order. They are kept apart by shape: one that fits
// nowhere any more is put away whole, and of the others mostly a few are wanted,
// so that sorting all of them would be a waste.
type lineup struct {
	groups []group
	top    heap // the first job of each group; at is the group
	shapes map[*queue.Shape]int
}

// group is the jobs of one shape, or those that run.
type group struct {
	shape *queue.Shape // nil for those that run
	jobs  heap
}

// newLineup returns an empty one.
func newLineup(l *queue.Line) *lineup {
	return &lineup{groups: make([]group, 1, l.Shapes()+1), shapes: make(map[*queue.Shape]int, l.Shapes())}
}

// running adds a job that runs.
func (l *lineup) running(e entry) { l.groups[0].jobs = append(l.groups[0].jobs, e) }

// waiting adds a job that waits.
func (l *lineup) waiting(s *queue.Shape, e entry) {
	at, known := l.shapes[s]
	if !known {
		at = len(l.groups)
		l.shapes[s] = at
		l.groups = append(l.groups, group{shape: s, jobs: make(heap, 0, max(s.Count, 1))})
	}
	l.groups[at].jobs = append(l.groups[at].jobs, e)
}

// ready puts the groups in order, when all jobs are there.
func (l *lineup) ready() {
	for i := range l.groups {
		if g := &l.groups[i]; len(g.jobs) > 0 {
			g.jobs.init()
			l.push(i)
		}
	}
}

func (l *lineup) push(group int) {
	e := l.groups[group].jobs[0]
	e.at = int32(group)
	l.top.push(e)
}

// next returns the next job of a shape that is open, and false after the last.
func (l *lineup) next(open func(*queue.Shape) bool) (entry, bool) {
	for len(l.top) > 0 {
		at := int(l.top.pop().at)
		g := &l.groups[at]
		if g.shape != nil && !open(g.shape) {
			continue
		}
		e := g.jobs.pop()
		if len(g.jobs) > 0 {
			l.push(at)
		}
		return e, true
	}
	return entry{}, false
}
