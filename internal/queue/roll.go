package queue

import (
	"cmp"
	"slices"
)

// roll lists all queued jobs in order of submission and numbers each stay in the queue: a job
// that left and came back has another number. So a caller that has seen the queue before
// finds what is new without comparing jobs.
type roll struct {
	list []entry
	gaps int    // entries whose job has left; removed when there are many
	last uint64 // number of the newest stay
}

type entry struct {
	number uint64 // of the job, also when it has left
	stay   uint64
	item   *Item // nil if it has left
}

// maxGaps is how many more gaps than jobs are kept.
const maxGaps = 64

func (r *roll) find(number uint64) int {
	if n := len(r.list); n == 0 || r.list[n-1].number < number { // usually it is new
		return n
	}

	at, _ := slices.BinarySearchFunc(r.list, number, func(e entry, n uint64) int { return cmp.Compare(e.number, n) })

	return at
}

// enter adds a job and returns the number of its stay.
func (r *roll) enter(it *Item) uint64 {
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

	return e.stay
}

// item returns the job of a stay, nil if it has left. number is that of the job.
func (r *roll) item(number, stay uint64) *Item {
	for at := r.find(number); at < len(r.list) && r.list[at].number == number; at++ {
		if r.list[at].stay == stay {
			return r.list[at].item
		}
	}

	return nil
}

// leave removes a job and returns the number of its stay, 0 if it was not there.
func (r *roll) leave(it *Item) uint64 {
	at := r.find(it.Number)
	for at < len(r.list) && r.list[at].item != it { // numbers should be unique, but that is not checked here
		at++
		if at == len(r.list) || r.list[at].number > it.Number {
			return 0
		}
	}

	if at == len(r.list) {
		return 0
	}

	stay := r.list[at].stay

	r.list[at].item = nil
	r.gaps++
	if r.gaps > len(r.list)/2+maxGaps {
		r.list = slices.DeleteFunc(r.list, func(e entry) bool { return e.item == nil })
		r.gaps = 0
	}

	return stay
}

// Find returns the queued job with a number, nil if there is none.
func (l *Queue) Find(number uint64) *Item {
	list := l.roll.list
	for at := l.roll.find(number); at < len(list) && list[at].number == number; at++ {
		if list[at].item != nil {
			return list[at].item
		}
	}

	return nil
}

// Items lists the queued jobs in order of submission.
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

// Stays yields the queued jobs in order of submission, each with the number of its stay in the
// queue. As long as that number is the same, so is the item: a job that changes leaves the
// queue and comes back.
func (l *Queue) Stays(yield func(stay uint64, it *Item) bool) {
	for i := range l.roll.list {
		if e := &l.roll.list[i]; e.item != nil && !yield(e.stay, e.item) {
			return
		}
	}
}
