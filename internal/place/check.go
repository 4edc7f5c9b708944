package place

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"sort"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Checked is the part of a plan that can be carried out as a whole.
type Checked struct {
	Stops  []Stop
	Starts []Start
}

// Check splits a plan into the part that can be carried out as a whole and the errors of the rest. It assumes
// nothing about the policy: a job that is stopped must be running and able to resume; nodes must be open and
// allowed for the job; GPUs must be free, or freed by a stop, and of the right kind; counts must be within what
// the job asks for; and no job may be placed twice; and a node for one user at a time gets jobs of one user. A
// stop that only serves another start of the same job is dropped with that start.
func Check(v *View, p Plan) (Checked, []error) {
	var bad []error
	stops := p.Stops
	var first map[id.Job]error // first errors of starts whose stop was dropped with them

	for {
		c := newChecker(v, &p)
		var good Checked

		var wrong []error
		for i := range stops {
			if err := c.stop(&stops[i]); err != nil {
				wrong = append(wrong, err)
				continue
			}

			good.Stops = append(good.Stops, stops[i])
		}

		good.Starts = slices.Grow(good.Starts, len(p.Starts))

		var failed []id.Job // whose starts are wrong
		for i := range p.Starts {
			s := &p.Starts[i]
			if err := c.start(s); err != nil {
				if earlier, ok := first[s.Item.Job]; ok {
					err = earlier
				}

				wrong = append(wrong, err)
				failed = append(failed, s.Item.Job)

				continue
			}

			good.Starts = append(good.Starts, *s)
		}

		remaining := slices.DeleteFunc(slices.Clone(good.Stops), func(s Stop) bool {
			return slices.Contains(failed, s.Running.Job) &&
				!slices.ContainsFunc(good.Starts, func(o Start) bool { return o.Item.Job == s.Running.Job })
		})

		if len(remaining) == len(good.Stops) {
			return good, append(bad, wrong...)
		}

		// Without these stops fewer GPUs are free: check the starts again.
		faults := len(stops) - len(good.Stops)
		bad = append(bad, wrong[:faults]...)

		if first == nil {
			first = map[id.Job]error{}
		}

		for i, j := range failed {
			if _, ok := first[j]; !ok && c.stopped[j] != nil {
				first[j] = wrong[faults+i]
			}
		}

		stops = remaining
	}
}

func newChecker(v *View, p *Plan) *checker {
	allocations := 0
	for i := range p.Starts {
		allocations += len(p.Starts[i].Allocations)
	}

	for i := range p.Stops {
		allocations += len(p.Stops[i].Running.Allocations)
	}

	c := &checker{view: v}

	if allocations > manyAllocations {
		c.rooms = slices.Clone(v.Rooms)
		c.index = make(map[id.Node]int, len(v.Rooms))
		for i := range v.Rooms {
			c.index[v.Rooms[i].Node.ID] = i
		}
	}

	if len(p.Starts) > 1 {
		c.placed = make(map[id.Job]bool, len(p.Starts))
	}

	if len(p.Stops) > 0 {
		c.stopped = make(map[id.Job]*Running, len(p.Stops))
	}

	return c
}

// manyAllocations is the number of allocations from which a copy and an index of all rooms
// are faster than a search.
const manyAllocations = 128

type checker struct {
	view    *View
	changed []roomChange    // rooms that differ from the view
	rooms   []fleet.Room    // with many allocations: all rooms, instead of changed
	index   map[id.Node]int // of their nodes
	placed  map[id.Job]bool // nil if there is one start
	stopped map[id.Job]*Running
	matcher *fleet.Matcher  // of the last job's need
	pending []roomChange    // changes of the start being checked
	tenants map[int]id.User // by room: who gets a node for one user at a time by the plan
}

// roomChange is a room after something was allocated or freed in it.
type roomChange struct {
	at   int
	room fleet.Room
}

// find returns the index of a node's room in the view.
func (c *checker) find(n id.Node) (int, bool) {
	if c.index != nil {
		at, found := c.index[n]
		return at, found
	}

	at := sort.Search(len(c.view.Rooms), func(i int) bool { return c.view.Rooms[i].Node.ID >= n })

	return at, at < len(c.view.Rooms) && c.view.Rooms[at].Node.ID == n
}

// room returns a room after the stops and starts so far.
func (c *checker) room(at int) fleet.Room {
	if c.rooms != nil {
		return c.rooms[at]
	}

	for i := range c.changed {
		if c.changed[i].at == at {
			return c.changed[i].room
		}
	}

	return c.view.Rooms[at]
}

// stop checks a stop and frees what the job holds.
func (c *checker) stop(s *Stop) error {
	r := s.Running
	switch at, found := c.running(r.Number); {
	case !found || c.view.Running[at].Run != r.Run:
		return refuse(r.Job, "it is no longer running")
	case r.Stopping || c.stopped[r.Job] != nil:
		return refuse(r.Job, "it is already being stopped")
	case s.Reason == "":
		return refuse(r.Job, "the plan gives no reason")
	case !r.Outlook.Resumes:
		return refuse(r.Job, "it has no checkpoints and would lose its work")
	case r.Stays:
		return refuse(r.Job, "its checkpoints could not be stored when it was to be moved last")
	}

	c.stopped[r.Job] = r
	for _, allocation := range r.Allocations {
		at, found := c.find(allocation.Node)
		if !found {
			continue
		}

		room := c.room(at)
		for i := range room.Holds {
			if h := &room.Holds[i]; h.Run == r.Run {
				if h.Share > 0 {
					room.Uncut(h.GPUs, h.Job, h.Share)
				} else {
					room.Free |= h.GPUs & room.Sound
				}

				room.CPUs += h.CPUs
				room.Memory += h.Memory
			}
		}

		c.put(at, room)
	}

	return nil
}

// running returns the index of a job among the running ones.
func (c *checker) running(number uint64) (int, bool) {
	return slices.BinarySearchFunc(
		c.view.Running,
		number,
		func(o *Running, n uint64) int { return cmp.Compare(o.Number, n) },
	)
}

func (c *checker) runs(number uint64) bool {
	_, found := c.running(number)
	return found
}

// put records a changed room.
func (c *checker) put(at int, room fleet.Room) {
	if c.rooms != nil {
		c.rooms[at] = room
		return
	}

	for i := range c.changed {
		if c.changed[i].at == at {
			c.changed[i].room = room
			return
		}
	}

	c.changed = append(c.changed, roomChange{at, room})
}

// alike reports whether a room has the same kind of GPU as those that the job has been given so far.
func (c *checker) alike(at int) bool {
	if len(c.pending) == 0 {
		return true
	}

	first, next := c.pending[0].room.Kind, c.room(at).Kind

	return first == next && next >= 0
}

func (c *checker) start(s *Start) error {
	need := s.Item.Shape.Need
	switch {
	case c.placed[s.Item.Job]:
		return refuse(s.Item.Job, "it is placed twice")
	case c.stopped[s.Item.Job] == nil && c.runs(s.Item.Number):
		return refuse(s.Item.Job, "it is running and the plan does not stop it")
	case s.Reason == "":
		return refuse(s.Item.Job, "the plan gives no reason")
	case len(s.Allocations) < need.Nodes || len(s.Allocations) > need.MaxNodes:
		return refuse(s.Item.Job, "it is given %d nodes and needs %d to %d", len(s.Allocations), need.Nodes, need.MaxNodes)
	}

	if c.matcher == nil || c.matcher.Need != need {
		c.matcher = fleet.NewMatcher(need)
	}

	c.pending = c.pending[:0]
	for _, allocation := range s.Allocations {
		at, found := c.find(allocation.Node)
		if !found {
			return refuse(s.Item.Job, "there is no node %s", allocation.Node)
		}
		if need.SameGPU && !c.alike(at) {
			return refuse(s.Item.Job, "it asks for one GPU model (same_gpu), and node %s has another than the first",
				allocation.Node)
		}
		if slices.ContainsFunc(c.pending, func(t roomChange) bool { return t.at == at }) {
			return refuse(s.Item.Job, "it is given two ranks on node %s", allocation.Node)
		}

		room := c.room(at)

		if tenant := c.tenants[at]; tenant != "" && tenant != s.Item.User {
			return dedicated(s.Item.Job, allocation.Node, tenant)
		}
		if by, words := reservationOf(&room, s.Item.User, need.Length); by != nil {
			return refuse(s.Item.Job, "node %s is %s", allocation.Node, words)
		}
		if room.DedicatedToOther(s.Item.User) {
			return refuse(s.Item.Job, "node %s runs jobs of one user at a time and has one of %s",
				allocation.Node, tenants(&room))
		}

		if allocation.Share != 0 {
			if err := c.part(s, &room, allocation); err != nil {
				return err
			}

			c.pending = append(c.pending, roomChange{at, room})

			continue
		}

		fits, ok := c.matcher.Fits(&room)
		if !ok {
			return refuse(s.Item.Job, "it does not fit on node %s", allocation.Node)
		}

		if n := bits.OnesCount64(allocation.GPUs); n < need.GPUs || n > need.MaxGPUs || allocation.GPUs&^fits != 0 {
			return refuse(
				s.Item.Job,
				"GPUs %v of node %s are not available to it",
				fleet.Indices(allocation.GPUs),
				allocation.Node,
			)
		}

		room.Free &^= allocation.GPUs
		room.CPUs -= need.CPUs
		room.Memory -= need.Memory
		c.pending = append(c.pending, roomChange{at, room})
	}

	for _, t := range c.pending {
		c.put(t.at, t.room)
		c.dedicate(t.at, &t.room, s.Item.User)
	}

	if c.placed != nil {
		c.placed[s.Item.Job] = true
	}

	return nil
}

// dedicate records who gets a node that runs jobs of one user at a time.
func (c *checker) dedicate(at int, room *fleet.Room, owner id.User) {
	if !room.Node.Inventory.SingleUser {
		return
	}

	if c.tenants == nil {
		c.tenants = map[int]id.User{}
	}

	c.tenants[at] = owner
}

// part allocates a share of one GPU.
func (c *checker) part(s *Start, room *fleet.Room, allocation Allocation) error {
	need := &c.matcher.Need
	cut := CutOf(s.Item, allocation.Share)
	shared, free, ok := c.matcher.FitsPart(room, &cut)
	if !ok || bits.OnesCount64(allocation.GPUs) != 1 || allocation.GPUs&^(shared|free) != 0 {
		return refuse(s.Item.Job, "a share of %g of GPU %v of node %s is not available to it",
			allocation.Share, fleet.Indices(allocation.GPUs), allocation.Node)
	}

	// What it asks for it can do with; other parts only if it was measured on them.
	if o := s.Item.Outlook; allocation.Share != need.Share && (o == nil ||
		RateOn(o.Speed, s.Allocations, func(id.Node) *fleet.Node { return room.Node }) <= 0) {
		return refuse(
			s.Item.Job,
			"it declares no speed for a share of %g of a GPU of node %s",
			allocation.Share,
			allocation.Node,
		)
	}

	room.Cut(allocation.GPUs, cut)
	room.CPUs -= need.CPUs
	room.Memory -= need.Memory

	return nil
}

// codeDedicated is the code of the error that a plan gives a node for one user at a time to several.
const codeDedicated = "node_dedicated"

// dedicated refuses a start on a node that another user gets by the same plan.
func dedicated(j id.Job, n id.Node, tenant id.User) error {
	return fault.New(fault.Conflict, codeDedicated,
		"the plan for job %s cannot be carried out: node %s runs jobs of one user at a time and gets one of %s", j, n, tenant)
}

// Again reports whether what Check refuses may be possible in another way as soon as the rest of the plan is
// carried out, so that another plan is due. Policies see to whom a node is dedicated in the view, and not what
// their own plan makes of it.
func Again(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == codeDedicated
}

func refuse(j id.Job, format string, args ...any) error {
	e := fault.New(fault.Conflict, "bad_plan", format, args...)
	e.Message = "the plan for job " + string(j) + " cannot be carried out: " + e.Message
	return e
}
