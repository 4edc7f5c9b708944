package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/money"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
)

// clockTime writes a time of day in UTC, with the date if it is another day.
func (e *engine) clockTime(d time.Duration) string {
	return humanize.Time(e.view.Now.Add(d), e.view.Now.UTC())
}

// describeOption names what a job would have.
func (e *engine) describeOption(o *option) string {
	if o.provisions() {
		return ondemand.Describe(o.offer)
	}

	if gpus := o.gpuWords(); gpus != "" {
		return gpus + " on " + e.nodeWords(o)
	}

	return e.nodeWords(o)
}

// nodeWords names the nodes of an option.
func (e *engine) nodeWords(o *option) string {
	names := e.names(o.rooms)
	if len(names) > 1 {
		return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
	}

	return string(names[0])
}

// gpuWords names the GPUs that an option has on each node, "" if none.
func (o *option) gpuWords() string {
	if o.gpus == 0 {
		return ""
	}

	var kinds []string
	o.pools(func(p *timeline.Pool) {
		if words := gpusOf(p, o.gpus); words != "" && !slices.Contains(kinds, words) {
			kinds = append(kinds, words)
		}
	})

	return strings.Join(kinds, " or ")
}

// gpusOf names so many GPUs of a pool, "" if it has none.
func gpusOf(p *timeline.Pool, count int) string {
	g := p.Sample.Node.Inventory.GPUs
	if len(g) == 0 {
		return ""
	}

	return humanize.GPUs(count, g[0].Model, g[0].Memory)
}

// basis is how it is known how long a job takes.
type basis string

// The bases. A job whose length is learned from past ones has those as its basis: "12 past runs of train.py".
const (
	expected basis = "the owner's estimate"
	measured basis = "its measured speed"
	guessed  basis = "default guess (no `expect` given)"
	forecast basis = "its forecast"
)

// basedOn says how it is known how long a job takes.
func (j *queuedJob) basedOn() string { return string(j.basis) }

// objective is how a job is called by what it cares about.
func objective(j *queuedJob) string { return ondemand.Objective(j.item) }

// whyHere says why a job starts where it does, as in
// "l-strong (local, idle): 1× A100, est. finish 06:00 UTC, est. cost $0.81".
func (e *engine) whyHere(j *queuedJob, o *option, all []option) string {
	state := "idle"
	switch {
	case len(o.stops) > 0:
		state = "freed by preempting " + string(o.stops[0].Job)
	case e.timeline.Dedicated(o.rooms[0]) == j.item.Job:
		state = "provisioned for this job"
	case e.view.Rooms[o.rooms[0]].Node.ID == j.item.Prefer:
		state = "ran there before"
	}

	b := strings.Builder{}
	fmt.Fprintf(&b, "%s (%s, %s): ", e.nodeWords(o), o.classWords(), state)
	if gpus := o.gpuWords(); gpus != "" {
		b.WriteString(gpus + ", ")
	}

	b.WriteString(e.because(j, o, all))

	return b.String()
}

// classWords names the classes of an option's nodes.
func (o *option) classWords() string {
	var names []string
	for _, c := range fleet.Classes() {
		has := false
		o.pools(func(p *timeline.Pool) { has = has || p.Class == c })
		if has {
			names = append(names, className(c))
		}
	}

	return humanize.List(names...)
}

func className(c fleet.Class) string {
	switch c {
	case fleet.Local:
		return "local"
	case fleet.Reserved:
		return "reserved"
	case fleet.OnDemand:
	}

	return "on-demand"
}

// estimate says when a job would be done and what that would cost. Where that is a guess, it says no more than by what
// length the job is planned: a time of day would be taken for a promise.
func (e *engine) estimate(j *queuedJob, o *option) string {
	if j.guess {
		return fmt.Sprintf("run time unknown, planned as %s", humanize.Duration(o.runs))
	}

	text := "est. finish " + e.clockTime(o.done())
	if o.ledgerCost > 0 {
		text += ", est. cost " + humanize.Dollars(o.ledgerCost)
	}

	return text
}

// because says what decided for an option, against the next best.
func (e *engine) because(j *queuedJob, o *option, all []option) string {
	text := e.estimate(j, o)
	if len(o.mix) > 0 {
		text += "; unlike nodes, at the speed of the slowest"
		if words := gpusOf(o.pool, o.gpus); words != "" && o.gpus > 0 {
			text += " (" + words + ")"
		}
	}

	if j.costSensitive && e.isWeakest(j, o, all) {
		if len(o.rooms) > 1 {
			return text + "; slowest idle nodes that suffice (cost-sensitive job)"
		}

		return text + "; slowest idle node that suffices (cost-sensitive job)"
	}

	next := e.nextBest(o, all)
	if next == nil {
		return text
	}
	if next.provisions() && !o.provisions() && e.rented(o) {
		return text // a provisioned node is not compared with provisioning another
	}

	other := e.describeOption(next)
	switch {
	case next.provisions():
		other = "provision " + other
	case next.startsIn > 0:
		other = "wait for " + other
	}

	if !next.provisions() && next.startsIn == o.startsIn && e.estimate(j, next) == e.estimate(j, o) {
		return fmt.Sprintf("%s; no slower than %s", text, other)
	}

	return fmt.Sprintf("%s; alternative: %s, %s (%s job)", text, other, e.estimate(j, next), objective(j))
}

// isWeakest reports whether an option is the one that a cost-sensitive job takes first.
func (e *engine) isWeakest(j *queuedJob, o *option, all []option) bool {
	if o.provisions() || o.startsIn > 0 || len(o.stops) > 0 {
		return false
	}

	found := e.weakest(j, all)

	return found != nil && found.sameNodes(o)
}

// sameNodes reports whether two options on nodes that are there are on the same pools.
func (o *option) sameNodes(other *option) bool {
	return o.pool == other.pool && (len(o.mix) > 0) == (len(other.mix) > 0)
}

func (e *engine) nextBest(o *option, all []option) *option {
	for i := range all {
		if &all[i] != o && all[i].barredBy == "" && (all[i].provisions() || len(o.rooms) == 0 ||
			!all[i].sameNodes(o)) {
			return &all[i]
		}
	}

	return nil
}

// whyWait says why a job waits for the nodes of an option although it could start elsewhere now.
func (e *engine) whyWait(j *queuedJob, o, now *option) string {
	return fmt.Sprintf("waits for %s, expected to be free at %s: %s; alternative: %s now, %s (%s job)",
		e.describeOption(o), e.clockTime(o.startsIn), e.estimate(j, o), e.describeOption(now), e.estimate(j, now),
		objective(j))
}

// whyProvision says why nodes are provisioned for a job.
func (e *engine) whyProvision(j *queuedJob, o *option) string {
	h := *o.offer // it may have been computed in an earlier round
	h.Finish, h.Guessed = e.view.Now.Add(o.done()), j.guess

	return ondemand.Reason(e.view, j.item, &h)
}

// whyStop says why a job is preempted for another.
func (e *engine) whyStop(j *queuedJob, v *victim, gain money.Amount) string {
	who := "which is time-sensitive and would wait longer"
	if !timeSensitive(j) {
		who = "whose owner is within their quota, while this job runs on borrowed GPUs"
	}

	return fmt.Sprintf(
		"preempted for %s, %s: saves %s, costs %s",
		j.item.Job,
		who,
		humanize.Dollars(gain),
		humanize.Dollars(v.loss),
	)
}
