package quota

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/tenant"
)

// subjectName is how sentences name a user or project.
func subjectName(s tenant.Subject) string {
	if s.User != "" {
		return string(s.User)
	}

	return "project " + string(s.Project)
}

// boundNames names a quota by each of its numbers.
func boundNames(l *limit) tenant.Bounds {
	name := func(kind, amount string) string {
		if l.Subject.Each != "" {
			return "the " + kind + " of " + amount + " for each " + l.Subject.Each
		}

		return subjectName(l.Subject) + "'s " + kind + " of " + amount
	}

	var names tenant.Bounds

	if l.GPUs > 0 {
		who := "each " + l.Subject.Each
		if l.Subject.Each == "" {
			who = subjectName(l.Subject)
		}

		names.GPUs = who + " may use " + humanize.Count(l.GPUs, "GPU") + " at a time"
	}

	if l.Nodes > 0 {
		names.Nodes = name("quota", humanize.Count(l.Nodes, "on-demand node"))
	}

	if l.Budget > 0 {
		names.Money = name("budget", humanize.Dollars(dollars.value(l.amounts[dollars]))+" per "+string(l.Period))
	}

	if l.GPUHours > 0 {
		names.GPUHours = name("quota", hours(exact(l.GPUHours))+" per "+string(l.Period))
	}

	return names
}

// budgetName names the budget of a job.
func budgetName(budget job.Money) string {
	return "the job's budget of " + humanize.Dollars(budget.Amount())
}

// mark identifies a quota in the notices about it: after another mark people are notified
// anew. Marks are stored, so their form must not change with the sentences.
func mark(m measure, l *limit) string {
	amount := hours(exact(m.value(l.amounts[m])))
	if m == dollars {
		amount = l.Budget.String()
	}

	return fmt.Sprintf("%s a %s, %s, warned at %g", amount, l.Period, l.OnExceeded, l.WarnAt)
}

// budgetMark identifies the budget of a job in the notices about it. It is stored too.
func budgetMark(budget int64) string {
	return "the job's budget of " + job.Money(budget/(nano/micro)).String()
}

// sentence says why nothing may start, and what would help. Many queued jobs ask for it,
// so the account caches it until its usage changes.
func (e *exhaustedLimit) sentence(now time.Time) string {
	m, l, a := e.measure, e.limit, e.account
	used := a.used(m, l.Period, now)

	cached := &a.holdReason
	if cached.limit != l || cached.measure != m || cached.used != used || !cached.reset.Equal(e.reset) {
		text := join(
			usageText(subjectName(a.subject), m, used, l.amounts[m], l.Period),
			"resets on "+humanize.Date(e.reset.UTC(), l.Period.Begin(now).UTC()),
			raiseHint(a.subject, m, used, l.amounts[m]),
		)

		*cached = holdReason{limit: l, measure: m, used: used, reset: e.reset, text: text}
	}

	return cached.text
}

// holdReason is why no job of an account may start, with what it was made from.
type holdReason struct {
	limit   *limit
	measure measure
	used    int64
	reset   time.Time
	text    string
}

// budgetExhausted says why a job may not start, and what would help.
func budgetExhausted(j id.Job, budget job.Money, cost money.Amount) string {
	return join(budgetUsage(string(j), cost, budget.Amount()), budgetHint)
}

// budgetUsage says how much of its budget a job has used.
func budgetUsage(who string, cost, budget money.Amount) string {
	return fmt.Sprintf("%s has used %s of its budget of %s", who, humanize.Dollars(cost), humanize.Dollars(budget))
}

const budgetHint = "submit it again with a higher budget to continue"

// sentence says what an alert is about. Before is the notice until now.
func (s *situation) sentence(k Kind, before *notice) string {
	switch k {
	case Near:
		return join(fmt.Sprintf("%s (%d %%)", s.usageText(), s.used*100/s.limit), s.resetText())
	case UsedUp:
		if s.job != "" {
			return join(s.usageText(), "it checkpoints and is paused")
		}

		return join(s.usageText(), s.effectText(), s.resetText(), raiseHint(s.subject, s.measure, s.used, s.limit))
	case Overrun:
		return s.overrunText()
	case Lifted:
	}

	return s.liftedText(before)
}

// overrunText says when a quota or budget will be used up.
func (s *situation) overrunText() string {
	if s.job != "" {
		return join(
			s.usageText(),
			"estimated total cost "+humanize.Dollars(s.expected),
			"at the current rate the budget is used up at "+humanize.Time(s.due, s.now.UTC()),
		)
	}

	return join(
		s.usageText(),
		fmt.Sprintf("at the current rate it is used up at %s, before it resets on %s",
			humanize.Time(s.due, s.now.UTC()), humanize.Date(s.reset, s.now.UTC())),
		"running jobs would bring it to "+s.measure.text(s.expected),
	)
}

// liftedText says why jobs that were held may continue.
func (s *situation) liftedText(before *notice) string {
	continues := s.who + " may continue"

	switch {
	case s.limit == 0:
		return continues + ": the " + s.measure.quotaName() + " was removed"
	case s.exhausted():
		return join(s.usageText(), continues+": the quota only warns now")
	case s.period != "" && before.mark == s.mark && !before.begin.Equal(s.begin):
		return fmt.Sprintf("%s: a new %s has begun, %s of %s used", continues, s.period,
			s.measure.text(s.measure.value(s.used)), s.measure.limitText(s.limit))
	}

	return join(s.usageText(), continues)
}

// usageText says how much of the quota or budget is used.
func (s *situation) usageText() string {
	if s.job != "" {
		return budgetUsage(s.who, money.Amount(dollars.value(s.used)), money.Amount(dollars.value(s.limit)))
	}

	return usageText(s.who, s.measure, s.used, s.limit, s.period)
}

// resetText says when the quota resets, "" for the budget of a job.
func (s *situation) resetText() string {
	if s.period == "" {
		return ""
	}

	return "resets on " + humanize.Date(s.reset, s.now.UTC())
}

// effectText says what happens now that the quota is used up.
func (s *situation) effectText() string {
	switch s.action {
	case tenant.ExceededAsk:
		return "running jobs continue, new jobs stay queued"
	case tenant.ExceededDowngrade:
		if s.onDemandGPUs > 0 {
			return fmt.Sprintf("jobs on on-demand nodes (GPUs: %s) checkpoint and move to local or reserved nodes",
				number(float64(s.onDemandGPUs)/micro))
		}

		return "from now on jobs run only on local and reserved nodes"
	case tenant.ExceededStop:
		return "running jobs checkpoint and stop, new jobs stay queued"
	case tenant.ExceededWarn:
	}

	return "jobs continue"
}

// usageText says how much of a quota is used in a period.
func usageText(who string, m measure, used, limit int64, p tenant.Period) string {
	when := "this " + string(p)
	if p == tenant.Day {
		when = "today"
	}

	amount := number(m.value(used))
	if m == dollars {
		amount = humanize.Dollars(m.value(used))
	}

	return who + " has used " + amount + " of " + m.limitText(limit) + " " + when
}

// raiseHint says how an admin can raise a quota: by half, or above what is used already.
func raiseHint(s tenant.Subject, m measure, used, limit int64) string {
	target := 1.5 * m.value(limit)
	if current := m.value(used); target <= current {
		target = 1.5 * current
	}

	target = roundUp(target)

	flag := "--gpu-hours " + number(target)
	if m == dollars {
		// Without the dollar sign, which a shell would take for the name of a variable.
		flag = "--budget " + strings.TrimPrefix(job.Money(math.Round(target*micro)).String(), "$")
	}

	return "an admin can raise it: trainyard quota set " + s.String() + " " + flag
}

// roundUp returns the next number of two digits.
func roundUp(x float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(x))-1)
	return math.Ceil(x/step-1e-9) * step
}

// quotaName is what a quota on the measure is called.
func (m measure) quotaName() string {
	if m == dollars {
		return "budget"
	}

	return "quota of GPU-hours"
}

// text writes an amount for people.
func (m measure) text(x float64) string {
	if m == dollars {
		return humanize.Dollars(x)
	}

	return hours(number(x))
}

// limitText writes the amount of a quota.
func (m measure) limitText(n int64) string {
	if m == dollars {
		return humanize.Dollars(m.value(n))
	}

	return hours(exact(m.value(n)))
}

// number writes a number with at most one decimal, and below one with two significant digits.
func number(x float64) string {
	if x > 0 && x < 1 {
		return small(x)
	}

	return strings.TrimSuffix(strconv.FormatFloat(max(x, 0), 'f', 1, 64), ".0")
}

// small writes a number below one with two significant digits.
func small(x float64) string {
	return strings.TrimRight(
		strings.TrimRight(strconv.FormatFloat(x, 'f', 1-int(math.Floor(math.Log10(x))), 64), "0"),
		".",
	)
}

// exact writes a number with as many decimals as it needs.
func exact(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// hours writes a number of GPU-hours.
func hours(n string) string {
	if n == "1" {
		return "1 GPU-hour"
	}

	return n + " GPU-hours"
}

// join makes one sentence of its parts, leaving out empty ones.
func join(parts ...string) string {
	var out strings.Builder
	for _, p := range parts {
		if p != "" && out.Len() > 0 {
			out.WriteString("; ")
		}

		out.WriteString(p)
	}

	return out.String()
}
