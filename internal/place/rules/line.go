package rules

import (
	"cmp"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// line is what is known of the jobs from round to round: of each that waits how long it
// lasts and what that makes it worth, in the order of the last round, and who has jobs
// here. A job's description holds for its stay in the line, and is dropped with it.
type line struct {
	of       *queue.Line
	offered  bool   // there was something to hire: jobs have a patience
	serial   uint64 // of the floor
	stays    []stay // by order of submission
	spare    []stay
	order    []*wait // as they were considered last, then the new ones
	jobs     map[id.Job]*wait
	shapes   map[*queue.Shape]*shape
	hired    []*wait // for which nodes are hired
	users    queue.Portions[id.User]
	projects queue.Portions[id.Project]
	running  []*place.Running // as the view had them
	cheap    []cheap          // those of them that could be stopped for others, by order of submission
}

// stay is a job's stay in the line.
type stay struct {
	count uint64
	w     *wait
	open  bool // it is to be described anew in each round
}

// cheap is a running job that could be stopped for others.
type cheap struct {
	*place.Running
	item    *queue.Item // as it was when the rest was looked up
	outlook *job.Outlook
	takes   timeline.Size
	gpus    uint64
	room    int32
	serial  uint64 // of the floor with that room
}

// update brings the line up to date with a view.
func (l *line) update(e *engine) {
	v := e.view
	if l.of != v.Line {
		*l = line{of: v.Line, jobs: map[id.Job]*wait{}, shapes: map[*queue.Shape]*shape{}}
	}
	if l.serial != e.timeline.Version() {
		l.serial = e.timeline.Version()
		l.unprice()
	}
	l.run(v.Running)
	if offered := len(v.Offers) > 0; offered != l.offered {
		l.offered = offered
		for i := range l.stays {
			l.stays[i].open = true
		}
	}
	e.policy.seen.forget(v.Line)
	l.walk(e)
}

// walk compares the jobs in line with those that were there, and describes the new ones.
func (l *line) walk(e *engine) {
	old, next := l.stays, l.spare[:0]
	for count, it := range e.view.Line.Stays {
		for len(old) > 0 && old[0].count != count && old[0].w.it.Number <= it.Number {
			l.leave(old[0].w)
			old = old[1:]
		}
		var s stay
		if len(old) > 0 && old[0].count == count {
			s, old = old[0], old[1:]
		} else {
			s = stay{count, l.enter(it), true}
			l.order = append(l.order, s.w)
		}
		if s.open {
			s.open = e.describe(s.w)
		}
		next = append(next, s)
	}
	for _, s := range old {
		l.leave(s.w)
	}
	clear(l.stays)
	l.stays, l.spare = next, l.stays
}

func newWait(it *queue.Item, s *shape, u *queue.Portion[id.User]) *wait {
	return &wait{
		it: it, shape: s, user: u, priority: it.Priority, number: it.Number,
		plain: it.Outlook == nil || it.Outlook.Speed == nil, patient: it.Spec != nil && it.Spec.Objective == job.ObjectiveCost,
	}
}

func (l *line) enter(it *queue.Item) *wait {
	w := newWait(it, l.shape(it.Shape), l.users.Join(it.User))
	if it.Project != "" {
		w.project = l.projects.Join(it.Project)
	}
	w.shape.jobs++
	l.jobs[it.Job] = w
	return w
}

func (l *line) leave(w *wait) {
	w.gone = true
	l.users.Leave(w.it.User)
	if w.it.Project != "" {
		l.projects.Leave(w.it.Project)
	}
	l.release(w)
	if l.jobs[w.it.Job] == w {
		delete(l.jobs, w.it.Job)
	}
}

// shape returns what is known of all jobs with one need.
func (l *line) shape(q *queue.Shape) *shape {
	s, ok := l.shapes[q]
	if !ok {
		s = &shape{of: q}
		l.shapes[q] = s
	}
	return s
}

// release drops what is known of a job's shape if nobody else has it.
func (l *line) release(w *wait) {
	if w.shape.jobs--; w.shape.jobs == 0 {
		delete(l.shapes, w.shape.of)
	}
}

// unprice drops what it would cost to hire for jobs.
func (l *line) unprice() {
	for i := range l.stays {
		l.stays[i].w.hire = nil
	}
}

// run compares the running jobs with those that ran.
func (l *line) run(list []*place.Running) {
	old, rest := l.running, list
	for len(old) > 0 && len(rest) > 0 {
		switch {
		case old[0] == rest[0]:
			old, rest = old[1:], rest[1:]
		case old[0].Number <= rest[0].Number:
			l.ends(old[0])
			old = old[1:]
		default:
			l.begins(rest[0])
			rest = rest[1:]
		}
	}
	for _, r := range old {
		l.ends(r)
	}
	for _, r := range rest {
		l.begins(r)
	}
	before := len(l.running)
	l.running = append(l.running[:0], list...)
	if len(list) < before {
		clear(l.running[len(list):before])
	}
}

func (l *line) begins(r *place.Running) {
	l.users.Join(r.User)
	if r.Project != "" {
		l.projects.Join(r.Project)
	}
	if single(r) && r.Spec != nil && r.Spec.Objective == job.ObjectiveCost {
		at, _ := slices.BinarySearchFunc(l.cheap, r.Number, byNumber)
		l.cheap = slices.Insert(l.cheap, at, cheap{Running: r})
	}
}

func (l *line) ends(r *place.Running) {
	l.users.Leave(r.User)
	if r.Project != "" {
		l.projects.Leave(r.Project)
	}
	if at, found := slices.BinarySearchFunc(l.cheap, r.Number, byNumber); found {
		for ; at < len(l.cheap) && l.cheap[at].Number == r.Number; at++ {
			if l.cheap[at].Running == r {
				l.cheap = slices.Delete(l.cheap, at, at+1)
				return
			}
		}
	}
}

func byNumber(c cheap, number uint64) int { return cmp.Compare(c.Number, number) }

// single reports whether a job runs on one node, on whole GPUs.
func single(r *place.Running) bool { return len(r.Seats) == 1 && r.Seats[0].Share == 0 }
