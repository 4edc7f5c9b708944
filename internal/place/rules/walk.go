package rules

import (
	"slices"
	"sort"
	"time"
)

// walk goes through the queued jobs in the order in which they are considered: it merges the lanes of one level
// after the other. It leaves out the jobs of closed lanes, for which consider would do nothing.
type walk struct {
	engine *engine
	level  int        // index of the one after the current one
	heap   []head     // of the lanes with a job to be considered, the first of all on top
	shut   []*lane    // of this level, that were found closed
	last   *queuedJob // that was returned
	freed  int        // engine.freed when the lanes were opened
	closed int        // lanes that were found closed in a row
}

// head is the next job of a lane that is to be considered, beside its lane so that jobs are compared without it.
type head struct {
	job  *queuedJob
	lane *lane
}

// walk begins a walk.
func (e *engine) walk() *walk {
	e.backlog.settle()

	return &walk{engine: e, freed: e.freed, heap: e.policy.scratch.heads, shut: e.policy.scratch.shut}
}

// next returns the next job to be considered, nil if there is none.
func (w *walk) next() *queuedJob {
	e := w.engine

	for {
		if w.freed != e.freed && w.level > 0 { // lanes that were closed may be open now
			w.reopen()
		}

		if len(w.heap) == 0 {
			if w.level == len(e.backlog.levels) {
				return nil
			}

			w.level++
			w.open()

			continue
		}

		x := w.heap[0].lane
		if e.closed(x, w.shortestLeft(x)) {
			w.pop()
			w.shut = append(w.shut, x)
			w.closed++
			w.sweep()

			continue
		}

		w.closed = 0
		w.last = w.heap[0].job
		x.next++

		if x.next == len(x.jobs) {
			w.pop()
		} else {
			w.heap[0].job = x.jobs[x.next]
			e.weigh(w.heap[0].job)
			w.down(0)
		}

		return w.last
	}
}

// shortestLeft returns how long the shortest of the jobs lasts that are still to be considered, or less.
func (w *walk) shortestLeft(x *lane) time.Duration {
	switch {
	case x.kin != nil:
		return x.kin.lasts
	case x.aged:
		return w.engine.backlog.entry(x).shortest
	}

	return x.jobs[x.next].lasts
}

// open opens the lanes of the current level that are not closed.
func (w *walk) open() {
	e := w.engine
	w.freed, w.closed = e.freed, 0
	w.heap, w.shut = w.heap[:0], w.shut[:0]

	entries := e.backlog.levels[w.level-1].lanes
	for i := range entries {
		x := entries[i].lane
		x.next = 0

		if e.closed(x, entries[i].lasts()) {
			w.shut = append(w.shut, x)
			continue
		}

		e.weigh(x.jobs[0])
		w.heap = append(w.heap, head{x.jobs[0], x})
	}

	w.order()
	e.policy.scratch.heads, e.policy.scratch.shut = w.heap[:0], w.shut[:0]
}

// reopen opens the lanes that were closed and are not any more, from the first job after the last one on: something
// was freed.
func (w *walk) reopen() {
	e := w.engine
	w.freed, w.closed = e.freed, 0

	w.shut = slices.DeleteFunc(w.shut, func(x *lane) bool {
		if e.closed(x, w.shortestLeft(x)) {
			return false
		}

		x.next = w.following(x, w.last)
		if x.next < len(x.jobs) {
			e.weigh(x.jobs[x.next])
			w.push(head{x.jobs[x.next], x})
		}

		return true
	})
}

// following returns the index of the first job of a lane that is considered after another job.
func (w *walk) following(x *lane, after *queuedJob) int {
	return sort.Search(len(x.jobs), func(i int) bool {
		w.engine.weigh(x.jobs[i])
		return compareJobs(x.jobs[i], after) > 0
	})
}

// manyClosed is after how many closed lanes in a row all lanes are checked at once.
const manyClosed = 16

// sweep removes the closed lanes if there seem to be many.
func (w *walk) sweep() {
	if w.closed < manyClosed {
		return
	}

	w.closed = 0
	w.heap = slices.DeleteFunc(w.heap, func(h head) bool {
		closed := w.engine.closed(h.lane, w.shortestLeft(h.lane))
		if closed {
			w.shut = append(w.shut, h.lane)
		}

		return closed
	})
	w.order()
}

// order makes a heap of the lanes.
func (w *walk) order() {
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i)
	}
}

// push adds a lane.
func (w *walk) push(h head) {
	i := len(w.heap)
	w.heap = append(w.heap, h)

	for i > 0 && compareJobs(w.heap[i].job, w.heap[(i-1)/2].job) < 0 {
		w.heap[i], w.heap[(i-1)/2] = w.heap[(i-1)/2], w.heap[i]
		i = (i - 1) / 2
	}
}

// pop removes the first lane.
func (w *walk) pop() {
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap[last] = head{}
	w.heap = w.heap[:last]
	w.down(0)
}

// down moves a lane down to where it belongs in the heap.
func (w *walk) down(i int) {
	for {
		first := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(w.heap); k++ {
			if compareJobs(w.heap[k].job, w.heap[first].job) < 0 {
				first = k
			}
		}

		if first == i {
			return
		}

		w.heap[i], w.heap[first] = w.heap[first], w.heap[i]
		i = first
	}
}
