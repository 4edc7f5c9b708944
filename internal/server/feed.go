package server

import (
	"sync"

	"trainyard/internal/yardmaster"
)

// Feed keeps the newest events in memory for those who follow live. Older ones
// are read from the store.
type Feed struct {
	mu      sync.Mutex
	recent  []yardmaster.Event // consecutive numbers
	changed chan struct{}      // closed at the next event
}

// feedKeeps is how many events followers may lag behind before they are sent to the store.
const feedKeeps = 8192

// NewFeed returns an empty feed.
func NewFeed() *Feed { return &Feed{changed: make(chan struct{})} }

// Add appends committed events.
func (f *Feed) Add(b *yardmaster.Batch) {
	if len(b.Events) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent = append(f.recent, b.Events...)
	if len(f.recent) > 2*feedKeeps {
		f.recent = append([]yardmaster.Event(nil), f.recent[len(f.recent)-feedKeeps:]...)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// after returns the events with greater numbers and a channel that is closed
// at the next one. ok is false if some of them are no longer in memory.
func (f *Feed) after(seq uint64) (events []yardmaster.Event, changed <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.recent) == 0 {
		return nil, f.changed, false
	}
	first := f.recent[0].Seq
	if seq+1 < first {
		return nil, f.changed, false
	}
	skip := min(seq+1-first, uint64(len(f.recent)))
	return append([]yardmaster.Event(nil), f.recent[skip:]...), f.changed, true
}

// last returns the number of the newest event in memory, 0 if there is none.
func (f *Feed) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.recent) == 0 {
		return 0
	}
	return f.recent[len(f.recent)-1].Seq
}
