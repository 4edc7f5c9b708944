package andreas

import (
	"cmp"
	"math"
	"slices"

	"trainyard/internal/place/andreas/problem"
)

const (
	usualRounds = 100     // rounds of a search without a limit
	noLimit     = 1 << 30 // rounds of a search that only time limits
	poolSize    = 10      // how many solutions a search keeps
)

// search looks for a solution that is better than the first one.
type search struct {
	*planner
	roundsLeft int
	pool       []attempt   // the best solutions found, the best first
	tasksOn    [][][]int32 // tasks on each node, by kind and position in the index
}

// improve searches until its time or rounds are used up. The first solution stays if none is
// better.
func (y *planner) improve() {
	if y.o.Search == Greedy || y.o.Search == "" || len(y.Tasks) < 2 {
		return
	}

	s := &search{planner: y, roundsLeft: y.o.Rounds}
	if s.roundsLeft == 0 {
		s.roundsLeft = usualRounds
		if y.enough != nil {
			s.roundsLeft = noLimit
		}
	}

	if y.o.Search == Local { // a local search never makes the solution worse
		s.local()
		return
	}

	s.addToPool(y.record())
	s.random()

	if y.o.Search == Relink {
		for i := range s.pool {
			y.Restore(&s.pool[i].Solution)
			s.local()
			s.pool[i] = y.record()
		}

		s.relink()
	}

	best := slices.MaxFunc(s.pool, func(a, b attempt) int { return cmp.Compare(a.value, b.value) })
	y.Restore(&best.Solution)
}

// nextRound counts a round, and reports whether there is time for it.
func (s *search) nextRound() bool {
	s.roundsLeft--
	return s.roundsLeft >= 0 && (s.enough == nil || !s.enough())
}

// addToPool adds a solution to the pool if it is among the best and not a duplicate.
func (s *search) addToPool(a attempt) {
	at, _ := slices.BinarySearchFunc(s.pool, a, func(x, b attempt) int { return cmp.Compare(b.value, x.value) })
	if at >= poolSize || at < len(s.pool) && slices.Equal(s.pool[at].Assigned, a.Assigned) {
		return
	}

	s.pool = slices.Insert(s.pool, at, a)
	s.pool = s.pool[:min(len(s.pool), poolSize)]
}

// noise is the relative size of the random change of a step's value.
const noise = 0.3

// random repeats the greedy climb with random changes in the order of the steps.
func (s *search) random() {
	rng := problem.NewRand(s.o.Seed, s.Now)
	for s.nextRound() {
		for i := range s.Tasks {
			s.Unassign(&s.Tasks[i])
		}

		s.climb(func() float64 { return math.Exp(noise * rng.NormFloat64()) })

		if len(s.pool) < poolSize || s.value() > s.pool[len(s.pool)-1].value {
			s.addToPool(s.record())
		}
	}
}

// local lets tasks that would gain from a better candidate displace others, as long as that raises
// the total.
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

// indexTasks records which tasks are on which node.
func (s *search) indexTasks() {
	s.tasksOn = make([][][]int32, len(s.Kinds))
	for k := range s.Kinds {
		s.tasksOn[k] = make([][]int32, len(s.Kinds[k].Rooms))
	}

	for i := range s.Tasks {
		s.updateIndex(int32(i), true)
	}
}

// updateIndex adds a task to the lists of its nodes, or removes it.
func (s *search) updateIndex(i int32, in bool) {
	t := &s.Tasks[i]
	if t.Assigned < 0 {
		return
	}

	crew := s.tasksOn[t.Candidates[t.Assigned].Kind]
	for _, p := range t.Positions {
		if in {
			crew[p] = append(crew[p], i)
		} else {
			crew[p] = slices.DeleteFunc(crew[p], func(o int32) bool { return o == i })
		}
	}
}

// minImprovement is the least gain for which a task displaces others, as a fraction of the value of
// the solution.
const minImprovement = 1e-4

// improvable lists the tasks that would gain from another candidate, the largest gain first.
func (s *search) improvable() []int32 {
	var list []int32
	improvement := make([]float64, len(s.Tasks))

	least := minImprovement * s.value()
	for i := range s.Tasks {
		t := &s.Tasks[i]
		for k := range t.Candidates {
			improvement[i] = max(improvement[i], gainOf(t, k)-gainOf(t, t.Assigned))
		}

		if improvement[i] > least {
			list = append(list, int32(i))
		}
	}

	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(improvement[b], improvement[a]) })

	return list
}

// assignedTo returns the assigned candidate of a task.
func (s *search) assignedTo(i int32) *problem.Candidate {
	return &s.Tasks[i].Candidates[s.Tasks[i].Assigned]
}

// displace tries to give a task one of its better candidates, the best first, by moving
// others off a node.
func (s *search) displace(i int32) bool {
	t := &s.Tasks[i]
	now := gainOf(t, t.Assigned)

	better := make([]int, 0, len(t.Candidates))
	for k := range t.Candidates {
		if o := &t.Candidates[k]; o.Plain() && gainOf(t, k) > now && (t.Assigned < 0 || t.Candidates[t.Assigned].Plain()) {
			better = append(better, k)
		}
	}

	slices.SortStableFunc(better, func(a, b int) int { return cmp.Compare(t.Candidates[b].Gain, t.Candidates[a].Gain) })
	for _, k := range better {
		for _, p := range s.targets(i, k) {
			if s.try(i, k, p) {
				return true
			}
		}
	}

	return false
}

// maxTargets bounds on how many nodes a task tries to displace others.
const maxTargets = 4

// targets lists the nodes on which a candidate would fit if others left, those where least is lost
// first.
func (s *search) targets(i int32, at int) []int32 {
	o := &s.Tasks[i].Candidates[at]
	var list []int32

	loss := make([]float64, len(s.tasksOn[o.Kind]))
	for p, crew := range s.tasksOn[o.Kind] {
		free := int32(s.Indexes[o.Kind].Free[p])
		for _, j := range crew {
			c := s.assignedTo(j)
			if !c.Plain() {
				continue
			}

			if j != i && free < o.GPUs {
				loss[p] += c.Gain * min(1, float64(o.GPUs-free)/float64(c.GPUs))
			}

			free += c.GPUs
		}

		if free >= o.GPUs {
			list = append(list, int32(p))
		}
	}

	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(loss[a], loss[b]) })

	return list[:min(len(list), maxTargets)]
}

// removed is what a task had before it left its node.
type removed struct {
	task int32
	at   int
	node int32
}

// try gives a task a candidate on a node. Other tasks leave the node, those that lose least per GPU
// first, and take the best candidate that still fits elsewhere. If the total does not rise,
// everything is undone.
func (s *search) try(i int32, at int, node int32) bool {
	t := &s.Tasks[i]
	o := &t.Candidates[at]
	before := gainOf(t, t.Assigned)
	was := []removed{s.leave(i)}
	crew := slices.DeleteFunc(slices.Clone(s.tasksOn[o.Kind][node]),
		func(j int32) bool { return !s.assignedTo(j).Plain() })
	each := func(j int32) float64 { return s.assignedTo(j).Gain / float64(max(s.assignedTo(j).GPUs, 1)) }
	slices.SortStableFunc(crew, func(a, b int32) int { return cmp.Compare(each(a), each(b)) })
	for _, j := range crew {
		if s.Indexes[o.Kind].Free[node] >= int8(o.GPUs) {
			break
		}

		before += gainOf(&s.Tasks[j], s.Tasks[j].Assigned)
		was = append(was, s.leave(j))
	}

	s.join(i, at, node)

	after := gainOf(t, at)
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

// leave removes a task on a single node from it, and returns what it had.
func (s *search) leave(i int32) removed {
	t := &s.Tasks[i]
	if t.Assigned < 0 {
		return removed{i, -1, -1}
	}

	l := removed{i, t.Assigned, t.Positions[0]}
	s.updateIndex(i, false)
	s.Unassign(t)

	return l
}

// join assigns a task a candidate on a node.
func (s *search) join(i int32, at int, node int32) {
	t := &s.Tasks[i]
	t.Positions = append(t.Positions[:0], node)
	s.AssignAt(t, at)
	s.updateIndex(i, true)
}

// rejoin gives a task the best candidate that there is room for, and returns its gain.
func (s *search) rejoin(i int32) float64 {
	t := &s.Tasks[i]
	best := -1
	for k := range t.Candidates {
		if o := &t.Candidates[k]; o.Plain() && gainOf(t, k) > gainOf(t, best) && !s.declines(t, k) &&
			s.Indexes[o.Kind].CountWith(int(o.GPUs)) > 0 {
			best = k
		}
	}

	if best >= 0 {
		s.Assign(t, best)
		s.updateIndex(i, true)
	}

	return gainOf(t, t.Assigned)
}
