package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// defaultDuration is assumed for the fair-share charge of a job of unknown duration.
const defaultDuration = time.Hour

// enqueue queues a job, or holds it back if a quota does not allow it or a secret is missing. One that is queued for
// the first time gets as much memory as jobs like it need.
func (y *Yard) enqueue(r *jobRecord) {
	if r.item == nil && y.expectMemory(r) {
		y.changedJob(r)
	}

	y.enqueueSince(r, y.now)
}

// enqueueSince is enqueue of a job that has been in the queue since a time.
func (y *Yard) enqueueSince(r *jobRecord, since time.Time) {
	if r.item != nil {
		return
	}

	need := y.describeItem(r)
	r.entry.Since = since

	if !y.admitElement(r) {
		return
	}

	if h := y.heldBack(r, need.GPUs*need.Nodes); h.reason != "" {
		y.holdJob(r, h)
		return
	}

	y.addToQueue(r, need)
}

// addToQueue queues a job that nothing holds back and that was described as an item.
func (y *Yard) addToQueue(r *jobRecord, need fleet.Need) {
	r.item = r.entry
	y.queue.Add(r.item, need)
	y.touch(r)

	if y.snapshots.newest != nil {
		y.snapshots.line.Add(r.item)
	}

	y.recordQueued(r)
	y.updateOwnAllowance(r)
	y.reserveGPUs(r)

	y.planDue = true
	if len(r.Avoid) > 0 {
		y.expireAvoid(r.item)
	}

	if newest := y.checkpoints.Newest(r.ID); need.Snapshot && newest != nil && newest.Image != (fleet.Image{}) {
		y.imaged[r.ID] = true
	}
}

// recordQueued stores since when a job is queued, so that it has waited as long after a restart.
func (y *Yard) recordQueued(r *jobRecord) {
	queued := r.item.Since
	if queued.Equal(r.Since) {
		queued = time.Time{}
	}

	if !r.Queued.Equal(queued) {
		r.Queued = queued
		y.changedJob(r)
	}
}

// describeItem makes a job's queue item.
func (y *Yard) describeItem(r *jobRecord) fleet.Need {
	number, _ := r.ID.Number()
	need := y.need(r)
	lasts := r.outlook.Duration(r.Spec, need.GPUs*need.Nodes, need.Nodes)
	charge := lasts
	if charge == 0 {
		charge = defaultDuration
	}

	r.entry = &queue.Item{
		Job: r.ID, Number: number, User: r.Owner, Project: r.Project, Priority: r.Spec.Priority, Lasts: lasts,
		Cost: weight(&need, need.GPUs, need.Nodes) * charge.Seconds(), Prefer: r.Last, Outlook: r.outlook,
		Spec: r.Spec, Since: y.now, Deferred: y.ledger.Decision(r.ID) != nil,
	}

	if lasts == 0 || need.Share > 0 { // how it does beside others is known by what it runs
		r.entry.Program = y.programOf(r.Spec)
	}

	return need
}

// expireAvoid lets a job use the nodes on which it failed again if it could not start
// elsewhere within the longest back-off: the other nodes may be lost or drained for good.
func (y *Yard) expireAvoid(it *queue.Item) {
	y.after(y.now.Add(y.cfg.MaxBackoff), func() {
		r, ok := y.jobs[it.Job]
		if !ok || r.item != it {
			return
		}

		r.Avoid = nil
		y.changedJob(r)
		y.requeue(r)
	})
}

// dequeue removes a job from the queue, with its promise, its hold and its pending leases.
func (y *Yard) dequeue(r *jobRecord) {
	if y.leaveQueue(r) {
		y.leases.Abandon(y.now, r.ID)
	}
}

// leaveQueue removes a job from the queue, with its promise and its hold, and reports whether it was queued. What is
// being provisioned for it stays.
func (y *Yard) leaveQueue(r *jobRecord) bool {
	y.unpromise(r)
	y.clearHold(r)

	if r.item == nil {
		return false
	}

	if r.admitted {
		y.changedElements = append(y.changedElements, r)
	}

	y.queue.Remove(r.item)
	y.snapshots.line.Remove(r.item)
	r.item = nil
	y.touch(r)
	delete(y.imaged, r.ID)
	y.updateOwnAllowance(r)
	y.reserveGPUs(r)

	// Nodes that were reserved for this job are available to others.
	if y.reservation != nil && y.reservation.Job == r.ID {
		y.reservation = nil
	}

	y.planDue = true

	return true
}

func weight(n *fleet.Need, gpus, nodes int) float64 {
	return queue.Weight(float64(gpus), nodes, float64(n.CPUs)/1000, 1) // the GPU model is not known yet
}

// usage returns a user's decayed usage now.
func (y *Yard) usage(u id.User) float64 { return y.people.Usage(y.now, u) }
