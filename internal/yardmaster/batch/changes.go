package batch

import (
	"slices"
	"time"

	"trainyard/internal/id"
)

// Mark is embedded in stored values: whether the value is in the Set of changed ones.
type Mark struct{ marked bool }

func (m *Mark) mark() *Mark { return m }

// Marked reports whether it has changed since it was last taken.
func (m *Mark) Marked() bool { return m.marked }

// Stored is something with a Mark.
type Stored interface{ mark() *Mark }

// Set is the values that have changed since it was last taken. One that changed several times
// is in it once and stored as it is last. The zero value is empty.
type Set[R Stored] struct{ list []R }

// Add adds a value that has changed.
func (s *Set[R]) Add(r R) {
	if m := r.mark(); !m.marked {
		m.marked = true
		s.list = append(s.list, r)
	}
}

// Grow makes room for n more.
func (s *Set[R]) Grow(n int) { s.list = slices.Grow(s.list, n) }

// Take empties a set into a list, whose memory is reused. value writes one element of the
// list, which may hold an older value.
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

// resize returns a slice of n elements, the same one if it is large enough.
func resize[T any](list []T, n int) []T {
	if n <= cap(list) {
		return list[:n]
	}

	return append(list[:cap(list)], make([]T, n-cap(list))...)
}

// Feed numbers the events and keeps them until they are taken.
type Feed struct {
	last   uint64
	list   []Event
	origin Origin
}

// Origin is who sent the message that is being handled, with which token and from where.
type Origin struct {
	Actor   string // as in events
	Token   id.Token
	Address string
}

// SetOrigin says who sent the message that is handled from now on. Events of that actor say so.
func (f *Feed) SetOrigin(o Origin) { f.origin = o }

// Load continues after the last stored event.
func (f *Feed) Load(last uint64) { f.last = last }

// Last returns the number of the last event.
func (f *Feed) Last() uint64 { return f.last }

// Grow makes room for n more.
func (f *Feed) Grow(n int) { f.list = slices.Grow(f.list, n) }

// Add numbers an event, adds it and returns it as it is stored.
func (f *Feed) Add(now time.Time, e Event) Event {
	f.last++
	e.Seq, e.At = f.last, now
	if e.Actor == f.origin.Actor && e.Address == "" {
		e.Token, e.Address = f.origin.Token, f.origin.Address
	}

	f.list = append(f.list, e)

	return e
}

// Take moves the events into a batch and makes room for as many, because batches are of
// similar size.
func (f *Feed) Take(b *Batch) {
	b.Events, f.list = f.list, b.Events[:0]
	if f.list == nil && len(b.Events) > 0 {
		f.list = make([]Event, 0, min(len(b.Events), 512))
	}
}

// Yard is the actor of events that no person or node caused.
const Yard = "yard"

// Bug adds an event for an error that should be impossible, if err is not nil, so that a bug
// in the yardmaster is seen.
func (f *Feed) Bug(now time.Time, err error) {
	if err != nil {
		f.Add(now, Event{Kind: "yard.bug", Actor: Yard, Reason: err.Error()})
	}
}
