package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/timeline"
	"trainyard/internal/share"
)

// clockTime writes a time of day in UTC, with the date if it is another day.
func (e *engine) clockTime(d time.Duration) string {
	at := e.view.Now.Add(d)
	if minute := at.Truncate(time.Minute); e.clock.text == "" || !minute.Equal(e.clock.minute) {
		e.clock = clockText{minute, humanize.Time(at, e.view.Now.UTC())}
	}

	return e.clock.text
}

// clockText is how a time of day is written. In one round many jobs have the same.
type clockText struct {
	minute time.Time
	text   string
}

// describeOption names what a job would have.
func (e *engine) describeOption(o *option) string {
	if o.provisions() {
		return ondemand.Describe(o.offer)
	}

	if gpus := e.gpuWords(o); gpus != "" {
		return gpus + " on " + e.nodeWords(o)
	}

	return e.nodeWords(o)
}

// nodeWords names the nodes of an option.
func (e *engine) nodeWords(o *option) string {
	first := string(e.view.Rooms[o.rooms[0]].Node.ID)
	if more := len(o.rooms) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", first, more)
	}

	return first
}

// gpuWords names the GPUs that an option has on each node, "" if none.
func (e *engine) gpuWords(o *option) string {
	switch {
	case o.gpus == 0:
		return ""
	case o.share > 0:
		return humanize.Percent(o.share) + " of " + e.gpusOf(o.pool, o.gpus)
	case len(o.mix) == 0:
		return e.gpusOf(o.pool, o.gpus)
	}

	var kinds []string
	o.pools(func(p *timeline.Pool) {
		if words := e.gpusOf(p, o.gpus); words != "" && !slices.Contains(kinds, words) {
			kinds = append(kinds, words)
		}
	})

	return strings.Join(kinds, " or ")
}

// gpusOf names so many GPUs of a pool, "" if it has none.
func (e *engine) gpusOf(p *timeline.Pool, count int) string {
	g := p.Sample.Node.Inventory.GPUs
	if len(g) == 0 {
		return ""
	}

	return e.policy.gpuText(gpuCount{count, g[0].Model, g[0].Memory})
}

// gpuCount is so many GPUs of a kind.
type gpuCount struct {
	count  int
	model  string
	memory job.Bytes
}

// maxGPUTexts is how many texts of GPUs are kept.
const maxGPUTexts = 1024

// gpuText writes so many GPUs. A yard has few kinds, and the reason of every start names one or two.
func (p *Policy) gpuText(g gpuCount) string {
	text, ok := p.gpuTexts[g]
	if ok {
		return text
	}

	if len(p.gpuTexts)%maxGPUTexts == 0 {
		p.gpuTexts = map[gpuCount]string{}
	}

	text = humanize.GPUs(g.count, g.model, g.memory)
	p.gpuTexts[g] = text

	return text
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

// whyApart says from whom a job is kept apart.
func whyApart(c *share.Cut) string {
	return "kept apart from " + share.Names([]share.Cut{*c}) + ": jobs like these two slow each other down on one GPU"
}

// objective is how a job is called by what it cares about.
func objective(j *queuedJob) string { return ondemand.Objective(j.item) }

// whyHere says why a job starts where it does, as in
// "l-strong (local, idle): 1× A100, est. finish 06:00 UTC, est. cost $0.81".
func (e *engine) whyHere(j *queuedJob, o *option, all []option) string {
	state := "idle"
	switch {
	case len(o.besides) > 0:
		state = "shared"
	case len(o.stops) > 0:
		state = "freed by preempting " + string(o.stops[0].Job)
	case e.timeline.Dedicated(o.rooms[0]) == j.item.Job:
		state = "provisioned for this job"
	case e.view.Rooms[o.rooms[0]].Node.ID == j.item.Prefer:
		state = "ran there before"
	}

	where := e.nodeWords(o) + " (" + o.classWords() + ", " + state + "): "
	if gpus := e.gpuWords(o); gpus != "" {
		where += gpus + ", "
	}
	if len(o.besides) > 0 {
		where += "beside " + share.Names(o.besides) + ", "
	}

	return where + e.because(j, o, all)
}

// classWords names the classes of an option's nodes.
func (o *option) classWords() string {
	if len(o.mix) == 0 {
		return className(o.pool.Class)
	}

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
		return "run time unknown, planned as " + humanize.Duration(o.runs)
	}

	text := "est. finish " + e.clockTime(o.done())
	if cost := e.ledgerCost(j, o); cost > 0 {
		text += ", est. cost " + humanize.Dollars(cost)
	}

	return text
}

// because says what decided for an option, against the next best.
func (e *engine) because(j *queuedJob, o *option, all []option) string {
	estimate := e.estimate(j, o)
	text := estimate
	if len(o.mix) > 0 {
		text += "; unlike nodes, at the speed of the slowest"
		if words := e.gpusOf(o.pool, o.gpus); words != "" && o.gpus > 0 {
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

	otherwise := e.estimate(j, next)
	if !next.provisions() && next.startsIn == o.startsIn && otherwise == estimate {
		return text + "; no slower than " + other
	}

	return text + "; alternative: " + other + ", " + otherwise + " (" + objective(j) + " job)"
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
