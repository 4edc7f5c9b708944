package queue

import (
	"cmp"
	"slices"
)

// roll lists all jobs in line by order of submission, and tells each stay in the line
// from all others: a job that left and came back has another count. So who has seen
// the line before finds what is new without comparing jobs.
type roll struct {
	list []entry
	gaps int    // entries whose job has left; they are closed when they are many
	last uint64 // count of the newest stay
}

type entry struct {
	number uint64 // of the job, also when it has left
	stay   uint64
	item   *Item // nil if it has left
}

// maxGaps is how many more gaps than jobs are kept.
const maxGaps = 64

func (r *roll) find(number uint64) int {
	if n := len(r.list); n == 0 || r.list[n-1].number < number { // mostly it is new
		return n
	}

	at, _ := slices.BinarySearchFunc(r.list, number, func(e entry, n uint64) int { return cmp.Compare(e.number, n) })

	return at
}

func (r *roll) enter(it *Item) {
	r.last++
	e := entry{it.Number, r.last, it}

	at := r.find(it.Number)
	switch {
	case at < len(r.list) && r.list[at].item == nil:
		r.gaps--
		r.list[at] = e
	case at > 0 && at < len(r.list) && r.list[at-1].item == nil:
		r.gaps--
		r.list[at-1] = e
	default:
		r.list = slices.Insert(r.list, at, e)
	}
}

func (r *roll) leave(it *Item) {
	at := r.find(it.Number)
	for at < len(r.list) && r.list[at].item != it { // numbers are different, but nobody here says so
		at++
		if at == len(r.list) || r.list[at].number > it.Number {
			return
		}
	}

	if at == len(r.list) {
		return
	}

	r.list[at].item = nil
	r.gaps++
	if r.gaps > len(r.list)/2+maxGaps {
		r.list = slices.DeleteFunc(r.list, func(e entry) bool { return e.item == nil })
		r.gaps = 0
	}
}

// Items lists the waiting jobs by order of submission.
func (l *Queue) Items() []*Item {
	if l.length == 0 {
		return nil
	}

	items := make([]*Item, 0, l.length)
	for _, it := range l.Stays {
		items = append(items, it)
	}

	return items
}

// Stays hands out the waiting jobs by order of submission, each with the count of its
// stay in the line. While that is the same, its item is as it was: one that changes leaves
// the line and comes back.
func (l *Queue) Stays(yield func(stay uint64, it *Item) bool) {
	for i := range l.roll.list {
		if e := &l.roll.list[i]; e.item != nil && !yield(e.stay, e.item) {
			return
		}
	}
}
