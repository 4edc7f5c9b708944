package yardmaster

import (
	"fmt"
	"maps"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// retry sends a job back into the line, after a while if the catalogue says so.
// The plan that stopped it knew that it would be back.
func (y *Yard) retry(r *jobRecord, h job.Handling, cause job.Cause, reason string, planned bool) {
	if !planned {
		y.unpromise(r)
	}

	if h.Backoff {
		wait := job.Backoff(r.Tried[cause], y.cfg.BackoffBase, y.cfg.BackoffMost)
		r.NotBefore = y.now.Add(wait)
		reason = fmt.Sprintf("%s; runs again in %s at the earliest", reason, job.Duration(wait))
	} else {
		reason += "; runs again"
	}

	y.must(y.moveJob(r, job.EventRetry, theYard, reason))
	news := y.round
	y.wake(r)

	if planned {
		y.round = news
	}
}

// wake puts a waiting job into the line, now or when its back-off is over.
func (y *Yard) wake(r *jobRecord) {
	if len(r.pendingNeeds) > 0 || r.promise != nil {
		return
	}

	if !r.NotBefore.After(y.now) {
		y.enqueue(r)
		return
	}

	j := r.ID
	y.after(r.NotBefore, func() {
		r, ok := y.jobs[j]
		if ok && r.State.Waiting() && !r.NotBefore.After(y.now) {
			y.wake(r)
		}
	})
}

func bump(tried map[job.Cause]int, c job.Cause) map[job.Cause]int {
	tried = maps.Clone(tried)
	if tried == nil {
		tried = map[job.Cause]int{}
	}

	tried[c]++

	return tried
}

// avoid keeps a job off a node that failed it, as long as another node could run it.
func (y *Yard) avoid(r *jobRecord, n id.Node) {
	if slices.Contains(r.Avoid, n) {
		return
	}

	avoid := append(slices.Clone(r.Avoid), n)
	need := y.need(r)
	need.Avoid = fleet.NeedOf(r.Spec, r.Floor, avoid).Avoid
	if y.nodes.Fits(need) {
		r.Avoid = avoid
	} else {
		r.Avoid = nil // better a node that failed it once than none
	}
}

// escalate raises what a job that ran out of memory asks for, if some node has that much.
func (y *Yard) escalate(r *jobRecord, cause job.Cause, rank *job.Rank, reason string) (bool, string) {
	floor := r.Floor
	var more string

	if cause == job.CauseHostOOM {
		had := max(rank.Memory, floor.Memory)
		if had == 0 {
			if n := y.nodes.Of(rank.Node); n != nil {
				had = n.Inventory.Memory / 2
			}
		}

		floor.Memory = 2 * had
		more = floor.Memory.Short() + " of memory"
	} else {
		floor.GPUMemory = max(floor.GPUMemory, y.nodes.GPUMemory(rank))
		more = "GPUs of more than " + floor.GPUMemory.Short()
	}

	if floor == r.Floor { // it had no GPU, or its node is unknown
		return false, reason
	}

	need := fleet.NeedOf(r.Spec, floor, r.Avoid)
	need.Place = y.data.Place(&r.Job)
	if !y.nodes.Fits(need) {
		return false, fmt.Sprintf("%s; no node that it may use has %s", reason, more)
	}

	r.Floor = floor

	return true, fmt.Sprintf("%s; it will be given %s", reason, more)
}
