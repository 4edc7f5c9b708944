package admit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// nameOf is how people speak of a user or project.
func nameOf(s tenant.Subject) string {
	if s.User != "" {
		return string(s.User)
	}
	return "project " + string(s.Project)
}

// boundsOf names a limit by each of its numbers.
func boundsOf(r *rule) tenant.Bounds {
	name := func(what, of string) string {
		if r.Subject.Each != "" {
			return "the " + what + " of " + of + " for each " + r.Subject.Each
		}
		return nameOf(r.Subject) + "'s " + what + " of " + of
	}
	var b tenant.Bounds
	if r.GPUs > 0 {
		b.GPUs = name("limit", count(r.GPUs, "GPU")+" at once")
	}
	if r.Nodes > 0 {
		b.Nodes = name("limit", count(r.Nodes, "on-demand node")+" at once")
	}
	if r.Money > 0 {
		b.Money = name("budget", r.Money.String()+" a "+string(r.Period))
	}
	if r.GPUHours > 0 {
		b.GPUHours = name("limit", hours(exact(r.GPUHours))+" a "+string(r.Period))
	}
	return b
}

func budgetWords(budget job.Money) string { return "the job's budget of " + budget.String() }

// mark tells one limit from another in what people were warned of.
func mark(m measure, r *rule) string {
	return fmt.Sprintf("%s a %s, %s, warned at %g", m.limitText(r.amount[m]), r.Period, r.At, r.WarnAt)
}

// sentence says why nothing may start, and what would help. Many jobs that wait ask
// for it, so the account keeps it until something is spent.
func (u *usedUp) sentence(now time.Time) string {
	m, r, a := u.measure, u.rule, u.account
	used := a.usedOf(m, r.Period, now)
	if h := &a.hold; h.rule != r || h.measure != m || h.used != used || !h.ends.Equal(u.ends) {
		text := join(usedOf(nameOf(a.subject), m, used, r.amount[m], r.Period),
			"it starts anew on "+date(u.ends, r.Period.Begin(now)), help(a.subject, m, used, r.amount[m]))
		*h = hold{rule: r, measure: m, used: used, ends: u.ends, text: text}
	}
	return a.hold.text
}

// hold is why nothing of an account may start.
type hold struct {
	rule    *rule
	measure measure
	used    int64
	ends    time.Time
	text    string
}

// budgetHold says why a job may not start, and what would help.
func budgetHold(j id.Job, budget job.Money, spent float64) string {
	return join(fmt.Sprintf("%s has used %s of its budget of %s", j, dollars(spent), budget), budgetHelp)
}

const budgetHelp = "submit it again with a higher budget to go on"

// sentence says what an alert is about. Before is what was told until now.
func (s *situation) sentence(k Kind, before *told) string {
	switch k {
	case Near:
		return join(fmt.Sprintf("%s (%d %%)", s.use(), s.used*100/s.limit), s.anew())
	case UsedUp:
		if s.job != "" {
			return join(s.use(), "it saves itself and stops", budgetHelp)
		}
		return join(s.use(), s.effect(), s.anew(), help(s.subject, s.measure, s.used, s.limit))
	case Overrun:
		if s.job != "" {
			return join(s.use(), fmt.Sprintf("it is expected to need %s in all, and at the present rate the budget is used up on %s", dollars(s.expected), moment(s.due, s.now)))
		}
		return join(s.use(), fmt.Sprintf("at the present rate it is used up on %s, before it starts anew on %s", moment(s.due, s.now), date(s.ends, s.now)),
			"what runs now would bring it to "+s.measure.text(s.expected))
	case SetFree:
	}
	switch {
	case s.limit == 0:
		return fmt.Sprintf("%s may go on: %s no longer limited", s.who, s.measure.subject())
	case s.exhausted():
		return join(s.use(), fmt.Sprintf("%s may go on: the limit only warns now", s.who))
	case s.period != "" && before.mark == s.mark && !before.begin.Equal(s.begin):
		return fmt.Sprintf("%s may go on: a new %s has begun, with %s of %s used", s.who, s.period, s.measure.text(s.measure.plain(s.used)), s.measure.limitText(s.limit))
	}
	return join(s.use(), s.who+" may go on")
}

// use says how much of the limit is used.
func (s *situation) use() string {
	if s.job != "" {
		return fmt.Sprintf("%s has used %s of its budget of %s", s.who, dollars(money.plain(s.used)), money.limitText(s.limit))
	}
	return usedOf(s.who, s.measure, s.used, s.limit, s.period)
}

// anew says when it starts anew, "" of a budget.
func (s *situation) anew() string {
	if s.period == "" {
		return ""
	}
	return "it starts anew on " + date(s.ends, s.now)
}

// effect says what happens now that the limit is used up.
func (s *situation) effect() string {
	switch s.action {
	case tenant.LimitAsk:
		return "what runs goes on, and nothing new starts"
	case tenant.LimitDowngrade:
		if s.hired > 0 {
			return fmt.Sprintf("what runs on hired nodes (GPUs: %s) saves itself and goes on where no rent is paid", number(float64(s.hired)/micro))
		}
		return "from now on jobs run only where no rent is paid"
	case tenant.LimitStop:
		return "what runs saves itself and stops, and nothing new starts"
	case tenant.LimitWarn:
	}
	return "all goes on"
}

func usedOf(who string, m measure, used, limit int64, p tenant.Period) string {
	when := "this " + string(p)
	if p == tenant.Day {
		when = "today"
	}
	much := number(m.plain(used))
	if m == money {
		much = dollars(m.plain(used))
	}
	return who + " has used " + much + " of " + m.limitText(limit) + " " + when
}

// help says how an admin can raise a limit: by half, or above what is used already.
func help(s tenant.Subject, m measure, used, limit int64) string {
	to := 1.5 * m.plain(limit)
	if used := m.plain(used); to <= used {
		to = 1.5 * used
	}
	to = roundUp(to)
	flag := "--gpu-hours " + number(to)
	if m == money {
		flag = "--money " + job.Money(math.Round(to*micro)).String()
	}
	return "an admin can raise it with: trainyard limit set " + s.String() + " " + flag
}

// roundUp returns the next number of two digits.
func roundUp(x float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(x))-1)
	return math.Ceil(x/step-1e-9) * step
}

// subject begins a sentence about what is measured.
func (m measure) subject() string {
	if m == money {
		return "money is"
	}
	return "GPU-hours are"
}

// text writes an amount for people.
func (m measure) text(x float64) string {
	if m == money {
		return dollars(x)
	}
	return hours(number(x))
}

// limitText writes a limit, exactly.
func (m measure) limitText(n int64) string {
	if m == money {
		return job.Money(n / (nano / micro)).String()
	}
	return hours(exact(m.plain(n)))
}

// dollars writes an amount in cents, and less than ten of them with two digits.
func dollars(x float64) string {
	if x > 0 && x < 0.1 {
		return "$" + small(x)
	}
	return "$" + strings.TrimSuffix(strconv.FormatFloat(max(x, 0), 'f', 2, 64), ".00")
}

// number writes a number with at most one decimal, and less than one with two digits.
func number(x float64) string {
	if x > 0 && x < 1 {
		return small(x)
	}
	return strings.TrimSuffix(strconv.FormatFloat(max(x, 0), 'f', 1, 64), ".0")
}

// small writes a number below one with two digits that say something.
func small(x float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(x, 'f', 1-int(math.Floor(math.Log10(x))), 64), "0"), ".")
}

// exact writes a number with as many decimals as it needs.
func exact(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func hours(n string) string {
	if n == "1" {
		return "1 GPU-hour"
	}
	return n + " GPU-hours"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// date writes a day, with the year if it is another one than now.
func date(t, now time.Time) string {
	t = t.UTC()
	if t.Year() != now.UTC().Year() {
		return t.Format("2 Jan 2006")
	}
	return t.Format("2 Jan")
}

// moment writes a day and an hour.
func moment(t, now time.Time) string { return date(t, now) + t.UTC().Format(" at 15:04 UTC") }

// join makes one sentence of its parts.
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
