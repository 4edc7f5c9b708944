package ledger

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// Tally knows at once how much a researcher or a project has used in the day, week or
// month that a time is in. The periods are those of quotas: in UTC, weeks from Monday;
// at the border of a period use starts again from nothing. A posting over a border is
// divided between the periods, as reports divide it.
type Tally struct {
	uses   map[tallied]*Used
	news   map[tallied]struct{}
	cutter cutter
}

type tallied struct {
	user    id.User
	project id.Project
	period  tenant.Period
	begin   int64 // of the period, in seconds
}

// Used is what someone has used in a period: GPU-time of runs, and all money that was
// posted to them, with what was hired for them and stood unused.
type Used struct {
	User    id.User       `json:"user,omitempty"` // or
	Project id.Project    `json:"project,omitempty"`
	Period  tenant.Period `json:"period"`
	Begin   time.Time     `json:"begin"`
	GPUTime Span          `json:"gpu_ms"`
	Money   Nanos         `json:"nanodollars"`
}

// NewTally returns a tally that goes on from stored totals.
func NewTally(stored []Used) *Tally {
	t := &Tally{uses: map[tallied]*Used{}, news: map[tallied]struct{}{}}
	t.cutter = cutter{next: nextDay, emit: t.take}
	for i := range stored {
		u := stored[i]
		u.Begin = u.Begin.UTC()
		t.uses[tallied{u.User, u.Project, u.Period, u.Begin.Unix()}] = &u
	}
	return t
}

// Add takes postings as a meter gave them: all lines of an entry at once.
func (t *Tally) Add(postings []Posting) {
	for i := range postings {
		t.cutter.add(&postings[i])
	}
	t.cutter.flush()
}

// take counts a piece of a posting, which lies in one day.
func (t *Tally) take(p *Posting, at time.Time, v vector) {
	gpu, money := Span(0), Nanos(v[inRent]+v[inPower])
	if p.Account == Use {
		gpu = Span(v[inGPU])
	}
	if gpu == 0 && money == 0 {
		return
	}
	for _, period := range tenant.Periods() {
		begin := period.Begin(at)
		if p.Owner != "" {
			t.count(tallied{user: p.Owner, period: period, begin: begin.Unix()}, begin, gpu, money)
		}
		if p.Project != "" {
			t.count(tallied{project: p.Project, period: period, begin: begin.Unix()}, begin, gpu, money)
		}
	}
}

func (t *Tally) count(key tallied, begin time.Time, gpu Span, money Nanos) {
	u, ok := t.uses[key]
	if !ok {
		u = &Used{User: key.user, Project: key.project, Period: key.period, Begin: begin}
		t.uses[key] = u
	}
	u.GPUTime += gpu
	u.Money += money
	t.news[key] = struct{}{}
}

// OfUser returns what a researcher has used in the period that a time is in.
func (t *Tally) OfUser(user id.User, p tenant.Period, at time.Time) Used {
	return t.of(tallied{user: user, period: p}, at)
}

// OfProject returns what a project has used in the period that a time is in.
func (t *Tally) OfProject(project id.Project, p tenant.Period, at time.Time) Used {
	return t.of(tallied{project: project, period: p}, at)
}

func (t *Tally) of(key tallied, at time.Time) Used {
	begin := key.period.Begin(at)
	key.begin = begin.Unix()
	if u, ok := t.uses[key]; ok {
		return *u
	}
	return Used{User: key.user, Project: key.project, Period: key.period, Begin: begin}
}

// Take returns the totals that have changed since it was last asked, to be stored, in order.
func (t *Tally) Take() []Used {
	if len(t.news) == 0 {
		return nil
	}
	list := make([]Used, 0, len(t.news))
	for key := range t.news {
		list = append(list, *t.uses[key])
	}
	clear(t.news)
	slices.SortFunc(list, func(a, b Used) int {
		return cmp.Or(a.Begin.Compare(b.Begin), cmp.Compare(a.Period, b.Period), cmp.Compare(a.User, b.User), cmp.Compare(a.Project, b.Project))
	})
	return list
}

// Forget drops totals of periods that ended before a time. Those that were not taken
// yet are kept.
func (t *Tally) Forget(before time.Time) {
	for key, u := range t.uses {
		if _, fresh := t.news[key]; !fresh && !key.period.End(u.Begin).After(before) {
			delete(t.uses, key)
		}
	}
}
