package baseline

import (
	"cmp"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/seats"
)

// FairShare gives users equal parts of the yard at each moment: it deals out to
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

// Plan deals out the yard.
func (FairShare) Plan(v *place.View) place.Plan {
	if v.Line.Len() == 0 {
		return place.Plan{}
	}
	p := newPreemptor(v, "is of a user who has less")
	d := newDeal(p)
	p.sortHolders()
	p.run(d.next)
	return p.plan()
}

// portion is what one user has been dealt.
type portion struct {
	queue []int32 // tasks: by priority, those that run first, then by submission
	size  float64 // dealt so far, in GPUs, or CPUs of jobs without
}

// deal hands out the tasks of the user who has least. What cannot be stopped
// counts as dealt from the beginning, what found no room does not count. Between
// users who have the same, one whose next job runs already goes first, so that
// nobody is stopped for nothing.
type deal struct {
	p     *preemptor
	users map[id.User]*portion
	heap  heap // the next task of each user
	last  *portion
	was   int32 // the task that was handed out last
}

func newDeal(p *preemptor) *deal {
	d := &deal{p: p, users: map[id.User]*portion{}}
	for _, r := range p.view.Running {
		if !seats.Loose(r) {
			d.of(r.User).size += float64(max(r.GPUs, 1))
		}
	}
	var order []id.User
	for i := range p.tasks {
		u := d.of(p.tasks[i].it.User)
		if len(u.queue) == 0 {
			order = append(order, p.tasks[i].it.User)
		}
		u.queue = append(u.queue, int32(i))
	}
	for _, name := range order {
		u := d.users[name]
		slices.SortStableFunc(u.queue, func(a, b int32) int { return cmp.Compare(p.tasks[b].it.Priority, p.tasks[a].it.Priority) })
		sum := u.size
		for _, at := range u.queue { // where each stands if all of them find room
			p.tasks[at].rank = d.entry(sum, at)
			sum += size(p.tasks[at].it)
		}
		d.heap = append(d.heap, p.tasks[u.queue[0]].rank)
	}
	d.heap.init()
	return d
}

func (d *deal) of(u id.User) *portion {
	if d.users[u] == nil {
		d.users[u] = &portion{}
	}
	return d.users[u]
}

func (d *deal) entry(has float64, at int32) entry {
	t := &d.p.tasks[at]
	e := entry{first: has, number: t.it.Number, at: at}
	if t.run == nil {
		e.second = 1
	}
	return e
}

// next returns the next task of the user who has least, -1 after the last.
func (d *deal) next() int32 {
	if u := d.last; u != nil {
		if t := &d.p.tasks[d.was]; t.state == stays || t.state == placed {
			u.size += size(t.it)
		}
		if u.queue = u.queue[1:]; len(u.queue) > 0 {
			d.heap.push(d.entry(u.size, u.queue[0]))
		}
	}
	if len(d.heap) == 0 {
		return -1
	}
	d.was = d.heap.pop().at
	d.last = d.users[d.p.tasks[d.was].it.User]
	return d.was
}
