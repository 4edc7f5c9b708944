// Package queue decides in which order waiting jobs are considered: by
// priority, then by fair share between users, then by submission.
//
// It keeps the waiting jobs sorted as they come and go and hands them out by a
// walk. Jobs with equal needs form a shape, and a walk passes over whole shapes
// that are known not to fit, so that a long queue costs little. It does not
// decide where jobs go: policies in place walk the line, the yardmaster keeps
// it.
package queue

import (
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Item is a waiting job.
type Item struct {
	Job      id.Job
	Number   uint64 // order of submission
	User     id.User
	Project  id.Project // "" if it belongs to none
	Priority int
	Shape    *Shape
	Lasts    time.Duration // how long it will run, 0 if unknown
	Cost     float64       // charged to the user's share while the line is walked, in GPU-seconds
	Prefer   id.Node       // where it ran before and left its checkpoints, "" if it has not run
	Outlook  *job.Outlook  // what is known of how it will go
	Spec     *job.Spec     // as submitted; never changed
	Since    time.Time     // in line since
}

// Shape is what all waiting jobs with one need have in common.
type Shape struct {
	Need  fleet.Need
	Count int                   // waiting jobs of this shape
	lasts map[time.Duration]int // how many of them last how long
}

// Shortest returns how long the shortest of them lasts, 0 if that is known of none.
func (s *Shape) Shortest() time.Duration {
	var least time.Duration
	for d := range s.lasts {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}

	return least
}

// Line is the line of waiting jobs.
type Queue struct {
	levels map[int]*level
	order  []int // priorities, highest first
	shapes map[fleet.Need]*Shape
	kinds  int // shapes that some job has
	hollow int // queues without a job: kept for a while, because the next job is often alike
	length int
	roll   roll
}

type level struct {
	users map[id.User]*userLine
	order []*userLine // by name
}

type userLine struct {
	user   id.User
	queues []*shapeQueue
}

// shapeQueue holds one user's waiting jobs of one shape by order of submission.
type shapeQueue struct {
	shape *Shape
	items []*Item
}

// NewLine returns an empty line.
func New() *Queue {
	return &Queue{levels: map[int]*level{}, shapes: map[fleet.Need]*Shape{}}
}

// Len returns the number of waiting jobs.
func (l *Queue) Len() int { return l.length }

// Shapes returns the number of different needs among them.
func (l *Queue) Shapes() int { return l.kinds }

// Add puts a job with this need into the line and sets its shape.
func (l *Queue) Add(it *Item, need fleet.Need) {
	s := l.ShapeOf(need)
	it.Shape = s
	q := l.queue(it, true)
	at, found := search(q.items, it.Number)
	if found {
		return
	}

	if len(q.items) == 0 {
		l.hollow--
	}

	q.items = slices.Insert(q.items, at, it)

	s.Count++
	if s.Count == 1 {
		l.kinds++
	}

	s.lasts[it.Lasts]++
	l.length++
	l.roll.enter(it)
}

// Remove takes a job out of the line.
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
	l.roll.leave(it)

	it.Shape.lasts[it.Lasts]--
	if it.Shape.lasts[it.Lasts] == 0 {
		delete(it.Shape.lasts, it.Lasts)
	}

	it.Shape.Count--
	if it.Shape.Count == 0 {
		l.kinds--
	}

	if len(q.items) > 0 {
		return
	}

	l.hollow++
	if l.hollow > l.kinds+maxHollow {
		l.sweep()
	}
}

// maxHollow is how many more empty queues than shapes are kept.
const maxHollow = 64

func search(items []*Item, number uint64) (int, bool) {
	if len(items) > 0 && items[0].Number == number { // mostly the first is asked for
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

// queue finds the place of a job, and makes it if asked to.
func (l *Queue) queue(it *Item, create bool) *shapeQueue {
	lv, ok := l.levels[it.Priority]
	if !ok {
		if !create {
			return nil
		}

		lv = &level{users: map[id.User]*userLine{}}
		l.levels[it.Priority] = lv
		l.order = append(l.order, it.Priority)
		slices.SortFunc(l.order, func(a, b int) int { return b - a })
	}

	u, ok := lv.users[it.User]
	if !ok {
		if !create {
			return nil
		}

		u = &userLine{user: it.User}
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
	l.hollow++

	return q
}

func compareUsers(u *userLine, name id.User) int {
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
		lv.order = slices.DeleteFunc(lv.order, func(u *userLine) bool {
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

	l.hollow = 0
}
