package queue

import (
	"container/heap"

	"trainyard/internal/id"
)

// Walk goes through the queued jobs in the order in which they are considered. The queue must
// not change during a walk.
type Walk struct {
	queue   *Queue
	usage   func(id.User) float64
	next    int // index into queue.order of the level after the current one
	users   userHeap
	charges map[id.User]float64 // charged in this walk, over all levels
}

// userWalk is the state of a walk for one user.
type userWalk struct {
	user    id.User
	charged float64 // usage, including the jobs yielded in this walk
	queues  []queueWalk
	best    int // index of the queue with the earliest job
}

type queueWalk struct {
	q  *shapeQueue
	at int
}

// Walk starts a walk. usage is each user's decayed usage, in GPU-seconds: users with less go
// first. Each job that is yielded is charged to its user, so that users alternate.
func (l *Queue) Walk(usage func(id.User) float64) *Walk {
	return &Walk{queue: l, usage: usage, charges: map[id.User]float64{}}
}

// Next returns the next job whose shape is open, or nil when there is none.
// A shape that is closed once must stay closed for the rest of the walk.
func (w *Walk) Next(open func(*Shape) bool) *Item {
	for {
		if len(w.users) == 0 && !w.enter(open) {
			return nil
		}

		u := w.users[0]
		if !u.settle(open) {
			heap.Pop(&w.users)
			continue
		}

		qw := &u.queues[u.best]

		// Settling may have moved on to a later job, behind another user's.
		if len(w.users) > 1 && w.behind() {
			heap.Fix(&w.users, 0)
			continue
		}

		it := qw.q.items[qw.at]
		qw.at++
		u.charged += it.Cost
		w.charges[u.user] += it.Cost
		if u.settle(open) {
			heap.Fix(&w.users, 0)
		} else {
			heap.Pop(&w.users)
		}

		return it
	}
}

// behind reports whether another user must go before the first one now.
func (w *Walk) behind() bool {
	return w.users.Less(1, 0) || len(w.users) > 2 && w.users.Less(2, 0)
}

// enter begins the next level that has an open job.
func (w *Walk) enter(open func(*Shape) bool) bool {
	for len(w.users) == 0 && w.next < len(w.queue.order) {
		lv := w.queue.levels[w.queue.order[w.next]]
		w.next++
		for _, ul := range lv.order {
			u := &userWalk{
				user:    ul.user,
				charged: w.usage(ul.user) + w.charges[ul.user],
				queues:  make([]queueWalk, len(ul.queues)),
			}

			for i, q := range ul.queues {
				u.queues[i].q = q
			}

			if u.settle(open) {
				w.users = append(w.users, u)
			}
		}

		heap.Init(&w.users)
	}

	return len(w.users) > 0
}

// settle finds the user's earliest job of an open shape, and reports whether there is one.
func (u *userWalk) settle(open func(*Shape) bool) bool {
	u.best = -1
	for i := 0; i < len(u.queues); i++ {
		qw := &u.queues[i]
		if qw.at >= len(qw.q.items) || !open(qw.q.shape) {
			last := len(u.queues) - 1
			u.queues[i] = u.queues[last]
			u.queues = u.queues[:last]
			i--

			continue
		}

		if u.best < 0 || qw.q.items[qw.at].Number < u.first() {
			u.best = i
		}
	}

	return u.best >= 0
}

// first returns the number of the user's earliest job.
func (u *userWalk) first() uint64 {
	qw := &u.queues[u.best]
	return qw.q.items[qw.at].Number
}

// userHeap has the user to go first in front: least charged, then earliest submission.
type userHeap []*userWalk

func (h userHeap) Len() int { return len(h) }
func (h userHeap) Less(i, j int) bool {
	if h[i].charged != h[j].charged {
		return h[i].charged < h[j].charged
	}

	return h[i].first() < h[j].first()
}
func (h userHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *userHeap) Push(x any) {
	if u, ok := x.(*userWalk); ok {
		*h = append(*h, u)
	}
}

// Pop is part of heap.Interface.
func (h *userHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]

	return last
}
