package admit_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/admit"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

var (
	ann    = tenant.Subject{User: "ann"}
	vision = tenant.Subject{Project: "vision"}
	anyone = tenant.Subject{Each: "user"}
	anyPro = tenant.Subject{Each: "project"}
	annsJ1 = admit.Who{Owner: "ann", Project: "vision", Job: "j1"}
	noon   = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC) // a Sunday
)

const dollar job.Money = 1_000_000

// booksWith returns books with these limits.
func booksWith(t *testing.T, limits ...tenant.Limit) *admit.Books {
	t.Helper()
	b := admit.New()
	for _, l := range limits {
		if err := b.Put(l); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// same fails unless both are alike but for less than a billionth.
func same(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got != want && !(math.Abs(got-want) < 1e-9) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestLimitsAreListedByNameAndFilledIn(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: ann, GPUs: 4}, tenant.Limit{Subject: anyone, Money: 5 * dollar, At: tenant.LimitStop, Period: tenant.Day, WarnAt: 0.5},
		tenant.Limit{Subject: vision, Nodes: 2}, tenant.Limit{Subject: tenant.Subject{User: "bob"}, GPUs: 1})
	if err := b.Put(tenant.Limit{Subject: tenant.Subject{User: "bob"}, Removed: true}); err != nil {
		t.Fatal(err)
	}
	want := []tenant.Limit{
		{Subject: anyone, Money: 5 * dollar, At: tenant.LimitStop, Period: tenant.Day, WarnAt: 0.5},
		{Subject: vision, Nodes: 2, Period: tenant.Month, At: tenant.LimitAsk, WarnAt: 0.8},
		{Subject: ann, GPUs: 4, Period: tenant.Month, At: tenant.LimitAsk, WarnAt: 0.8},
	}
	if diff := cmp.Diff(want, b.Limits()); diff != "" {
		t.Error(diff)
	}
	for s, own := range map[tenant.Subject]tenant.Subject{ann: ann, {User: "bob"}: anyone, vision: vision} {
		if l, ok := b.Of(s); !ok || l.Subject != own {
			t.Errorf("%s is bound by %s", s, l.Subject)
		}
	}
	if l, ok := b.Of(tenant.Subject{Project: "speech"}); ok {
		t.Errorf("project speech is bound by %s", l.Subject)
	}
	if l, ok := b.Own(ann); !ok || l.GPUs != 4 {
		t.Errorf("ann's own limit is %+v", l)
	}
	if l, ok := b.Own(tenant.Subject{User: "bob"}); ok {
		t.Errorf("bob has an own limit, of %s", l.Subject)
	}
	if !b.Any() || admit.New().Any() {
		t.Error("there is a limit if one was entered")
	}
	for w, want := range map[admit.Who]bool{{Owner: "bob"}: true, {Project: "vision"}: true, {Project: "speech"}: false, {}: false} {
		if got := b.Binds(w); got != want {
			t.Errorf("a limit binds %+v: %t", w, got)
		}
	}
}

func TestBadLimitsAreRefusedByField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit tenant.Limit
		field string
	}{
		"nobody":            {tenant.Limit{}, "subject"},
		"two":               {tenant.Limit{Subject: tenant.Subject{User: "ann", Project: "vision"}}, "subject"},
		"each node":         {tenant.Limit{Subject: tenant.Subject{Each: "node"}}, "subject"},
		"no name":           {tenant.Limit{Subject: tenant.Subject{User: "Ann!"}}, "subject"},
		"negative GPUs":     {tenant.Limit{Subject: ann, GPUs: -1}, "gpus"},
		"too many GPUs":     {tenant.Limit{Subject: ann, GPUs: math.MaxInt}, "gpus"},
		"negative nodes":    {tenant.Limit{Subject: ann, Nodes: -1}, "nodes"},
		"no number":         {tenant.Limit{Subject: ann, GPUHours: math.NaN()}, "gpu_hours"},
		"endless GPU-hours": {tenant.Limit{Subject: ann, GPUHours: math.Inf(1)}, "gpu_hours"},
		"negative money":    {tenant.Limit{Subject: ann, Money: -1}, "money"},
		"too much money":    {tenant.Limit{Subject: ann, Money: math.MaxInt64}, "money"},
		"a year":            {tenant.Limit{Subject: ann, Period: "year"}, "period"},
		"panic":             {tenant.Limit{Subject: ann, At: "panic"}, "at"},
		"warned too late":   {tenant.Limit{Subject: ann, WarnAt: 1.1}, "warn_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := admit.New()
			var f *fault.Error
			if err := b.Put(c.limit); !errors.As(err, &f) || f.Field != c.field || f.Code != "bad_limit" || f.Kind != fault.Invalid {
				t.Errorf("answered with %v, want field %s", err, c.field)
			}
			if len(b.Limits()) > 0 {
				t.Error("it was entered")
			}
		})
	}
}

func TestAllowTakesTheTightest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits []tenant.Limit
		before func(*admit.Books)
		budget job.Money
		spent  float64
		want   func(*tenant.Allowance)
	}{
		"nothing is limited": {},
		"an own limit wins over that for each, even if it is wider": {
			limits: []tenant.Limit{{Subject: anyone, GPUs: 2}, {Subject: ann, GPUs: 8}},
			want: func(a *tenant.Allowance) {
				a.GPUs, a.Ceiling, a.By.GPUs = 8, 8, "ann's limit of 8 GPUs at once"
			},
		},
		"an own limit without numbers frees of that for each": {
			limits: []tenant.Limit{{Subject: anyone, GPUs: 2}, {Subject: ann}},
		},
		"user and project both bind": {
			limits: []tenant.Limit{{Subject: anyone, GPUs: 4, Nodes: 3}, {Subject: anyPro, GPUs: 6, Nodes: 1}},
			before: func(b *admit.Books) {
				b.Use(noon, annsJ1, fleet.Local, 1, 0)
				b.Use(noon, admit.Who{Owner: "bob", Project: "vision", Job: "j2"}, fleet.OnDemand, 3.5, 9)
				b.Nodes(noon, admit.Who{Owner: "bob", Project: "vision"}, 1)
			},
			want: func(a *tenant.Allowance) {
				a.GPUs, a.Ceiling, a.Part, a.By.GPUs = 1, 1, 0.5, "the limit of 6 GPUs at once for each project"
				a.Nodes, a.By.Nodes = 0, "the limit of 1 on-demand node at once for each project"
				a.Bound = a.By.Nodes
			},
		},
		"of equal limits the user's is named": {
			limits: []tenant.Limit{{Subject: ann, GPUs: 4}, {Subject: vision, GPUs: 4}},
			want: func(a *tenant.Allowance) {
				a.GPUs, a.Ceiling, a.By.GPUs = 4, 4, "ann's limit of 4 GPUs at once"
			},
		},
		"GPUs of a user may be borrowed up to the project's limit": {
			limits: []tenant.Limit{{Subject: ann, GPUs: 2, Borrow: true}, {Subject: vision, GPUs: 8}},
			before: func(b *admit.Books) { b.Use(noon, annsJ1, fleet.Local, 3, 0) },
			want: func(a *tenant.Allowance) {
				a.GPUs, a.Ceiling, a.Borrow, a.By.GPUs = 0, 5, true, "ann's limit of 2 GPUs at once"
			},
		},
		"nothing is borrowed beyond a firm limit": {
			limits: []tenant.Limit{{Subject: ann, GPUs: 2}, {Subject: vision, GPUs: 8, Borrow: true}},
			want: func(a *tenant.Allowance) {
				a.GPUs, a.Ceiling, a.By.GPUs = 2, 2, "ann's limit of 2 GPUs at once"
			},
		},
		"GPUs at once are firm even where money only warns": {
			limits: []tenant.Limit{{Subject: ann, GPUs: 1, Money: dollar, GPUHours: 1, At: tenant.LimitWarn}},
			before: func(b *admit.Books) { b.Spend(noon, annsJ1, 7200, 2); b.Use(noon, annsJ1, fleet.Local, 1, 0) },
			want: func(a *tenant.Allowance) {
				a.GPUs, a.Ceiling, a.By.GPUs = 0, 0, "ann's limit of 1 GPU at once"
			},
		},
		"what is left of money and GPU-hours": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, Period: tenant.Week}, {Subject: vision, GPUHours: 100.5}},
			before: func(b *admit.Books) { b.Spend(noon, annsJ1, 1800, 10.25) },
			want: func(a *tenant.Allowance) {
				a.Money, a.By.Money = 29.75, "ann's budget of $40 a week"
				a.GPUHours, a.By.GPUHours = 100, "project vision's limit of 100.5 GPU-hours a month"
			},
		},
		"the job's own budget": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar}},
			budget: 12 * dollar, spent: 10,
			want: func(a *tenant.Allowance) { a.Money, a.By.Money = 2, "the job's budget of $12" },
		},
		"a used up budget holds the job": {
			budget: 12 * dollar, spent: 12.5,
			want: func(a *tenant.Allowance) {
				a.Money, a.By.Money = 0, "the job's budget of $12"
				a.Hold = "j1 has used $12.50 of its budget of $12; submit it again with a higher budget to go on"
			},
		},
		"used up money leaves what costs no rent": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, At: tenant.LimitDowngrade}, {Subject: vision, Money: 100 * dollar}},
			before: func(b *admit.Books) { b.Spend(noon, annsJ1, 0, 40) },
			want: func(a *tenant.Allowance) {
				a.Money, a.NoRent, a.By.Money = 60, true, "ann's budget of $40 a month"
			},
		},
		"so do used up GPU-hours": {
			limits: []tenant.Limit{{Subject: ann, GPUHours: 1, At: tenant.LimitDowngrade}},
			before: func(b *admit.Books) { b.Spend(noon, annsJ1, 3600, 0) },
			want: func(a *tenant.Allowance) {
				a.NoRent, a.By.Money = true, "ann's limit of 1 GPU-hour a month"
			},
		},
		"what other jobs will spend is not there any more": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar}},
			before: func(b *admit.Books) {
				other := admit.Who{Owner: "ann", Job: "j2"}
				b.Use(noon, annsJ1, fleet.OnDemand, 1, 2)
				b.Commit(annsJ1, admit.Outlay{Money: 20, GPUHours: -1})
				b.Use(noon, other, fleet.OnDemand, 1, 2)
				b.Commit(other, admit.Outlay{Money: 15, GPUHours: -1})
				b.Spend(noon, other, 3600, 2)
				waits := admit.Who{Owner: "ann", Job: "j3"} // pays nothing yet
				b.Commit(waits, admit.Outlay{Money: 15, GPUHours: -1})
			},
			want: func(a *tenant.Allowance) { a.Money, a.By.Money = 40-2-13, "ann's budget of $40 a month" },
		},
		"but only as much of it as falls into the period": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, Period: tenant.Day}},
			before: func(b *admit.Books) {
				other := admit.Who{Owner: "ann", Job: "j2"}
				b.Use(noon, other, fleet.OnDemand, 1, 2)
				b.Commit(other, admit.Outlay{Money: 1000, GPUHours: -1})
			},
			want: func(a *tenant.Allowance) { a.Money, a.By.Money = 40-12*2, "ann's budget of $40 a day" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := booksWith(t, c.limits...)
			if c.before != nil {
				c.before(b)
			}
			want := tenant.Unlimited()
			if c.want != nil {
				c.want(&want)
			}
			if want.Bound == "" {
				for _, words := range []string{want.By.GPUs, want.By.Nodes, want.By.Money, want.By.GPUHours} {
					if want.Bound == "" {
						want.Bound = words
					}
				}
			}
			if diff := cmp.Diff(want, b.Allow(noon, annsJ1, c.budget, c.spent)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHoldIsASentence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits      []tenant.Limit
		now         time.Time
		hours, cost float64
		want        string
	}{
		"money by month": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar}}, cost: 40.12,
			want: "ann has used $40.12 of $40 this month; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set user/ann --money $60",
		},
		"exactly used up": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, At: tenant.LimitStop}}, cost: 40,
			want: "ann has used $40 of $40 this month; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set user/ann --money $60",
		},
		"a cent is left":       {limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar}}, cost: 39.99},
		"a soft limit":         {limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, At: tenant.LimitWarn}}, cost: 400},
		"one that leaves rest": {limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, At: tenant.LimitDowngrade}}, cost: 400},
		"the limit for each is raised for the one": {
			limits: []tenant.Limit{{Subject: anyone, GPUHours: 12.5, Period: tenant.Week}}, hours: 40.26,
			want: "ann has used 40.3 of 12.5 GPU-hours this week; it starts anew on 16 Nov; an admin can raise it with: trainyard limit set user/ann --gpu-hours 61",
		},
		"a project's, by day": {
			limits: []tenant.Limit{{Subject: vision, Money: dollar / 20, Period: tenant.Day}}, cost: 0.0612,
			want: "project vision has used $0.061 of $0.05 today; it starts anew on 16 Nov; an admin can raise it with: trainyard limit set project/vision --money $0.075",
		},
		"the next year is named": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar}}, now: time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC), cost: 50,
			want: "ann has used $50 of $40 this month; it starts anew on 1 Jan 2027; an admin can raise it with: trainyard limit set user/ann --money $60",
		},
		"and for the whole of a week in which it begins": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, Period: tenant.Week}}, now: time.Date(2026, 12, 28, 12, 0, 0, 0, time.UTC), cost: 50,
			want: "ann has used $50 of $40 this week; it starts anew on 4 Jan 2027; an admin can raise it with: trainyard limit set user/ann --money $60",
		},
		"of two the one that lasts longer": {
			limits: []tenant.Limit{{Subject: ann, Money: 40 * dollar, Period: tenant.Day}, {Subject: vision, GPUHours: 1}}, cost: 40, hours: 1,
			want: "project vision has used 1 of 1 GPU-hour this month; it starts anew on 1 Dec; an admin can raise it with: trainyard limit set project/vision --gpu-hours 1.5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := booksWith(t, c.limits...)
			now := noon
			if !c.now.IsZero() {
				now = c.now
			}
			b.Spend(now, annsJ1, c.hours*3600, c.cost)
			for range 2 { // the second time it is known
				if got := b.Allow(now, annsJ1, 0, 0).Hold; got != c.want {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			}
		})
	}
}

func TestPeriodsStartAnew(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		t.Helper()
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct {
		period      tenant.Period
		spent, then string
		anew        bool
	}{
		"the last second of a day":              {tenant.Day, "2026-11-15T00:00:01Z", "2026-11-15T23:59:59Z", false},
		"midnight":                              {tenant.Day, "2026-11-15T00:00:01Z", "2026-11-16T00:00:00Z", true},
		"Sunday belongs to the week":            {tenant.Week, "2026-11-09T00:00:01Z", "2026-11-15T23:59:59Z", false},
		"Monday begins one":                     {tenant.Week, "2026-11-15T23:59:59Z", "2026-11-16T00:00:00Z", true},
		"a week runs over the new year":         {tenant.Week, "2026-12-28T00:00:01Z", "2027-01-03T23:59:59Z", false},
		"a leap day belongs to February":        {tenant.Month, "2028-02-01T00:00:01Z", "2028-02-29T23:59:59Z", false},
		"and is a day":                          {tenant.Day, "2028-02-28T23:59:59Z", "2028-02-29T00:00:00Z", true},
		"March comes after it":                  {tenant.Month, "2028-02-29T23:59:59Z", "2028-03-01T00:00:00Z", true},
		"2100 has none":                         {tenant.Month, "2100-02-28T23:59:59Z", "2100-03-01T00:00:00Z", true},
		"the same month of another year is new": {tenant.Month, "2026-11-15T00:00:00Z", "2027-11-01T00:00:00Z", true},
		"midnight elsewhere is nothing":         {tenant.Month, "2026-12-01T01:30:00+02:00", "2026-12-01T01:59:59+02:00", false},
		"midnight in UTC counts":                {tenant.Month, "2026-12-01T01:59:59+02:00", "2026-12-01T02:00:00+02:00", true},
		"a clock put forward loses no hour":     {tenant.Day, "2026-03-29T00:00:01Z", "2026-03-30T01:59:59+02:00", false},
		"and gains none when put back":          {tenant.Day, "2026-10-25T00:00:01Z", "2026-10-26T01:00:00+01:00", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := booksWith(t, tenant.Limit{Subject: ann, Money: 10 * dollar, Period: c.period})
			b.Spend(at(c.spent), annsJ1, 0, 10)
			if b.Allow(at(c.spent), annsJ1, 0, 0).Hold == "" {
				t.Error("used up, and nothing is held")
			}
			want := 0.0
			if c.anew {
				want = 10
			}
			same(t, "what is left", b.Allow(at(c.then), annsJ1, 0, 0).Money, want)
			b.Spend(at(c.then), annsJ1, 0, 1) // has ended by then, and is of the time before
			later := at(c.then).Add(time.Millisecond)
			b.Spend(later, annsJ1, 0, 2)
			same(t, "what is left after more", b.Allow(later, annsJ1, 0, 0).Money, max(want-2, 0))
		})
	}
}

func TestWhatRunsOverMidnightIsDivided(t *testing.T) {
	t.Parallel()
	midnight := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC) // of a Monday
	b := admit.New()
	b.SpendOver(midnight.Add(-3*time.Hour), midnight.Add(time.Hour), annsJ1, 4*3600, 8)
	b.SpendOver(midnight.Add(-time.Hour), midnight, annsJ1, 3600, 5) // told late
	b.SpendOver(midnight, midnight, annsJ1, 0, 3)
	b.SpendOver(midnight.Add(time.Hour), midnight.Add(time.Hour), annsJ1, 0, 1)
	want := map[tenant.Period]float64{tenant.Day: 3, tenant.Week: 3, tenant.Month: 17}
	hours := map[tenant.Period]float64{tenant.Day: 1, tenant.Week: 1, tenant.Month: 5}
	for _, total := range b.Totals() {
		same(t, "money by "+string(total.Period), total.Money, want[total.Period])
		same(t, "GPU-hours by "+string(total.Period), total.GPUSeconds/3600, hours[total.Period])
	}
	if n := len(b.Totals()); n != 6 {
		t.Errorf("there are %d totals", n)
	}
	b = admit.New()
	b.Spend(midnight, annsJ1, 0, 1)
	if all := b.Totals(); len(all) != 2 || all[0].Period != tenant.Month || all[1].Period != tenant.Month {
		t.Errorf("what ended at midnight, a week's end, counts for %+v", all)
	}
}

func TestTheClockDoesNotGoBack(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: ann, Money: 10 * dollar})
	b.Spend(noon, annsJ1, 0, 4)
	october := noon.AddDate(0, -1, 0)
	b.Spend(october, annsJ1, 0, 5) // counts for November
	same(t, "what is left", b.Allow(october, annsJ1, 0, 0).Money, 1)
	same(t, "what is left", b.Allow(noon, annsJ1, 0, 0).Money, 1)
	if s := b.Standing(october, ann); !s.Begin.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the period began on %s", s.Begin)
	}

	again := booksWith(t, tenant.Limit{Subject: ann, Money: 10 * dollar})
	if err := again.Load(b.Totals(), nil); err != nil {
		t.Fatal(err)
	}
	same(t, "what is left after a restart with a clock that is wrong", again.Allow(october, annsJ1, 0, 0).Money, 1)
	if s := again.Standing(october, ann); !s.Begin.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("after a restart the period began on %s", s.Begin)
	}
}

func TestSharesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: ann, GPUs: 2})
	shares := []float64{0.1, 1.0 / 3, 0.7, 0.2, 1.0 / 7}
	for range 1000 {
		for _, s := range shares {
			b.Use(noon, annsJ1, fleet.Local, s, s/3)
		}
		for _, s := range shares {
			b.Use(noon, annsJ1, fleet.Local, -s, -s/3)
		}
	}
	if a := b.Allow(noon, annsJ1, 0, 0); a.GPUs != 2 || a.Part != 0 {
		t.Errorf("%d and %g GPUs are left of 2 and nothing runs", a.GPUs, a.Part)
	}
	if s := b.Standing(noon, ann); s.Hourly != 0 || s.Local != 0 {
		t.Errorf("nothing runs and uses %+v", s)
	}
}

func TestBorrowed(t *testing.T) {
	t.Parallel()
	b := booksWith(t, tenant.Limit{Subject: ann, GPUs: 2, Borrow: true}, tenant.Limit{Subject: vision, GPUs: 8})
	elsewhere := admit.Who{Owner: "ann", Project: "speech"}
	same(t, "borrowed by nobody", b.Borrowed(admit.Who{}), 0)
	b.Use(noon, annsJ1, fleet.Local, 2, 0)
	same(t, "borrowed within the limit", b.Borrowed(annsJ1), 0)
	b.Use(noon, elsewhere, fleet.Reserved, 1.5, 0)
	same(t, "borrowed", b.Borrowed(annsJ1), 1.5)
	same(t, "borrowed by other jobs of hers", b.Borrowed(elsewhere), 1.5)
	if err := b.Put(tenant.Limit{Subject: vision, GPUs: 1}); err != nil { // lowered below what runs
		t.Fatal(err)
	}
	same(t, "borrowed by bob, whose project has too many", b.Borrowed(admit.Who{Owner: "bob", Project: "vision"}), 1)
	b.Remove(ann)
	same(t, "borrowed by who has no limit", b.Borrowed(elsewhere), 0)
}

func TestLoadRefusesWhatIsNoTotal(t *testing.T) {
	t.Parallel()
	for want, total := range map[string]admit.Total{
		"neither a user nor a project": {Subject: anyone, Period: tenant.Day, Begin: noon},
		"no period":                    {Subject: ann, Period: "year", Begin: noon},
	} {
		if err := admit.New().Load([]admit.Total{total}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", total, err)
		}
	}
	if err := admit.New().Load(nil, []admit.Told{{Subject: anyone}}); err == nil {
		t.Error("what was told to nobody was loaded")
	}
}
