package yardmaster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
)

// retry requeues a job, after a back-off if the failure catalogue says so. planned says that
// a plan stopped it: that plan already took its return into account, so no new one is due.
func (y *Yard) retry(r *jobRecord, h job.Handling, cause job.Cause, reason string, planned bool) {
	if !planned {
		y.unpromise(r)
	}

	if h.Backoff {
		wait := job.Backoff(r.Tried[cause], y.cfg.BackoffBase, y.cfg.MaxBackoff)
		r.NotBefore = y.now.Add(wait)
		reason = fmt.Sprintf("%s; retry in %s at the earliest", reason, job.Duration(wait))
	} else {
		reason += "; requeued"
	}

	if r.run != nil && r.NotBefore.Before(r.run.fence) {
		r.NotBefore = r.run.fence
		reason = fmt.Sprintf("%s; starts in %s at the earliest, when the node has surely stopped it",
			reason, job.Duration(r.NotBefore.Sub(y.now).Round(time.Second)))
	}

	y.must(y.moveJob(r, job.EventRetry, theYard, reason))
	due := y.planDue
	y.wake(r)

	if planned {
		y.planDue = due
	}
}

// wake queues a waiting job, now or when its back-off is over.
func (y *Yard) wake(r *jobRecord) {
	if len(r.pendingNeeds) > 0 || r.promise != nil {
		return
	}

	y.holdUntilSettled(r)

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

// avoid keeps a job off a node on which it failed, as long as another node could run it.
func (y *Yard) avoid(r *jobRecord, n id.Node) {
	if slices.Contains(r.Avoid, n) {
		return
	}

	avoid := append(slices.Clone(r.Avoid), n)
	need := y.need(r)
	need.Avoid = y.needOf(r.Spec, r.Floor, avoid).Avoid
	if y.nodes.Fits(need) {
		r.Avoid = avoid
	} else {
		r.Avoid = nil // a node on which it failed once is better than none
	}
}

// escalate lets a job that ran out of memory have the first thing that helps and that can be had: more memory, or what
// its job file allows.
func (y *Yard) escalate(r *jobRecord, cause job.Cause, rank *job.Rank, reason string) (bool, string) {
	floor := y.nextFloor(r)

	words := floorWords(job.Floor{GPUMemory: floor.GPUMemory}, rank.Share > 0)
	if cause == job.CauseHostOOM {
		words = floorWords(job.Floor{Memory: floor.Memory}, false)
	}

	for _, relief := range r.Reliefs(cause, floor, words, len(rank.GPUs)) {
		if relief.Seek && !y.available(r, &relief) {
			reason = fmt.Sprintf("%s; no node it may use has %s", reason, relief.Gets)
			continue
		}

		y.amend(r, &inbox.Action{Floor: relief.Floor, Amend: relief.Amend}, "")

		return true, fmt.Sprintf("%s; the next run gets %s", reason, relief.Gets)
	}

	return false, reason
}

// available reports whether some node has, or could be provisioned with, what would help a job.
func (y *Yard) available(r *jobRecord, relief *job.Relief) bool {
	need := y.needOf(relief.Amend.Apply(r.Spec), relief.Floor, r.Avoid)
	need.Place = y.data.Place(&r.Job)
	_, possible := y.prospect(r, need)

	return possible
}

// lacked returns how much memory a rank had when it ran out of it, or how much it needed at least if it said so and
// that is more; zero if both are unknown.
func (y *Yard) lacked(r *jobRecord, cause job.Cause, rank *job.Rank) job.Floor {
	if cause != job.CauseHostOOM {
		return job.Floor{GPUMemory: max(y.gpuMemory(r, rank), rank.Needed)}
	}

	memory := rank.Memory
	if n := y.nodes.Of(rank.Node); memory == 0 && n != nil {
		memory = n.Inventory.Memory / 2 // it shared the node's
	}

	return job.Floor{Memory: max(memory, rank.Needed/2)} // it gets twice as much
}

// nextFloor returns the memory that a job gets after it ran out of what it had: GPUs with more, or twice as much.
func (y *Yard) nextFloor(r *jobRecord) job.Floor {
	return job.Floor{
		Memory:    max(r.Floor.Memory, 2*r.Lacked.Memory),
		GPUMemory: max(r.Floor.GPUMemory, r.Lacked.GPUMemory),
	}
}
