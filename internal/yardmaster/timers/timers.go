// Package timers keeps what falls due later, ordered by time and then by creation.
//
// It stands beside the path of a job: the yardmaster and its parts set timers for
// timeouts, retries and checks, and a Tick runs those that are due. It reads no clock.
// What a timer is about may have changed when it falls due: its callback checks that.
package timers

import (
	"container/heap"
	"time"
)

// Timer is something that falls due later.
type Timer struct {
	at    time.Time
	seq   uint64
	index int // in the heap, -1 when it is out of it
	due   func(now time.Time)
}

// Timers is a set of timers. The zero value is empty.
type Timers struct {
	heap timerHeap
	last uint64
}

// After sets a timer: due is called at the first tick at or after that time.
func (t *Timers) After(at time.Time, due func(now time.Time)) *Timer {
	t.last++
	timer := &Timer{at: at, seq: t.last, due: due}
	heap.Push(&t.heap, timer)

	return timer
}

// Stop cancels a timer. One that has fired, or nil, is ignored.
func (t *Timers) Stop(timer *Timer) {
	if timer != nil && timer.index >= 0 {
		heap.Remove(&t.heap, timer.index)
	}
}

// Len returns the number of timers.
func (t *Timers) Len() int { return len(t.heap) }

// Next returns when the next timer falls due, and zero if there is none.
func (t *Timers) Next() time.Time {
	if len(t.heap) == 0 {
		return time.Time{}
	}

	return t.heap[0].at
}

// Due removes and returns the next timer that is due by now, and reports whether there is one.
func (t *Timers) Due(now time.Time) (due func(now time.Time), ok bool) {
	if len(t.heap) == 0 || t.heap[0].at.After(now) {
		return due, false
	}

	first := t.heap[0]
	t.Stop(first)

	return first.due, true
}

type timerHeap []*Timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}

	return h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *timerHeap) Push(x any) {
	if e, ok := x.(*Timer); ok {
		e.index = len(*h)
		*h = append(*h, e)
	}
}

// Pop is part of heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	last.index = -1
	*h = old[:len(old)-1]

	return last
}
