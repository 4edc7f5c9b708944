package fleet

import "slices"

// Frozen is the rooms of a table at one moment. It never changes, so it may be read while the table goes on. What has
// not changed between two of them is one and the same in both.
type Frozen struct {
	parts [][]Room // in order of the nodes' names
	count int
}

// Rooms returns a list of all rooms, sorted by the nodes' names. Whoever changes what is in them must copy it first.
func (f *Frozen) Rooms() []Room {
	rooms := make([]Room, 0, f.count)
	for _, part := range f.parts {
		rooms = append(rooms, part...)
	}

	return rooms
}

// frozenPart is how many rooms are copied together: few, because they are copied again when one of them has changed.
const frozenPart = 32

// frozenTable is what a table knows of its newest Frozen.
type frozenTable struct {
	newest *Frozen  // nil if the table has changed since
	parts  [][]Room // of it; nil are those that have changed since
	shared []bool   // rooms whose holds are also in a Frozen
}

// Freeze returns the rooms as they are now. It costs what has changed since the last time.
func (t *Table) Freeze() *Frozen {
	f := &t.frozen
	if f.newest != nil {
		return f.newest
	}

	rooms := t.SharedRooms()
	if f.parts == nil {
		f.parts = make([][]Room, (len(rooms)+frozenPart-1)/frozenPart)
	}

	if f.shared == nil {
		f.shared = make([]bool, len(rooms))
	}

	for i := range f.parts {
		if f.parts[i] != nil {
			continue
		}

		from, to := i*frozenPart, min((i+1)*frozenPart, len(rooms))
		f.parts[i] = slices.Clone(rooms[from:to])
		for k := from; k < to; k++ {
			f.shared[k] = true
		}
	}

	f.newest = &Frozen{parts: slices.Clone(f.parts), count: len(rooms)}

	return f.newest
}

// drop says that a room has changed.
func (f *frozenTable) drop(i int) {
	f.newest = nil
	if part := i / frozenPart; part < len(f.parts) {
		f.parts[part] = nil
	}
}

// reorder says that rooms have come or gone, or have another order, and how many there are. Which of them have holds of
// their own is not known any more.
func (f *frozenTable) reorder(rooms int) {
	f.newest, f.parts = nil, nil
	if f.shared == nil {
		return
	}

	f.shared = make([]bool, rooms)
	for i := range f.shared {
		f.shared[i] = true
	}
}

// ownHolds returns a room whose holds may be changed in place: they are in no Frozen.
func (t *Table) ownHolds(i int) *Room {
	r := &t.rooms[i]
	if shared := t.frozen.shared; i < len(shared) && shared[i] {
		r.Holds = append(make([]Hold, 0, len(r.Holds)+1), r.Holds...)
		shared[i] = false
	}

	return r
}
