// Package queue decides in which order queued jobs are considered: by
// priority, then by fair share between users, then by submission.
//
// It keeps the queued jobs sorted and yields them in a walk. Jobs with equal
// needs form a shape, and a walk skips whole shapes that are known not to fit, so
// that a long queue costs little. It does not decide where jobs go: policies in
// place walk the queue, the yardmaster adds and removes jobs.
package queue

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Item is a queued job.
type Item struct {
	Job      id.Job
	Number   uint64 // order of submission
	User     id.User
	Project  id.Project // "" if it belongs to none
	Priority int
	Shape    *Shape
	Lasts    time.Duration // how long it will run, 0 if unknown
	Cost     float64       // charged to the user's share while the queue is walked, in GPU-seconds
	Prefer   id.Node       // where it ran last and has its checkpoints, "" if it has not run
	Outlook  *job.Outlook  // its speed, progress and forecast
	Spec     *job.Spec     // as submitted; never changed
	Since    time.Time     // in the queue since
	Deferred bool          // that it waits instead of having nodes provisioned has been decided and recorded
	Program  Program       // what it runs, if its duration has to be estimated from that

	length length // as of when it was added
}

// Shape is all queued jobs with the same need.
type Shape struct {
	Need  fleet.Need
	Count int            // queued jobs of this shape
	lasts map[length]int // their durations, each with the number of jobs
}

// length is how long a job lasts, and what that is for.
type length struct {
	lasts     time.Duration
	reference job.Reference
	limit     job.Duration // of wall time; 0 for none
	fixed     bool         // equally long on all hardware
	measured  bool         // by its speed, which may make it shorter elsewhere
}

func lengthOf(it *Item) length {
	l := length{lasts: it.Lasts}
	if it.Outlook != nil {
		l.reference, l.measured = it.Outlook.Reference, it.Outlook.Speed != nil
	}

	if it.Spec != nil {
		l.limit, l.fixed = it.Spec.MaxDuration, it.Spec.Expect == 0 && it.Spec.MaxDuration > 0
	}

	return l
}

// Shortest returns the least that any of them can take on hardware, 0 if no duration is known. Jobs whose
// speed was measured count with a nanosecond: how fast they are there is not known here.
func (s *Shape) Shortest(on job.Hardware) time.Duration {
	asked := s.Need.GPUs * s.Need.Nodes

	var shortest time.Duration
	for l := range s.lasts {
		if l.lasts <= 0 {
			continue
		}

		d := time.Nanosecond
		if !l.measured {
			spec := job.Spec{MaxDuration: l.limit}
			if !l.fixed {
				spec.Expect = job.Duration(l.lasts)
			}

			o := job.Outlook{Reference: l.reference}
			d = o.RunTime(&spec, l.lasts, asked, on)
		}

		if shortest == 0 || d < shortest {
			shortest = d
		}
	}

	return shortest
}

// Queue is the queued jobs. It is not safe for concurrent use.
type Queue struct {
	levels      map[int]*level
	order       []int // priorities, highest first
	shapes      map[fleet.Need]*Shape
	shapeCount  int // shapes with at least one job
	emptyQueues int // shape queues without jobs: kept for a while, because the next job often has the same shape
	length      int
	roll        roll
	journal     journal
}

type level struct {
	users map[id.User]*userQueues
	order []*userQueues // by name
}

type userQueues struct {
	user   id.User
	queues []*shapeQueue
}

// shapeQueue holds one user's queued jobs of one shape in order of submission.
type shapeQueue struct {
	shape *Shape
	items []*Item
}

// New returns an empty queue.
func New() *Queue {
	return &Queue{levels: map[int]*level{}, shapes: map[fleet.Need]*Shape{}}
}

// Len returns the number of queued jobs.
func (l *Queue) Len() int { return l.length }

// Shapes returns the number of different needs among them.
func (l *Queue) Shapes() int { return l.shapeCount }

// Add adds a job with this need and sets its shape.
func (l *Queue) Add(it *Item, need fleet.Need) {
	s := l.ShapeOf(need)
	it.Shape = s
	q := l.queue(it, true)
	at, found := search(q.items, it.Number)
	if found {
		return
	}

	if len(q.items) == 0 {
		l.emptyQueues--
	}

	q.items = slices.Insert(q.items, at, it)

	s.Count++
	if s.Count == 1 {
		l.shapeCount++
	}

	it.length = lengthOf(it)
	s.lasts[it.length]++
	l.length++
	l.journal.add(note{stay: l.roll.enter(it), number: it.Number, job: it.Job})
}

// Remove removes a job.
func (l *Queue) Remove(it *Item) {
	q := l.queue(it, false)
	if q == nil {
		return
	}

	at, found := search(q.items, it.Number)
	if !found {
		return
	}

	if at == 0 && len(q.items) > 1 { // the common case; the array is moved only when it is half empty
		q.items[0] = nil
		q.items = q.items[1:]
	} else {
		q.items = slices.Delete(q.items, at, at+1)
	}

	l.length--
	l.journal.add(note{stay: l.roll.leave(it), number: it.Number, job: it.Job, left: true})

	it.Shape.lasts[it.length]--
	if it.Shape.lasts[it.length] == 0 {
		delete(it.Shape.lasts, it.length)
	}

	it.Shape.Count--
	if it.Shape.Count == 0 {
		l.shapeCount--
	}

	if len(q.items) > 0 {
		return
	}

	l.emptyQueues++
	if l.emptyQueues > l.shapeCount+maxEmptyQueues {
		l.sweep()
	}
}

// maxEmptyQueues is how many more empty queues than shapes are kept.
const maxEmptyQueues = 64

func search(items []*Item, number uint64) (int, bool) {
	if len(items) > 0 && items[0].Number == number { // usually it is the first
		return 0, true
	}

	return slices.BinarySearchFunc(items, number, func(it *Item, n uint64) int {
		switch {
		case it.Number < n:
			return -1
		case it.Number > n:
			return 1
		}

		return 0
	})
}

// queue returns the shape queue of a job, and creates it if it is missing and create is set.
func (l *Queue) queue(it *Item, create bool) *shapeQueue {
	lv, ok := l.levels[it.Priority]
	if !ok {
		if !create {
			return nil
		}

		lv = &level{users: map[id.User]*userQueues{}}
		l.levels[it.Priority] = lv
		l.order = append(l.order, it.Priority)
		slices.SortFunc(l.order, func(a, b int) int { return b - a })
	}

	u, ok := lv.users[it.User]
	if !ok {
		if !create {
			return nil
		}

		u = &userQueues{user: it.User}
		lv.users[it.User] = u
		at, _ := slices.BinarySearchFunc(lv.order, it.User, compareUsers)
		lv.order = slices.Insert(lv.order, at, u)
	}

	for _, q := range u.queues {
		if q.shape == it.Shape {
			return q
		}
	}

	if !create {
		return nil
	}

	q := &shapeQueue{shape: it.Shape}
	u.queues = append(u.queues, q)
	l.emptyQueues++

	return q
}

func compareUsers(u *userQueues, name id.User) int {
	switch {
	case u.user < name:
		return -1
	case u.user > name:
		return 1
	}

	return 0
}

// sweep drops what is empty: queues, users, levels and shapes.
func (l *Queue) sweep() {
	for p, lv := range l.levels {
		lv.order = slices.DeleteFunc(lv.order, func(u *userQueues) bool {
			u.queues = slices.DeleteFunc(u.queues, func(q *shapeQueue) bool { return len(q.items) == 0 })
			if len(u.queues) == 0 {
				delete(lv.users, u.user)
			}

			return len(u.queues) == 0
		})

		if len(lv.order) == 0 {
			delete(l.levels, p)
			l.order = slices.DeleteFunc(l.order, func(o int) bool { return o == p })
		}
	}

	for need, s := range l.shapes {
		if s.Count == 0 {
			delete(l.shapes, need)
		}
	}

	l.emptyQueues = 0
}
