package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/queue"
)

// defaultLast is what a job of unknown length is charged for in the order of the line.
const defaultLast = time.Hour

// enqueue queues a job, or holds it back if a quota does not allow it.
func (y *Yard) enqueue(r *jobRecord) {
	if r.item != nil {
		return
	}

	need := y.describeItem(r)
	if why := y.quotaReached(r, need.GPUs*need.Nodes); why != "" {
		y.holdBack(r, why)
		return
	}

	y.addToQueue(r, need)
}

// addToQueue queues a job that no quota holds back and that was described as an item.
func (y *Yard) addToQueue(r *jobRecord, need fleet.Need) {
	r.item = r.entry
	y.line.Add(r.item, need)
	y.setApart(r)

	y.round = true
	if len(r.Avoid) > 0 {
		y.forgive(r.item)
	}
}

// describeItem makes a job's entry for the line.
func (y *Yard) describeItem(r *jobRecord) fleet.Need {
	number, _ := r.ID.Number()
	need := y.need(r)
	lasts := r.outlook.Duration(r.Spec, need.GPUs*need.Nodes, need.Nodes)
	charge := lasts
	if charge == 0 {
		charge = defaultLast
	}

	r.entry = &queue.Item{
		Job: r.ID, Number: number, User: r.Owner, Project: r.Project, Priority: r.Spec.Priority, Lasts: lasts,
		Cost: weight(&need, need.GPUs, need.Nodes) * charge.Seconds(), Prefer: r.Last, Outlook: r.outlook,
		Spec: r.Spec, Since: y.now,
	}

	return need
}

// forgive lets a job back onto the nodes that failed it when it has waited in
// vain for another one: that one may be lost or drained for good.
func (y *Yard) forgive(it *queue.Item) {
	y.after(y.now.Add(y.cfg.BackoffMost), func() {
		r, ok := y.jobs[it.Job]
		if !ok || r.item != it {
			return
		}

		r.Avoid = nil
		y.changedJob(r)
		y.dequeue(r)
		y.enqueue(r)
	})
}

// dequeue takes a job out of the line.
func (y *Yard) dequeue(r *jobRecord) {
	y.unpromise(r)
	y.unhold(r)

	if r.item == nil {
		return
	}

	y.line.Remove(r.item)
	r.item = nil
	y.setApart(r)
	y.leases.Abandon(y.now, r.ID)

	// The nodes kept for the first in line are free for others if it was this one.
	if y.held != nil && y.held.Job == r.ID {
		y.held = nil
	}

	y.round = true
}

func weight(n *fleet.Need, gpus, nodes int) float64 {
	return queue.Weight(float64(gpus), nodes, float64(n.CPUs)/1000, 1) // where it will run is not known yet
}

// usage returns a user's decayed use at this time.
func (y *Yard) usage(u id.User) float64 { return y.people.Usage(y.now, u) }
