package preemptive

import (
	"cmp"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/place/lineup"
)

// FairShare gives users equal parts of the yard at each moment: it allocates to
// the user who has least, one job at a time, and stops jobs of those who have
// more than their part when another user has less. What a user leaves unused goes
// to the others. The default order of the line looks at what was used in the past
// and stops nobody.
type FairShare struct{}

var _ place.Policy = FairShare{}

// Name is what the policy is called in the configuration.
func (FairShare) Name() string { return "fairshare" }

// Revises reports that it also changes what runs.
func (FairShare) Revises() bool { return true }

// Plan shares the yard out.
func (FairShare) Plan(v *place.View) place.Plan {
	if v.Queue.Len() == 0 {
		return place.Plan{}
	}

	p := newPreemptor(v, "belongs to a user with a smaller share")
	d := newFairQueue(p)
	p.sortHolders()
	p.run(d.next)

	return p.plan()
}

// userShare is what one user has been given.
type userShare struct {
	queue []int32 // jobs: by priority, those that run first, then by submission
	size  float64 // given so far, in GPUs, or CPUs of jobs without
}

// fairQueue hands out the jobs of the user who has least. What cannot be stopped
// counts as given from the beginning, what found no room does not count. Between
// users who have the same, one whose next job runs already goes first, so that
// nobody is stopped for nothing.
type fairQueue struct {
	p     *preemptor
	users map[id.User]*userShare
	heap  lineup.Heap // the next job of each user
	last  *userShare
}

func newFairQueue(p *preemptor) *fairQueue {
	d := &fairQueue{p: p, users: map[id.User]*userShare{}}
	for _, r := range p.view.Running {
		if !allocate.Movable(r) {
			d.of(r.User).size += float64(max(r.GPUs, 1))
		}
	}

	var order []id.User
	for n := range int32(p.count()) {
		it, _ := p.job(n)
		u := d.of(it.User)
		if len(u.queue) == 0 {
			order = append(order, it.User)
		}

		u.queue = append(u.queue, n)
	}

	for _, name := range order {
		u := d.users[name]
		slices.SortStableFunc(u.queue, func(a, b int32) int {
			x, _ := p.job(a)
			y, _ := p.job(b)
			return cmp.Compare(y.Priority, x.Priority)
		})

		sum := u.size
		for _, n := range u.queue { // where those that run stand if all before them find room
			it, run := p.job(n)
			if run != nil {
				p.tasks[n].rank = d.entry(sum, n)
			}

			sum += lineup.Processors(it)
		}

		d.heap = append(d.heap, d.entry(u.size, u.queue[0]))
	}

	d.heap.Init()

	return d
}

func (d *fairQueue) of(u id.User) *userShare {
	if d.users[u] == nil {
		d.users[u] = &userShare{}
	}

	return d.users[u]
}

func (d *fairQueue) entry(has float64, n int32) lineup.Entry {
	it, run := d.p.job(n)
	e := lineup.Entry{First: has, Number: it.Number, At: n}
	if run == nil {
		e.Second = 1
	}

	return e
}

// has is what a task has been given, in GPUs, or CPUs if it wants no GPUs.
func (t *task) has() float64 {
	switch {
	case t.state != stays && t.state != placed:
		return 0
	case t.it.Shape.Need.MaxGPUs == 0:
		return lineup.Processors(t.it)
	case t.state == stays:
		return float64(t.run.GPUs)
	}

	return float64(t.gpus())
}

// next returns the next job of the user who has least, -1 after the last.
func (d *fairQueue) next(last *task) int32 {
	if u := d.last; u != nil {
		if last != nil {
			u.size += last.has()
		}

		u.queue = u.queue[1:]
		if len(u.queue) > 0 {
			d.heap.Push(d.entry(u.size, u.queue[0]))
		}
	}

	if len(d.heap) == 0 {
		return -1
	}

	n := d.heap.Pop().At
	it, _ := d.p.job(n)
	d.last = d.users[it.User]

	return n
}
