package yardmaster

import (
	"container/heap"
	"time"
)

// timer is something that falls due. It is checked when it does, because what
// it is about may have changed.
type timer struct {
	at    time.Time
	seq   uint64
	index int // in the heap, -1 when it is out of it
	due   func(y *Yard)
}

func (y *Yard) after(at time.Time, due func(y *Yard)) *timer {
	y.lastTimer++
	t := &timer{at: at, seq: y.lastTimer, due: due}
	heap.Push(&y.timers, t)
	return t
}

// drop takes a timer back. One that has fallen due, or none, is no matter.
func (y *Yard) drop(t *timer) {
	if t != nil && t.index >= 0 {
		heap.Remove(&y.timers, t.index)
	}
}

type timerHeap []*timer

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
	if t, ok := x.(*timer); ok {
		t.index = len(*h)
		*h = append(*h, t)
	}
}

// Pop is part of heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.index = -1
	return last
}

// Tick lets time pass: what has fallen due happens.
type Tick struct{}

func (Tick) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	// A yard that did not tick for long was itself asleep, or its clock was set
	// forward. That nodes were not heard meanwhile says nothing about them.
	if y.cfg.SuspectAfter > 0 && !y.ticked.IsZero() && y.now.Sub(y.ticked) > y.cfg.SuspectAfter/2 {
		for _, n := range y.nodes {
			n.seen = y.now
		}
	}
	y.ticked = y.now
	for len(y.timers) > 0 && !y.timers[0].at.After(y.now) {
		t := y.timers[0]
		y.drop(t)
		t.due(y)
	}
	return nil, nil
}

// NextTimer returns when the next thing falls due, and zero if nothing does.
func (y *Yard) NextTimer() time.Time {
	if len(y.timers) == 0 {
		return time.Time{}
	}
	return y.timers[0].at
}

// Idle reports whether the yard has not ticked for so long that it would take
// the silence for its own sleep.
func (y *Yard) Idle(now time.Time) bool { return now.Sub(y.ticked) > y.cfg.SuspectAfter/8 }
