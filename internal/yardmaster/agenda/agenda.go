// Package agenda keeps what falls due later, in order of time and then of making.
//
// What an entry is about may have changed when it falls due: it is checked then.
package agenda

import (
	"container/heap"
	"time"
)

// Entry is something that falls due.
type Entry struct {
	at    time.Time
	seq   uint64
	index int // in the heap, -1 when it is out of it
	due   func(now time.Time)
}

// Agenda is a list of entries. The zero value is an empty one.
type Agenda struct {
	heap entries
	last uint64
}

// After enters something for a time.
func (a *Agenda) After(at time.Time, due func(now time.Time)) *Entry {
	a.last++
	e := &Entry{at: at, seq: a.last, due: due}
	heap.Push(&a.heap, e)
	return e
}

// Drop takes an entry back. One that has fallen due, or none, is no matter.
func (a *Agenda) Drop(e *Entry) {
	if e != nil && e.index >= 0 {
		heap.Remove(&a.heap, e.index)
	}
}

// Len returns the number of entries.
func (a *Agenda) Len() int { return len(a.heap) }

// Next returns when the next entry falls due, and zero if there is none.
func (a *Agenda) Next() time.Time {
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// Due takes out the next entry that has fallen due by now, and reports whether there was one.
func (a *Agenda) Due(now time.Time) (due func(now time.Time), ok bool) {
	if len(a.heap) == 0 || a.heap[0].at.After(now) {
		return due, false
	}
	e := a.heap[0]
	a.Drop(e)
	return e.due, true
}

type entries []*Entry

func (h entries) Len() int { return len(h) }
func (h entries) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}

func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *entries) Push(x any) {
	if e, ok := x.(*Entry); ok {
		e.index = len(*h)
		*h = append(*h, e)
	}
}

// Pop is part of heap.Interface.
func (h *entries) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	last.index = -1
	*h = old[:len(old)-1]
	return last
}
