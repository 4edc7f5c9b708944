package fleet

import "slices"

// Changes tells which rooms of a table have changed, so that a caller that has seen them before needs not compare all.
type Changes struct {
	table   *Table
	layout  uint64  // incremented when rooms are added, removed or sorted: an index means another room
	rooms   []int32 // indices of rooms that have changed, oldest first
	dropped uint64  // older ones that are no longer listed
}

// Position is a moment in the changes of a table.
type Position struct{ layout, at uint64 }

// maxChanges bounds how many are listed: after more, comparing all rooms is as fast.
const maxChanges = 1 << 10

func (c *Changes) add(room int) {
	if len(c.rooms) == maxChanges {
		c.rooms = slices.Delete(c.rooms, 0, maxChanges/2)
		c.dropped += maxChanges / 2
	}

	c.rooms = append(c.rooms, int32(room))
}

// Changes returns the changes of the table.
func (t *Table) Changes() *Changes { return &t.changes }

// Position returns the present moment.
func (c *Changes) Position() Position {
	if c == nil {
		return Position{}
	}

	return Position{c.layout, c.dropped + uint64(len(c.rooms))}
}

// Since lists the indices of the rooms that have changed since a position, some of them several times. It is not ok if
// that is not known, or if the rooms are not those of the table itself. The list is valid until the next change.
func (c *Changes) Since(p Position, rooms []Room) (changed []int32, ok bool) {
	if c == nil || p.layout != c.layout || p.layout == 0 || p.at < c.dropped || len(rooms) == 0 {
		return nil, false
	}

	if len(rooms) != len(c.table.rooms) || &rooms[0] != &c.table.rooms[0] {
		return nil, false
	}

	return c.rooms[p.at-c.dropped:], true
}
