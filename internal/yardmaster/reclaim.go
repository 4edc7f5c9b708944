package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/nodes"
)

// A provider that reclaims a spot instance gives notice of it, a few seconds to some minutes before. Within that time
// the runs on it save a checkpoint and end, and their jobs are requeued:
//
//  1. The node is cordoned. Programs that save on request are asked to, and continue.
//  2. A run is stopped as soon as its checkpoint is stored, or when the notice leaves just enough time for its grace
//     period and the upload. Programs that do not save on request are stopped at once: SIGTERM is their request. So
//     are those that are suspended in place.
//  3. The node is released when nothing runs there any more.
//
// An instance that is gone before that is handled like any that vanishes, but no attempt of its jobs is used up.

// reclaimUpload is how long before the end of a notice programs must have ended, for the upload of what they saved.
const reclaimUpload = 15 * time.Second

// reclaim is the notice that a run must leave its nodes.
type reclaim struct {
	node   *nodes.Node
	reason string
	newest int // number of the newest checkpoint before the job was asked to save
}

// noteReclaim takes note of when a node's instance is reclaimed, as its agent reports; nil if no notice was given.
func (y *Yard) noteReclaim(n *nodes.Node, left *time.Duration) {
	if left == nil {
		if y.now.After(n.Reclaim) {
			n.Reclaim = time.Time{} // the machine is still there, or there again
		}

		return
	}

	if !n.Reclaim.IsZero() {
		return // an agent reports the notice again and again
	}

	n.Reclaim = y.now.Add(*left)
	reason := fmt.Sprintf("%s at %s", fleet.SpotReclaimed, humanize.Time(n.Reclaim, y.now.UTC()))
	y.nodes.Cordon(y.now, n, reason)
	y.event(Event{
		Kind:  "node.reclaim_notice",
		Actor: "node/" + string(n.ID),
		Node:  n.ID,
		Reason: fmt.Sprintf("%s, in %s; cordoned, its jobs save a checkpoint and are requeued", reason,
			humanize.Duration(*left)),
	})

	for _, id := range sortedKeys(n.Runs) {
		y.leaveReclaimed(y.runs[id], &reclaim{node: n, reason: fmt.Sprintf("node %s is going away: %s", n.ID, reason)})
	}

	y.checkIdle(n.ID)
}

// leaveReclaimed lets a run save a checkpoint and stops it before its node is gone.
func (y *Yard) leaveReclaimed(run *runRecord, c *reclaim) {
	r := y.jobs[run.Job]
	run.reclaim = c
	r.running.Stopping = true
	stopBy := c.node.Reclaim.Add(-time.Duration(r.Spec.Grace) - reclaimUpload)

	// A program that is suspended, or is about to be, cannot save. It continues from the checkpoint that it has.
	lends := run.Suspended() || y.suspending(run)
	if run.Started.IsZero() || lends || !y.savesOnRequest(r) || !stopBy.After(y.now) {
		y.evict(run, c.node.ID, theYard, c.reason)
		return
	}

	y.after(stopBy, func() {
		if y.runs[run.ID] == run {
			y.evict(run, c.node.ID, theYard, c.reason+"; no checkpoint was stored since the notice")
		}
	})

	if run.Stop != job.StopNone || run.move != nil {
		return // it was asked already
	}

	c.newest = y.checkpoints.Newest(r.ID).Number
	y.requestSave(r, theYard, "asked to save a checkpoint before it is stopped: "+c.reason)
}
