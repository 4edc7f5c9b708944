package yardmaster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// finish ends a run whose ranks have all ended, and decides what becomes of its job.
func (y *Yard) finish(r *jobRecord, run *runRecord) {
	cause, rank := verdict(run)
	run.State, run.Ended, run.Cause = job.RunEnded, y.now, cause
	if run.Reason = "it succeeded"; cause != job.CauseNone {
		run.Reason = describe(cause, rank)
	}
	y.changedRun(run)
	delete(y.runs, run.ID)
	r.ExitCode = rank.ExitCode
	y.event(Event{Kind: "run.ended", Actor: "node/" + string(rank.Node), Owner: r.Owner, Job: r.ID, Run: run.ID, Node: rank.Node,
		To: string(cause), Reason: run.Reason})
	y.next(r, run, cause, rank)
	r.run = nil
}

// verdict returns why a run ended, and the rank that decided it. What the yard
// asked for counts if the program was still running when it was told; else the
// first failure counts.
func verdict(run *runRecord) (job.Cause, *job.Rank) {
	var first *job.Rank
	signalled := false
	for i := range run.Ranks {
		k := &run.Ranks[i]
		signalled = signalled || k.Signalled
		if k.Cause != job.CauseNone && !k.Signalled && (first == nil || k.Ended.Before(first.Ended)) {
			first = k
		}
	}
	switch {
	case first != nil && (run.StopFor == job.CauseNone || run.StopFor == first.Cause):
		return first.Cause, first
	case run.StopFor != job.CauseNone && signalled:
		return run.StopFor, signalledRank(run)
	case first != nil:
		return first.Cause, first
	case run.StopFor != job.CauseNone && !allStarted(run):
		return run.StopFor, &run.Ranks[0] // stopped before it could start
	}
	return job.CauseNone, &run.Ranks[0]
}

func signalledRank(run *runRecord) *job.Rank {
	for i := range run.Ranks {
		if run.Ranks[i].Signalled {
			return &run.Ranks[i]
		}
	}
	return &run.Ranks[0]
}

func allStarted(run *runRecord) bool {
	for i := range run.Ranks {
		if run.Ranks[i].Started.IsZero() {
			return false
		}
	}
	return true
}

// describe says in a sentence why a run ended.
func describe(c job.Cause, k *job.Rank) string {
	if k.Reason != "" && !k.Signalled {
		return k.Reason
	}
	h, _ := job.HandlingOf(c)
	switch {
	case c == job.CauseUserCode && k.Signal != "":
		return fmt.Sprintf("the program was ended by %s on %s", k.Signal, k.Node)
	case c == job.CauseUserCode:
		return fmt.Sprintf("the program ended with exit code %d on %s", k.ExitCode, k.Node)
	case c == job.CauseNodeLost || c == job.CauseLaunchFailed:
		return h.Means + ": " + string(k.Node)
	}
	return h.Means
}

// next decides by the failure catalogue what becomes of a job whose run has ended.
func (y *Yard) next(r *jobRecord, run *runRecord, cause job.Cause, rank *job.Rank) {
	r.Cause = cause
	asked := cause == run.StopFor && (cause == job.CauseCancelled || cause == job.CausePreempted)
	switch {
	case cause == job.CauseNone:
		y.must(y.moveJob(r, job.EventSucceed, theYard, "it succeeded"))
		return
	case r.State == job.Cancelling && (asked || cause != job.CauseUserCode):
		r.Cause = job.CauseCancelled
		y.must(y.moveJob(r, job.EventStopped, theYard, "it was cancelled and has stopped"))
		return
	case r.State == job.Pausing && (asked || cause != job.CauseUserCode):
		r.Cause = job.CauseNone
		y.must(y.moveJob(r, job.EventStopped, theYard, "it was paused and has stopped"))
		return
	case !r.State.Live() || r.State == job.Cancelling || r.State == job.Pausing:
		y.must(y.moveJob(r, job.EventFail, theYard, run.Reason))
		return
	}
	h, _ := job.HandlingOf(cause)
	r.Tried = bump(r.Tried, cause)
	limit := h.Limit
	if h.Next == job.NextRetry {
		limit = r.Spec.Retry
	}
	again := h.Next == job.NextRequeue || h.Next != job.NextGiveUp && r.Tried[cause] <= limit
	reason := run.Reason
	if again && h.Next == job.NextEscalate {
		again, reason = y.escalate(r, run, cause, rank, reason)
	}
	if again && h.Next == job.NextElsewhere {
		y.avoid(r, rank.Node)
	}
	if !again {
		if r.Tried[cause] > 1 {
			reason = fmt.Sprintf("%s (run %d; given up after %s)", reason, run.Epoch, count(r.Tried[cause], "such failure"))
		}
		y.must(y.moveJob(r, job.EventFail, theYard, reason))
		return
	}
	y.again(r, h, cause, reason)
}

// again sends a job back into the line, after a while if the catalogue says so.
func (y *Yard) again(r *jobRecord, h job.Handling, cause job.Cause, reason string) {
	if h.Backoff {
		wait := job.Backoff(r.Tried[cause], y.cfg.BackoffBase, y.cfg.BackoffMost)
		r.NotBefore = y.now.Add(wait)
		reason = fmt.Sprintf("%s; runs again in %s at the earliest", reason, job.Duration(wait))
	} else {
		reason += "; runs again"
	}
	y.must(y.moveJob(r, job.EventRetry, theYard, reason))
	y.wake(r)
}

// wake puts a waiting job into the line, now or when its back-off is over.
func (y *Yard) wake(r *jobRecord) {
	if len(r.waits) > 0 {
		return
	}
	if !r.NotBefore.After(y.now) {
		y.enqueue(r)
		return
	}
	j := r.ID
	y.after(r.NotBefore, func(y *Yard) {
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
	if y.fits(fleet.NeedOf(r.Spec, r.Floor, avoid)) {
		r.Avoid = avoid
	} else {
		r.Avoid = nil // better a node that failed it once than none
	}
}

// escalate raises what a job that ran out of memory asks for, if some node has that much.
func (y *Yard) escalate(r *jobRecord, run *runRecord, cause job.Cause, rank *job.Rank, reason string) (bool, string) {
	floor := r.Floor
	if cause == job.CauseHostOOM {
		had := max(rank.Memory, floor.Memory)
		if had == 0 {
			if n, ok := y.nodes[rank.Node]; ok {
				had = n.Inventory.Memory / 2
			}
		}
		floor.Memory = 2 * had
	} else {
		floor.GPUMemory = max(floor.GPUMemory, y.gpuMemory(rank))
	}
	if !y.fits(fleet.NeedOf(r.Spec, floor, r.Avoid)) {
		return false, reason + "; no node of the yard that it may use has more"
	}
	r.Floor = floor
	if cause == job.CauseHostOOM {
		return true, fmt.Sprintf("%s; next with %s", reason, floor.Memory)
	}
	return true, fmt.Sprintf("%s; next on GPUs with more than %s", reason, floor.GPUMemory.Short())
}

// gpuMemory returns the memory of the smallest GPU that a rank had.
func (y *Yard) gpuMemory(k *job.Rank) job.Bytes {
	var least job.Bytes
	if n, ok := y.nodes[k.Node]; ok {
		for _, g := range n.Inventory.GPUs {
			if slices.Contains(k.GPUs, g.Index) && (least == 0 || g.Memory < least) {
				least = g.Memory
			}
		}
	}
	return least
}

// fits reports whether enough nodes could meet the need if they were empty.
func (y *Yard) fits(need fleet.Need) bool {
	m, found := fleet.NewMatcher(need), 0
	for _, n := range y.nodes {
		if room, ok := y.table.Get(n.ID); ok && n.State != fleet.Removed && m.Eligible(room) {
			found++
		}
	}
	return found >= need.Nodes
}

// ended does what is left to do when a job has reached its last state.
func (y *Yard) ended(r *jobRecord) {
	r.Ended = y.now
	y.dequeue(r)
	y.user(r.Owner).alive--
	y.settleNeeds(r)
	j := r.ID
	y.after(y.now.Add(y.cfg.KeepFinal), func(y *Yard) { y.forget(j) })
}

// settleNeeds lets the jobs that need this one go on, or ends them too.
func (y *Yard) settleNeeds(r *jobRecord) {
	waiting := y.needed[r.ID]
	delete(y.needed, r.ID)
	for _, j := range waiting {
		d, ok := y.jobs[j]
		if !ok || d.State.Final() {
			continue
		}
		if r.State != job.Succeeded {
			d.Cause = job.CauseNeedFailed
			y.must(y.moveJob(d, job.EventCancel, theYard,
				fmt.Sprintf("%s, which it needs, ended as %s", r.label(), strings.ToLower(string(r.Status())))))
			continue
		}
		d.waits = slices.DeleteFunc(slices.Clone(d.waits), func(n id.Job) bool { return n == r.ID })
		if !d.State.Waiting() {
			continue
		}
		if d.Reason = "waits for its turn"; len(d.waits) > 0 {
			d.Reason = waitsFor(d.waits)
		}
		y.changedJob(d)
		y.wake(d)
	}
}

// label names a job for people.
func (r *jobRecord) label() string {
	if r.Spec.Name != "" {
		return fmt.Sprintf("%s (%s)", r.ID, r.Spec.Name)
	}
	return string(r.ID)
}

// forget drops an ended job from memory; the store keeps it.
func (y *Yard) forget(j id.Job) {
	r, ok := y.jobs[j]
	if !ok || !r.State.Final() {
		return
	}
	delete(y.jobs, j)
	if r.Key != "" {
		delete(y.keys, submitKey{r.Owner, r.Key})
	}
}
