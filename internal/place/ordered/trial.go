package ordered

import (
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// trial is the rooms as they change while a plan is tried out, in bands in the
// order in which they are to be filled. A band whose roomiest room is too small
// for a need is passed over whole.
type trial struct {
	view   []fleet.Room  // as they are
	few    []changed     // copies of those that have changed, as long as they are few
	copies []*fleet.Room // and when they are many, by index
	bands  []fleet.Band
	roomy  []roomiest // of each band, as far as it was looked at
}

// roomiest is the most that any open room of a band has free.
type roomiest struct {
	known  bool
	cpus   job.CPUs
	memory job.Bytes
}

// changed is a room that has changed.
type changed struct {
	at   int32
	room *fleet.Room
}

// manyChanged is from how many changed rooms on they are found by index.
const manyChanged = 16

// cursor is a place in the order.
type cursor struct {
	band int
	at   int32 // offset within the band
}

// back makes the cursor return the last room once more.
func (c *cursor) back() { c.at-- }

// newTrial makes a trial of the view's rooms, which stay as they are.
func newTrial(v *place.View) *trial {
	t := &trial{view: v.Rooms, bands: v.Bands}
	if t.bands == nil {
		t.bands = fleet.Arrange(v.Rooms)
	}

	t.roomy = make([]roomiest, len(t.bands))

	return t
}

// tooSmall reports whether no room of a band can have room for the need.
func (t *trial) tooSmall(band int, need *fleet.Need) bool {
	b, r := &t.bands[band], &t.roomy[band]
	if b.Free < need.GPUs {
		return true
	}

	if !r.known {
		*r = roomiest{known: true, cpus: -1, memory: -1}
		for _, at := range b.Rooms {
			if room := &t.view[at]; room.Open {
				r.cpus, r.memory = max(r.cpus, room.CPUs), max(r.memory, room.Memory)
			}
		}
	}

	return r.cpus < need.CPUs || r.memory < need.Memory
}

// room returns a room to look at.
func (t *trial) room(at int32) *fleet.Room {
	if t.copies != nil {
		if r := t.copies[at]; r != nil {
			return r
		}

		return &t.view[at]
	}

	for i := range t.few {
		if t.few[i].at == at {
			return t.few[i].room
		}
	}

	return &t.view[at]
}

// change returns a room that may be changed. Its holds are the view's until bookStarts makes others.
func (t *trial) change(at int32) *fleet.Room {
	old := t.room(at)
	if old != &t.view[at] {
		return old
	}

	r := *old

	if t.copies == nil && len(t.few) == manyChanged {
		t.copies = make([]*fleet.Room, len(t.view))
		for _, c := range t.few {
			t.copies[c.at] = c.room
		}
	}

	if t.copies != nil {
		t.copies[at] = &r
	} else {
		t.few = append(t.few, changed{at, &r})
	}

	return &r
}

// next returns the next room that may have room for the need, or -1.
func (t *trial) next(c *cursor, need *fleet.Need) int32 {
	for c.band < len(t.bands) {
		b := &t.bands[c.band]
		if int(c.at) >= len(b.Rooms) || c.at == 0 && t.tooSmall(c.band, need) {
			c.band++
			c.at = 0
			continue
		}

		c.at++

		return b.Rooms[c.at-1]
	}

	return -1
}
