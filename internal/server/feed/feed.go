// Package feed keeps the newest events in memory and wakes those who wait for more.
//
// The server's loop adds what was committed; its live feeds read from here and
// go to the store for what is older. It decides nothing about who may see what.
package feed

import (
	"sync"

	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// Feed keeps the newest events in memory for those who follow live. Older ones
// are read from the store.
type Feed struct {
	mu      sync.Mutex
	recent  []yardmaster.Event       // consecutive numbers
	newest  uint64                   // number of the newest event, in memory or not
	changed chan struct{}            // closed at the next event
	jobs    map[id.Job]chan struct{} // closed at the next event of that job
}

// keeps is how many events followers may lag behind before they are sent to the store.
const keeps = 8192

// New returns a feed that goes on after the event with this number, the
// Last one that the store has.
func New(last uint64) *Feed {
	return &Feed{newest: last, changed: make(chan struct{}), jobs: map[id.Job]chan struct{}{}}
}

// Add appends committed events.
func (f *Feed) Add(b *yardmaster.Batch) {
	if len(b.Events) == 0 {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.recent = append(f.recent, b.Events...)
	f.newest = f.recent[len(f.recent)-1].Seq
	if len(f.recent) > 2*keeps {
		f.recent = append([]yardmaster.Event(nil), f.recent[len(f.recent)-keeps:]...)
	}

	close(f.changed)

	f.changed = make(chan struct{})
	if len(f.jobs) == 0 {
		return
	}

	for i := range b.Events {
		if c, ok := f.jobs[b.Events[i].Job]; ok {
			close(c)
			delete(f.jobs, b.Events[i].Job)
		}
	}
}

// OfJob returns a channel that is closed at the next event of a job.
func (f *Feed) OfJob(j id.Job) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()

	c, ok := f.jobs[j]
	if !ok {
		c = make(chan struct{})
		f.jobs[j] = c
	}

	return c
}

// Leave forgets the channel of a job that someone no longer follows. Others who
// wait on it are woken and ask for a new one.
func (f *Feed) Leave(j id.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if c, ok := f.jobs[j]; ok {
		close(c)
		delete(f.jobs, j)
	}
}

// After returns the events with greater numbers and a channel that is closed
// at the next one. ok is false if some of them are no longer in memory.
func (f *Feed) After(seq uint64) (events []yardmaster.Event, changed <-chan struct{}, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if seq >= f.newest {
		return nil, f.changed, true
	}
	if len(f.recent) == 0 || seq+1 < f.recent[0].Seq {
		return nil, f.changed, false
	}

	return append([]yardmaster.Event(nil), f.recent[seq+1-f.recent[0].Seq:]...), f.changed, true
}

// Last returns the number of the newest event.
func (f *Feed) Last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}
