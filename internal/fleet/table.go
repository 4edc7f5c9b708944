package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/share"
)

// Room is a node with its free resources and the runs that hold the rest.
type Room struct {
	Node   *Node  // never changed in place
	Open   bool   // as Node.Open says
	Kind   int32  // number of the kind of all its GPUs, -1 if it has none or several kinds
	Group  int32  // number of its group: rooms of one class and one GPU memory; from 0
	Sound  uint64 // working GPUs: without error, not used by processes outside the yard
	Free   uint64 // working GPUs that no run holds
	Parts  []Part // GPUs that runs share; never changed in place
	CPUs   job.CPUs
	Memory job.Bytes
	Holds  []Hold // by expected end, unknown ends last
	Mark   *byte  `json:"-"` // changes with the room; nil if changes are not tracked
}

// Hold is the booking of one rank of a run on a node.
type Hold struct {
	Run    id.Run
	Job    id.Job
	Owner  id.User
	GPUs   uint64
	Share  float64 // of the one GPU, if it is shared; 0 for whole ones
	CPUs   job.CPUs
	Memory job.Bytes
	// Of a shared GPU: how much of its memory, 0 for as much as the share, and how the run is served beside others.
	Cap   job.Bytes      `json:",omitempty"`
	Class job.ShareClass `json:",omitempty"`
	Limit float64        `json:",omitempty"`
	MPS   bool           `json:",omitempty"` // through NVIDIA MPS
	Since time.Time      // when the run was ordered
	Ends  time.Time      // expected; zero if unknown
	// What it runs, and how many seconds of a run without an expected end it gets done in a second.
	Program string  `json:",omitempty"`
	Pace    float64 `json:",omitempty"` // 0 for 1
}

// Cut returns what the run has of a GPU that it shares.
func (h *Hold) Cut() share.Cut {
	return share.Cut{
		Job: h.Job, Owner: h.Owner, Share: h.Share, Cap: h.Cap, Class: h.Class, Limit: h.Limit, MPS: h.MPS,
		Kind: h.Program,
	}
}

// Part is a shared GPU, how much of it is held, and by whom.
type Part struct {
	GPU  uint64 // its bit
	Held float64
	Cuts []share.Cut // never changed in place
}

// Table is the table of all nodes with what is free on them.
type Table struct {
	rooms    []Room
	index    map[id.Node]int
	unsorted bool
	kinds    map[string]int32
	groups   map[group]int32
	order    arrangement
	arranged bool // order is up to date
	changes  Changes
	frozen   frozenTable
}

// group is what the rooms of a band have in common.
type group struct {
	class Class
	size  job.Bytes // memory of the first GPU, 0 without
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{index: map[id.Node]int{}, kinds: map[string]int32{}, groups: map[group]int32{}}
	t.changes = Changes{table: t, layout: 1}

	return t
}

// Put adds a node or replaces it. foreign are GPUs that processes outside the yard use. The
// holds of runs are kept.
func (t *Table) Put(n *Node, foreign uint64) {
	i, ok := t.index[n.ID]
	if !ok {
		i = len(t.rooms)
		t.rooms = append(t.rooms, Room{})
		t.index[n.ID] = i
		t.unsorted, t.arranged = true, false
		t.changes.layout++
	}

	r := &t.rooms[i]
	group := t.group(n)
	t.arranged = t.arranged && r.Group == group
	r.Node, r.Open, r.Kind, r.Group = n, n.Open(), t.kind(n.Inventory.GPUs), group
	r.Sound = 0
	for _, g := range n.Inventory.GPUs {
		if g.Error == "" && g.Index >= 0 && g.Index < MaxGPUs {
			r.Sound |= 1 << g.Index
		}
	}

	r.Sound &^= foreign
	r.recount()
	t.changed(i)
}

// kind returns the number of the one kind that all GPUs are of, or -1.
func (t *Table) kind(gpus []GPU) int32 {
	if len(gpus) == 0 {
		return -1
	}

	for _, g := range gpus[1:] {
		if g.Model != gpus[0].Model || g.Memory != gpus[0].Memory {
			return -1
		}
	}

	name := fmt.Sprintf("%s/%d", gpus[0].Model, gpus[0].Memory)
	k, ok := t.kinds[name]
	if !ok {
		k = int32(len(t.kinds))
		t.kinds[name] = k
	}

	return k
}

// group returns the number of the node's group.
func (t *Table) group(n *Node) int32 {
	g := group{class: n.Class, size: n.GPUSize()}
	k, ok := t.groups[g]
	if !ok {
		k = int32(len(t.groups))
		t.groups[g] = k
	}

	return k
}

// recount computes the free resources from the holds.
func (r *Room) recount() {
	r.Free = r.Sound
	r.CPUs = r.Node.Inventory.CPUs
	r.Memory = r.Node.Inventory.Memory
	r.Parts = nil
	for i := range r.Holds {
		h := &r.Holds[i]
		r.Free &^= h.GPUs
		r.CPUs -= h.CPUs
		r.Memory -= h.Memory

		if h.Share > 0 {
			r.Cut(h.GPUs, h.Cut())
		}
	}
}

// PartOf returns the index of a GPU among those that are shared, -1 if it is not.
func (r *Room) PartOf(gpu uint64) int {
	return slices.IndexFunc(r.Parts, func(p Part) bool { return p.GPU == gpu })
}

// Cut gives a job a part of a GPU. The list of parts is replaced, because views have the old one.
func (r *Room) Cut(gpu uint64, c share.Cut) {
	r.Parts = slices.Clone(r.Parts)
	at := r.PartOf(gpu)
	if at < 0 {
		r.Parts = append(r.Parts, Part{GPU: gpu})
		at = len(r.Parts) - 1
	}

	p := &r.Parts[at]
	p.Held += c.Share
	p.Cuts = append(slices.Clone(p.Cuts), c)
	r.Free &^= gpu
}

// Uncut takes its part of a GPU from a job. A GPU of which nobody has a part any more is free.
func (r *Room) Uncut(gpu uint64, j id.Job, part float64) {
	at := r.PartOf(gpu)
	if at < 0 {
		return
	}

	r.Parts = slices.Clone(r.Parts)
	p := &r.Parts[at]
	p.Cuts = slices.Clone(p.Cuts)

	// A job that is about to get another part of the same GPU has two.
	if i := slices.IndexFunc(p.Cuts, func(c share.Cut) bool { return c.Job == j && c.Share == part }); i >= 0 {
		p.Cuts = slices.Delete(p.Cuts, i, i+1)
	}

	p.Held = 0

	for i := range p.Cuts {
		p.Held += p.Cuts[i].Share
	}

	if len(p.Cuts) == 0 {
		r.Parts = slices.Delete(r.Parts, at, at+1)
		r.Free |= gpu & r.Sound
	}
}

// Remove removes a node from the table.
func (t *Table) Remove(n id.Node) {
	i, ok := t.index[n]
	if !ok {
		return
	}

	t.rooms = slices.Delete(t.rooms, i, i+1)
	t.reindex()
	t.arranged = false
	t.changes.layout++
}

// Get returns the room of a node.
func (t *Table) Get(n id.Node) (*Room, bool) {
	i, ok := t.index[n]
	if !ok {
		return nil, false
	}

	return &t.rooms[i], true
}

// Len returns the number of nodes.
func (t *Table) Len() int { return len(t.rooms) }

// Book books what a rank holds of a node, in place of the run's earlier booking there.
func (t *Table) Book(n id.Node, h Hold) {
	at, ok := t.index[n]
	if !ok {
		return
	}

	r := t.ownHolds(at)
	r.drop(h.Run)
	where, _ := slices.BinarySearchFunc(r.Holds, h, CompareHolds)
	r.Holds = slices.Insert(r.Holds, where, h)
	r.recount()
	t.changed(at)
}

// drop removes the hold of a run.
func (r *Room) drop(run id.Run) {
	for i := range r.Holds {
		if r.Holds[i].Run == run {
			r.Holds = slices.Delete(r.Holds, i, i+1)
			return
		}
	}
}

// CompareHolds orders by expected end, unknown ends last, then by run.
func CompareHolds(a, b Hold) int {
	switch {
	case a.Ends.IsZero() != b.Ends.IsZero():
		if a.Ends.IsZero() {
			return 1
		}

		return -1
	case !a.Ends.Equal(b.Ends):
		return a.Ends.Compare(b.Ends)
	}

	return strings.Compare(string(a.Run), string(b.Run))
}

// Release removes the booking of a run on a node.
func (t *Table) Release(n id.Node, run id.Run) {
	at, ok := t.index[n]
	if !ok {
		return
	}

	r := t.ownHolds(at)
	r.drop(run)
	r.recount()
	t.changed(at)
}

// Rooms returns a copy of all rooms, sorted by the nodes' names.
func (t *Table) Rooms() []Room {
	rooms := slices.Clone(t.SharedRooms())
	for i := range rooms {
		rooms[i].Holds = slices.Clone(rooms[i].Holds)
	}

	return rooms
}

// SharedRooms returns all rooms, sorted by the nodes' names. They share memory with the table:
// they must not be changed, nor used after the table has changed.
func (t *Table) SharedRooms() []Room {
	if t.unsorted {
		slices.SortFunc(t.rooms, func(a, b Room) int { return strings.Compare(string(a.Node.ID), string(b.Node.ID)) })
		t.reindex()
		t.unsorted = false
		t.changes.layout++
	}

	return t.rooms
}

func (t *Table) reindex() {
	t.frozen.reorder(len(t.rooms))
	clear(t.index)

	for i := range t.rooms {
		t.index[t.rooms[i].Node.ID] = i
	}
}
