package place

import (
	"cmp"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// Carry changes the rooms of a clone as if a checked plan had been carried out: what is stopped
// is gone, and what is started holds its GPUs.
func (v *View) Carry(c Checked) {
	for i := range c.Stops {
		r := c.Stops[i].Running
		for _, a := range r.Allocations {
			if room := v.RoomOf(a.Node); room != nil {
				vacate(room, r.Run)
			}
		}
	}

	for i := range c.Starts {
		s := &c.Starts[i]
		need := &s.Item.Shape.Need
		for _, a := range s.Allocations {
			hold := fleet.Hold{
				Job: s.Item.Job, Owner: s.Item.User, GPUs: a.GPUs, Share: a.Share, CPUs: need.CPUs, Memory: need.Memory,
				Cap: need.Cap, Class: need.Class, Limit: need.Limit, MPS: need.MPS, Since: v.Now,
				Program: s.Item.Program.Key,
			}
			if s.Item.Lasts > 0 {
				hold.Ends = v.Now.Add(s.Item.Lasts)
			}

			if room := v.RoomOf(a.Node); room != nil {
				occupy(room, hold)
			}
		}
	}
}

// RoomOf returns the room of a node, nil if it is not in the view.
func (v *View) RoomOf(n id.Node) *fleet.Room {
	at, found := slices.BinarySearchFunc(v.Rooms, n, func(r fleet.Room, n id.Node) int {
		return cmp.Compare(r.Node.ID, n)
	})
	if !found {
		return nil
	}

	return &v.Rooms[at]
}

// vacate frees what a run holds.
func vacate(r *fleet.Room, run id.Run) {
	for i := range r.Holds {
		h := &r.Holds[i]
		if h.Run != run {
			continue
		}

		if h.Share > 0 {
			r.Uncut(h.GPUs, h.Job, h.Share)
		} else {
			r.Free |= h.GPUs & r.Sound
		}

		r.CPUs += h.CPUs
		r.Memory += h.Memory
	}

	r.Holds = slices.DeleteFunc(r.Holds, func(h fleet.Hold) bool { return h.Run == run })
}

// occupy gives a run what it holds.
func occupy(r *fleet.Room, h fleet.Hold) {
	if h.Share > 0 {
		r.Cut(h.GPUs, h.Cut())
	} else {
		r.Free &^= h.GPUs
	}

	r.CPUs -= h.CPUs
	r.Memory -= h.Memory

	at, _ := slices.BinarySearchFunc(r.Holds, h, fleet.CompareHolds)
	r.Holds = slices.Insert(r.Holds, at, h)
}
