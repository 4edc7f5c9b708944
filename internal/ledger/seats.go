package ledger

import (
	"cmp"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Holder is a run that holds part of a node.
type Holder struct {
	Run     id.Run     `json:"run"`
	Job     id.Job     `json:"job"`
	Owner   id.User    `json:"owner"`
	Project id.Project `json:"project,omitempty"`
	GPUs    uint64     `json:"gpus,omitempty"`  // which of the node's
	Share   int64      `json:"share,omitempty"` // thousandths of its one GPU, if it shares that; 0 for whole ones
	CPUs    job.CPUs   `json:"cpus,omitempty"`
}

// HolderOf returns the holder of a hold.
func HolderOf(h *fleet.Hold, project id.Project) Holder {
	holder := Holder{Run: h.Run, Job: h.Job, Owner: h.Owner, Project: project, GPUs: h.GPUs, CPUs: h.CPUs}
	if h.Share > 0 {
		holder.Share = milli(h.Share)
	}
	return holder
}

func byRun(a, b Holder) int { return cmp.Compare(a.Run, b.Run) }

// Status is how a node stands, as far as the books care.
type Status struct {
	Rest    Account `json:"rest"`              // what is not held is this: idle, drained, error, boot or returning
	Error   uint64  `json:"error,omitempty"`   // but these GPUs are broken
	Foreign uint64  `json:"foreign,omitempty"` // and these are used by others
	Dark    bool    `json:"dark,omitempty"`    // draws no power as far as is known
}

// StatusOf returns how a node stands. Foreign are GPUs that processes outside the yard
// use; the lease is nil if it was not hired. A node that was given up as lost is taken
// to be without power; its rent goes on.
func StatusOf(n *fleet.Node, foreign uint64, l *fleet.Lease) Status {
	s := Status{Rest: Idle, Foreign: foreign}
	for i := range n.Inventory.GPUs {
		if g := &n.Inventory.GPUs[i]; g.Error != "" && g.Index >= 0 && g.Index < fleet.MaxGPUs {
			s.Error |= 1 << g.Index
		}
	}
	switch {
	case l != nil && (l.State == fleet.LeaseReleasing || l.State.Final()):
		s.Rest = Returning
	case l != nil && (l.State == fleet.LeaseRequested || l.State == fleet.LeaseBooting):
		s.Rest = Boot
	case n.State != fleet.Ready:
		s.Rest, s.Dark = Error, n.State == fleet.Lost
	case n.Drained:
		s.Rest = Drained
	}
	return s
}

// line is what one account has of a node while nothing changes.
type line struct {
	account Account
	holder  int   // -1 if it is not a run's
	gpus    int64 // thousandths of GPUs
	seats   int64 // weight by which the whole node is shared out
	uses    bool  // draws what the node draws more than at rest
}

// load is who has what of a node while nothing changes.
type load struct {
	lines []line
	used  int // GPUs that someone uses, ours or not; 1 for a node without GPUs that is held
	held  bool
	busy  bool // something uses it
	dark  bool
}

// spread works out who has what. A node is shared out by its GPUs: runs have those
// they hold, and what is not held is the yard's. A run without GPUs counts by its
// processors, at the expense of what is idle. A node without GPUs is shared out by
// its processors.
func (l *load) spread(gpus uint64, cpus job.CPUs, s *Status, holders []Holder) {
	l.lines = l.lines[:0]
	var wholes, some uint64
	seats := int64(0) // of runs without GPUs
	for i := range holders {
		h := &holders[i]
		mine := h.GPUs & gpus
		some |= mine
		of := line{account: Use, holder: i, uses: true}
		switch {
		case mine == 0:
			of.seats = cpuSeats(h.CPUs, gpus, cpus)
			seats += of.seats
		case h.Share > 0:
			of.gpus, of.seats = h.Share, h.Share
		default:
			wholes |= mine
			of.gpus = 1000 * count(mine)
			of.seats = of.gpus
		}
		l.lines = append(l.lines, of)
	}
	l.held, l.dark = len(holders) > 0, s.Dark
	l.busy = l.held
	if gpus == 0 {
		l.used = min(len(holders), 1)
		l.rest(s.Rest, 0, int64(cpus)-seats)
		return
	}
	broken := gpus & s.Error
	foreign := gpus & s.Foreign &^ broken
	l.used = int(count(some | foreign))
	if rest := unheld(broken, wholes, holders); rest > 0 {
		l.lines = append(l.lines, line{account: Error, holder: -1, gpus: rest, seats: rest})
	}
	if rest := unheld(foreign, wholes, holders); rest > 0 {
		l.lines = append(l.lines, line{account: Foreign, holder: -1, gpus: rest, seats: rest, uses: true})
		l.busy = true
	}
	rest := unheld(gpus&^broken&^foreign, wholes, holders)
	l.rest(s.Rest, rest, rest-seats)
}

// rest gives the yard what nobody else has.
func (l *load) rest(account Account, gpus, seats int64) {
	seats = max(seats, 0)
	if len(l.lines) == 0 {
		seats = max(seats, 1) // a node of which nothing is known is still somebody's
	}
	if gpus == 0 && seats == 0 {
		return
	}
	l.lines = append(l.lines, line{account: account, holder: -1, gpus: gpus, seats: seats})
}

// unheld returns how many thousandths of a set of GPUs no run holds.
func unheld(set, wholes uint64, holders []Holder) int64 {
	set &^= wholes
	rest := 1000 * count(set)
	if rest == 0 {
		return 0
	}
	for i := range holders {
		if h := &holders[i]; h.Share > 0 && h.GPUs&set != 0 {
			rest -= h.Share
		}
	}
	return max(rest, 0)
}

// cpuSeats is what a run without GPUs counts: its processors, brought to thousandths
// of GPUs on a node that has some. It always counts something.
func cpuSeats(mine job.CPUs, gpus uint64, all job.CPUs) int64 {
	seats := min(max(int64(mine), 0), max(int64(all), 0))
	if gpus != 0 && all > 0 {
		seats = scale(1000*count(gpus), seats, int64(all))
	}
	return max(seats, 1)
}

// weights writes by what each amount of an entry is divided among its lines: node-time
// among those who use the node, and if nobody does among what the yard has of it;
// GPU-time by GPUs; what the node costs at rest among all; what it costs more among
// those who use it.
func (l *load) weights(nodes, gpus, all, users []int64) {
	for i := range l.lines {
		of := &l.lines[i]
		nodes[i], gpus[i], all[i], users[i] = 0, of.gpus, of.seats, 0
		if l.held == (of.holder >= 0) {
			nodes[i] = of.seats
		}
		if of.uses {
			users[i] = of.seats
		}
	}
}

// sameHolders reports whether two lists have the same holders. The first is in order of runs.
func sameHolders(known, told []Holder) bool {
	if len(known) != len(told) {
		return false
	}
	for i := range told {
		at, ok := slices.BinarySearchFunc(known, told[i], byRun)
		if !ok || known[at] != told[i] {
			return false
		}
	}
	return true
}
