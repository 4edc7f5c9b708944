package harvest

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/queue"
)

// round is the state of one planning round.
type round struct {
	policy      *Policy
	view        *place.View
	enough      func() bool  // reports that the time is up; nil for no limit
	rooms       []fleet.Room // those of the view, without what resizable jobs hold
	kinds       []kind
	jobs        []bidder         // participating jobs, in their order
	fixed       []*place.Running // running jobs that are left alone
	withoutGPUs []*queue.Item    // queued jobs that ask for no GPUs
	excluded    []*place.Running // resizable jobs that no longer participate
	beyond      []*queue.Item    // queued jobs that do not participate, because MaxParallel others do
	instance    *Instance        // what was decided about
	decision    Decision
	changes     []change     // of each participating job
	takersOf    place.Takers // of the GPUs that running jobs lose; nil until a reason needs it
	match       map[fleet.Need]*fleet.Matcher
	fitting     map[fleet.Need]int    // number of rooms that could run jobs with a need
	usableRooms map[fleet.Need][]room // how much of each kind jobs with a need could have
	queued      bool                  // more jobs wait than participate
	typicalRate float64               // assumed rate on one GPU of a job of unknown speed
	note        string                // added to the reasons of the decision
}

// bidder is a participating job.
type bidder struct {
	item           *queue.Item
	running        *place.Running // nil if it waits
	kind           int            // of the nodes that it holds, -1 if it holds none
	count          int            // units of that kind it holds
	sizes          Sizes
	undefinedSizes int // sizes for which the objective had no value
	guessedFrom    int // number of GPUs from which on its speed is a guess, 0 if all is measured
}

// kind is all nodes with one kind of GPU. If every job takes the same number of GPUs per node, and
// no node has room for two jobs, the unit of allocation is the node; otherwise it is the GPU.
type kind struct {
	id      int32 // as in fleet.Room
	sample  *fleet.Room
	rooms   []int32 // rooms with available GPUs
	gpus    int
	largest int // most available GPUs of one node
	unit    int // GPUs per unit
	byNode  bool
	units   int
	price   money.PerGPUHour
	risk    risk
}

func newRound(h *Policy, v *place.View) *round {
	r := &round{
		policy: h, view: v, rooms: slices.Clone(v.Rooms), match: map[fleet.Need]*fleet.Matcher{},
		fitting: map[fleet.Need]int{}, usableRooms: map[fleet.Need][]room{},
	}

	var loose []*place.Running
	for _, run := range v.Running {
		if r.resizable(run) {
			loose = append(loose, run)
		} else {
			r.fixed = append(r.fixed, run)
		}
	}

	r.free(loose)
	r.admit(loose)
	r.findKinds()

	for j := range r.jobs {
		r.place(&r.jobs[j])
	}

	return r
}

// resizable reports whether a running job can be given another size: it can be stopped, asks for a
// range, could use all its present nodes again, and these are of one kind.
func (r *round) resizable(run *place.Running) bool {
	n := &run.Shape.Need
	if !allocate.Movable(run) || n.MaxGPUs == 0 || n.MaxNodes == n.Nodes && n.MaxGPUs == n.GPUs {
		return false
	}

	kind := int32(-1)

	return !slices.ContainsFunc(run.Allocations, func(s place.Allocation) bool {
		at, found := r.find(s.Node)
		if !found || !r.rooms[at].Open || r.rooms[at].Kind < 0 {
			return true
		}

		unlike := kind >= 0 && r.rooms[at].Kind != kind
		kind = r.rooms[at].Kind

		return unlike
	})
}

// admit selects the participating jobs: by priority, then those that have begun, then in the order
// of the queue. A job that fits nowhere does not take the place of one that could run.
func (r *round) admit(loose []*place.Running) {
	type entry struct {
		bidder
		begun bool
	}

	var all []entry
	for _, run := range loose {
		all = append(all, entry{bidder{item: run.Item, running: run}, true})
	}

	most, waiting := r.policy.MaxParallel, 0

	walk := r.view.Queue.Walk(r.view.UsageOf)
	for range queueDepth*most + queueDepth {
		it := walk.Next(r.possible)
		if it == nil {
			break
		}

		if it.Shape.Need.MaxGPUs == 0 {
			r.withoutGPUs = append(r.withoutGPUs, it)
			continue
		}

		waiting++
		all = append(all, entry{bidder{item: it}, it.Outlook.Served > 0})
	}

	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.item.Priority, a.item.Priority), trueFirst(a.begun, b.begun))
	})
	for i := range all {
		switch {
		case i < most:
			r.jobs = append(r.jobs, all[i].bidder)

			if all[i].running == nil {
				waiting--
			}
		case all[i].running != nil:
			r.excluded = append(r.excluded, all[i].running)
		default:
			r.beyond = append(r.beyond, all[i].item)
		}
	}

	r.queued = waiting > 0
}

// possible reports whether jobs of a shape could have enough nodes if all available nodes were
// theirs.
func (r *round) possible(s *queue.Shape) bool {
	n, known := r.fitting[s.Need]
	if !known {
		m := r.matcher(s.Need)
		for i := range r.rooms {
			if _, ok := m.Fits(&r.rooms[i]); ok && (r.rooms[i].Kind >= 0 || s.Need.MaxGPUs == 0) {
				n++
			}
		}

		r.fitting[s.Need] = n
	}

	return n >= s.Need.Nodes
}

// queueDepth is how far into the queue to look for jobs that have begun, as a multiple of
// MaxParallel.
const queueDepth = 8

// trueFirst compares two conditions for sorting: true comes before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}

// free removes what resizable jobs hold from the rooms.
func (r *round) free(running []*place.Running) {
	loose := make(map[id.Run]bool, len(running))
	touched := make([]bool, len(r.rooms))
	for _, run := range running {
		loose[run.Run] = true

		for _, s := range run.Allocations {
			if at, found := r.find(s.Node); found {
				touched[at] = true
			}
		}
	}

	for i := range r.rooms {
		if !touched[i] {
			continue
		}

		room := &r.rooms[i]
		room.Free = room.Sound
		room.CPUs = room.Node.Inventory.CPUs
		room.Memory = room.Node.Inventory.Memory
		for k := range room.Holds {
			if h := &room.Holds[k]; !loose[h.Run] {
				room.Free &^= h.GPUs
				room.CPUs -= h.CPUs
				room.Memory -= h.Memory
			}
		}
	}
}

// find returns the index of a node's room.
func (r *round) find(n id.Node) (int, bool) {
	return slices.BinarySearchFunc(r.rooms, n, func(room fleet.Room, n id.Node) int {
		return strings.Compare(string(room.Node.ID), string(n))
	})
}

// findKinds groups the available rooms by the kind of their GPUs, in the order of the rooms, which are by name: the
// numbers of kinds say which joined first, and that must not decide between choices of the same value.
func (r *round) findKinds() {
	for i := range r.rooms {
		room := &r.rooms[i]
		n := bits.OnesCount64(room.Free)
		if !room.Open || room.Kind < 0 || n == 0 {
			continue
		}

		at := slices.IndexFunc(r.kinds, func(k kind) bool { return k.id == room.Kind })
		if at < 0 {
			at = len(r.kinds)
			r.kinds = append(r.kinds, kind{id: room.Kind, sample: room, price: price(r.view, room)})
		}

		k := &r.kinds[at]
		k.rooms = append(k.rooms, int32(i))
		k.gpus += n
		k.largest = max(k.largest, n)
	}

	for i := range r.kinds {
		r.measure(&r.kinds[i])
	}
}

// measure determines the unit of a kind and how many units there are.
func (r *round) measure(k *kind) {
	k.unit, k.byNode = r.seatSize(k)
	if !k.byNode {
		k.units = k.gpus
	} else {
		k.rooms = slices.DeleteFunc(k.rooms, func(at int32) bool { return bits.OnesCount64(r.rooms[at].Free) < k.unit })
		k.units = len(k.rooms)
	}

	k.risk = r.riskOf(k)
}

// seatSize returns how many GPUs every job takes of a node. It returns false if that is not one
// number, or if a node has room for two jobs.
func (r *round) seatSize(k *kind) (int, bool) {
	size := 0
	for j := range r.jobs {
		n := &r.jobs[j].item.Shape.Need
		low, high := max(n.GPUs, 1), min(n.MaxGPUs, k.largest)
		if low != high || size != 0 && size != low {
			return 1, false
		}

		size = low
	}

	if size == 0 || k.largest >= 2*size {
		return 1, false
	}

	return size, true
}

// price returns the cost of one GPU-hour on a fully used node.
func price(v *place.View, room *fleet.Room) money.PerGPUHour {
	n := len(room.Node.Inventory.GPUs)
	if v.Tariff == nil || n == 0 {
		return 0
	}

	return v.Tariff.Rate(v.Tariff.Of(room.Node), n).PerGPU(n)
}

// matcher returns the matcher for a need.
func (r *round) matcher(need fleet.Need) *fleet.Matcher {
	m := r.match[need]
	if m == nil {
		m = fleet.NewMatcher(need)
		r.match[need] = m
	}

	return m
}

// place determines which units of which kind a job holds.
func (r *round) place(b *bidder) {
	b.kind = -1
	if b.running == nil || len(b.running.Allocations) == 0 {
		return
	}

	at, found := r.find(b.running.Allocations[0].Node)
	if !found {
		return
	}

	b.kind = slices.IndexFunc(r.kinds, func(k kind) bool { return k.id == r.rooms[at].Kind })
	if b.kind >= 0 {
		b.count = b.running.GPUs / r.kinds[b.kind].unit
	}
}

// starts returns the time from now until a running job does its first unit of work.
func starts(run *place.Running, now time.Time) time.Duration {
	at := run.Began
	if at.IsZero() {
		at = run.Ordered
	}

	if s := run.Outlook.Speed; s != nil {
		at = at.Add(time.Duration(s.Start))
	}

	return max(0, at.Sub(now))
}
