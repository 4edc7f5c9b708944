package admit

import (
	"math"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// account is the use of one user or project.
type account struct {
	subject tenant.Subject
	name    string // sorted by
	own     *rule  // nil if only that for each binds it
	gpus    [classes]int64
	nodes   int
	rate    [measures]int64 // what is used per hour now
	windows [3]window       // in the order of tenant.Periods
	live    map[Who]*stake  // that use something now
	known   [measures]load  // of those of them whose rest is known
	told    [measures]told
	hold    hold // as it was said last
	dirty   bool // its totals are to be written down
}

// load is what running jobs are still expected to use, and how much of it per hour.
type load struct{ left, rate int64 }

// window is what was used in one period.
type window struct {
	begin, end time.Time
	used       [measures]int64
}

// stake is what one job uses now and what it is still expected to use.
type stake struct {
	rate   [measures]int64
	known  [measures]bool // left is
	left   [measures]int64
	told   bool // Commit was
	budget int64
	words  string // for the budget
	spent  int64  // of it
}

// classes of nodes, counted apart.
const classes = 3

func classOf(c fleet.Class) int {
	switch c {
	case fleet.OnDemand:
		return 2
	case fleet.Reserved:
		return 1
	case fleet.Local:
	}
	return 0
}

func (b *Books) user(u id.User) *account {
	a, ok := b.users[u]
	if !ok {
		a = b.open(tenant.Subject{User: u})
		b.users[u] = a
	}
	return a
}

func (b *Books) project(p id.Project) *account {
	a, ok := b.projects[p]
	if !ok {
		a = b.open(tenant.Subject{Project: p})
		b.projects[p] = a
	}
	return a
}

// open makes an account and files it by name.
func (b *Books) open(s tenant.Subject) *account {
	a := &account{subject: s, name: s.String(), live: map[Who]*stake{}}
	at, _ := slices.BinarySearchFunc(b.order, a.name, func(o *account, name string) int { return strings.Compare(o.name, name) })
	b.order = slices.Insert(b.order, at, a)
	return a
}

// each calls do for the accounts of who.
func (b *Books) each(w Who, do func(*account)) {
	if w.Owner != "" {
		do(b.user(w.Owner))
	}
	if w.Project != "" {
		do(b.project(w.Project))
	}
}

// Use tells that a run takes so many more GPUs on nodes of a class, and that this
// costs so much more money per hour, rent and energy together. When it ends it is
// told once more with a minus sign.
func (b *Books) Use(now time.Time, w Who, class fleet.Class, gpus, hourly float64) {
	b.tick(now)
	devices := units(gpus, micro)
	var delta [measures]int64
	delta[money], delta[gpuHours] = units(hourly, nano), devices*hour
	b.restake(w, func(s *stake) {
		for m := range measures {
			s.rate[m] += delta[m]
		}
	})
	b.each(w, func(a *account) {
		a.gpus[classOf(class)] += devices
		for m := range measures {
			a.rate[m] += delta[m]
		}
	})
}

// Nodes tells that so many more on-demand nodes are asked for, or fewer kept.
func (b *Books) Nodes(now time.Time, w Who, delta int) {
	b.tick(now)
	b.each(w, func(a *account) { a.nodes += delta })
}

// Spend tells what was used since it was told last. It counts for the periods that
// it is now; what ends at midnight UTC is of the day before.
func (b *Books) Spend(now time.Time, w Who, gpuSeconds, cost float64) {
	now = b.tick(now)
	b.SpendOver(now, now, w, gpuSeconds, cost)
}

// SpendOver tells what was used in a stretch of time, evenly. What of it lies in a
// period that is over counts no more.
func (b *Books) SpendOver(from, to time.Time, w Who, gpuSeconds, cost float64) {
	b.tick(to)
	var used [measures]int64
	used[money], used[gpuHours] = units(cost, nano), units(gpuSeconds, micro)
	b.each(w, func(a *account) {
		for i, p := range tenant.Periods() {
			a.windows[i].add(p, from, to, used)
		}
		b.touch(a)
	})
	if _, ok := b.stakes[w]; !ok {
		return
	}
	b.restake(w, func(s *stake) {
		s.spent += used[money]
		for m := range measures {
			s.left[m] = max(s.left[m]-used[m], 0)
		}
	})
}

// Outlay is what a job is expected to use until it ends.
type Outlay struct {
	Money    float64   // still to be spent; negative if nobody knows
	GPUHours float64   // still to be used; negative if nobody knows
	Budget   job.Money // for the whole job, 0 if it has none
	Spent    float64   // of the budget, until now
}

// Commit tells what a job is expected to use from now on, in place of what was told
// before. What it spends counts against it. A running job of which nobody knows the
// rest is expected to go on as it does.
func (b *Books) Commit(w Who, o Outlay) {
	b.restake(w, func(s *stake) {
		if budget := int64(o.Budget) * (nano / micro); budget != s.budget {
			s.budget, s.words = budget, budgetWords(o.Budget)
		}
		s.told, s.spent = true, units(o.Spent, nano)
		s.known[money], s.left[money] = o.Money >= 0, units(max(o.Money, 0), nano)
		s.known[gpuHours], s.left[gpuHours] = o.GPUHours >= 0, units(max(o.GPUHours, 0), hour*micro)
	})
}

// Done forgets what was committed for a job that has ended, and its budget.
func (b *Books) Done(w Who) {
	if _, ok := b.stakes[w]; ok {
		b.restake(w, func(s *stake) { *s = stake{rate: s.rate} })
	}
	if _, ok := b.told[w.Job]; ok {
		delete(b.told, w.Job)
		b.said[toldKey{job: w.Job}] = true
	}
}

// restake changes what a job has at stake, and what its accounts know of it.
func (b *Books) restake(w Who, change func(*stake)) {
	s, ok := b.stakes[w]
	if !ok {
		s = &stake{}
		b.stakes[w] = s
	}
	b.each(w, func(a *account) { a.count(s, -1) })
	change(s)
	live := s.rate != [measures]int64{}
	b.each(w, func(a *account) {
		a.count(s, 1)
		if live {
			a.live[w] = s
		} else {
			delete(a.live, w)
		}
	})
	if !live && !s.told {
		delete(b.stakes, w)
	}
}

// count adds a job to what the account knows of running jobs, or takes it away.
func (a *account) count(s *stake, sign int64) {
	for m := range measures {
		if s.counts(m) {
			a.known[m].left += sign * s.left[m]
			a.known[m].rate += sign * s.rate[m]
		}
	}
}

// counts reports whether the job runs and its rest is known.
func (s *stake) counts(m measure) bool { return s.known[m] && s.rate[m] > 0 }

// add adds what was used in a stretch, as far as it lies in the window. A stretch that
// goes beyond the window begins the one anew in which it ends.
func (w *window) add(p tenant.Period, from, to time.Time, used [measures]int64) {
	if to.After(w.end) {
		last := to.Add(-1)
		*w = window{begin: p.Begin(last), end: p.End(last)}
	}
	if !to.After(w.begin) {
		return
	}
	for m := range measures {
		n := used[m]
		if from.Before(w.begin) {
			n = int64(math.Round(float64(n) * (float64(to.Sub(w.begin)) / float64(to.Sub(from)))))
		}
		w.used[m] += n
	}
}

// usedOf returns what was used in the period that it is now.
func (a *account) usedOf(m measure, p tenant.Period, now time.Time) int64 {
	if w := &a.windows[slot(p)]; now.Before(w.end) {
		return w.used[m]
	}
	return 0
}

// slot is the place of a period in tenant.Periods.
func slot(p tenant.Period) int {
	switch p {
	case tenant.Day:
		return 0
	case tenant.Week:
		return 1
	case tenant.Month:
	}
	return 2
}

// inUse returns the GPUs in use, in millionths.
func (a *account) inUse() int64 {
	var sum int64
	for _, n := range a.gpus {
		sum += n
	}
	return sum
}
