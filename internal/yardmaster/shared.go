package yardmaster

import (
	"slices"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/nodes"
)

// SharedFolder is a shared file system as one of its nodes is told of it.
type SharedFolder struct {
	fleet.SharedFolder
	Create bool // it writes the nonce if it does not find it
	Keeper bool // it removes what is not needed any more
	Known  bool // a node has found it
}

// SharedFolders returns the shared file systems of a node. The nonce of each is written by one node alone, the one that
// joined first, and only as long as no node has ever found it: a node whose mount is missing must not make a file
// system of the empty folder beneath.
func (y *Yard) SharedFolders(name id.Node) []SharedFolder {
	n, ok := y.nodes.Get(name)
	if !ok {
		return nil
	}

	var list []SharedFolder

	for _, f := range y.cfg.Shared.For(n.Pool) {
		known := func(o *nodes.Node) bool { return o.Inventory.SharedOf(f.Name).Known }
		sees := func(o *nodes.Node) bool { return o.State == fleet.Ready && o.Inventory.Sees(f.Name) }
		looks := func(o *nodes.Node) bool {
			return o.State == fleet.Ready && o.Inventory.SharedOf(f.Name).Name != ""
		}

		exists := y.nodes.Eldest(known) != nil
		list = append(list, SharedFolder{
			SharedFolder: f, Create: !exists && y.nodes.Eldest(looks) == n, Keeper: y.nodes.Eldest(sees) == n, Known: exists,
		})
	}

	return list
}

// SeesShared reports whether a node sees a shared file system.
func (y *Yard) SeesShared(name id.Node, shared string) bool {
	n := y.nodes.Of(name)
	return n != nil && n.Inventory.Sees(shared)
}

// sharedOn returns the shared file system on which a run keeps its checkpoints: the first that all its nodes see, ""
// if there is none.
func (y *Yard) sharedOn(run *runRecord) string {
	first := y.nodes.Of(run.Ranks[0].Node)
	if first == nil {
		return ""
	}

	for _, s := range first.Inventory.Shared {
		blind := func(k job.Rank) bool { return !y.SeesShared(k.Node, s.Name) }
		if !slices.ContainsFunc(run.Ranks, blind) {
			return s.Name
		}
	}

	return ""
}

// restorable reports whether a node can restore a checkpoint: its agent can, and it sees the file system on which the
// checkpoint is.
func (y *Yard) restorable(name id.Node, c *checkpoint.Checkpoint) bool {
	return y.restores(name) && (c.Shared() == "" || y.SeesShared(name, c.Shared()))
}

// updateNeed lets a job be placed only where its newest checkpoint can be restored.
func (y *Yard) updateNeed(r *jobRecord) {
	if r.entry != nil && r.entry.Shape != nil && r.entry.Shape.Need.Shared != r.outlook.Saved.Shared {
		y.requeue(r)
	}
}
