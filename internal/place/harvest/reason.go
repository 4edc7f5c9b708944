package harvest

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// outReason explains why a job that no longer participates is stopped.
func (r *round) outReason() string {
	return r.withNote(fmt.Sprintf("preempted: at most %s share the idle nodes, and others go first",
		humanize.Count(r.policy.MaxParallel, "job")))
}

// stopReason explains why a running job is stopped.
func (r *round) stopReason(j int) string {
	b := &r.jobs[j]
	if len(r.changes[j].seats) > 0 {
		return r.startReason(j)
	}

	return r.withNote("preempted: " + r.whyLess(j, "its "+amount(b.running.Allocations)))
}

// startReason explains why a job starts, grows, shrinks or moves.
func (r *round) startReason(j int) string {
	b, c := &r.jobs[j], &r.changes[j]
	text := fmt.Sprintf("starts on %s: %s", amount(c.seats), bestFound)

	if b.running != nil {
		has, had := gpusOf(c.seats), b.running.GPUs
		switch {
		case has > had:
			text = fmt.Sprintf("resized from %s to %s: %s", amount(b.running.Allocations), amount(c.seats), r.whyMore(j))
		case has < had:
			text = fmt.Sprintf("resized from %s to %s: %s",
				amount(b.running.Allocations), amount(c.seats), r.whyLess(j, "the released GPUs"))
		default:
			text = fmt.Sprintf("moved to %s: %s", amount(c.seats), r.whyElsewhere(j))
		}
	}

	if b.guessedFrom > 0 && gpusOf(c.seats) >= b.guessedFrom {
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

// bestFound is the reason of all changes of which nothing more can be said.
const bestFound = "part of the sizes with the highest total value found"

// whyMore explains why a running job gets more.
func (r *round) whyMore(j int) string {
	b := &r.jobs[j]
	if r.valueOf(j, r.decision.Kind[j], r.decision.Count[j]) > r.valueOf(j, b.kind, b.count) {
		return fmt.Sprintf("the gain within %s exceeds the cost of restarting", r.horizon(b))
	}

	return bestFound
}

// whyLess explains why a running job gets less or nothing; what names the GPUs that it loses.
func (r *round) whyLess(j int, what string) string {
	b := &r.jobs[j]
	if others := r.takers(j); len(others) > 0 {
		return "released GPUs go to " + place.JobNames(others)
	}

	if text := r.barredBy(j, b.kind, b.count); text != "" {
		return text
	}

	if r.valueOf(j, r.decision.Kind[j], r.decision.Count[j]) >= r.valueOf(j, b.kind, b.count) {
		return fmt.Sprintf("%s gain nothing within %s", what, r.horizon(b))
	}

	return bestFound
}

// whyElsewhere explains why a running job moves without a change of size.
func (r *round) whyElsewhere(j int) string {
	b := &r.jobs[j]
	if others := r.takers(j); len(others) > 0 {
		return "makes room for " + place.JobNames(others)
	}

	if r.valueOf(j, r.decision.Kind[j], r.decision.Count[j]) > r.valueOf(j, b.kind, b.count) {
		return fmt.Sprintf("the gain within %s exceeds the cost of restarting", r.horizon(b))
	}

	return bestFound
}

// valueOf returns the value of a size of a job; a kind of -1 is none at all.
func (r *round) valueOf(j, kind, count int) float64 {
	s := &r.jobs[j].sizes
	if kind >= 0 {
		for _, c := range s.Kinds[kind] {
			if c.Count == count {
				return c.Value
			}
		}
	}

	return s.None
}

// takers lists the jobs that get GPUs that a running job holds and does not keep.
func (r *round) takers(j int) []id.Job {
	if r.takersOf == nil {
		var starts []place.Start
		for k := range r.jobs {
			starts = append(starts, place.Start{Item: r.jobs[k].item, Allocations: r.changes[k].seats})
		}

		r.takersOf = place.TakersOf(starts)
	}

	return r.takersOf.Of(r.jobs[j].running)
}

// barredBy says which condition a job cannot meet with so many units of a kind beside what the
// others were given, "" if it meets all.
func (r *round) barredBy(j, kind, count int) string {
	if r.instance == nil || kind < 0 {
		return ""
	}

	for i := range r.instance.Rows {
		row := &r.instance.Rows[i]
		limit := r.policy.rows[i].AtMost
		others := limit - row.AtMost // of the jobs that are left alone
		for k := range r.jobs {
			if at, n := r.has(k); k != j && at >= 0 {
				others += row.use(k, at, n)
			}
		}

		if needs := row.use(j, kind, count); others+needs > limit+tolerance && needs > 0 {
			return conditionWords(row.Name, limit, others, needs)
		}
	}

	return ""
}

// conditionWords says that a job cannot meet a condition.
func conditionWords(name string, limit, others, needs float64) string {
	return fmt.Sprintf("the condition %q allows %s: other jobs use %s, and it needs %s",
		name, figure(limit), figure(others), figure(needs))
}

// has returns what a job has after the plan: the kind, -1 for nothing, and how many units of it. That
// may be less than was decided, if the free GPUs are scattered.
func (r *round) has(j int) (at, count int) {
	seats, b := r.changes[j].seats, &r.jobs[j]
	switch {
	case len(seats) > 0:
		room, found := r.find(seats[0].Node)
		if !found {
			return -1, 0
		}

		at = slices.IndexFunc(r.kinds, func(k kind) bool { return k.id == r.rooms[room].Kind })
		if at < 0 {
			return -1, 0
		}

		return at, gpusOf(seats) / r.kinds[at].unit
	case r.changes[j].stays && b.running != nil:
		return b.kind, b.count
	}

	return -1, 0
}

// use returns what a job with nodes counts for in the row.
func (r *SideRow) use(j, kind, count int) float64 {
	return r.PerNode[j][kind]*float64(count) + r.PerJob[j]
}

// figure writes a number of a condition.
func figure(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

// waits says of queued jobs for which there is room why they do not start.
func (r *round) waits() []place.Wait {
	left := make([]int, len(r.kinds)) // units
	for k := range r.kinds {
		left[k] = r.kinds[k].units
	}

	for j := range r.jobs {
		if k, count := r.has(j); k >= 0 {
			left[k] -= count
		}
	}

	var list []place.Wait
	for j := range r.jobs {
		if b := &r.jobs[j]; b.running == nil && len(r.changes[j].seats) == 0 && len(list) < place.MaxWaits {
			if reason := r.whyNot(j, left); reason != "" {
				list = append(list, place.Wait{Job: b.item.Job, Reason: r.withNote(reason)})
			}
		}
	}

	for _, it := range r.beyond {
		if len(list) < place.MaxWaits {
			list = append(list, place.Wait{Job: it.Job, Reason: fmt.Sprintf(
				"at most %s share the idle nodes, and others go first", humanize.Count(r.policy.MaxParallel, "job"))})
		}
	}

	return list
}

// whyNot says why a queued job gets nothing of what is left, "" if there is no room for it.
func (r *round) whyNot(j int, left []int) string {
	if r.decision.Kind[j] >= 0 {
		return "enough GPUs are free, but not on nodes on which it fits"
	}

	b := &r.jobs[j]
	barred, best, worth := "", "", math.Inf(-1)

	for k, choices := range b.sizes.Kinds {
		for _, c := range choices {
			if c.Count > left[k] {
				break
			}

			if text := r.barredBy(j, k, c.Count); text != "" {
				if barred == "" {
					barred = text
				}

				continue
			}

			if c.Value > worth {
				best, worth = humanize.Count(c.Count*r.kinds[k].unit, "GPU"), c.Value
			}
		}
	}

	switch {
	case best == "":
		return barred
	case worth <= b.sizes.None:
		return fmt.Sprintf("not worth a start now: on %s it would gain nothing within %s", best, r.horizon(b))
	}

	return "not " + bestFound
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
