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

// Status is the state of a node as the ledger sees it.
type Status struct {
	Rest     Account `json:"rest"`              // account of what is not held: idle, cordoned, error, boot or releasing
	Error    uint64  `json:"error,omitempty"`   // GPUs that are broken
	Foreign  uint64  `json:"foreign,omitempty"` // GPUs used by processes outside the yard
	PowerOff bool    `json:"dark,omitempty"`    // assumed to draw no power
}

// StatusOf returns the status of a node. Foreign are GPUs that processes outside the yard
// use; the lease is nil unless it is an on-demand node. A lost node is assumed to draw no
// power; it still costs money.
func StatusOf(n *fleet.Node, foreign uint64, l *fleet.Lease) Status {
	s := Status{Rest: Idle, Foreign: foreign}
	for i := range n.Inventory.GPUs {
		if g := &n.Inventory.GPUs[i]; g.Error != "" && g.Index >= 0 && g.Index < fleet.MaxGPUs {
			s.Error |= 1 << g.Index
		}
	}

	switch {
	case l != nil && (l.State == fleet.LeaseReleasing || l.State.Final()):
		s.Rest = Releasing
	case l != nil && (l.State == fleet.LeaseRequested || l.State == fleet.LeaseBooting):
		s.Rest = Boot
	case n.State != fleet.Ready:
		s.Rest, s.PowerOff = Error, n.State == fleet.Lost
	case n.Cordoned:
		s.Rest = Cordoned
	case n.Inventory.Problem != nil:
		s.Rest = Error
	}

	return s
}

// share is what one account has of a node while nothing changes.
type share struct {
	account Account
	holder  int   // -1 if it is not a run's
	gpus    int64 // thousandths of GPUs
	weight  int64 // weight by which the whole node is divided
	busy    bool  // pays for what the node costs more than when idle
}

// allocation is who has what of a node while nothing changes.
type allocation struct {
	shares   []share
	gpusUsed int // GPUs that someone uses, ours or not; 1 for a node without GPUs that is held
	inUse    bool
	busy     bool // something uses it
	powerOff bool
}

// compute computes who has what. A node is divided by its GPUs: runs have those they hold, and
// the rest is the yard's. A run without GPUs counts by its CPUs, which reduces the idle part.
// A node without GPUs is divided by its CPUs.
func (l *allocation) compute(gpus uint64, cpus job.CPUs, s *Status, holders []Holder) {
	l.shares = l.shares[:0]
	var wholes, some uint64
	cpuRuns := int64(0) // weight of runs without GPUs

	for i := range holders {
		h := &holders[i]
		mine := h.GPUs & gpus
		some |= mine

		of := share{account: Use, holder: i, busy: true}
		switch {
		case mine == 0:
			of.weight = cpuWeight(h.CPUs, gpus, cpus)
			cpuRuns += of.weight
		case h.Share > 0:
			of.gpus, of.weight = h.Share, h.Share
		default:
			wholes |= mine
			of.gpus = 1000 * count(mine)
			of.weight = of.gpus
		}

		l.shares = append(l.shares, of)
	}

	l.inUse, l.powerOff = len(holders) > 0, s.PowerOff
	l.busy = l.inUse

	if gpus == 0 {
		l.gpusUsed = min(len(holders), 1)
		l.addRest(s.Rest, 0, int64(cpus)-cpuRuns)
		return
	}

	broken := gpus & s.Error
	foreign := gpus & s.Foreign &^ broken
	l.gpusUsed = int(count(some | foreign))
	if rest := unallocated(broken, wholes, holders); rest > 0 {
		l.shares = append(l.shares, share{account: Error, holder: -1, gpus: rest, weight: rest})
	}

	if rest := unallocated(foreign, wholes, holders); rest > 0 {
		l.shares = append(l.shares, share{account: Foreign, holder: -1, gpus: rest, weight: rest, busy: true})
		l.busy = true
	}

	rest := unallocated(gpus&^broken&^foreign, wholes, holders)
	l.addRest(s.Rest, rest, rest-cpuRuns)
}

// addRest adds what no run holds, which is the yard's.
func (l *allocation) addRest(account Account, gpus, weight int64) {
	weight = max(weight, 0)
	if len(l.shares) == 0 {
		weight = max(weight, 1) // a node without known GPUs and CPUs is still the yard's
	}

	if gpus == 0 && weight == 0 {
		return
	}

	l.shares = append(l.shares, share{account: account, holder: -1, gpus: gpus, weight: weight})
}

// unallocated returns how many thousandths of a set of GPUs no run holds.
func unallocated(set, wholes uint64, holders []Holder) int64 {
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

// cpuWeight is the weight of a run without GPUs: its CPUs, converted to thousandths of GPUs on
// a node that has GPUs. It is at least 1.
func cpuWeight(mine job.CPUs, gpus uint64, all job.CPUs) int64 {
	weight := min(max(int64(mine), 0), max(int64(all), 0))
	if gpus != 0 && all > 0 {
		weight = scale(1000*count(gpus), weight, int64(all))
	}

	return max(weight, 1)
}

// weights writes the weights by which the amounts of an entry are divided among its postings:
// node-time among the runs, or if there are none among the yard's accounts; GPU-time by GPUs;
// the idle cost of the node among all; what it costs more among those who use it.
func (l *allocation) weights(nodes, gpus, all, users []int64) {
	for i := range l.shares {
		of := &l.shares[i]
		nodes[i], gpus[i], all[i], users[i] = 0, of.gpus, of.weight, 0
		if l.inUse == (of.holder >= 0) {
			nodes[i] = of.weight
		}

		if of.busy {
			users[i] = of.weight
		}
	}
}

// equalHolders reports whether two lists have the same holders. The first is in order of runs.
func equalHolders(known, reported []Holder) bool {
	if len(known) != len(reported) {
		return false
	}

	for i := range reported {
		at, ok := slices.BinarySearchFunc(known, reported[i], byRun)
		if !ok || known[at] != reported[i] {
			return false
		}
	}

	return true
}
