package baseline

import (
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// lineup hands out jobs in an order. They are kept apart by shape: one that fits
// nowhere any more is put away whole, and of the others mostly a few are wanted,
// so that neither a sort of all of them nor a look at each is needed.
type lineup struct {
	groups []group
	top    heap // the first job of each group; at is the group
	shapes map[*queue.Shape]int
}

// group is the jobs of one shape, or those that run.
type group struct {
	shape  *queue.Shape // nil for those that run
	jobs   heap
	heaped bool // jobs is a heap; before that only the first is in its place
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

// ready finds the first of each group.
func (l *lineup) ready() {
	for i := range l.groups {
		g := &l.groups[i]
		if len(g.jobs) == 0 {
			continue
		}
		first := 0
		for k := range g.jobs {
			if g.jobs[k].before(&g.jobs[first]) {
				first = k
			}
		}
		g.jobs[0], g.jobs[first] = g.jobs[first], g.jobs[0]
		l.push(i)
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
		e := g.jobs[0]
		if !g.heaped {
			g.heaped = true
			g.jobs.init()
		}
		if g.jobs.pop(); len(g.jobs) > 0 {
			l.push(at)
		}
		return e, true
	}
	return entry{}, false
}

// lineUp ranks the waiting jobs.
func lineUp(v *place.View, items []*queue.Item, score score) *lineup {
	l := newLineup(v.Line)
	for i, it := range items {
		l.waiting(it.Shape, entry{first: score(it), number: it.Number, at: int32(i)})
	}
	l.ready()
	return l
}
