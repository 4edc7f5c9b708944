package utilization

import (
	"context"

	"trainyard/internal/yardmaster"
)

// Reports of agents leave here what the owners of jobs should know, and do not wait until that is an event of the yard:
// a slow store would hold up the reports of all nodes. Of each run only the newest note of a kind waits, so there are
// never many.

// note leaves a note to be sent. The lock is held.
func (r *Recorder) note(n yardmaster.NoteShare) {
	select {
	case r.noted <- struct{}{}:
	default: // somebody was woken already
	}

	for i := range r.notes {
		if r.notes[i].Run == n.Run && r.notes[i].Kind == n.Kind {
			r.notes[i] = n

			return
		}
	}

	r.notes = append(r.notes, n)
}

// Deliver sends the notes that wait.
func (r *Recorder) Deliver(ctx context.Context) {
	for ctx.Err() == nil {
		n, waits := r.nextNote()
		if !waits {
			return
		}

		r.Note(ctx, n)
	}
}

func (r *Recorder) nextNote() (n yardmaster.NoteShare, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.notes) == 0 {
		return n, false
	}

	n = r.notes[0]
	r.notes = r.notes[1:]

	return n, true
}

// deliverAll sends notes as they come, until ctx ends.
func (r *Recorder) deliverAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.noted:
			r.Deliver(ctx)
		}
	}
}
