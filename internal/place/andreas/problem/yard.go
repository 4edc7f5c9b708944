// Package problem is the scheduling problem of the ANDREAS papers, which the policies andreas and
// andreas-published share: a job may run in several configurations (a kind and a number of
// GPUs), each with a price and a duration; a node's price depends on how many of its GPUs
// are in use; a job past its deadline costs money for every second.
//
// A Yard is one view in these terms. A policy assigns candidates to its tasks and then seats
// (nodes and GPUs) to the assignments, and Plan turns that into starts and stops. The
// package decides nothing itself.
package problem

import (
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/queue"
)

// Yard is the input of one plan: kinds of nodes with their prices, and tasks with their candidates.
type Yard struct {
	o              *Assumptions
	terms          ondemand.Terms // what the time of jobs without a deadline is worth
	View           *place.View
	Now            time.Time
	HasEstimates   bool // some job has a deadline or a known speed
	preemptible    []preemptible
	Kinds          []Kind
	Rooms          []fleet.Room // those of the view, without what preemptible jobs hold
	Positions      []Position   // of each room
	Tasks          []Task
	shapes         map[*queue.Shape]*Shape
	needs          map[fleet.Need]*Shape
	configurations map[configurationKey][]Configuration
	Indexes        []NodeIndex // of each kind, with the tasks placed so far
	candidateSpace []Candidate // memory for the candidates of all tasks
	previous       []int32     // scratch space: nodes that a task had
	TasksIn        [][]int32   // tasks with a seat in each room
	closed         *Yard       // the rooms that take no new runs at present, for their prices; nil until it is needed
	catalogue      *ondemand.Catalogue
}

// Kind is a kind of node: one kind of GPU, one class, one price.
type Kind struct {
	id        int32 // as in fleet.Room
	class     fleet.Class
	gpu       *fleet.GPU         // an example; nil without GPUs
	Cost      []money.PerSecond  // with 0, 1, … GPUs in use, in addition to that of a node that is on
	GPURate   money.PerGPUSecond // of one GPU, on a node that is used in the best way
	PowersOff bool               // an unused node is switched off
	Boot      float64            // seconds from off to ready
	Rooms     []int32
	Size      int  // most GPUs of one node
	divides   bool // some node of the kind divides its GPUs among jobs
	GPUs      int  // free or held by preemptible jobs
}

// Position is the kind of a room and its index among the rooms of that kind.
type Position struct{ Kind, At int32 }

// gpuHour is what a GPU costs in a yard without a tariff: then costs count GPU-hours.
const gpuHour money.PerGPUHour = 1

// NewYard converts a view to nodes with prices and jobs with configurations. If running jobs are
// fixed, only queued jobs become tasks. If no job has a deadline or a known speed, HasEstimates is
// false and there are no tasks.
func NewYard(v *place.View, o *Assumptions, fixed bool) *Yard {
	y := newYard(v, o, fixed)
	if !y.HasEstimates {
		return y
	}

	y.Rooms = slices.Clone(v.Rooms)
	y.free()
	y.groupRooms(true)
	y.enter(v.Queue.Items())

	return y
}

// HasEstimates reports whether some queued or preemptible job has a deadline or a known speed.
func HasEstimates(v *place.View, o *Assumptions) bool { return newYard(v, o, false).HasEstimates }

// newYard returns a yard that knows its preemptible jobs and whether there are estimates.
func newYard(v *place.View, o *Assumptions, fixed bool) *Yard {
	y := &Yard{o: o, View: v, Now: v.Now, Rooms: v.Rooms, terms: o.Terms}
	for _, it := range v.Queue.Stays {
		y.HasEstimates = y.HasEstimates || hasEstimate(it)
	}

	if !fixed {
		y.listPreemptible()
	}

	return y
}

// hasEstimate reports whether a job can be planned for: it has a deadline, or a
// known speed.
func hasEstimate(it *queue.Item) bool {
	return !it.Outlook.Deadline.IsZero() || it.Outlook.Speed != nil
}

// preemptible is a running job that may be stopped: it resumes from a checkpoint, is not being
// stopped already, and has not just been started. It must also be able to stay: its nodes are open,
// and its GPUs are sound and not promised to another job.
type preemptible struct {
	run   *place.Running
	rooms []int32 // of its seats
}

// listPreemptible lists the running jobs that may be stopped.
func (y *Yard) listPreemptible() {
	y.preemptible = make([]preemptible, 0, len(y.View.Running))
	all := make([]int32, 0, len(y.View.Running))
	for _, r := range y.View.Running {
		if !r.Stoppable() ||
			y.Now.Sub(r.Ordered).Seconds() < y.o.Rest*y.restartTime(r.Item).Seconds() {
			continue
		}

		from := len(all)

		for _, s := range r.Allocations {
			if at := y.Find(s.Node); at >= 0 && mayStay(&y.Rooms[at], r, s) {
				all = append(all, int32(at))
			}
		}

		if len(all)-from == len(r.Allocations) {
			y.preemptible = append(y.preemptible, preemptible{r, all[from:len(all):len(all)]})
			y.HasEstimates = y.HasEstimates || hasEstimate(r.Item)
		}
	}
}

// restartTime returns how long stopping a job and starting it again takes.
func (y *Yard) restartTime(it *queue.Item) time.Duration {
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

// free removes what preemptible jobs hold from the rooms. No other job holds or was promised the
// same.
func (y *Yard) free() {
	for _, l := range y.preemptible {
		need := &l.run.Shape.Need
		for k, at := range l.rooms {
			r, s := &y.Rooms[at], &l.run.Allocations[k]
			if s.Share > 0 {
				r.Uncut(s.GPUs, l.run.Job, s.Share)
			} else {
				r.Free |= s.GPUs
			}

			r.CPUs += need.CPUs
			r.Memory += need.Memory
		}
	}
}

// Find returns the index of a node's room, -1 if it has none.
func (y *Yard) Find(n id.Node) int {
	at := sort.Search(len(y.Rooms), func(i int) bool { return y.Rooms[i].Node.ID >= n })
	if at < len(y.Rooms) && y.Rooms[at].Node.ID == n {
		return at
	}

	return -1
}

// groupRooms groups the rooms that are open, or those that are not, by kind. A node with several kinds of GPU is a
// kind of its own.
func (y *Yard) groupRooms(open bool) {
	y.Positions = make([]Position, len(y.Rooms))
	for i := range y.Rooms {
		r := &y.Rooms[i]
		if r.Open != open {
			y.Positions[i] = Position{-1, -1}
			continue
		}

		k := y.kindOf(r)
		y.Positions[i] = Position{int32(k), int32(len(y.Kinds[k].Rooms))}
		y.Kinds[k].Rooms = append(y.Kinds[k].Rooms, int32(i))
		y.Kinds[k].GPUs += bits.OnesCount64(r.Free)
		y.Kinds[k].divides = y.Kinds[k].divides || r.Node.Inventory.Shares != ""
		y.Kinds[k].Size = max(y.Kinds[k].Size, bits.OnesCount64(r.Sound))
	}
}

// kindOf returns the kind of a room, and adds one if there is none like it.
func (y *Yard) kindOf(r *fleet.Room) int {
	mixed := r.Kind < 0 && len(r.Node.Inventory.GPUs) > 0
	for i := range y.Kinds {
		k := &y.Kinds[i]
		if !mixed && k.id == r.Kind && k.class == r.Node.Class && (r.Kind >= 0 || k.gpu == nil) {
			return i
		}
	}

	k := Kind{id: r.Kind, class: r.Node.Class}
	if len(r.Node.Inventory.GPUs) > 0 {
		k.gpu = &r.Node.Inventory.GPUs[0]
	}

	y.priceOf(&k, r.Node)
	y.Kinds = append(y.Kinds, k)

	return len(y.Kinds) - 1
}

// priceOf computes the price of a node of a kind. A node that is on anyway costs only its
// additional power; without a tariff a GPU-hour costs 1.
func (y *Yard) priceOf(k *Kind, n *fleet.Node) {
	t := y.View.Tariff
	p := t.Of(n)

	k.Cost = make([]money.PerSecond, fleet.MaxGPUs+1)
	for u := range k.Cost {
		if t == nil {
			k.Cost[u] = gpuHour.Of(float64(u)).PerSecond()
		} else if p != nil {
			k.Cost[u] = t.Rate(p, u).PerSecond()
		}
	}

	if p != nil && p.Off {
		k.PowersOff, k.Boot = true, time.Duration(p.Boot).Seconds()
	}

	if rent := y.rentOf(n); rent > 0 { // it is released when nobody uses it
		for u := 1; u < len(k.Cost); u++ {
			k.Cost[u] = rent
		}

		k.Cost[0], k.PowersOff = 0, true
	}

	on := k.Cost[0]
	for u := range k.Cost {
		k.Cost[u] = max(k.Cost[u]-on, 0)
	}

	k.GPURate = money.PerGPUSecond(math.Inf(1))
	for u := 1; u <= max(len(n.Inventory.GPUs), 1); u++ {
		k.GPURate = min(k.GPURate, k.Cost[u].EachOf(float64(u)))
	}
}

// rentOf returns what a provisioned node costs per second, 0 if it is none.
func (y *Yard) rentOf(n *fleet.Node) money.PerSecond {
	if n.Lease == "" {
		return 0
	}

	at := slices.IndexFunc(y.View.Leases, func(l *fleet.Lease) bool { return l.ID == n.Lease })
	if at < 0 {
		return 0
	}

	return y.View.Leases[at].Offer.PerHour().PerSecond()
}

// Shape is how many GPUs of each kind a need can have.
type Shape struct {
	Match *fleet.Matcher
	most  []int // GPUs on one node, by kind; -1 if no node of the kind is suitable
}

// ShapeOf returns how many GPUs of each kind a need can have. Jobs that were started at different
// times may have the same need and different shapes.
func (y *Yard) ShapeOf(s *queue.Shape) *Shape {
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

func (y *Yard) newShape(need *fleet.Need) *Shape {
	sh := &Shape{Match: fleet.NewMatcher(*need), most: make([]int, len(y.Kinds))}
	for k := range y.Kinds {
		kd := &y.Kinds[k]
		sh.most[k] = -1
		for _, at := range kd.Rooms {
			r := &y.Rooms[at]
			if !sh.Match.Eligible(r) {
				continue
			}

			sh.most[k] = max(sh.most[k], min(bits.OnesCount64(sh.Match.MatchingGPUs(r)), need.MaxGPUs))
			if sh.most[k] == min(need.MaxGPUs, kd.Size) {
				break
			}
		}
	}

	return sh
}

// Power returns what the nodes of a kind cost.
func (y *Yard) Power(k int) money.PerSecond {
	sum := money.PerSecond(0)
	for _, u := range y.Indexes[k].Used {
		sum += y.Kinds[k].Cost[u]
	}

	return sum
}
