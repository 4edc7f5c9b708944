package burst

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"trainyard/internal/job"
)

// book is a plan for a whole window by someone who knows every arrival beforehand.
// It begins with the plan that the yard made and is improved in rounds: some jobs are
// taken out and put back in another order, and the better plan is kept. So it is a
// schedule that a policy with perfect knowledge could follow; the best there is may be
// better still, which is what the lower bound is for.
type book struct {
	w     *window
	worth float64 // of an hour of waiting, in GPU-hours of the cloud
	nodes []profile
	of    []booking // by task
}

// booking is where a task runs. No nodes mean the cloud, at once.
type booking struct {
	start time.Duration
	at    []int
	take  []int
}

// small tasks, in GPU-hours, fill what the others leave.
const small = 5

// clairvoyant improves a schedule of the yard.
func clairvoyant(w *window, from []slot, worth float64, rounds int) (outcome, error) {
	b := &book{w: w, worth: worth, nodes: make([]profile, w.nodes), of: make([]booking, len(w.tasks))}
	for i := range b.nodes {
		b.nodes[i] = profile{{0, perNode}}
	}

	for _, s := range from {
		o := &b.of[s.task]
		o.start, o.at, o.take = s.start, append(o.at, s.node), append(o.take, s.gpus)
	}

	var large []int
	for i := range w.tasks {
		switch o := b.of[i]; {
		case w.tasks[i].cost() <= small:
			b.of[i] = booking{}
			continue
		case len(o.at) > 0:
			b.set(i, o)
		}

		large = append(large, i)
	}

	chance := rand.New(rand.NewPCG(1, 0))
	for range rounds {
		b.improve(large, chance)
	}

	for i := range w.tasks {
		if len(b.of[i].at) == 0 {
			b.put(i)
		}
	}

	return b.outcome()
}

// improve takes out tasks around one time, puts them back, dear ones mostly first, and
// undoes that if it has become worse.
func (b *book) improve(large []int, chance *rand.Rand) {
	chosen := b.choose(large, chance)
	before, after := 0.0, 0.0
	was := make([]booking, len(chosen))

	key := make(map[int]float64, len(chosen))
	for k, i := range chosen {
		before += b.cost(i)
		was[k] = b.of[i]
		b.drop(i)
		key[i] = b.w.tasks[i].cost() * math.Exp(chance.NormFloat64())
	}

	order := slices.Clone(chosen)
	slices.SortFunc(order, func(x, y int) int { return cmp.Or(cmp.Compare(key[y], key[x]), cmp.Compare(x, y)) })
	for _, i := range order {
		b.put(i)
		after += b.cost(i)
	}

	if after <= before {
		return
	}

	for _, i := range order {
		b.drop(i)
	}

	for k, i := range chosen {
		if len(was[k].at) > 0 {
			b.set(i, was[k])
		}
	}
}

// choose returns some tasks that run within a day of an arrival, and some that went to the cloud then.
func (b *book) choose(large []int, chance *rand.Rand) []int {
	const most, day = 30, 24 * time.Hour
	t := b.w.tasks[large[chance.IntN(len(large))]].arrives

	var list []int
	for _, i := range large {
		j, o := &b.w.tasks[i], &b.of[i]
		if len(o.at) == 0 {
			if (j.arrives-t).Abs() < day && chance.Float64() < 0.2 {
				list = append(list, i)
			}
		} else if o.start < t+day && o.start+j.duration > t && chance.Float64() < 0.1 {
			list = append(list, i)
		}
	}

	if len(list) > most {
		chance.Shuffle(len(list), func(x, y int) { list[x], list[y] = list[y], list[x] })
		list = list[:most]
	}

	return list
}

// put books a task at its earliest start, unless the cloud is worth more.
func (b *book) put(i int) {
	j := &b.w.tasks[i]
	latest := j.arrives + job.Seconds(3600*j.cost()/b.worth)
	if j.gpus > perNode {
		b.putGang(i, latest)
		return
	}

	best, free := -1, 0
	for n, p := range b.nodes {
		s := p.earliest(j.gpus, j.duration, j.arrives, latest)
		if s == endless {
			continue
		}

		if f := p[p.last(s)].free; best < 0 || s < latest || f < free {
			best, free, latest = n, f, s
		}
	}

	if best >= 0 {
		b.set(i, booking{latest, []int{best}, []int{j.gpus}})
	}
}

// putGang tries every time at which something changes.
func (b *book) putGang(i int, latest time.Duration) {
	j := &b.w.tasks[i]
	times := []time.Duration{j.arrives}
	for _, p := range b.nodes {
		for k := p.last(j.arrives) + 1; k < len(p) && p[k].at <= latest; k++ {
			times = append(times, p[k].at)
		}
	}

	slices.Sort(times)
	for _, s := range times {
		if o, ok := b.gang(j, s); ok {
			b.set(i, o)
			return
		}
	}
}

// gang finds whole nodes for a task that are free from a time on, and one for the rest.
func (b *book) gang(j *task, s time.Duration) (booking, bool) {
	whole, rest, last := j.gpus/perNode, j.gpus%perNode, -1
	o := booking{start: s}
	for n, p := range b.nodes {
		if whole > 0 && p.earliest(perNode, j.duration, s, s) == s {
			o.at, o.take = append(o.at, n), append(o.take, perNode)
			whole--
		} else if rest > 0 && last < 0 && p.earliest(rest, j.duration, s, s) == s {
			last = n
		}
	}

	if whole > 0 || rest > 0 && last < 0 {
		return o, false
	}

	if rest > 0 {
		o.at, o.take = append(o.at, last), append(o.take, rest)
	}

	return o, true
}

func (b *book) set(i int, o booking) {
	b.of[i] = o
	for k, n := range o.at {
		b.nodes[n] = b.nodes[n].book(o.start, o.take[k], b.w.tasks[i].duration)
	}
}

func (b *book) drop(i int) {
	o := b.of[i]
	b.of[i] = booking{}
	for k, n := range o.at {
		b.nodes[n] = b.nodes[n].book(o.start, -o.take[k], b.w.tasks[i].duration).tidy()
	}
}

func (b *book) cost(i int) float64 {
	if o := &b.of[i]; len(o.at) > 0 {
		return b.worth * (o.start - b.w.tasks[i].arrives).Hours()
	}

	return b.w.tasks[i].cost()
}

// outcome sums up, after a look whether no node is booked twice.
func (b *book) outcome() (outcome, error) {
	for n, p := range b.nodes {
		if slices.ContainsFunc(p, func(s step) bool { return s.free < 0 || s.free > perNode }) {
			return outcome{}, fmt.Errorf("the clairvoyant booked node %d twice", n)
		}
	}

	e := newEnds(b.w)
	for i := range b.w.tasks {
		j, o := &b.w.tasks[i], &b.of[i]
		if len(o.at) == 0 {
			e.provision(j, j.at)
			continue
		}

		e.add(j, o.start.Hours())
		e.local(j.gpus, o.start.Hours(), (o.start + j.duration).Hours())
	}

	return e.outcome(), nil
}
