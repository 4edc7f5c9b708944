package provision

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// IdlePolicy says how long idle provisioned nodes are kept.
type IdlePolicy struct {
	MaxIdle       time.Duration // a node may be idle for this long at the yard's expense
	ReleaseMargin time.Duration // so long before a paid stretch ends a node must be told to go to be gone in time
	Warm          []WarmPool    // nodes to keep ready; the first line that matches a node counts
}

// IdleNode is a provisioned node that nothing uses.
type IdleNode struct {
	Lease *fleet.Lease
	Since time.Time
}

// IdleDecision says whether an idle node is released now, and why.
type IdleDecision struct {
	Lease     id.Lease
	Release   bool
	NextCheck time.Time // when to look again if nothing has changed; zero if only a change matters
	Why       string
}

// CheckIdle decides which idle nodes are released now and when to check the others
// again, in the order of the list.
//
// Of each warm line the newest nodes are kept as long as there is demand. Any other node is given back when it
// has been idle for Idle, or later if it is paid for until later anyway, because a
// least time was agreed or rent is paid by whole stretches. No stretch is begun for
// an idle node that would not end within Idle: a node that is paid by the hour and
// becomes idle in its fiftieth minute goes back before the hour is full.
func CheckIdle(idle []IdleNode, now time.Time, cfg IdlePolicy, d Demand) []IdleDecision {
	warm := warmNodes(idle, now, cfg.Warm, d)
	verdicts := make([]IdleDecision, len(idle))
	for i := range idle {
		if line := warm[i]; line >= 0 {
			until, _ := d.ends(cfg.Warm, line, now)
			verdicts[i] = IdleDecision{
				Lease: idle[i].Lease.ID, NextCheck: until, Why: "kept warm: " + cfg.Warm[line].words(),
			}

			continue
		}

		verdicts[i] = checkNode(&idle[i], now, cfg)
	}

	return verdicts
}

// checkNode decides about a node that is not kept warm.
func checkNode(n *IdleNode, now time.Time, cfg IdlePolicy) IdleDecision {
	v := IdleDecision{Lease: n.Lease.ID}
	since := n.Since
	if since.After(now) { // of a clock that was set back
		since = now
	}

	release := since.Add(cfg.MaxIdle)

	paid := paidUntil(n.Lease, since, cfg)
	if !paid.IsZero() {
		release = paid.Add(-cfg.ReleaseMargin)
	}

	idleFor := humanize.Duration(now.Sub(since).Truncate(time.Second))
	switch {
	case !now.Before(release) && !paid.IsZero():
		v.Release = true
		v.Why = fmt.Sprintf("idle for %s, paid until %s", idleFor, humanize.Time(paid, now.UTC()))
	case !now.Before(release):
		v.Release = true
		v.Why = "idle for " + idleFor
	case !paid.IsZero():
		v.NextCheck = release
		v.Why = fmt.Sprintf(
			"idle for %s; paid until %s and released just before that if still idle",
			idleFor,
			humanize.Time(paid, now.UTC()),
		)
	default:
		v.NextCheck = release
		v.Why = fmt.Sprintf("idle for %s; released at %s if still idle", idleFor, humanize.Time(release, now.UTC()))
	}

	return v
}

// paidUntil returns until when rent is paid for a node that became idle at a moment
// and may be idle for a while. It is zero if the node may go when that while is over:
// because rent is paid by the second or by stretches too short to be caught, or
// because nothing is known of it.
func paidUntil(l *fleet.Lease, since time.Time, cfg IdlePolicy) time.Time {
	o := &l.Offer

	if l.Granted.IsZero() {
		return time.Time{}
	}

	held, bills := max(since.Sub(l.Granted), 0), time.Duration(o.BillingIncrement)
	if bills <= cfg.ReleaseMargin {
		least := l.Granted.Add(time.Duration(o.BilledDuration(0)))
		if least.Add(-cfg.ReleaseMargin).After(since.Add(cfg.MaxIdle)) {
			return least
		}

		return time.Time{}
	}

	paid := time.Duration(o.BilledDuration(job.Duration(held)))
	if more := (held + cfg.MaxIdle) / bills * bills; more > paid { // stretches that end within the idle time
		paid = more
	}

	return l.Granted.Add(paid)
}

// warmNodes returns for each idle node the index of the warm pool that keeps it, -1 if none does.
func warmNodes(idle []IdleNode, now time.Time, lines []WarmPool, d Demand) []int {
	keeps := make([]int, len(idle))
	order := make([]int, len(idle))
	for i := range idle {
		keeps[i], order[i] = -1, i
	}

	if len(lines) == 0 {
		return keeps
	}

	slices.SortStableFunc(order, func(a, b int) int { // newest first
		return cmp.Or(
			idle[b].Lease.Granted.Compare(idle[a].Lease.Granted),
			strings.Compare(string(idle[b].Lease.ID), string(idle[a].Lease.ID)),
		)
	})

	kept := make([]int, len(lines))
	for _, i := range order {
		line := lineOf(lines, &idle[i].Lease.Offer)
		if line < 0 || kept[line] >= lines[line].Nodes {
			continue
		}

		if _, demanded := d.ends(lines, line, now); demanded {
			kept[line]++
			keeps[i] = line
		}
	}

	return keeps
}

func (w *WarmPool) matches(o *fleet.Offer) bool {
	return (w.Offer == "" || w.Offer == o.Name) &&
		(w.GPU == job.GPUKind{} || o.GPUs > 0 && w.GPU.Matches(o.GPU, o.GPUMemory))
}

// words says what a line keeps.
func (w *WarmPool) words() string {
	what := humanize.Plural(w.Nodes, "node")
	if w.GPU != (job.GPUKind{}) {
		what += " with " + w.GPU.String()
	}

	if w.Offer != "" {
		what += " of " + w.Offer
	}

	return fmt.Sprintf("at least %d idle %s", w.Nodes, what)
}
