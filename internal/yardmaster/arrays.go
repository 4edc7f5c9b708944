package yardmaster

import (
	"fmt"
	"slices"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/tenant"
)

// arrayRecord is an array that has elements that have not ended.
//
// Of an array with a limit only so many elements are admitted at a time: to the queue, to a quota that holds them, or
// to a node. The others are held here, where policies do not see them, and follow in their order. That a run of an
// element cannot begin without its admission is all that keeps the limit.
type arrayRecord struct {
	limit    int      // 0 if there is none
	alive    int      // elements that have not ended
	admitted int      // of them
	waiting  []uint64 // numbers of the elements that are held for the limit, sorted
}

// countElement counts an element that has not ended, or with -1 one that has.
func (y *Yard) countElement(r *jobRecord, jobs int) {
	if r.Array == "" || r.Spec.Array == nil {
		return
	}

	a := y.arrayOf(r)
	a.alive += jobs

	if jobs < 0 {
		y.dismissElement(r, a)
	}

	if a.alive == 0 {
		delete(y.arrays, r.Array)
	}
}

// arrayOf returns the record of the array of an element.
func (y *Yard) arrayOf(r *jobRecord) *arrayRecord {
	a, ok := y.arrays[r.Array]
	if !ok {
		a = &arrayRecord{limit: r.Spec.Array.Limit}
		y.arrays[r.Array] = a
	}

	return a
}

// loadElements admits the elements that have runs, before any other may take their places, and returns the elements
// that are to come last: they were not in the queue.
func (y *Yard) loadElements(jobs []job.Job) map[id.Job]bool {
	late := map[id.Job]bool{}

	for i := range jobs {
		r := y.jobs[jobs[i].ID]
		if r.Array == "" || r.Spec.Array == nil || r.State.Final() {
			continue
		}

		a := y.arrayOf(r)
		if r.run != nil {
			r.admitted = true
			a.admitted++
		}

		held := r.Reason == limitReason(r.Array, a.limit)
		late[r.ID] = a.limit > 0 && (held || r.QueuedSince().Before(r.NotBefore))
	}

	return late
}

// admitElement reports whether a job may be queued for all that its array says, and holds it if it may not.
func (y *Yard) admitElement(r *jobRecord) bool {
	a := y.arrays[r.Array]
	if a == nil || a.limit == 0 || r.admitted {
		return true
	}

	if a.admitted < a.limit {
		r.admitted = true
		a.admitted++

		return true
	}

	number, _ := r.ID.Number()
	if at, found := slices.BinarySearch(a.waiting, number); !found {
		a.waiting = slices.Insert(a.waiting, at, number)
	}

	r.hold = hold{reason: limitReason(r.Array, a.limit), kind: tenant.HoldArray}
	y.touch(r)

	if r.Reason != r.hold.reason && !y.loading {
		r.Reason = r.hold.reason
		y.changedJob(r)
	}

	return false
}

func limitReason(a id.Array, limit int) string {
	if limit == 1 {
		return fmt.Sprintf("at most 1 element of %s runs at the same time", a)
	}

	return fmt.Sprintf("at most %d elements of %s run at the same time", limit, a)
}

// dismissElement ends the admission of an element, which lets another follow.
func (y *Yard) dismissElement(r *jobRecord, a *arrayRecord) {
	if r.admitted {
		r.admitted = false
		a.admitted--
		y.changedElements = append(y.changedElements, r)
	}
}

// leaveArray removes an element from those that are held for the limit of its array.
func (y *Yard) leaveArray(r *jobRecord) {
	if a := y.arrays[r.Array]; a != nil {
		number, _ := r.ID.Number()
		if at, found := slices.BinarySearch(a.waiting, number); found {
			a.waiting = slices.Delete(a.waiting, at, at+1)
		}
	}
}

// admitMore ends the admission of elements that neither wait in the queue nor run any more, and admits as many others.
// It is called after each message in which elements changed: a job that leaves the queue may come back within one.
func (y *Yard) admitMore() {
	for len(y.changedElements) > 0 {
		changed := y.changedElements
		y.changedElements = nil

		for _, r := range changed {
			a := y.arrays[r.Array]
			if a == nil {
				continue
			}

			if r.item == nil && r.run == nil && r.promise == nil && r.hold.reason == "" {
				y.dismissElement(r, a)
			}

			for a.admitted < a.limit && len(a.waiting) > 0 {
				next := y.jobs[id.NewJob(a.waiting[0])]
				since := next.entry.Since

				y.clearHold(next)
				next.Reason = "queued"
				y.changedJob(next)
				y.enqueueSince(next, since)
			}
		}
	}
}

// explainLimit says for which elements of its array a job waits.
func (y *Yard) explainLimit(r *jobRecord) place.Why {
	w := r.hold.why()

	a := y.arrays[r.Array]
	if a == nil {
		return w
	}

	number, _ := r.ID.Number()
	before, _ := slices.BinarySearch(a.waiting, number)
	running := 0

	for _, rn := range y.running {
		if other := y.jobs[rn.Job]; other != nil && other.Array == r.Array {
			running++
		}
	}

	w.Sentence = fmt.Sprintf("%s: %d running, %d queued", w.Sentence, running, a.admitted-running)
	if before > 0 {
		w.Sentence += fmt.Sprintf("; %s before it", humanize.Count(before, "element"))
	}

	return w
}

// ChangeArray cancels, pauses or resumes all elements of an array that have not ended. The answer is an ArrayChanged.
type ChangeArray struct {
	Array  id.Array
	By     id.User
	Change ArrayChange
}

// ArrayChange is what is done to the elements of an array.
type ArrayChange string

// The changes.
const (
	CancelElements ArrayChange = "cancel"
	KillElements   ArrayChange = "kill"
	PauseElements  ArrayChange = "pause"
	ResumeElements ArrayChange = "resume"
)

// ArrayChanged says what became of the elements of an array.
type ArrayChanged struct {
	Changed int // elements that were not so before
	// Refused is how many could not be changed in their state, and Reason why the first of them could not.
	Refused int
	Reason  string
}

// message returns the change of one element.
func (m ChangeArray) message(j id.Job) (Message, error) {
	switch m.Change {
	case CancelElements:
		return Cancel{Job: j, By: m.By}, nil
	case KillElements:
		return Cancel{Job: j, By: m.By, Kill: true}, nil
	case PauseElements:
		return Pause{Job: j, By: m.By}, nil
	case ResumeElements:
		return Resume{Job: j, By: m.By}, nil
	}

	return nil, fault.New(fault.Invalid, "bad_value", "unknown change %q of an array", m.Change)
}

func (m ChangeArray) handle(y *Yard) (any, error) {
	var done ArrayChanged

	elements := y.elementsOf(m.Array)
	if m.Change != ResumeElements {
		slices.Reverse(elements) // those that are held for the limit leave before those they are held for
	}

	for _, j := range elements {
		r := y.jobs[j]
		before := r.State

		one, err := m.message(j)
		if err != nil {
			return nil, err
		}

		if m.Change == ResumeElements && before != job.Paused && before != job.Pausing {
			continue // nothing was asked of it
		}

		if _, err := one.handle(y); err != nil {
			done.Refused++
			done.Reason = err.Error()

			continue
		}

		if r.State != before {
			done.Changed++
		}
	}

	return done, nil
}

// elementsOf lists the elements of an array that have not ended, in their order.
func (y *Yard) elementsOf(a id.Array) []id.Job {
	if y.arrays[a] == nil {
		return nil
	}

	first, _ := a.Number()
	var list []id.Job

	// The elements have the numbers from that of the array on.
	for n, left := first, y.arrays[a].alive; left > 0 && n < first+job.MaxElements; n++ {
		if r, ok := y.jobs[id.NewJob(n)]; ok && r.Array == a && !r.State.Final() {
			list = append(list, r.ID)
			left--
		}
	}

	return list
}
