package admit_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/admit"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// entry is one thing that was told to the books. The model keeps them all and adds
// them up again for every question.
type entry struct {
	from, at     time.Time
	who          admit.Who
	class        fleet.Class
	gpus, hourly float64
	nodes        int
	seconds, sum float64
}

// model is the books as plainly as they can be written: a list.
type model struct {
	now     time.Time
	limits  map[tenant.Subject]tenant.Limit
	entries []entry
	outlays map[admit.Who]admit.Outlay // less what was spent since
	held    map[string]bool            // by the alerts so far
	marks   map[string]string          // the limit and period that was looked at last
	said    map[string]bool            // what was told of it
}

func newModel() *model {
	return &model{now: noon, limits: map[tenant.Subject]tenant.Limit{}, outlays: map[admit.Who]admit.Outlay{}, held: map[string]bool{}, marks: map[string]string{}, said: map[string]bool{}}
}

// of returns the entries of a user or project.
func (m *model) of(s tenant.Subject) []entry {
	return slices.DeleteFunc(slices.Clone(m.entries), func(e entry) bool {
		return s.User != "" && e.who.Owner != s.User || s.Project != "" && e.who.Project != s.Project
	})
}

// limit returns what binds a user or project.
func (m *model) limit(s tenant.Subject) (tenant.Limit, bool) {
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
func (m *model) live(s tenant.Subject) (gpus, hourly float64, nodes int, jobs map[admit.Who]entry) {
	jobs = map[admit.Who]entry{}
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
	return l.Money > 0 && dollars >= float64(l.Money)/1e6-1e-10, l.GPUHours > 0 && gpuHours >= l.GPUHours-1e-11
}

// allow answers as Allow does, without words.
func (m *model) allow(w admit.Who, budget job.Money, spent float64) (a tenant.Allowance, hold bool) {
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
		if l.At == tenant.LimitWarn {
			continue
		}
		dollars, gpuHours := m.used(s, l.Period)
		noMoney, noHours := m.usedUp(s)
		if noMoney || noHours {
			a.NoRent = a.NoRent || l.At == tenant.LimitDowngrade
			hold = hold || l.At != tenant.LimitDowngrade
		}
		rest := l.Period.End(m.now).Sub(m.now).Hours()
		pledged := func(rate func(entry) float64, expect func(admit.Outlay) float64) float64 {
			var sum, rates float64
			for other, e := range jobs {
				if o, known := m.outlays[other]; known && other != w && rate(e) > 0 && expect(o) >= 0 {
					sum, rates = sum+expect(o), rates+rate(e)
				}
			}
			return min(sum, rates*rest)
		}
		if l.Money > 0 && (l.At != tenant.LimitDowngrade || !noMoney) {
			a.Money = min(a.Money, max(float64(l.Money)/1e6-max(dollars, -1e9)-pledged(hourlyOf, moneyOf), 0))
		}
		if l.GPUHours > 0 && (l.At != tenant.LimitDowngrade || !noHours) {
			a.GPUHours = min(a.GPUHours, max(l.GPUHours-gpuHours-pledged(gpusOf, hoursOf), 0))
		}
	}
	if budget > 0 {
		a.Money = min(a.Money, max(float64(budget)/1e6-spent, 0))
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

func hourlyOf(e entry) float64       { return e.hourly }
func gpusOf(e entry) float64         { return e.gpus }
func moneyOf(o admit.Outlay) float64 { return o.Money }
func hoursOf(o admit.Outlay) float64 { return o.GPUHours }
func near(a, b float64) bool         { return a == b || math.Abs(a-b) < 1e-6*max(1, math.Abs(a)) }
func subjects() (all []tenant.Subject) {
	for _, u := range []id.User{"ann", "bob", "cyd"} {
		all = append(all, tenant.Subject{User: u})
	}
	return append(all, tenant.Subject{Project: "vision"}, tenant.Subject{Project: "speech"})
}

// TestBooksAreLikeTheModel does anything in any order, asks after each step, and now
// and then starts the books anew from what they have to keep.
func TestBooksAreLikeTheModel(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, booksAreLikeTheModel)
		})
	}
}

func booksAreLikeTheModel(t *rapid.T) {
	b, m := admit.New(), newModel()
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
func drawWho(t *rapid.T) admit.Who {
	n := rapid.IntRange(0, 11).Draw(t, "job")
	w := admit.Who{Owner: []id.User{"ann", "bob", "cyd"}[n%3], Project: []id.Project{"vision", "", "speech", "vision"}[n%4]}
	if n > 1 {
		w.Job = id.NewJob(uint64(n))
	}
	return w
}

// eighths draws a number that is exact in every unit of the books.
func eighths(t *rapid.T, most int, what string) float64 {
	return float64(rapid.IntRange(0, most*8).Draw(t, what)) / 8
}

// step does one thing to the books and to the model.
func step(t *rapid.T, b *admit.Books, m *model) {
	told := m.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 10, 60, 600, 5000, -30}).Draw(t, "minutes")) * time.Minute)
	if told.After(m.now) {
		m.now = told
	}
	w := drawWho(t)
	b.Nodes(told, admit.Who{}, 0) // whatever is done, it is now
	switch rapid.SampledFrom([]string{"limit", "remove", "use", "use", "end", "nodes", "spend", "spend", "spend", "commit", "done"}).Draw(t, "what") {
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
		e := entry{at: m.now, who: w, class: rapid.SampledFrom(fleet.Classes()).Draw(t, "class"), gpus: eighths(t, 4, "gpus"), hourly: eighths(t, 4, "hourly")}
		b.Use(told, w, e.class, e.gpus, e.hourly)
		m.entries = append(m.entries, e)
	case "end":
		for _, e := range slices.Clone(m.entries) {
			if e.who == w && e.class != "" {
				b.Use(told, w, e.class, -e.gpus, -e.hourly)
				m.entries = append(m.entries, entry{at: m.now, who: w, class: e.class, gpus: -e.gpus, hourly: -e.hourly})
			}
		}
		m.entries = settled(m.entries, w)
	case "nodes":
		n := rapid.IntRange(0, 2).Draw(t, "nodes")
		b.Nodes(told, w, n)
		m.entries = append(m.entries, entry{at: m.now, who: w, nodes: n})
	case "spend":
		e := entry{from: m.now, at: m.now, who: w, seconds: float64(rapid.IntRange(0, 8).Draw(t, "halves")) * 1800, sum: eighths(t, 8, "money")}
		if back := rapid.SampledFrom([]time.Duration{0, time.Hour, 40 * time.Hour}).Draw(t, "over"); back > 0 {
			e.from = e.at.Add(-back)
			b.SpendOver(e.from, e.at, w, e.seconds, e.sum)
		} else {
			b.Spend(told, w, e.seconds, e.sum)
		}
		m.entries = append(m.entries, e)
		if o, ok := m.outlays[w]; ok {
			o.Spent += e.sum
			if o.Money >= 0 {
				o.Money = max(o.Money-e.sum, 0)
			}
			if o.GPUHours >= 0 {
				o.GPUHours = max(o.GPUHours-e.seconds/3600, 0)
			}
			m.outlays[w] = o
		}
	case "commit":
		o := admit.Outlay{Money: eighths(t, 40, "left") - 1, GPUHours: eighths(t, 40, "hours left") - 1, Budget: job.Money(rapid.IntRange(0, 20).Draw(t, "budget")) * dollar, Spent: eighths(t, 10, "spent")}
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
func settled(all []entry, w admit.Who) []entry {
	return slices.DeleteFunc(all, func(e entry) bool { return e.who == w && e.class != "" })
}

func drawLimit(t *rapid.T) tenant.Limit {
	return tenant.Limit{
		Subject: rapid.SampledFrom(append(subjects(), anyone, anyPro)).Draw(t, "subject"),
		GPUs:    rapid.IntRange(0, 8).Draw(t, "most gpus"), Nodes: rapid.IntRange(0, 3).Draw(t, "most nodes"), Borrow: rapid.Bool().Draw(t, "borrow"),
		Money: job.Money(rapid.IntRange(0, 30).Draw(t, "most money")) * dollar, GPUHours: float64(rapid.IntRange(0, 20).Draw(t, "most hours")) / 2,
		Period: rapid.SampledFrom(tenant.Periods()).Draw(t, "period"), At: rapid.SampledFrom(tenant.LimitActions()).Draw(t, "at"), WarnAt: 0.8,
	}
}

// restarted returns books that were told what is kept over a restart, and what runs.
func restarted(t *rapid.T, b *admit.Books, m *model) *admit.Books {
	again := admit.New()
	for _, l := range m.limits {
		if err := again.Put(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Load(b.Totals(), b.Told()); err != nil {
		t.Fatal(err)
	}
	for _, e := range m.entries {
		again.Use(m.now, e.who, e.class, e.gpus, e.hourly)
		again.Nodes(m.now, e.who, e.nodes)
	}
	for w, o := range m.outlays {
		again.Commit(w, o)
	}
	if diff := cmp.Diff(b.Limits(), again.Limits()) + cmp.Diff(b.Totals(), again.Totals()) + cmp.Diff(b.Told(), again.Told()) +
		cmp.Diff(b.Forecast(m.now), again.Forecast(m.now)); diff != "" {
		t.Fatal("after a restart:", diff)
	}
	for n := range 12 {
		w := admit.Who{Owner: []id.User{"ann", "bob", "cyd"}[n%3], Project: []id.Project{"vision", "", "speech", "vision"}[n%4], Job: id.NewJob(uint64(n))}
		if diff := cmp.Diff(b.Allow(m.now, w, 0, 0), again.Allow(m.now, w, 0, 0)); diff != "" {
			t.Fatalf("after a restart %+v may: %s", w, diff)
		}
	}
	for _, s := range subjects() {
		if diff := cmp.Diff(b.Standing(m.now, s), again.Standing(m.now, s)); diff != "" {
			t.Fatal("after a restart:", diff)
		}
	}
	return again
}

func compareAllowances(t *rapid.T, b *admit.Books, m *model) {
	w, budget, spent := drawWho(t), job.Money(rapid.IntRange(0, 9).Draw(t, "own budget"))*dollar, eighths(t, 9, "own cost")
	got := b.Allow(m.now, w, budget, spent)
	want, hold := m.allow(w, budget, spent)
	if got.GPUs != want.GPUs || !near(got.Part, want.Part) || got.Nodes != want.Nodes || got.Ceiling != want.Ceiling || got.Borrow != want.Borrow ||
		got.NoRent != want.NoRent || !near(got.Money, want.Money) || !near(got.GPUHours, want.GPUHours) || (got.Hold != "") != hold {
		t.Fatalf("%+v may\n%+v, want\n%+v, held: %t", w, got, want, hold)
	}
	if bound := got.GPUs < tenant.NoLimit || got.Nodes < tenant.NoLimit || got.NoRent || !math.IsInf(got.Money, 1) || !math.IsInf(got.GPUHours, 1); bound != (got.Bound != "") {
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
func compareForecast(t *rapid.T, b *admit.Books, m *model) {
	for _, s := range b.Forecast(m.now) {
		l, ok := m.limit(s.Subject)
		if !ok {
			t.Fatalf("%s has a forecast and no limit", s.Subject)
		}
		dollars, gpuHours := m.used(s.Subject, l.Period)
		_, hourly, nodes, jobs := m.live(s.Subject)
		if !near(s.Hourly, hourly) || s.Nodes != nodes || !s.Ends.Equal(l.Period.End(m.now)) || !s.Begin.Equal(l.Period.Begin(m.now)) {
			t.Fatalf("%s stands at %+v, want %g an hour, %d nodes", s.Subject, s, hourly, nodes)
		}
		check := func(c admit.Course, used, limit float64, rate func(entry) float64, expect func(admit.Outlay) float64) {
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
			most := after(s.Ends.Sub(m.now).Hours())
			if !near(c.Used, used) || !near(c.Limit, limit) || !near(c.Expected, most) {
				t.Fatalf("%s: %+v, want %g used and %g expected of %g", s.Subject, c, used, most, limit)
			}
			switch {
			case c.UsedUp.IsZero():
				if limit > 0 && most > limit+1e-6 {
					t.Fatalf("%s: %+v lasts, and %g will be used of %g", s.Subject, c, most, limit)
				}
			case limit == 0:
				t.Fatalf("%s: %+v is used up without a limit", s.Subject, c)
			case used >= limit-1e-10:
				if !c.UsedUp.Equal(m.now) {
					t.Fatalf("%s: %+v was used up before", s.Subject, c)
				}
			default:
				if at := after(c.UsedUp.Sub(m.now).Hours()); !near(at, limit) || !c.UsedUp.Before(s.Ends) {
					t.Fatalf("%s: %+v, and %g will be used then", s.Subject, c, at)
				}
			}
		}
		check(s.Money, dollars, float64(l.Money)/1e6, hourlyOf, moneyOf)
		check(s.GPUHours, gpuHours, l.GPUHours, gpusOf, hoursOf)
	}
}

// mark notes which limit is looked at. Of another one than before nothing was told yet.
func (m *model) mark(key, mark string) {
	if m.marks[key] != mark {
		for _, k := range []admit.Kind{admit.Near, admit.UsedUp, admit.Overrun} {
			delete(m.said, key+" "+string(k))
		}
	}
	m.marks[key] = mark
}

// markAll notes all limits and budgets as they are now.
func (m *model) markAll() {
	for _, s := range subjects() {
		l, _ := m.limit(s)
		terms := fmt.Sprintf("by %s at %s from %s", l.Period, l.At, l.Period.Begin(m.now))
		if l.Money > 0 {
			m.mark(s.String()+" money", l.Money.String()+terms)
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
func checkAlerts(t *rapid.T, b *admit.Books, m *model) {
	m.markAll()
	for _, a := range b.Alerts(m.now) {
		key := a.Subject.String() + " " + string(a.Measure)
		if a.Job != "" {
			key = string(a.Job) + " money"
		}
		if a.Kind == admit.SetFree {
			if !m.held[key] {
				t.Fatalf("%+v, and it was not held", a)
			}
			delete(m.held, key)
			delete(m.said, key+" "+string(admit.UsedUp))
			continue
		}
		if a.Kind == admit.UsedUp && a.Action != tenant.LimitWarn {
			m.held[key] = true
		}
		if a.Kind != admit.UsedUp && a.Action != tenant.LimitWarn || (a.Kind == admit.Overrun) == a.Due.IsZero() || a.Sentence == "" {
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
		if l, ok := m.limit(s); ok && l.At != tenant.LimitWarn {
			if money, hours := m.usedUp(s); money || hours {
				want[s.String()+" money"], want[s.String()+" gpu_hours"] = money, hours
			}
		}
	}
	for w, o := range m.outlays {
		want[string(w.Job)+" money"] = o.Budget > 0 && o.Spent >= float64(o.Budget)/1e6
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
func checkNothingIsKeptBack(t *rapid.T, b *admit.Books, m *model) {
	for _, s := range b.Forecast(m.now) {
		for measure, c := range map[admit.Measure]admit.Course{admit.Money: s.Money, admit.GPUHours: s.GPUHours} {
			key := s.Subject.String() + " " + string(measure) + " "
			used, most := c.Limit > 0 && c.Used >= c.Limit, c.Limit > 0 && c.Used >= 0.8*c.Limit-1e-12
			if told := m.said[key+string(admit.UsedUp)]; used && !told {
				t.Fatalf("%sis used up and nobody was told: %+v", key, c)
			}
			if told := m.said[key+string(admit.Near)]; c.Limit > 0 && !used && told != most {
				t.Fatalf("%speople were told that little is left: %t, and %+v", key, told, c)
			}
			if told := m.said[key+string(admit.Overrun)]; !used && !c.UsedUp.IsZero() && !told {
				t.Fatalf("%swill be used up and nobody was told: %+v", key, c)
			}
		}
	}
}
