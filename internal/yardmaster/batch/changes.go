package batch

import (
	"slices"
	"time"
)

// Mark is part of what is stored: whether it is among what has changed.
type Mark struct{ marked bool }

func (m *Mark) mark() *Mark { return m }

// Marked reports whether it has changed since it was last taken.
func (m *Mark) Marked() bool { return m.marked }

// Stored is something with a Mark.
type Stored interface{ mark() *Mark }

// Set is what has changed since it was last taken. A thing that changes several times
// is in it once and stored with its last value. The zero value is empty.
type Set[R Stored] struct{ list []R }

// Add enters something that has changed.
func (s *Set[R]) Add(r R) {
	if m := r.mark(); !m.marked {
		m.marked = true
		s.list = append(s.list, r)
	}
}

// Grow makes room for so many more.
func (s *Set[R]) Grow(n int) { s.list = slices.Grow(s.list, n) }

// Take empties a set into a list of values, whose memory is used again. value puts the
// value of a thing into its place in the list, which may hold an older one.
func Take[R Stored, T any](s *Set[R], into []T, value func(*T, R)) []T {
	into = resize(into, len(s.list))
	for i, r := range s.list {
		value(&into[i], r)
		r.mark().marked = false
	}

	clear(s.list)
	s.list = s.list[:0]

	return into
}

// resize returns a slice of n elements, the same one if it is large enough. It is
// nil if nothing is wanted of nothing.
func resize[T any](list []T, n int) []T {
	if n <= cap(list) {
		return list[:n]
	}

	return append(list[:cap(list)], make([]T, n-cap(list))...)
}

// Feed numbers the events and keeps them until they are taken.
type Feed struct {
	last uint64
	list []Event
}

// Load goes on after the last event that is stored.
func (f *Feed) Load(last uint64) { f.last = last }

// Grow makes room for so many more.
func (f *Feed) Grow(n int) { f.list = slices.Grow(f.list, n) }

// Tell adds an entry and returns it as it is stored.
func (f *Feed) Tell(now time.Time, e Event) Event {
	f.last++
	e.Seq, e.At = f.last, now
	f.list = append(f.list, e)

	return e
}

// Take moves the entries into a batch. Batches are much alike, so there is room for as
// many again.
func (f *Feed) Take(b *Batch) {
	b.Events, f.list = f.list, b.Events[:0]
	if f.list == nil && len(b.Events) > 0 {
		f.list = make([]Event, 0, min(len(b.Events), 512))
	}
}

// Yard is the yard's own name as an actor.
const Yard = "yard"

// Bug writes down an error that the code believed impossible, if it is one. It never
// happens unless there is a bug, and then it must be seen.
func (f *Feed) Bug(now time.Time, err error) {
	if err != nil {
		f.Tell(now, Event{Kind: "yard.bug", Actor: Yard, Reason: err.Error()})
	}
}
