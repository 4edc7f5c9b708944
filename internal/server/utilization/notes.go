package utilization

import (
	"context"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// Reports of agents leave here what the owners of jobs should know, and do not wait until that is an event of the yard:
// a slow store would hold up the reports of all nodes. Of each run only the newest note of a kind waits, so there are
// never many. Those that wait are stored with the record of their job, so that they outlive the server: the next one
// sends them when it first hears of the job. If the server is killed, one that was just sent may be sent twice.

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

// Deliver sends the notes that wait. One that the yard does not take is lost, and logged: it is about something that is
// shown with the job as well.
func (r *Recorder) Deliver(ctx context.Context) {
	for ctx.Err() == nil {
		n, waits := r.nextNote()
		if !waits {
			return
		}

		err := r.Note(ctx, n)
		if err != nil && ctx.Err() != nil {
			return // it waits for the next server
		}
		if err != nil {
			r.Log.WarnContext(ctx, "an event about a shared GPU could not be stored", "run", n.Run, "kind", n.Kind, "error", err)
		}

		r.sent(n)
	}
}

// nextNote returns the note to send next. It waits until it is sent.
func (r *Recorder) nextNote() (n yardmaster.NoteShare, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.notes) == 0 {
		return n, false
	}

	return r.notes[0], true
}

// sent takes a note off those that wait. If a newer one has replaced it meanwhile, that one waits on.
func (r *Recorder) sent(n yardmaster.NoteShare) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.notes = slices.DeleteFunc(r.notes, func(o yardmaster.NoteShare) bool { return o == n })

	name, _, _ := n.Run.Split()
	if known, ok := r.jobs[name]; ok {
		known.changed = true // what is stored has the note
	}
}

// notesOf returns the notes about a job that wait. The lock is held.
func (r *Recorder) notesOf(name id.Job) (list []yardmaster.NoteShare) {
	for _, n := range r.notes {
		if of, _, _ := n.Run.Split(); of == name {
			list = append(list, n)
		}
	}

	return list
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
