// Package agenda keeps what falls due later, in order of time and then of making.
//
// What an entry is about may have changed when it falls due: it is checked then.
package agenda

import (
	"container/heap"
	"time"
)

// Entry is something that falls due.
type Entry[T any] struct {
	at    time.Time
	seq   uint64
	index int // in the heap, -1 when it is out of it
	due   T
}

// Agenda is a list of entries. The zero value is an empty one.
type Agenda[T any] struct {
	heap entries[T]
	last uint64
}

// After enters something for a time.
func (a *Agenda[T]) After(at time.Time, due T) *Entry[T] {
	a.last++
	e := &Entry[T]{at: at, seq: a.last, due: due}
	heap.Push(&a.heap, e)
	return e
}

// Drop takes an entry back. One that has fallen due, or none, is no matter.
func (a *Agenda[T]) Drop(e *Entry[T]) {
	if e != nil && e.index >= 0 {
		heap.Remove(&a.heap, e.index)
	}
}

// Len returns the number of entries.
func (a *Agenda[T]) Len() int { return len(a.heap) }

// Next returns when the next entry falls due, and zero if there is none.
func (a *Agenda[T]) Next() time.Time {
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// Due takes out the next entry that has fallen due by now, and reports whether there was one.
func (a *Agenda[T]) Due(now time.Time) (due T, ok bool) {
	if len(a.heap) == 0 || a.heap[0].at.After(now) {
		return due, false
	}
	e := a.heap[0]
	a.Drop(e)
	return e.due, true
}

type entries[T any] []*Entry[T]

func (h entries[T]) Len() int { return len(h) }
func (h entries[T]) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].seq < h[j].seq
}

func (h entries[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *entries[T]) Push(x any) {
	if e, ok := x.(*Entry[T]); ok {
		e.index = len(*h)
		*h = append(*h, e)
	}
}

// Pop is part of heap.Interface.
func (h *entries[T]) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	last.index = -1
	*h = old[:len(old)-1]
	return last
}
