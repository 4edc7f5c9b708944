package place

import (
	"math/bits"
	"slices"
	"sort"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Check splits a plan into starts that can be carried out, taken together, and
// what is wrong with each of the others. It assumes nothing about the policy:
// nodes must be open and allowed for the job, GPUs free and of the right kind,
// counts within what was asked, and no job placed twice.
func Check(v *View, p Plan) (good []Start, bad []error) {
	c := checker{view: v, changed: map[int]fleet.Room{}, placed: make(map[id.Job]bool, len(p.Starts))}
	if len(p.Starts) > manyStarts {
		c.rooms = slices.Clone(v.Rooms)
		c.index = make(map[id.Node]int, len(v.Rooms))
		for i := range v.Rooms {
			c.index[v.Rooms[i].Node.ID] = i
		}
	}
	for i := range p.Starts {
		if err := c.start(&p.Starts[i]); err != nil {
			bad = append(bad, err)
			continue
		}
		good = append(good, p.Starts[i])
	}
	return good, bad
}

// manyStarts is from how many starts on a copy and an index of all rooms pay.
const manyStarts = 256

type checker struct {
	view    *View
	changed map[int]fleet.Room // rooms with less free than in the view
	rooms   []fleet.Room       // with many starts, all rooms instead of changed
	index   map[id.Node]int    // and the places of their nodes
	placed  map[id.Job]bool
	matcher *fleet.Matcher // of the last job's need
	after   []taken        // by the start being checked
}

// taken is a room after a seat in it was taken.
type taken struct {
	at   int
	room fleet.Room
}

// find returns the place of a node's room in the view.
func (c *checker) find(n id.Node) (int, bool) {
	if c.index != nil {
		at, found := c.index[n]
		return at, found
	}
	at := sort.Search(len(c.view.Rooms), func(i int) bool { return c.view.Rooms[i].Node.ID >= n })
	return at, at < len(c.view.Rooms) && c.view.Rooms[at].Node.ID == n
}

// room returns a room as the starts so far have left it.
func (c *checker) room(at int) fleet.Room {
	if c.rooms != nil {
		return c.rooms[at]
	}
	if room, ok := c.changed[at]; ok {
		return room
	}
	return c.view.Rooms[at]
}

func (c *checker) start(s *Start) error {
	need := s.Item.Shape.Need
	switch {
	case c.placed[s.Item.Job]:
		return refuse(s, "it is placed twice")
	case s.Reason == "":
		return refuse(s, "the plan gives no reason")
	case len(s.Seats) < need.Nodes || len(s.Seats) > need.MaxNodes:
		return refuse(s, "it has %d nodes and asked for %d to %d", len(s.Seats), need.Nodes, need.MaxNodes)
	}
	if c.matcher == nil || c.matcher.Need != need {
		c.matcher = fleet.NewMatcher(need)
	}
	c.after = c.after[:0]
	for _, seat := range s.Seats {
		at, found := c.find(seat.Node)
		if !found {
			return refuse(s, "there is no node %s", seat.Node)
		}
		if slices.ContainsFunc(c.after, func(t taken) bool { return t.at == at }) {
			return refuse(s, "it has two ranks on node %s", seat.Node)
		}
		room := c.room(at)
		fits, ok := c.matcher.Fits(&room)
		if !ok {
			return refuse(s, "it does not fit on node %s", seat.Node)
		}
		if n := bits.OnesCount64(seat.GPUs); n < need.GPUs || n > need.MaxGPUs || seat.GPUs&^fits != 0 {
			return refuse(s, "it cannot have GPUs %v of node %s", fleet.Indices(seat.GPUs), seat.Node)
		}
		room.Free &^= seat.GPUs
		room.CPUs -= need.CPUs
		room.Memory -= need.Memory
		c.after = append(c.after, taken{at, room})
	}
	for _, t := range c.after {
		if c.rooms != nil {
			c.rooms[t.at] = t.room
		} else {
			c.changed[t.at] = t.room
		}
	}
	c.placed[s.Item.Job] = true
	return nil
}

func refuse(s *Start, format string, args ...any) error {
	e := fault.New(fault.Conflict, "bad_plan", format, args...)
	e.Message = "the plan for job " + string(s.Item.Job) + " cannot be carried out: " + e.Message
	return e
}
