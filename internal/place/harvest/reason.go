package harvest

import (
	"fmt"
	"math/bits"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// outReason explains why a job that no longer participates is stopped.
func (r *round) outReason() string {
	return r.withNote(fmt.Sprintf("preempted: at most %s share the idle nodes, and others go first",
		humanize.Count(r.policy.MaxParallel, "job")))
}

// stopReason explains why a running job is stopped.
func (r *round) stopReason(b *bidder, c *change) string {
	if len(c.seats) == 0 {
		return r.withNote(fmt.Sprintf("preempted: its %s are worth more to other jobs; it resumes when more are free",
			amount(b.running.Allocations)))
	}

	return r.startReason(b, c)
}

// startReason explains why a job starts, grows, shrinks or moves.
func (r *round) startReason(b *bidder, c *change) string {
	var text string
	has, had := gpusOf(c.seats), 0
	if b.running != nil {
		had = b.running.GPUs
	}

	switch {
	case b.running == nil:
		text = fmt.Sprintf("starts on %s: highest total value of all jobs", amount(c.seats))
	case has > had:
		text = fmt.Sprintf("resized from %s to %s: the gain within %s exceeds the cost of restarting",
			amount(b.running.Allocations), amount(c.seats), r.horizon(b))
	case has < had:
		text = fmt.Sprintf("resized from %s to %s: the released GPUs are worth more to other jobs",
			amount(b.running.Allocations), amount(c.seats))
	default:
		text = fmt.Sprintf("moved to %s: faster there, or makes room for other jobs", amount(c.seats))
	}

	if b.guessedFrom > 0 && has >= b.guessedFrom {
		text += "; its speed at this size is unknown and will be measured"
	}

	if b.undefinedSizes > 0 {
		text += fmt.Sprintf(
			"; the objective has no value for %s of this job, which count as 0",
			humanize.Count(b.undefinedSizes, "size"),
		)
	}

	return r.withNote(text)
}

// withNote adds the note on the decision to a reason.
func (r *round) withNote(text string) string {
	if r.note != "" {
		text += "; " + r.note
	}

	return text
}

// horizon returns the look-ahead used for a job.
func (r *round) horizon(b *bidder) job.Duration {
	c := r.newCosts(b)
	return job.Duration(time.Duration(c.horizon) * time.Second)
}

// amount describes the GPUs and nodes of an allocation.
func amount(seats []place.Allocation) string {
	gpus := gpusOf(seats)
	if gpus == len(seats) {
		return humanize.Count(gpus, "GPU")
	}

	return humanize.Count(gpus, "GPU") + " on " + humanize.Count(len(seats), "node")
}

func gpusOf(seats []place.Allocation) int {
	n := 0
	for _, s := range seats {
		n += bits.OnesCount64(s.GPUs)
	}

	return n
}
