package andreas

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	usualRounds = 100     // of a search that nobody limits
	noLimit     = 1 << 30 // rounds, of a search that time alone limits
	elite       = 10      // how many answers a search keeps
)

// search looks for an answer that is better than the first one.
type search struct {
	*yard
	rounds int         // left
	pool   []answer    // the best that were found, the very best first
	crew   [][][]int32 // tasks on each node, by kind and place on the shelf
}

// improve searches as long as it may. What was found first stays if nothing is better.
func (y *yard) improve() {
	if y.o.Search == Greedy || y.o.Search == "" || len(y.tasks) < 2 {
		return
	}
	s := &search{yard: y, rounds: y.o.Rounds}
	if s.rounds == 0 {
		s.rounds = usualRounds
		if y.enough != nil {
			s.rounds = noLimit
		}
	}
	if y.o.Search == Local { // what it does only makes the answer better
		s.local()
		return
	}
	s.keep(y.note())
	s.random()
	if y.o.Search == Relink {
		for i := range s.pool {
			y.restore(&s.pool[i])
			s.local()
			s.pool[i] = y.note()
		}
		s.relink()
	}
	best := slices.MaxFunc(s.pool, func(a, b answer) int { return cmp.Compare(a.value, b.value) })
	y.restore(&best)
}

// more counts a round, and reports whether there is time for it.
func (s *search) more() bool {
	s.rounds--
	return s.rounds >= 0 && (s.enough == nil || !s.enough())
}

// keep puts an answer into the pool if it is among the best and not there yet.
func (s *search) keep(a answer) {
	at, _ := slices.BinarySearchFunc(s.pool, a, func(x, b answer) int { return cmp.Compare(b.value, x.value) })
	if at >= elite || at < len(s.pool) && slices.Equal(s.pool[at].at, a.at) {
		return
	}
	s.pool = slices.Insert(s.pool, at, a)
	s.pool = s.pool[:min(len(s.pool), elite)]
}

// chance is the source of chance of one plan.
func chance(seed uint64, now time.Time) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(now.UnixNano())))
}

// spread is how far chance makes the worth of a step look better or worse.
const spread = 0.3

// random climbs again and again with chance in the order of the steps.
func (s *search) random() {
	rng := chance(s.o.Seed, s.now)
	for s.more() {
		for i := range s.tasks {
			s.give(&s.tasks[i])
		}
		s.climb(func() float64 { return math.Exp(spread * rng.NormFloat64()) })
		if len(s.pool) < elite || s.value() > s.pool[len(s.pool)-1].value {
			s.keep(s.note())
		}
	}
}

// local lets tasks that would like something better push others aside, as long as
// that wins more.
func (s *search) local() {
	list := s.unhappy()
	if len(list) == 0 {
		return
	}
	s.muster()
	for better := true; better; list = s.unhappy() {
		better = false
		for _, i := range list {
			if !s.more() {
				return
			}
			better = s.push(i) || better
		}
	}
}

// muster writes down who is on which node.
func (s *search) muster() {
	s.crew = make([][][]int32, len(s.kinds))
	for k := range s.kinds {
		s.crew[k] = make([][]int32, len(s.kinds[k].rooms))
	}
	for i := range s.tasks {
		s.enlist(int32(i), true)
	}
}

// enlist adds a task to the crews of its nodes, or takes it out.
func (s *search) enlist(i int32, in bool) {
	t := &s.tasks[i]
	if t.at < 0 {
		return
	}
	crew := s.crew[t.offers[t.at].kind]
	for _, p := range t.pos {
		if in {
			crew[p] = append(crew[p], i)
		} else {
			crew[p] = slices.DeleteFunc(crew[p], func(o int32) bool { return o == i })
		}
	}
}

// leastWish is what a task must have to win to push others, as a share of what the
// answer wins in all.
const leastWish = 1e-4

// unhappy lists the tasks that would be better off with another offer, those first
// that have most to win.
func (s *search) unhappy() []int32 {
	var list []int32
	wish := make([]float64, len(s.tasks))
	least := leastWish * s.value()
	for i := range s.tasks {
		t := &s.tasks[i]
		for k := range t.offers {
			wish[i] = max(wish[i], t.worth(k)-t.worth(t.at))
		}
		if wish[i] > least {
			list = append(list, int32(i))
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(wish[b], wish[a]) })
	return list
}

// had is the offer that a task has.
func (s *search) had(i int32) *offer { return &s.tasks[i].offers[s.tasks[i].at] }

// push tries to give a task one of its better offers, the best first, by moving
// others off a node.
func (s *search) push(i int32) bool {
	t := &s.tasks[i]
	now := t.worth(t.at)
	wishes := make([]int, 0, len(t.offers))
	for k := range t.offers {
		if o := &t.offers[k]; o.plain() && t.worth(k) > now && (t.at < 0 || t.offers[t.at].plain()) {
			wishes = append(wishes, k)
		}
	}
	slices.SortStableFunc(wishes, func(a, b int) int { return cmp.Compare(t.offers[b].gain, t.offers[a].gain) })
	for _, k := range wishes {
		for _, p := range s.places(i, k) {
			if s.try(i, k, p) {
				return true
			}
		}
	}
	return false
}

// mostPlaces is on how many nodes a task tries to push others aside.
const mostPlaces = 4

// places lists the nodes on which an offer could be had at the expense of others,
// those first where least is lost.
func (s *search) places(i int32, at int) []int32 {
	o := &s.tasks[i].offers[at]
	var list []int32
	loss := make([]float64, len(s.crew[o.kind]))
	for p, crew := range s.crew[o.kind] {
		free := int32(s.shelf[o.kind].free[p])
		for _, j := range crew {
			c := s.had(j)
			if !c.plain() {
				continue
			}
			if j != i && free < o.gpus {
				loss[p] += c.gain * min(1, float64(o.gpus-free)/float64(c.gpus))
			}
			free += c.gpus
		}
		if free >= o.gpus {
			list = append(list, int32(p))
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(loss[a], loss[b]) })
	return list[:min(len(list), mostPlaces)]
}

// left is what a task had that left its node.
type left struct {
	task int32
	at   int
	node int32
}

// try gives a task an offer on a node. Others leave it, those first that lose
// least for their GPUs, and take the best that is left for them. If that does not win
// more all is undone.
func (s *search) try(i int32, at int, node int32) bool {
	t := &s.tasks[i]
	o := &t.offers[at]
	before := t.worth(t.at)
	was := []left{s.leave(i)}
	crew := slices.DeleteFunc(slices.Clone(s.crew[o.kind][node]), func(j int32) bool { return !s.had(j).plain() })
	each := func(j int32) float64 { return s.had(j).gain / float64(max(s.had(j).gpus, 1)) }
	slices.SortStableFunc(crew, func(a, b int32) int { return cmp.Compare(each(a), each(b)) })
	for _, j := range crew {
		if s.shelf[o.kind].free[node] >= int8(o.gpus) {
			break
		}
		before += s.tasks[j].worth(s.tasks[j].at)
		was = append(was, s.leave(j))
	}
	s.join(i, at, node)
	after := t.worth(at)
	for k := len(was) - 1; k > 0; k-- {
		after += s.rejoin(was[k].task)
	}
	if after > before*(1+1e-9) {
		return true
	}
	for _, h := range was {
		s.leave(h.task)
	}
	for _, h := range was {
		if h.at >= 0 {
			s.join(h.task, h.at, h.node)
		}
	}
	return false
}

// leave takes a task of one node off it, and returns what it had.
func (s *search) leave(i int32) left {
	t := &s.tasks[i]
	if t.at < 0 {
		return left{i, -1, -1}
	}
	l := left{i, t.at, t.pos[0]}
	s.enlist(i, false)
	s.give(t)
	return l
}

// join puts a task with an offer onto a node.
func (s *search) join(i int32, at int, node int32) {
	t := &s.tasks[i]
	t.pos = append(t.pos[:0], node)
	s.hold(t, at)
	s.enlist(i, true)
}

// rejoin gives a task the best offer that there is room for, and returns what that wins.
func (s *search) rejoin(i int32) float64 {
	t := &s.tasks[i]
	best := -1
	for k := range t.offers {
		if o := &t.offers[k]; o.plain() && t.worth(k) > t.worth(best) && !s.declines(t, k) && s.shelf[o.kind].with(int(o.gpus)) > 0 {
			best = k
		}
	}
	if best >= 0 {
		s.take(t, best)
		s.enlist(i, true)
	}
	return t.worth(t.at)
}
