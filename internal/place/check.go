package place

import (
	"math/bits"
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Check splits a plan into starts that can be carried out, taken together, and
// what is wrong with each of the others. It assumes nothing about the policy:
// nodes must be open and allowed for the job, GPUs free and of the right kind,
// counts within what was asked, and no job placed twice.
func Check(v *View, p Plan) (good []Start, bad []error) {
	c := checker{view: v, changed: map[int]fleet.Room{}, placed: map[id.Job]bool{}}
	for i := range p.Starts {
		if err := c.start(&p.Starts[i]); err != nil {
			bad = append(bad, err)
			continue
		}
		good = append(good, p.Starts[i])
	}
	return good, bad
}

type checker struct {
	view    *View
	changed map[int]fleet.Room // rooms with less free than in the view
	placed  map[id.Job]bool
	matcher *fleet.Matcher // of the last job's need
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
	after := make(map[int]fleet.Room, len(s.Seats))
	for _, seat := range s.Seats {
		at, found := slices.BinarySearchFunc(c.view.Rooms, seat.Node, func(r fleet.Room, n id.Node) int {
			return strings.Compare(string(r.Node.ID), string(n))
		})
		if !found {
			return refuse(s, "there is no node %s", seat.Node)
		}
		if _, twice := after[at]; twice {
			return refuse(s, "it has two ranks on node %s", seat.Node)
		}
		room, ok := c.changed[at]
		if !ok {
			room = c.view.Rooms[at]
		}
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
		after[at] = room
	}
	for at, room := range after {
		c.changed[at] = room
	}
	c.placed[s.Item.Job] = true
	return nil
}

func refuse(s *Start, format string, args ...any) error {
	e := fault.New(fault.Conflict, "bad_plan", format, args...)
	e.Message = "the plan for job " + string(s.Item.Job) + " cannot be carried out: " + e.Message
	return e
}
