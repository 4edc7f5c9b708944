package queue

import (
	"iter"
	"slices"

	"trainyard/internal/id"
)

// journal notes who entered and left the queue, so that a caller that has seen it before needs not look at all jobs
// to find out what is new.
type journal struct {
	notes   []note
	dropped uint64 // older notes that are no longer here
}

// note is one change. It holds no item: those of jobs that have left must not be kept.
type note struct {
	stay   uint64
	number uint64
	job    id.Job
	left   bool
}

// maxNotes bounds the journal: after more changes than that, looking at all jobs is as fast.
const maxNotes = 1 << 12

func (g *journal) add(n note) {
	if len(g.notes) == maxNotes {
		g.notes = slices.Delete(g.notes, 0, maxNotes/2)
		g.dropped += maxNotes / 2
	}

	g.notes = append(g.notes, n)
}

// Change is a job that has entered the queue or left it.
type Change struct {
	Stay uint64
	Job  id.Job
	Item *Item // nil if it has left
}

// Position is where the changes are now, for ChangesSince.
func (l *Queue) Position() uint64 { return l.journal.dropped + uint64(len(l.journal.notes)) }

// ChangesSince yields who has entered and left the queue since a position, in that order. A job that has entered and
// left again since may be missing. It is not ok if too much has changed since: the caller must look at all jobs.
func (l *Queue) ChangesSince(position uint64) (changes iter.Seq[Change], ok bool) {
	if position < l.journal.dropped || position > l.Position() {
		return nil, false
	}

	notes := l.journal.notes[position-l.journal.dropped:]

	return func(yield func(Change) bool) {
		for i := range notes {
			n := &notes[i]
			c := Change{Stay: n.stay, Job: n.job}

			if !n.left {
				c.Item = l.roll.item(n.number, n.stay)
				if c.Item == nil {
					continue // a later note says that it has left
				}
			}

			if !yield(c) {
				return
			}
		}
	}, true
}
