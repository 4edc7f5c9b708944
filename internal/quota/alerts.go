package quota

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
	Near    Kind = "near"     // most of a quota is used
	UsedUp  Kind = "used_up"  // all of it is
	Overrun Kind = "forecast" // it will be, before the period or the job ends
	Lifted  Kind = "free"     // held jobs may continue: a new period, or the quota changed
)

// onBudgetExceeded is what happens to a job whose own budget is used up.
const onBudgetExceeded = tenant.ExceededStop

// Alert is something that people are notified of once. One of kind UsedUp also says what is
// to be done.
type Alert struct {
	Kind     Kind
	Subject  tenant.Subject // the user or project
	Job      id.Job         // whose budget it is, "" for a quota
	Measure  Measure
	Sentence string
	Action   tenant.OnExceeded // ExceededWarn unless the quota is used up and says more
	Due      time.Time         // when the quota will be used up, of an Overrun
}

// Alerts lists what is new since the last call: each alert once per period and quota. A
// caller that does what UsedUp asks for and undoes it at Lifted agrees with Allow. A job
// whose own budget is used up is stopped.
func (t *Tracker) Alerts(now time.Time) []Alert {
	now = t.advance(now)
	var all []Alert
	for _, a := range t.accounts {
		r := t.limitOf(a)
		for m := range measures {
			if limited := r != nil && r.amounts[m] > 0; !limited && !a.notices[m].held {
				continue
			}

			s := a.situation(r, m, now)
			all = t.appendAlerts(all, &a.notices[m], noticeKey{account: a, measure: m}, &s)
		}
	}

	for _, w := range t.budgetedJobs() {
		n, ok := t.budgetNotices[w.Job]
		if !ok {
			n = &notice{}
			t.budgetNotices[w.Job] = n
		}

		s := t.jobs[w].situation(w, now)
		all = t.appendAlerts(all, n, noticeKey{job: w.Job}, &s)
	}

	return all
}

// notice is what people were notified of about one quota or budget.
type notice struct {
	mark     string
	begin    time.Time
	near     bool
	usedUp   bool
	forecast bool
	held     bool
}

// situation is the state of one quota or budget.
type situation struct {
	who          string // ann, project vision, j12
	subject      tenant.Subject
	job          id.Job
	measure      measure
	period       tenant.Period // "" for a budget
	limit, used  int64         // a limit of 0 means none
	warnAt       float64
	action       tenant.OnExceeded
	mark         string
	now, begin   time.Time
	reset        time.Time
	onDemandGPUs int64     // in use on on-demand nodes, in millionths
	due          time.Time // when it will be used up; zero if it will not
	expected     float64   // in the end, if nothing more starts
}

// situation returns the state of an account under the limit that binds it, if one does.
func (a *account) situation(r *limit, m measure, now time.Time) situation {
	s := situation{who: subjectName(a.subject), subject: a.subject, measure: m, now: now, onDemandGPUs: a.gpus[classes-1]}
	if r == nil || r.amounts[m] == 0 {
		return s
	}

	s.period, s.limit, s.used, s.warnAt, s.action, s.mark = r.Period, r.amounts[m], a.used(m, r.Period, now), r.WarnAt,
		r.OnExceeded, r.marks[m]

	s.begin, s.reset = r.Period.Begin(now), r.Period.End(now)
	rest := s.reset.Sub(now)
	if after, ok := a.exhaustedWithin(m, rest, s.limit-s.used); ok {
		s.due = now.Add(after)
		sum, _ := a.project(m, rest, 0)
		s.expected = m.value(s.used) + sum
	}

	return s
}

// situation returns the state of a job under its budget.
func (s *jobUsage) situation(w Payer, now time.Time) situation {
	out := situation{who: string(w.Job), subject: tenant.Subject{User: w.Owner}, job: w.Job, measure: dollars, now: now,
		limit: s.budget, used: s.cost, warnAt: warnAt, action: onBudgetExceeded}
	if s.budget == 0 {
		return out
	}

	out.mark = budgetMark(s.budget)
	if rate := float64(s.rate[dollars]); s.predictable(dollars) && s.cost+s.remaining[dollars] > s.budget {
		out.due = now.Add(hoursDuration(float64(s.budget-s.cost) / rate))
		out.expected = dollars.value(s.cost + s.remaining[dollars])
	}

	return out
}

// blocks reports whether jobs are held or stopped.
func (s *situation) blocks() bool { return s.exhausted() && s.action != tenant.ExceededWarn }

func (s *situation) exhausted() bool { return s.limit > 0 && s.used >= s.limit }

// budgetedJobs lists the jobs that have a budget or were held by one, in order of submission.
func (t *Tracker) budgetedJobs() []Payer {
	var all []Payer
	for w, s := range t.jobs {
		if n, ok := t.budgetNotices[w.Job]; s.budget > 0 || ok && s.committed && n.held {
			all = append(all, w)
		}
	}

	slices.SortFunc(all, comparePayers)

	return all
}

// appendAlerts appends what is new about a quota and records that people were notified.
func (t *Tracker) appendAlerts(all []Alert, n *notice, key noticeKey, s *situation) []Alert {
	before := *n
	for _, k := range n.update(s) {
		a := Alert{
			Kind:     k,
			Subject:  s.subject,
			Job:      s.job,
			Measure:  s.measure.name(),
			Action:   tenant.ExceededWarn,
			Sentence: s.sentence(k, &before),
		}

		switch k {
		case UsedUp:
			a.Action = s.action
		case Overrun:
			a.Due = s.due
		case Near, Lifted:
		}

		all = append(all, a)
	}

	if *n != before {
		t.changedNotices[key] = true
	}

	return all
}

// update returns what people have not been notified of yet, and records it.
func (n *notice) update(s *situation) []Kind {
	var news []Kind
	if n.held && !s.blocks() {
		n.held, n.usedUp = false, false
		news = append(news, Lifted)
	}

	if n.mark != s.mark || !n.begin.Equal(s.begin) {
		*n = notice{mark: s.mark, begin: s.begin}
	}

	switch {
	case s.limit == 0:
	case s.exhausted():
		if !n.usedUp {
			n.usedUp, n.near, n.held = true, true, s.blocks()
			news = append(news, UsedUp)
		}
	default:
		if !n.near && float64(s.used) >= s.warnAt*float64(s.limit) {
			n.near = true
			news = append(news, Near)
		}

		if !n.forecast && !s.due.IsZero() {
			n.forecast = true
			news = append(news, Overrun)
		}
	}

	return news
}
