package admit

import (
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Kind is what an alert is about.
type Kind string

// The kinds of alert.
const (
	Near    Kind = "near"     // most of a limit is used
	UsedUp  Kind = "used_up"  // all of it is
	Overrun Kind = "forecast" // it will be, before the period or the job ends
	SetFree Kind = "free"     // what was held may go on: a new period, or the limit changed
)

// atBudget is what happens to a job whose budget is used up: who writes one means it.
const atBudget = tenant.LimitStop

// Alert is something that people must be told once, and of UsedUp also what is to
// be done.
type Alert struct {
	Kind     Kind
	Subject  tenant.Subject // whose use it is, a user's or a project's
	Job      id.Job         // whose budget it is, "" for a limit
	Measure  Measure
	Sentence string
	Action   tenant.AtLimit // LimitWarn unless the limit is used up and says more
	Due      time.Time      // when the limit will be used up, of an Overrun
}

// Alerts lists what has come about since it was asked last: each once in a period
// and for as long as the limit is the same. Who does what UsedUp asks for and undoes
// it at SetFree is in step with Allow. The budget of a job stops it when it is used up.
func (b *Books) Alerts(now time.Time) []Alert {
	now = b.tick(now)
	var all []Alert
	for _, a := range b.order {
		r := b.ruleOf(a)
		for m := range measures {
			if limited := r != nil && r.amount[m] > 0; !limited && !a.told[m].held {
				continue
			}
			s := a.situation(r, m, now)
			all = b.tell(all, &a.told[m], toldKey{account: a, measure: m}, &s)
		}
	}
	for _, w := range b.budgeted() {
		t, ok := b.told[w.Job]
		if !ok {
			t = &told{}
			b.told[w.Job] = t
		}
		s := b.stakes[w].situation(w, now)
		all = b.tell(all, t, toldKey{job: w.Job}, &s)
	}
	return all
}

// told is what people were told of one limit or budget.
type told struct {
	mark     string
	begin    time.Time
	near     bool
	usedUp   bool
	forecast bool
	held     bool
}

// situation is how it stands with one limit or budget.
type situation struct {
	who         string // ann, project vision, j12
	subject     tenant.Subject
	job         id.Job
	measure     measure
	period      tenant.Period // "" for a budget
	limit, used int64         // a limit of 0 is none
	warnAt      float64
	action      tenant.AtLimit
	mark        string
	now, begin  time.Time
	ends        time.Time
	hired       int64     // GPUs on hired nodes, in millionths
	due         time.Time // when it will be used up; zero if it will not
	expected    float64   // in the end, if nothing more starts
}

// situation looks at an account by the rule that binds it, if one does.
func (a *account) situation(r *rule, m measure, now time.Time) situation {
	s := situation{who: nameOf(a.subject), subject: a.subject, measure: m, now: now, hired: a.gpus[classes-1]}
	if r == nil || r.amount[m] == 0 {
		return s
	}
	s.period, s.limit, s.used, s.warnAt, s.action, s.mark = r.Period, r.amount[m], a.usedOf(m, r.Period, now), r.WarnAt, r.At, r.mark[m]
	s.begin, s.ends = r.Period.Begin(now), r.Period.End(now)
	rest := s.ends.Sub(now)
	if after, ok := a.overspends(m, rest, s.limit-s.used); ok {
		s.due = now.Add(after)
		sum, _ := a.ahead(m, rest, 0)
		s.expected = m.plain(s.used) + sum
	}
	return s
}

// situation looks at a job by its budget.
func (s *stake) situation(w Who, now time.Time) situation {
	out := situation{who: string(w.Job), subject: tenant.Subject{User: w.Owner}, job: w.Job, measure: money, now: now,
		limit: s.budget, used: s.spent, warnAt: warnAt, action: atBudget}
	if s.budget == 0 {
		return out
	}
	out.mark = s.words
	if rate := float64(s.rate[money]); s.counts(money) && s.spent+s.left[money] > s.budget {
		out.due = now.Add(duration(float64(s.budget-s.spent) / rate))
		out.expected = money.plain(s.spent + s.left[money])
	}
	return out
}

// holds reports whether something is held or stopped.
func (s *situation) holds() bool { return s.exhausted() && s.action != tenant.LimitWarn }

func (s *situation) exhausted() bool { return s.limit > 0 && s.used >= s.limit }

// budgeted lists the jobs with a budget, or that were held by one, as submitted.
func (b *Books) budgeted() []Who {
	var all []Who
	for w, s := range b.stakes {
		if t, ok := b.told[w.Job]; s.budget > 0 || ok && s.told && t.held {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, compareWho)
	return all
}

// tell adds what is new about a limit, and notes that it was told.
func (b *Books) tell(all []Alert, t *told, key toldKey, s *situation) []Alert {
	before := *t
	for _, k := range t.news(s) {
		a := Alert{Kind: k, Subject: s.subject, Job: s.job, Measure: s.measure.name(), Action: tenant.LimitWarn, Sentence: s.sentence(k, &before)}
		switch k {
		case UsedUp:
			a.Action = s.action
		case Overrun:
			a.Due = s.due
		case Near, SetFree:
		}
		all = append(all, a)
	}
	if *t != before {
		b.said[key] = true
	}
	return all
}

// news returns what people have not been told, and takes it as told.
func (t *told) news(s *situation) []Kind {
	var news []Kind
	if t.held && !s.holds() {
		t.held, t.usedUp = false, false
		news = append(news, SetFree)
	}
	if t.mark != s.mark || !t.begin.Equal(s.begin) {
		*t = told{mark: s.mark, begin: s.begin}
	}
	switch {
	case s.limit == 0:
	case s.exhausted():
		if !t.usedUp {
			t.usedUp, t.near, t.held = true, true, s.holds()
			news = append(news, UsedUp)
		}
	default:
		if !t.near && float64(s.used) >= s.warnAt*float64(s.limit) {
			t.near = true
			news = append(news, Near)
		}
		if !t.forecast && !s.due.IsZero() {
			t.forecast = true
			news = append(news, Overrun)
		}
	}
	return news
}
