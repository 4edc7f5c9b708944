package andreas

import (
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// yard is what one plan is made of: kinds of nodes with their prices, and tasks
// with what they could be given.
type yard struct {
	o              *Options
	view           *place.View
	enough         func() bool // the time is up; nil if there is no limit
	now            time.Time
	hasEstimates   bool // some job has a deadline or a known speed
	preemptible    []preemptible
	kinds          []kind
	rooms          []fleet.Room // the view's, with what preemptible jobs hold taken out
	positions      []position   // of each room
	tasks          []task
	shapes         map[*queue.Shape]*shape
	needs          map[fleet.Need]*shape
	configurations map[configurationKey][]configuration
	indexes        []nodeIndex // of each kind, as the tasks have been placed
	capacity       float64     // GPUs that may be given, in GPUs of the best kind
	lookahead      float64     // how far it looks ahead, in seconds
	meanDuration   float64     // how long the jobs take where they use their GPUs best
	occupancy      float64     // how full the yard is, 0 to 1
	candidateSpace []candidate // of all tasks
	heap           []step
	previous       []int32   // nodes that a task had
	tasksIn        [][]int32 // tasks with a seat in each room
}

// kind is a kind of node: one kind of GPU, one class, one price.
type kind struct {
	id            int32 // as in fleet.Room
	class         fleet.Class
	gpu           *fleet.GPU // one of them; nil without
	cost          []float64  // money a second with 0, 1, … GPUs in use, above that of a node that is on
	gpuRate       float64    // of one GPU a second, on a node that is used in the best way
	powersOff     bool       // an unused node is switched off
	boot          float64    // seconds from off to ready
	rooms         []int32
	size          int     // most GPUs of one node
	gpus          int     // free or held by preemptible jobs
	relativeSpeed float64 // of one GPU, beside the best kind's
}

// position is where a room stands: its kind, and its place among the rooms of that kind.
type position struct{ kind, at int32 }

// perHour turns a price for an hour into one for a second.
const perHour = 1.0 / 3600

// newYard looks at what there is. Where what runs is fixed, only jobs that are queued
// become tasks. If no job has a deadline or a known speed it looks no further.
func newYard(v *place.View, o *Options, fixed bool) *yard {
	y := &yard{o: o, view: v, now: v.Now, rooms: v.Rooms}
	waiting := v.Queue.Items()
	for _, it := range waiting {
		y.hasEstimates = y.hasEstimates || hasEstimate(it)
	}

	if !fixed {
		y.listPreemptible()
	}

	if !y.hasEstimates {
		return y
	}

	y.rooms = slices.Clone(v.Rooms)
	y.free()
	y.groupRooms()
	y.enter(waiting)

	return y
}

// hasEstimate reports whether a job can be planned for: it has a deadline, or a
// known speed.
func hasEstimate(it *queue.Item) bool {
	return !it.Outlook.Deadline.IsZero() || it.Outlook.Speed != nil
}

// preemptible is a running job that may be stopped: it resumes from a checkpoint, is not
// being stopped already nor has just been started, and could also stay where it
// is: its nodes are open, its GPUs sound and promised to nobody else.
type preemptible struct {
	run   *place.Running
	rooms []int32 // of its seats
}

// listPreemptible lists the running jobs that may be stopped.
func (y *yard) listPreemptible() {
	y.preemptible = make([]preemptible, 0, len(y.view.Running))
	all := make([]int32, 0, len(y.view.Running))
	for _, r := range y.view.Running {
		if !r.Outlook.Resumes || r.Stopping ||
			y.now.Sub(r.Ordered).Seconds() < y.o.Rest*y.restartTime(r.Item).Seconds() {
			continue
		}

		from := len(all)

		for _, s := range r.Allocations {
			if at := y.find(s.Node); at >= 0 && mayStay(&y.rooms[at], r, s) {
				all = append(all, int32(at))
			}
		}

		if len(all)-from == len(r.Allocations) {
			y.preemptible = append(y.preemptible, preemptible{r, all[from:len(all):len(all)]})
			y.hasEstimates = y.hasEstimates || hasEstimate(r.Item)
		}
	}
}

// restartTime is how long stopping a job and starting it again takes.
func (y *yard) restartTime(it *queue.Item) time.Duration {
	again := y.o.Restart
	if s := it.Outlook.Speed; s != nil {
		again = max(again, time.Duration(s.Start+s.Save))
	}

	return again
}

// mayStay reports whether a run may keep its seat in a room.
func mayStay(room *fleet.Room, r *place.Running, s place.Allocation) bool {
	return room.Open && s.GPUs&^room.Sound == 0 && !slices.ContainsFunc(room.Holds, func(h fleet.Hold) bool {
		return h.Run != r.Run && h.GPUs&s.GPUs != 0 && (h.Share == 0 || s.Share == 0)
	})
}

// free takes what preemptible jobs hold out of the rooms. Nobody else holds the same, nor
// was it promised to anybody.
func (y *yard) free() {
	for _, l := range y.preemptible {
		need := &l.run.Shape.Need
		for k, at := range l.rooms {
			r, s := &y.rooms[at], &l.run.Allocations[k]
			if s.Share > 0 {
				r.Share(s.GPUs, -s.Share)
			} else {
				r.Free |= s.GPUs
			}

			r.CPUs += need.CPUs
			r.Memory += need.Memory
		}
	}
}

// find returns the place of a node's room, -1 if it has none.
func (y *yard) find(n id.Node) int {
	at := sort.Search(len(y.rooms), func(i int) bool { return y.rooms[i].Node.ID >= n })
	if at < len(y.rooms) && y.rooms[at].Node.ID == n {
		return at
	}

	return -1
}

// groupRooms puts the open rooms together by kind. A node with several kinds of GPU
// is a kind of its own.
func (y *yard) groupRooms() {
	y.positions = make([]position, len(y.rooms))
	for i := range y.rooms {
		r := &y.rooms[i]
		if !r.Open {
			y.positions[i] = position{-1, -1}
			continue
		}

		k := y.kindOf(r)
		y.positions[i] = position{int32(k), int32(len(y.kinds[k].rooms))}
		y.kinds[k].rooms = append(y.kinds[k].rooms, int32(i))
		y.kinds[k].gpus += bits.OnesCount64(r.Free)
		y.kinds[k].size = max(y.kinds[k].size, bits.OnesCount64(r.Sound))
	}
}

// kindOf returns the kind of a room, a new one if there is none like it.
func (y *yard) kindOf(r *fleet.Room) int {
	mixed := r.Kind < 0 && len(r.Node.Inventory.GPUs) > 0
	for i := range y.kinds {
		k := &y.kinds[i]
		if !mixed && k.id == r.Kind && k.class == r.Node.Class && (r.Kind >= 0 || k.gpu == nil) {
			return i
		}
	}

	k := kind{id: r.Kind, class: r.Node.Class}
	if len(r.Node.Inventory.GPUs) > 0 {
		k.gpu = &r.Node.Inventory.GPUs[0]
	}

	y.priceOf(&k, r.Node)
	y.kinds = append(y.kinds, k)

	return len(y.kinds) - 1
}

// priceOf computes what a node of a kind costs. A node that is on in any case
// costs only what it draws more; without a tariff a GPU-hour is worth one.
func (y *yard) priceOf(k *kind, n *fleet.Node) {
	t := y.view.Tariff
	p := t.Of(n)

	k.cost = make([]float64, fleet.MaxGPUs+1)
	for u := range k.cost {
		if t == nil {
			k.cost[u] = float64(u) * perHour
		} else if p != nil {
			k.cost[u] = t.Rate(p, u) * perHour
		}
	}

	if p != nil && p.Off {
		k.powersOff, k.boot = true, time.Duration(p.Boot).Seconds()
	}

	on := k.cost[0]
	for u := range k.cost {
		k.cost[u] = max(k.cost[u]-on, 0)
	}

	k.gpuRate = math.Inf(1)
	for u := 1; u <= max(len(n.Inventory.GPUs), 1); u++ {
		k.gpuRate = min(k.gpuRate, k.cost[u]/float64(u))
	}
}

// shape is what a need can have of each kind.
type shape struct {
	match *fleet.Matcher
	most  []int // GPUs on one node, by kind; -1 if no node of the kind will do
}

// shapeOf returns what a need can have. Jobs that were started at different times
// may have one need and several shapes.
func (y *yard) shapeOf(s *queue.Shape) *shape {
	sh, known := y.shapes[s]
	if known {
		return sh
	}

	sh, known = y.needs[s.Need]
	if !known {
		sh = y.newShape(&s.Need)
		y.needs[s.Need] = sh
	}

	y.shapes[s] = sh

	return sh
}

func (y *yard) newShape(need *fleet.Need) *shape {
	sh := &shape{match: fleet.NewMatcher(*need), most: make([]int, len(y.kinds))}
	for k := range y.kinds {
		kd := &y.kinds[k]
		sh.most[k] = -1
		for _, at := range kd.rooms {
			r := &y.rooms[at]
			if !sh.match.Eligible(r) {
				continue
			}

			sh.most[k] = max(sh.most[k], min(bits.OnesCount64(sh.match.MatchingGPUs(r)), need.MaxGPUs))
			if sh.most[k] == min(need.MaxGPUs, kd.size) {
				break
			}
		}
	}

	return sh
}
