package quota_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// entry is one thing that was told to the tracker. The model keeps them all and adds
// them up again for every question.
type entry struct {
	from, at     time.Time
	who          quota.Payer
	class        fleet.Class
	gpus, hourly float64
	nodes        int
	seconds, sum float64
}

// model is the tracker as plainly as they can be written: a list.
type model struct {
	now     time.Time
	limits  map[tenant.Subject]tenant.Quota
	entries []entry
	outlays map[quota.Payer]quota.Commitment // less what was spent since
	held    map[string]bool                  // by the alerts so far
	marks   map[string]string                // the limit and period that was looked at last
	said    map[string]bool                  // what was told of it
}

func newModel() *model {
	return &model{
		now:     noon,
		limits:  map[tenant.Subject]tenant.Quota{},
		outlays: map[quota.Payer]quota.Commitment{},
		held:    map[string]bool{},
		marks:   map[string]string{},
		said:    map[string]bool{},
	}
}

// of returns the entries of a user or project.
func (m *model) of(s tenant.Subject) []entry {
	return slices.DeleteFunc(slices.Clone(m.entries), func(e entry) bool {
		return s.User != "" && e.who.Owner != s.User || s.Project != "" && e.who.Project != s.Project
	})
}

// limit returns what binds a user or project.
func (m *model) limit(s tenant.Subject) (tenant.Quota, bool) {
	if l, ok := m.limits[s]; ok {
		return l, true
	}

	each := anyone
	if s.Project != "" {
		each = anyPro
	}

	l, ok := m.limits[each]

	return l, ok
}

// live is what a user or project has now.
func (m *model) live(s tenant.Subject) (gpus, hourly float64, nodes int, jobs map[quota.Payer]entry) {
	jobs = map[quota.Payer]entry{}
	for _, e := range m.of(s) {
		gpus, hourly, nodes = gpus+e.gpus, hourly+e.hourly, nodes+e.nodes
		j := jobs[e.who]
		j.gpus, j.hourly = j.gpus+e.gpus, j.hourly+e.hourly
		jobs[e.who] = j
	}

	return gpus, hourly, nodes, jobs
}

// used is what a user or project has used in a period.
func (m *model) used(s tenant.Subject, p tenant.Period) (money, hours float64) {
	for _, e := range m.of(s) {
		begin := p.Begin(m.now)
		if !e.at.After(begin) {
			continue
		}

		part := 1.0
		if e.from.Before(begin) {
			part = e.at.Sub(begin).Seconds() / e.at.Sub(e.from).Seconds()
		}

		money, hours = money+math.Round(e.sum*part*1e9)/1e9, hours+math.Round(e.seconds*part*1e6)/3.6e9
	}

	return money, hours
}

// usedUp reports whether money or GPU-hours of a subject are, by what binds it.
func (m *model) usedUp(s tenant.Subject) (money, hours bool) {
	l, _ := m.limit(s)
	dollars, gpuHours := m.used(s, l.Period)
	return l.Budget > 0 && dollars >= float64(l.Budget)/1e6-1e-10, l.GPUHours > 0 && gpuHours >= l.GPUHours-1e-11
}

// allow answers as Allow does, without words.
func (m *model) allow(w quota.Payer, budget job.Money, spent float64) (a tenant.Allowance, hold bool) {
	a = tenant.Unlimited()
	left, hard := math.Inf(1), math.Inf(1)

	for _, s := range []tenant.Subject{{User: w.Owner}, {Project: w.Project}} {
		l, ok := m.limit(s)
		if s == (tenant.Subject{}) || !ok {
			continue
		}

		gpus, _, nodes, jobs := m.live(s)
		if l.GPUs > 0 {
			left = min(left, max(float64(l.GPUs)-gpus, 0))

			if !l.Borrow {
				hard = min(hard, max(float64(l.GPUs)-gpus, 0))
			}
		}

		if l.Nodes > 0 {
			a.Nodes = min(a.Nodes, max(l.Nodes-nodes, 0))
		}

		if l.OnExceeded == tenant.ExceededWarn {
			continue
		}

		dollars, gpuHours := m.used(s, l.Period)

		noMoney, noHours := m.usedUp(s)
		if noMoney || noHours {
			a.NoProvisioning = a.NoProvisioning || l.OnExceeded == tenant.ExceededDowngrade
			hold = hold || l.OnExceeded != tenant.ExceededDowngrade
		}

		rest := l.Period.End(m.now).Sub(m.now).Hours()
		pledged := func(rate func(entry) float64, expect func(quota.Commitment) float64) float64 {
			var sum, rates float64
			for other, e := range jobs {
				if o, known := m.outlays[other]; known && other != w && rate(e) > 0 && expect(o) >= 0 {
					sum, rates = sum+expect(o), rates+rate(e)
				}
			}

			return min(sum, rates*rest)
		}

		if l.Budget > 0 && (l.OnExceeded != tenant.ExceededDowngrade || !noMoney) {
			a.Money = min(a.Money, money.Amount(max(float64(l.Budget)/1e6-max(dollars, -1e9)-pledged(hourlyOf, moneyOf), 0)))
		}

		if l.GPUHours > 0 && (l.OnExceeded != tenant.ExceededDowngrade || !noHours) {
			a.GPUHours = min(a.GPUHours, max(l.GPUHours-gpuHours-pledged(gpusOf, hoursOf), 0))
		}
	}

	if budget > 0 {
		a.Money = min(a.Money, money.Amount(max(float64(budget)/1e6-spent, 0)))
		hold = hold || spent >= float64(budget)/1e6
	}

	if !math.IsInf(left, 1) {
		a.GPUs, a.Part = int(left), left-math.Floor(left)
	}

	if !math.IsInf(hard, 1) {
		a.Ceiling = int(hard)
	}

	a.Borrow = a.Ceiling > a.GPUs

	return a, hold
}

func hourlyOf(e entry) float64           { return e.hourly }
func gpusOf(e entry) float64             { return e.gpus }
func moneyOf(o quota.Commitment) float64 { return float64(o.RemainingCost) }
func hoursOf(o quota.Commitment) float64 { return o.RemainingGPUHours }
func near(a, b float64) bool             { return a == b || math.Abs(a-b) < 1e-6*max(1, math.Abs(a)) }
func subjects() (all []tenant.Subject) {
	for _, u := range []id.User{"ann", "bob", "cyd"} {
		all = append(all, tenant.Subject{User: u})
	}

	return append(all, tenant.Subject{Project: "vision"}, tenant.Subject{Project: "speech"})
}

// TestTrackerMatchesTheModel does anything in any order, asks after each step, and now
// and then starts the tracker anew from what they have to keep.
func TestTrackerMatchesTheModel(t *testing.T) {
	t.Parallel()

	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, trackerAreLikeTheModel)
		})
	}
}

func trackerAreLikeTheModel(t *rapid.T) {
	b, m := quota.New(), newModel()
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		step(t, b, m)

		if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
			b = restarted(t, b, m)
		}

		compareAllowances(t, b, m)
		compareForecast(t, b, m)

		if rapid.Bool().Draw(t, "alerts") {
			checkAlerts(t, b, m)
		}
	}
}

// drawWho draws a job, and seldom none. A job has one owner and one project.
func drawWho(t *rapid.T) quota.Payer {
	n := rapid.IntRange(0, 11).Draw(t, "job")
	w := quota.Payer{
		Owner:   []id.User{"ann", "bob", "cyd"}[n%3],
		Project: []id.Project{"vision", "", "speech", "vision"}[n%4],
	}

	if n > 1 {
		w.Job = id.NewJob(uint64(n))
	}

	return w
}

// eighths draws a number that is exact in every unit of the tracker.
func eighths(t *rapid.T, most int, what string) float64 {
	return float64(rapid.IntRange(0, most*8).Draw(t, what)) / 8
}

// step does one thing to the tracker and to the model.
func step(t *rapid.T, b *quota.Tracker, m *model) {
	told := m.now.Add(
		time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 10, 60, 600, 5000, -30}).Draw(t, "minutes")) * time.Minute,
	)
	if told.After(m.now) {
		m.now = told
	}

	w := drawWho(t)
	b.Nodes(told, quota.Payer{}, 0) // whatever is done, it is now

	switch rapid.SampledFrom([]string{"limit", "remove", "use", "use", "end", "nodes", "spend", "spend", "spend", "commit", "done"}).
		Draw(t, "what") {
	case "limit":
		l := drawLimit(t)
		if err := b.Put(l); err != nil {
			t.Fatal(err)
		}

		m.limits[l.Subject] = l
	case "remove":
		s := rapid.SampledFrom(append(subjects(), anyone, anyPro)).Draw(t, "of")
		b.Remove(s)
		delete(m.limits, s)
	case "use":
		e := entry{
			at:     m.now,
			who:    w,
			class:  rapid.SampledFrom(fleet.Classes()).Draw(t, "class"),
			gpus:   eighths(t, 4, "gpus"),
			hourly: eighths(t, 4, "hourly"),
		}

		b.Use(told, w, e.class, e.gpus, money.PerHour(e.hourly))
		m.entries = append(m.entries, e)
	case "end":
		for _, e := range slices.Clone(m.entries) {
			if e.who == w && e.class != "" {
				b.Use(told, w, e.class, -e.gpus, -money.PerHour(e.hourly))
				m.entries = append(m.entries, entry{at: m.now, who: w, class: e.class, gpus: -e.gpus, hourly: -e.hourly})
			}
		}

		m.entries = settled(m.entries, w)
	case "nodes":
		n := rapid.IntRange(0, 2).Draw(t, "nodes")
		b.Nodes(told, w, n)
		m.entries = append(m.entries, entry{at: m.now, who: w, nodes: n})
	case "spend":
		e := entry{
			from:    m.now,
			at:      m.now,
			who:     w,
			seconds: float64(rapid.IntRange(0, 8).Draw(t, "halves")) * 1800,
			sum:     eighths(t, 8, "money"),
		}

		if back := rapid.SampledFrom([]time.Duration{0, time.Hour, 40 * time.Hour}).Draw(t, "over"); back > 0 {
			e.from = e.at.Add(-back)
		}

		b.Spend(e.from, e.at, w, e.seconds, money.Amount(e.sum))

		m.entries = append(m.entries, e)
		if o, ok := m.outlays[w]; ok {
			o.CostSoFar += money.Amount(e.sum)
			if o.RemainingCost >= 0 {
				o.RemainingCost = max(o.RemainingCost-money.Amount(e.sum), 0)
			}

			if o.RemainingGPUHours >= 0 {
				o.RemainingGPUHours = max(o.RemainingGPUHours-e.seconds/3600, 0)
			}

			m.outlays[w] = o
		}
	case "commit":
		o := quota.Commitment{
			RemainingCost:     money.Amount(eighths(t, 40, "left")) - 1,
			RemainingGPUHours: eighths(t, 40, "hours left") - 1,
			Budget:            job.Money(rapid.IntRange(0, 20).Draw(t, "budget")) * dollar,
			CostSoFar:         money.Amount(eighths(t, 10, "spent")),
		}

		if w.Job != "" {
			b.Commit(w, o)
			m.outlays[w] = o
		}
	case "done":
		b.Done(w)
		delete(m.outlays, w)
		delete(m.held, string(w.Job)+" money")
		m.mark(string(w.Job)+" money", "")
	}
}

// settled drops the use of a job that has ended from the list, with both signs.
func settled(all []entry, w quota.Payer) []entry {
	return slices.DeleteFunc(all, func(e entry) bool { return e.who == w && e.class != "" })
}

func drawLimit(t *rapid.T) tenant.Quota {
	return tenant.Quota{
		Subject: rapid.SampledFrom(append(subjects(), anyone, anyPro)).Draw(t, "subject"),
		GPUs: rapid.IntRange(0, 8).
			Draw(t, "most gpus"),
		Nodes:    rapid.IntRange(0, 3).Draw(t, "most nodes"),
		Borrow:   rapid.Bool().Draw(t, "borrow"),
		Budget:   job.Money(rapid.IntRange(0, 30).Draw(t, "most money")) * dollar,
		GPUHours: float64(rapid.IntRange(0, 20).Draw(t, "most hours")) / 2,
		Period: rapid.SampledFrom(tenant.Periods()).
			Draw(t, "period"),
		OnExceeded: rapid.SampledFrom(tenant.ExceededActions()).Draw(t, "at"),
		WarnAt:     0.8,
	}
}

// restarted returns tracker that were told what is kept over a restart, and what runs.
func restarted(t *rapid.T, b *quota.Tracker, m *model) *quota.Tracker {
	again := quota.New()
	for _, l := range m.limits {
		if err := again.Put(l); err != nil {
			t.Fatal(err)
		}
	}

	if err := again.Load(b.Usage(), b.Notices()); err != nil {
		t.Fatal(err)
	}

	for _, e := range m.entries {
		again.Use(m.now, e.who, e.class, e.gpus, money.PerHour(e.hourly))
		again.Nodes(m.now, e.who, e.nodes)
	}

	for w, o := range m.outlays {
		again.Commit(w, o)
	}

	if diff := cmp.Diff(b.Quotas(), again.Quotas()) + cmp.Diff(b.Usage(), again.Usage()) +
		cmp.Diff(b.Notices(), again.Notices()) +
		cmp.Diff(b.Statuses(m.now), again.Statuses(m.now)); diff != "" {
		t.Fatal("after a restart:", diff)
	}

	for n := range 12 {
		w := quota.Payer{
			Owner:   []id.User{"ann", "bob", "cyd"}[n%3],
			Project: []id.Project{"vision", "", "speech", "vision"}[n%4],
			Job:     id.NewJob(uint64(n)),
		}

		if diff := cmp.Diff(b.Allow(m.now, w, 0, 0), again.Allow(m.now, w, 0, 0)); diff != "" {
			t.Fatalf("after a restart %+v may: %s", w, diff)
		}
	}

	for _, s := range subjects() {
		if diff := cmp.Diff(b.Status(m.now, s), again.Status(m.now, s)); diff != "" {
			t.Fatal("after a restart:", diff)
		}
	}

	return again
}

func compareAllowances(t *rapid.T, b *quota.Tracker, m *model) {
	w := drawWho(t)
	budget := job.Money(rapid.IntRange(0, 9).Draw(t, "own budget")) * dollar
	spent := eighths(t, 9, "own cost")
	got := b.Allow(m.now, w, budget, money.Amount(spent))

	want, hold := m.allow(w, budget, spent)
	if got.GPUs != want.GPUs || !near(got.Part, want.Part) || got.Nodes != want.Nodes || got.Ceiling != want.Ceiling ||
		got.Borrow != want.Borrow ||
		got.NoProvisioning != want.NoProvisioning ||
		!near(float64(got.Money), float64(want.Money)) ||
		!near(got.GPUHours, want.GPUHours) ||
		(got.HoldReason != "") != hold {
		t.Fatalf("%+v may\n%+v, want\n%+v, held: %t", w, got, want, hold)
	}

	if bound := got.GPUs < tenant.NoLimit || got.Nodes < tenant.NoLimit || got.NoProvisioning ||
		!math.IsInf(float64(got.Money), 1) ||
		!math.IsInf(got.GPUHours, 1); bound != (got.FirstLimit != "") {
		t.Fatalf("%+v may %+v", w, got)
	}

	var over float64
	for _, s := range []tenant.Subject{{User: w.Owner}, {Project: w.Project}} {
		if l, ok := m.limit(s); ok && l.GPUs > 0 && s != (tenant.Subject{}) {
			gpus, _, _, _ := m.live(s)
			over = max(over, gpus-float64(l.GPUs))
		}
	}

	if got := b.Borrowed(w); !near(got, over) {
		t.Fatalf("%+v has borrowed %g, want %g", w, got, over)
	}
}

// compareForecast checks the forecast by what all running jobs will have used at its times.
func compareForecast(t *rapid.T, b *quota.Tracker, m *model) {
	for _, s := range b.Statuses(m.now) {
		l, ok := m.limit(s.Subject)
		if !ok {
			t.Fatalf("%s has a forecast and no limit", s.Subject)
		}

		dollars, gpuHours := m.used(s.Subject, l.Period)

		_, hourly, nodes, jobs := m.live(s.Subject)
		if !near(float64(s.Hourly), hourly) || s.Nodes != nodes || !s.End.Equal(l.Period.End(m.now)) ||
			!s.Begin.Equal(l.Period.Begin(m.now)) {
			t.Fatalf("%s stands at %+v, want %g an hour, %d nodes", s.Subject, s, hourly, nodes)
		}

		check := func(c quota.Projection, used, limit float64, rate func(entry) float64,
			expect func(quota.Commitment) float64) {
			after := func(hours float64) float64 {
				sum := used
				for w, e := range jobs {
					uses := rate(e) * hours
					if o, known := m.outlays[w]; known && expect(o) >= 0 {
						uses = min(uses, expect(o))
					}

					sum += uses
				}

				return sum
			}

			most := after(s.End.Sub(m.now).Hours())
			if !near(c.Used, used) || !near(c.Limit, limit) || !near(c.Expected, most) {
				t.Fatalf("%s: %+v, want %g used and %g expected of %g", s.Subject, c, used, most, limit)
			}

			switch {
			case c.Exhausted.IsZero():
				if limit > 0 && most > limit+1e-6 {
					t.Fatalf("%s: %+v lasts, and %g will be used of %g", s.Subject, c, most, limit)
				}
			case limit == 0:
				t.Fatalf("%s: %+v is used up without a limit", s.Subject, c)
			case used >= limit-1e-10:
				if !c.Exhausted.Equal(m.now) {
					t.Fatalf("%s: %+v was used up before", s.Subject, c)
				}
			default:
				if at := after(c.Exhausted.Sub(m.now).Hours()); !near(at, limit) || !c.Exhausted.Before(s.End) {
					t.Fatalf("%s: %+v, and %g will be used then", s.Subject, c, at)
				}
			}
		}

		check(s.Cost, dollars, float64(l.Budget)/1e6, hourlyOf, moneyOf)
		check(s.GPUHours, gpuHours, l.GPUHours, gpusOf, hoursOf)
	}
}

// mark notes which limit is looked at. Of another one than before nothing was told yet.
func (m *model) mark(key, mark string) {
	if m.marks[key] != mark {
		for _, k := range []quota.Kind{quota.Near, quota.UsedUp, quota.Overrun} {
			delete(m.said, key+" "+string(k))
		}
	}

	m.marks[key] = mark
}

// markAll notes all limits and budgets as they are now.
func (m *model) markAll() {
	for _, s := range subjects() {
		l, _ := m.limit(s)
		terms := fmt.Sprintf("by %s at %s from %s", l.Period, l.OnExceeded, l.Period.Begin(m.now))
		if l.Budget > 0 {
			m.mark(s.String()+" money", l.Budget.String()+terms)
		}

		if l.GPUHours > 0 {
			m.mark(s.String()+" gpu_hours", fmt.Sprint(l.GPUHours, terms))
		}
	}

	for w, o := range m.outlays {
		if o.Budget > 0 {
			m.mark(string(w.Job)+" money", o.Budget.String())
		}
	}
}

// checkAlerts asks for alerts and checks that nothing is told twice, and that who
// goes by them alone knows exactly what is held.
func checkAlerts(t *rapid.T, b *quota.Tracker, m *model) {
	m.markAll()

	for _, a := range b.Alerts(m.now) {
		key := a.Subject.String() + " " + string(a.Measure)
		if a.Job != "" {
			key = string(a.Job) + " money"
		}

		if a.Kind == quota.Lifted {
			if !m.held[key] {
				t.Fatalf("%+v, and it was not held", a)
			}

			delete(m.held, key)
			delete(m.said, key+" "+string(quota.UsedUp))

			continue
		}

		if a.Kind == quota.UsedUp && a.Action != tenant.ExceededWarn {
			m.held[key] = true
		}

		if a.Kind != quota.UsedUp && a.Action != tenant.ExceededWarn || (a.Kind == quota.Overrun) == a.Due.IsZero() ||
			a.Sentence == "" {
			t.Fatalf("%+v", a)
		}

		about := key + " " + string(a.Kind)
		if m.said[about] {
			t.Fatalf("%+v, and it was told before", a)
		}

		m.said[about] = true
	}

	checkNothingIsKeptBack(t, b, m)

	want := map[string]bool{}
	for _, s := range subjects() {
		if l, ok := m.limit(s); ok && l.OnExceeded != tenant.ExceededWarn {
			if money, hours := m.usedUp(s); money || hours {
				want[s.String()+" money"], want[s.String()+" gpu_hours"] = money, hours
			}
		}
	}

	for w, o := range m.outlays {
		want[string(w.Job)+" money"] = o.Budget > 0 && o.CostSoFar >= o.Budget.Amount()
	}

	maps.DeleteFunc(want, func(_ string, held bool) bool { return !held })
	if diff := cmp.Diff(want, m.held); diff != "" {
		t.Fatal("by the alerts is held: ", diff)
	}

	if again := b.Alerts(m.now); len(again) > 0 {
		t.Fatalf("told twice: %+v", again)
	}
}

// checkNothingIsKeptBack checks that people were told of all limits that are nearly
// used up, are, or will be.
func checkNothingIsKeptBack(t *rapid.T, b *quota.Tracker, m *model) {
	for _, s := range b.Statuses(m.now) {
		for measure, c := range map[quota.Measure]quota.Projection{quota.Money: s.Cost, quota.GPUHours: s.GPUHours} {
			key := s.Subject.String() + " " + string(measure) + " "
			used, most := c.Limit > 0 && c.Used >= c.Limit, c.Limit > 0 && c.Used >= 0.8*c.Limit-1e-12
			if told := m.said[key+string(quota.UsedUp)]; used && !told {
				t.Fatalf("%sis used up and nobody was told: %+v", key, c)
			}

			if told := m.said[key+string(quota.Near)]; c.Limit > 0 && !used && told != most {
				t.Fatalf("%speople were told that little is left: %t, and %+v", key, told, c)
			}

			if told := m.said[key+string(quota.Overrun)]; !used && !c.Exhausted.IsZero() && !told {
				t.Fatalf("%swill be used up and nobody was told: %+v", key, c)
			}
		}
	}
}
