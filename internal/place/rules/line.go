package rules

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
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
	order    []*wait // as they were considered last
	jobs     map[id.Job]*wait
	shapes   map[*queue.Shape]*shape
	hired    []*wait  // for which nodes are hired
	lodgers  []lodger // by the place of the lease
	users    portions[id.User]
	projects portions[id.Project]
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
	takes   size
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
	if l.serial != e.floor.serial {
		l.serial = e.floor.serial
		l.unprice()
	}
	if len(v.Leases) < len(l.lodgers) {
		clear(l.lodgers[len(v.Leases):])
		l.lodgers = l.lodgers[:len(v.Leases)]
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
	gone := 0
	for count, it := range e.view.Line.Stays {
		for len(old) > 0 && old[0].count != count && old[0].w.it.Number <= it.Number {
			l.leave(old[0].w)
			old = old[1:]
			gone++
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
		gone++
	}
	if gone > 0 {
		l.order = slices.DeleteFunc(l.order, func(w *wait) bool { return w.gone })
	}
	clear(l.stays)
	l.stays, l.spare = next, l.stays
}

func newWait(it *queue.Item, s *shape, u *portion[id.User]) *wait {
	return &wait{
		it: it, shape: s, user: u, priority: it.Priority, number: it.Number,
		plain: it.Outlook == nil || it.Outlook.Speed == nil, patient: it.Spec != nil && it.Spec.Objective == job.ObjectiveCost,
	}
}

func (l *line) enter(it *queue.Item) *wait {
	w := newWait(it, l.shape(it.Shape), l.users.join(it.User))
	if it.Project != "" {
		w.project = l.projects.join(it.Project)
	}
	w.shape.jobs++
	l.jobs[it.Job] = w
	return w
}

func (l *line) leave(w *wait) {
	w.gone = true
	l.users.leave(w.it.User)
	if w.it.Project != "" {
		l.projects.leave(w.it.Project)
	}
	l.release(w)
	if l.jobs[w.it.Job] == w {
		delete(l.jobs, w.it.Job)
	}
}

// lodger is a lease and the job that waits for its node.
type lodger struct {
	lease *fleet.Lease
	job   id.Job
	w     *wait
}

// lodger returns the job in line for which a lease was taken, nil if it waits no more.
// Leases mostly stay where they are, and so does the answer.
func (l *line) lodger(at int, x *fleet.Lease) *wait {
	if at < len(l.lodgers) {
		if t := &l.lodgers[at]; t.lease == x && t.job == x.Job && t.w != nil && !t.w.gone {
			return t.w
		}
	}
	w := l.jobs[x.Job]
	l.lodge(at, lodger{x, x.Job, w})
	return w
}

func (l *line) lodge(at int, x lodger) {
	for len(l.lodgers) <= at {
		l.lodgers = append(l.lodgers, lodger{})
	}
	l.lodgers[at] = x
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
	l.users.join(r.User)
	if r.Project != "" {
		l.projects.join(r.Project)
	}
	if single(r) && r.Spec != nil && r.Spec.Objective == job.ObjectiveCost {
		at, _ := slices.BinarySearchFunc(l.cheap, r.Number, byNumber)
		l.cheap = slices.Insert(l.cheap, at, cheap{Running: r})
	}
}

func (l *line) ends(r *place.Running) {
	l.users.leave(r.User)
	if r.Project != "" {
		l.projects.leave(r.Project)
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

// portions is what each of those who have a job here has used.
type portions[K cmp.Ordered] struct {
	of   map[K]*portion[K]
	list []*portion[K] // by name: sums are the same whoever came first
	none float64       // what over is for who has no job here
}

// portion is someone's part. over is how many fair shares they have had beyond one, -1
// for nothing at all.
type portion[K cmp.Ordered] struct {
	name K
	jobs int
	used float64
	over float64
}

// join counts a job.
func (p *portions[K]) join(k K) *portion[K] {
	x, ok := p.of[k]
	if !ok {
		if p.of == nil {
			p.of = map[K]*portion[K]{}
		}
		x = &portion[K]{name: k}
		p.of[k] = x
		at, _ := slices.BinarySearchFunc(p.list, k, func(o *portion[K], k K) int { return cmp.Compare(o.name, k) })
		p.list = slices.Insert(p.list, at, x)
	}
	x.jobs++
	return x
}

// leave takes a job off again.
func (p *portions[K]) leave(k K) {
	x := p.of[k]
	if x.jobs--; x.jobs > 0 {
		return
	}
	delete(p.of, k)
	at, _ := slices.BinarySearchFunc(p.list, k, func(o *portion[K], k K) int { return cmp.Compare(o.name, k) })
	p.list = slices.Delete(p.list, at, at+1)
}

// weigh works out who has had how much. The fair share is the mean of all.
func (p *portions[K]) weigh(usage func(K) float64) {
	sum := 0.0
	for _, x := range p.list {
		x.over = 0
		if usage != nil {
			x.used = usage(x.name)
			sum += x.used
		}
	}
	p.none = 0
	if usage == nil || len(p.list) < 2 || sum <= 0 {
		return
	}
	for _, x := range p.list {
		x.over = x.used*float64(len(p.list))/sum - 1
	}
	p.none = -1
}

// alien returns the portion of who may have no job here.
func (p *portions[K]) alien(k K) *portion[K] {
	if x, ok := p.of[k]; ok {
		return x
	}
	return &portion[K]{name: k, over: p.none}
}

// shape is what is known of all jobs with one need.
type shape struct {
	of     *queue.Shape
	jobs   int // that wait
	serial uint64
	match  *fleet.Matcher
	takes  size     // of each node
	able   []*stock // that could run it if they were empty: all of their rooms are of a kind that it wants
	base   float64  // speed that run times are based on

	// of this round
	round  uint64
	based  bool          // base is known
	stops  int           // so many jobs were stopped when closed was settled
	closed time.Duration // the shortest job for which nothing was free; 0 for none yet
	freed  int           // what had been made free when shut was settled
	shut   time.Duration // the shortest for which nothing was free in any room, of those that are as fast as the GPUs; 0 for none yet
	shifts int           // of the round when roomy was settled, one more
	roomy  bool
}

// shapeOf returns what is known of a job's shape.
func (e *engine) shapeOf(w *wait) *shape {
	s := w.shape
	if s.match == nil || s.serial != e.floor.serial {
		e.compare(s)
	}
	if s.round != e.round {
		s.round, s.based, s.closed, s.shut, s.shifts = e.round, false, 0, 0, 0
	}
	return s
}

// compare finds the stocks that could run a shape.
func (e *engine) compare(s *shape) {
	need := s.of.Need
	s.serial, s.match, s.takes, s.able = e.floor.serial, fleet.NewMatcher(need), units(&need), nil
	for _, st := range e.floor.stocks {
		if !st.class.Allows(need.Place) || st.kind >= 0 && need.GPUs > 0 && st.sample.Sound != 0 && s.match.Wanted(st.sample) == 0 {
			continue // nor any other of them
		}
		if slices.ContainsFunc(st.rooms, func(at int32) bool { return e.view.Rooms[at].Open && s.match.Eligible(&e.view.Rooms[at]) }) {
			s.able = append(s.able, st)
		}
	}
}

// mayBeRoom reports whether there may be rooms with as many GPUs free as a shape needs.
func (e *engine) mayBeRoom(s *shape) bool {
	if s.shifts != e.shifts+1 {
		s.shifts = e.shifts + 1
		s.roomy = slices.ContainsFunc(s.able, func(st *stock) bool {
			for n := s.match.Need.GPUs; n < len(st.free); n++ {
				if len(st.free[n]) > 0 {
					return true
				}
			}
			return false
		})
	}
	return s.roomy
}
