package yardmaster

import (
	"fmt"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// need returns what a job needs of its nodes, in the places that the rules of its data allow and where the checkpoint
// from which it continues can be restored.
func (y *Yard) need(r *jobRecord) fleet.Need {
	n := y.needOf(r.Spec, r.Floor, r.Avoid)
	n.Place = y.data.Place(&r.Job)
	n.Shared = r.outlook.Saved.Shared

	if y.singleUsers || n.MPS { // which jobs of one owner share
		n.Owner = r.Owner
	}

	if y.reservedSoon && !r.outlook.Resumes {
		n.Length = fleet.RunLength(r.outlook.Duration(r.Spec, n.GPUs*n.Nodes, n.Nodes))
	}

	if n.Snapshot {
		n.Image = y.imageFor(r, n)
	}

	return n
}

// needOf returns the need of a job by its job file alone. A policy that does not share GPUs gives it a whole one.
func (y *Yard) needOf(s *job.Spec, floor job.Floor, avoid []id.Node) fleet.Need {
	n := fleet.NeedOf(s, floor, avoid)
	if n.Share > 0 && !place.Shares(y.cfg.Policy) {
		return n.Whole()
	}

	return n
}

// imageFor returns what a job that is saved by snapshots needs of the node on which it continues: what the newest one
// needs, or the one that would be taken where it runs. If no node has that, the job has to begin anew, or from an
// earlier checkpoint, and needs nothing.
func (y *Yard) imageFor(r *jobRecord, need fleet.Need) fleet.Image {
	if run := r.run; run != nil && run.State != job.RunEnded {
		return y.imageOf(&run.Ranks[0])
	}

	newest := y.checkpoints.Newest(r.ID)
	if newest == nil || newest.Image == (fleet.Image{}) {
		return fleet.Image{}
	}

	need.Image = newest.Image
	if !y.nodes.FitsSome(need) {
		return fleet.Image{}
	}

	return need.Image
}

// imageOf returns what a snapshot of a rank needs.
func (y *Yard) imageOf(k *job.Rank) fleet.Image {
	n := y.nodes.Of(k.Node)
	if n == nil {
		return fleet.Image{}
	}

	return fleet.ImageOf(&n.Inventory, k.GPUs)
}

// describeImage completes a snapshot that an agent adds with what it needs of the node that continues it.
func (y *Yard) describeImage(r *jobRecord, c *checkpoint.Checkpoint) {
	if c.Found != checkpoint.BySnapshot {
		return
	}

	k := job.Rank{Node: c.Parts[0].Node}
	if r.run != nil {
		k = r.run.Ranks[0]
	} else if n := y.nodes.Of(k.Node); n != nil && len(n.Inventory.GPUs) > 0 && y.minGPUs(r) > 0 {
		k.GPUs = []int{n.Inventory.GPUs[0].Index} // its run has ended and what it held is forgotten
	}

	c.Image = y.imageOf(&k)
}

// recheckImages describes those queued jobs anew that continue from a snapshot, after nodes have changed: one that
// could continue it may be lost or have another driver, or one has come that can.
func (y *Yard) recheckImages() {
	y.imagesDue = false

	for _, j := range sortedKeys(y.imaged) {
		if r := y.jobs[j]; y.need(r) != r.item.Shape.Need {
			y.requeue(r)
		}
	}
}

// newestOn returns the checkpoint from which a job continues where a plan starts it, nil if it must begin anew, and the
// newer ones that cannot be restored there.
func (y *Yard) newestOn(r *jobRecord, s *place.Start) (newest *checkpoint.Checkpoint, unfit []*checkpoint.Checkpoint) {
	n := y.nodes.Of(s.Allocations[0].Node)
	if n == nil {
		return y.checkpoints.Newest(r.ID), nil
	}

	return y.checkpoints.NewestOn(r.ID, &n.Inventory)
}

// noteUnfit says which snapshots of a job are not continued because the node on which it starts cannot, and why.
func (y *Yard) noteUnfit(r *jobRecord, s *place.Start) {
	newest, unfit := y.newestOn(r, s)
	node := s.Allocations[0].Node

	next := "the job begins anew"
	if newest != nil {
		next = fmt.Sprintf("the job continues from %s", newest.ID)
	}

	for _, c := range unfit {
		why := c.Image.Misfit(&y.nodes.Of(node).Inventory)
		y.event(Event{
			Kind: "checkpoint.skipped", Actor: theYard, Owner: r.Owner, Job: r.ID, Node: node, To: string(c.ID),
			Reason: fmt.Sprintf("snapshot %s cannot be continued on node %s: %s; %s", c.ID, node, why, next),
		})
	}
}

// recheckOwners describes all jobs anew after the first node that is reserved, now or soon, or runs jobs of one user
// at a time has come, or the last one is gone. As long as there is none, owners and lengths are left out of needs: jobs
// of different owners with equal needs are the same to a policy, which saves it much work.
func (y *Yard) recheckOwners() {
	if !y.countReserved() {
		return
	}

	for _, j := range sortedKeys(y.jobs) {
		if r := y.jobs[j]; !r.State.Final() {
			y.requeue(r)
			y.touch(r)
		}
	}
}

// countReserved takes in whether there are nodes for one user, and nodes that will be soon, and reports whether that
// has changed.
func (y *Yard) countReserved() bool {
	single, soon := y.singleUsers, y.reservedSoon
	y.reservedSoon = y.nodes.AnyUpcoming()
	y.singleUsers = y.reservedSoon || y.nodes.AnySingle() || y.nodes.AnyReserved()

	return single != y.singleUsers || soon != y.reservedSoon
}
