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
	poolSize    = 10      // how many solutions a search keeps
)

// search looks for a solution that is better than the first one.
type search struct {
	*yard
	roundsLeft int         // left
	pool       []solution  // the best that were found, the very best first
	tasksOn    [][][]int32 // tasks on each node, by kind and place on the index
}

// improve searches as long as it may. What was found first stays if nothing is better.
func (y *yard) improve() {
	if y.o.Search == Greedy || y.o.Search == "" || len(y.tasks) < 2 {
		return
	}

	s := &search{yard: y, roundsLeft: y.o.Rounds}
	if s.roundsLeft == 0 {
		s.roundsLeft = usualRounds
		if y.enough != nil {
			s.roundsLeft = noLimit
		}
	}

	if y.o.Search == Local { // what it does only makes the solution better
		s.local()
		return
	}

	s.addToPool(y.snapshot())
	s.random()

	if y.o.Search == Relink {
		for i := range s.pool {
			y.restore(&s.pool[i])
			s.local()
			s.pool[i] = y.snapshot()
		}

		s.relink()
	}

	best := slices.MaxFunc(s.pool, func(a, b solution) int { return cmp.Compare(a.value, b.value) })
	y.restore(&best)
}

// nextRound counts a round, and reports whether there is time for it.
func (s *search) nextRound() bool {
	s.roundsLeft--
	return s.roundsLeft >= 0 && (s.enough == nil || !s.enough())
}

// addToPool puts a solution into the pool if it is among the best and not there yet.
func (s *search) addToPool(a solution) {
	at, _ := slices.BinarySearchFunc(s.pool, a, func(x, b solution) int { return cmp.Compare(b.value, x.value) })
	if at >= poolSize || at < len(s.pool) && slices.Equal(s.pool[at].assigned, a.assigned) {
		return
	}

	s.pool = slices.Insert(s.pool, at, a)
	s.pool = s.pool[:min(len(s.pool), poolSize)]
}

// newRand is the random source of one plan.
func newRand(seed uint64, now time.Time) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(now.UnixNano())))
}

// noise is how far chance makes the worth of a step look better or worse.
const noise = 0.3

// random climbs again and again with randomness in the order of the steps.
func (s *search) random() {
	rng := newRand(s.o.Seed, s.now)
	for s.nextRound() {
		for i := range s.tasks {
			s.unassign(&s.tasks[i])
		}

		s.climb(func() float64 { return math.Exp(noise * rng.NormFloat64()) })

		if len(s.pool) < poolSize || s.value() > s.pool[len(s.pool)-1].value {
			s.addToPool(s.snapshot())
		}
	}
}

// local lets tasks that would like something better displace others, as long as
// that wins more.
func (s *search) local() {
	list := s.improvable()
	if len(list) == 0 {
		return
	}

	s.indexTasks()

	for better := true; better; list = s.improvable() {
		better = false
		for _, i := range list {
			if !s.nextRound() {
				return
			}

			better = s.displace(i) || better
		}
	}
}

// indexTasks records who is on which node.
func (s *search) indexTasks() {
	s.tasksOn = make([][][]int32, len(s.kinds))
	for k := range s.kinds {
		s.tasksOn[k] = make([][]int32, len(s.kinds[k].rooms))
	}

	for i := range s.tasks {
		s.updateIndex(int32(i), true)
	}
}

// updateIndex adds a task to the crews of its nodes, or takes it out.
func (s *search) updateIndex(i int32, in bool) {
	t := &s.tasks[i]
	if t.assigned < 0 {
		return
	}

	crew := s.tasksOn[t.candidates[t.assigned].kind]
	for _, p := range t.positions {
		if in {
			crew[p] = append(crew[p], i)
		} else {
			crew[p] = slices.DeleteFunc(crew[p], func(o int32) bool { return o == i })
		}
	}
}

// minImprovement is what a task must have to win to push others, as a share of what the
// solution wins in all.
const minImprovement = 1e-4

// improvable lists the tasks that would be better off with another candidate, those first
// that have most to win.
func (s *search) improvable() []int32 {
	var list []int32
	improvement := make([]float64, len(s.tasks))

	least := minImprovement * s.value()
	for i := range s.tasks {
		t := &s.tasks[i]
		for k := range t.candidates {
			improvement[i] = max(improvement[i], t.gain(k)-t.gain(t.assigned))
		}

		if improvement[i] > least {
			list = append(list, int32(i))
		}
	}

	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(improvement[b], improvement[a]) })

	return list
}

// assignedTo is the candidate that a task has.
func (s *search) assignedTo(i int32) *candidate { return &s.tasks[i].candidates[s.tasks[i].assigned] }

// displace tries to give a task one of its better candidates, the best first, by moving
// others off a node.
func (s *search) displace(i int32) bool {
	t := &s.tasks[i]
	now := t.gain(t.assigned)

	better := make([]int, 0, len(t.candidates))
	for k := range t.candidates {
		if o := &t.candidates[k]; o.plain() && t.gain(k) > now && (t.assigned < 0 || t.candidates[t.assigned].plain()) {
			better = append(better, k)
		}
	}

	slices.SortStableFunc(better, func(a, b int) int { return cmp.Compare(t.candidates[b].gain, t.candidates[a].gain) })
	for _, k := range better {
		for _, p := range s.targets(i, k) {
			if s.try(i, k, p) {
				return true
			}
		}
	}

	return false
}

// maxTargets is on how many nodes a task tries to displace others.
const maxTargets = 4

// targets lists the nodes on which a candidate could be had at the expense of others,
// those first where least is lost.
func (s *search) targets(i int32, at int) []int32 {
	o := &s.tasks[i].candidates[at]
	var list []int32

	loss := make([]float64, len(s.tasksOn[o.kind]))
	for p, crew := range s.tasksOn[o.kind] {
		free := int32(s.indexes[o.kind].free[p])
		for _, j := range crew {
			c := s.assignedTo(j)
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

	return list[:min(len(list), maxTargets)]
}

// removed is what a task had that left its node.
type removed struct {
	task int32
	at   int
	node int32
}

// try gives a task a candidate on a node. Others leave it, those first that lose
// least for their GPUs, and take the best that is left for them. If that does not win
// more all is undone.
func (s *search) try(i int32, at int, node int32) bool {
	t := &s.tasks[i]
	o := &t.candidates[at]
	before := t.gain(t.assigned)
	was := []removed{s.leave(i)}
	crew := slices.DeleteFunc(slices.Clone(s.tasksOn[o.kind][node]),
		func(j int32) bool { return !s.assignedTo(j).plain() })
	each := func(j int32) float64 { return s.assignedTo(j).gain / float64(max(s.assignedTo(j).gpus, 1)) }
	slices.SortStableFunc(crew, func(a, b int32) int { return cmp.Compare(each(a), each(b)) })
	for _, j := range crew {
		if s.indexes[o.kind].free[node] >= int8(o.gpus) {
			break
		}

		before += s.tasks[j].gain(s.tasks[j].assigned)
		was = append(was, s.leave(j))
	}

	s.join(i, at, node)

	after := t.gain(at)
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
func (s *search) leave(i int32) removed {
	t := &s.tasks[i]
	if t.assigned < 0 {
		return removed{i, -1, -1}
	}

	l := removed{i, t.assigned, t.positions[0]}
	s.updateIndex(i, false)
	s.unassign(t)

	return l
}

// join puts a task with a candidate onto a node.
func (s *search) join(i int32, at int, node int32) {
	t := &s.tasks[i]
	t.positions = append(t.positions[:0], node)
	s.assignAt(t, at)
	s.updateIndex(i, true)
}

// rejoin gives a task the best candidate that there is room for, and returns what that wins.
func (s *search) rejoin(i int32) float64 {
	t := &s.tasks[i]
	best := -1
	for k := range t.candidates {
		if o := &t.candidates[k]; o.plain() && t.gain(k) > t.gain(best) && !s.declines(t, k) &&
			s.indexes[o.kind].countWith(int(o.gpus)) > 0 {
			best = k
		}
	}

	if best >= 0 {
		s.assign(t, best)
		s.updateIndex(i, true)
	}

	return t.gain(t.assigned)
}
