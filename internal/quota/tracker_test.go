package quota_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

var (
	ann    = tenant.Subject{User: "ann"}
	vision = tenant.Subject{Project: "vision"}
	anyone = tenant.Subject{Each: "user"}
	anyPro = tenant.Subject{Each: "project"}
	annsJ1 = quota.Payer{Owner: "ann", Project: "vision", Job: "j1"}
	noon   = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC) // a Sunday
)

const dollar job.Money = 1_000_000

// trackerWith returns tracker with these limits.
func trackerWith(t *testing.T, limits ...tenant.Quota) *quota.Tracker {
	t.Helper()
	b := quota.New()
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
	b := trackerWith(
		t,
		tenant.Quota{Subject: ann, GPUs: 4},
		tenant.Quota{Subject: anyone, Budget: 5 * dollar, OnExceeded: tenant.ExceededStop, Period: tenant.Day, WarnAt: 0.5},
		tenant.Quota{Subject: vision, Nodes: 2},
		tenant.Quota{Subject: tenant.Subject{User: "bob"}, GPUs: 1},
	)

	if err := b.Put(tenant.Quota{Subject: tenant.Subject{User: "bob"}, Removed: true}); err != nil {
		t.Fatal(err)
	}

	want := []tenant.Quota{
		{Subject: anyone, Budget: 5 * dollar, OnExceeded: tenant.ExceededStop, Period: tenant.Day, WarnAt: 0.5},
		{Subject: vision, Nodes: 2, Period: tenant.Month, OnExceeded: tenant.ExceededAsk, WarnAt: 0.8},
		{Subject: ann, GPUs: 4, Period: tenant.Month, OnExceeded: tenant.ExceededAsk, WarnAt: 0.8},
	}

	if diff := cmp.Diff(want, b.Quotas()); diff != "" {
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

	if !b.Any() || quota.New().Any() {
		t.Error("there is a limit if one was entered")
	}

	for w, want := range map[quota.Payer]bool{{Owner: "bob"}: true, {Project: "vision"}: true, {Project: "speech"}: false, {}: false} {
		if got := b.Binds(w); got != want {
			t.Errorf("a limit binds %+v: %t", w, got)
		}
	}
}

func TestBadLimitsAreRefusedByField(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		limit tenant.Quota
		field string
	}{
		"nobody":            {tenant.Quota{}, "subject"},
		"two":               {tenant.Quota{Subject: tenant.Subject{User: "ann", Project: "vision"}}, "subject"},
		"each node":         {tenant.Quota{Subject: tenant.Subject{Each: "node"}}, "subject"},
		"no name":           {tenant.Quota{Subject: tenant.Subject{User: "Ann!"}}, "subject"},
		"negative GPUs":     {tenant.Quota{Subject: ann, GPUs: -1}, "gpus"},
		"too many GPUs":     {tenant.Quota{Subject: ann, GPUs: math.MaxInt}, "gpus"},
		"negative nodes":    {tenant.Quota{Subject: ann, Nodes: -1}, "nodes"},
		"no number":         {tenant.Quota{Subject: ann, GPUHours: math.NaN()}, "gpu_hours"},
		"endless GPU-hours": {tenant.Quota{Subject: ann, GPUHours: math.Inf(1)}, "gpu_hours"},
		"negative money":    {tenant.Quota{Subject: ann, Budget: -1}, "money"},
		"too much money":    {tenant.Quota{Subject: ann, Budget: math.MaxInt64}, "money"},
		"a year":            {tenant.Quota{Subject: ann, Period: "year"}, "period"},
		"panic":             {tenant.Quota{Subject: ann, OnExceeded: "panic"}, "at"},
		"warned too late":   {tenant.Quota{Subject: ann, WarnAt: 1.1}, "warn_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := quota.New()

			var f *fault.Error
			if err := b.Put(c.limit); !errors.As(err, &f) || f.Field != c.field || f.Code != "bad_quota" ||
				f.Kind != fault.Invalid {
				t.Errorf("answered with %v, want field %s", err, c.field)
			}

			if len(b.Quotas()) > 0 {
				t.Error("it was entered")
			}
		})
	}
}

func TestAllowTakesTheTightest(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		limits []tenant.Quota
		before func(*quota.Tracker)
		budget job.Money
		spent  money.Amount
		want   func(*tenant.Allowance)
	}{
		"nothing is limited": {},
		"an own limit wins over that for each, even if it is wider": {
			limits: []tenant.Quota{{Subject: anyone, GPUs: 2}, {Subject: ann, GPUs: 8}},
			want: func(a *tenant.Allowance) {
				a.GPUs = 8
				a.Ceiling = 8
				a.LimitedBy.GPUs = "ann may use 8 GPUs at a time"
			},
		},
		"an own limit without numbers frees of that for each": {
			limits: []tenant.Quota{{Subject: anyone, GPUs: 2}, {Subject: ann}},
		},
		"user and project both bind": {
			limits: []tenant.Quota{{Subject: anyone, GPUs: 4, Nodes: 3}, {Subject: anyPro, GPUs: 6, Nodes: 1}},
			before: func(b *quota.Tracker) {
				b.Use(noon, annsJ1, fleet.Local, 1, 0)
				b.Use(noon, quota.Payer{Owner: "bob", Project: "vision", Job: "j2"}, fleet.OnDemand, 3.5, 9)
				b.Nodes(noon, quota.Payer{Owner: "bob", Project: "vision"}, 1)
			},
			want: func(a *tenant.Allowance) {
				a.GPUs = 1
				a.Ceiling = 1
				a.Part = 0.5
				a.LimitedBy.GPUs = "each project may use 6 GPUs at a time"
				a.Nodes, a.LimitedBy.Nodes = 0, "the quota of 1 on-demand node for each project"
				a.FirstLimit = a.LimitedBy.Nodes
			},
		},
		"of equal limits the user's is named": {
			limits: []tenant.Quota{{Subject: ann, GPUs: 4}, {Subject: vision, GPUs: 4}},
			want: func(a *tenant.Allowance) {
				a.GPUs = 4
				a.Ceiling = 4
				a.LimitedBy.GPUs = "ann may use 4 GPUs at a time"
			},
		},
		"GPUs of a user may be borrowed up to the project's limit": {
			limits: []tenant.Quota{{Subject: ann, GPUs: 2, Borrow: true}, {Subject: vision, GPUs: 8}},
			before: func(b *quota.Tracker) { b.Use(noon, annsJ1, fleet.Local, 3, 0) },
			want: func(a *tenant.Allowance) {
				a.GPUs = 0
				a.Ceiling = 5
				a.Borrow = true
				a.LimitedBy.GPUs = "ann may use 2 GPUs at a time"
			},
		},
		"nothing is borrowed beyond a firm limit": {
			limits: []tenant.Quota{{Subject: ann, GPUs: 2}, {Subject: vision, GPUs: 8, Borrow: true}},
			want: func(a *tenant.Allowance) {
				a.GPUs = 2
				a.Ceiling = 2
				a.LimitedBy.GPUs = "ann may use 2 GPUs at a time"
			},
		},
		"GPUs at once are firm even where money only warns": {
			limits: []tenant.Quota{{Subject: ann, GPUs: 1, Budget: dollar, GPUHours: 1, OnExceeded: tenant.ExceededWarn}},
			before: func(b *quota.Tracker) {
				b.Spend(noon, noon, annsJ1, 7200, 2)
				b.Use(noon, annsJ1, fleet.Local, 1, 0)
			},
			want: func(a *tenant.Allowance) {
				a.GPUs = 0
				a.Ceiling = 0
				a.LimitedBy.GPUs = "ann may use 1 GPU at a time"
			},
		},
		"what is left of money and GPU-hours": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, Period: tenant.Week}, {Subject: vision, GPUHours: 100.5}},
			before: func(b *quota.Tracker) { b.Spend(noon, noon, annsJ1, 1800, 10.25) },
			want: func(a *tenant.Allowance) {
				a.Money, a.LimitedBy.Money = 29.75, "ann's budget of $40.00 per week"
				a.GPUHours, a.LimitedBy.GPUHours = 100, "project vision's quota of 100.5 GPU-hours per month"
			},
		},
		"the job's own budget": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar}},
			budget: 12 * dollar, spent: 10,
			want: func(a *tenant.Allowance) { a.Money, a.LimitedBy.Money = 2, "the job's budget of $12.00" },
		},
		"a used up budget holds the job": {
			budget: 12 * dollar, spent: 12.5,
			want: func(a *tenant.Allowance) {
				a.Money, a.LimitedBy.Money = 0, "the job's budget of $12.00"
				a.HoldReason = "j1 has used $12.50 of its budget of $12.00; submit it again with a higher budget to continue"
				a.Hold = "job_budget"
			},
		},
		"used up money leaves what costs no rent": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, OnExceeded: tenant.ExceededDowngrade},
				{Subject: vision, Budget: 100 * dollar}},
			before: func(b *quota.Tracker) { b.Spend(noon, noon, annsJ1, 0, 40) },
			want: func(a *tenant.Allowance) {
				a.Money = 60
				a.NoProvisioning = true
				a.LimitedBy.Money = "ann's budget of $40.00 per month"
			},
		},
		"so do used up GPU-hours": {
			limits: []tenant.Quota{{Subject: ann, GPUHours: 1, OnExceeded: tenant.ExceededDowngrade}},
			before: func(b *quota.Tracker) { b.Spend(noon, noon, annsJ1, 3600, 0) },
			want: func(a *tenant.Allowance) {
				a.NoProvisioning, a.LimitedBy.Money = true, "ann's quota of 1 GPU-hour per month"
			},
		},
		"what other jobs will spend is not there any more": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar}},
			before: func(b *quota.Tracker) {
				other := quota.Payer{Owner: "ann", Job: "j2"}
				b.Use(noon, annsJ1, fleet.OnDemand, 1, 2)
				b.Commit(annsJ1, quota.Commitment{RemainingCost: 20, RemainingGPUHours: -1})
				b.Use(noon, other, fleet.OnDemand, 1, 2)
				b.Commit(other, quota.Commitment{RemainingCost: 15, RemainingGPUHours: -1})
				b.Spend(noon, noon, other, 3600, 2)
				waits := quota.Payer{Owner: "ann", Job: "j3"} // pays nothing yet
				b.Commit(waits, quota.Commitment{RemainingCost: 15, RemainingGPUHours: -1})
			},
			want: func(a *tenant.Allowance) { a.Money, a.LimitedBy.Money = 40-2-13, "ann's budget of $40.00 per month" },
		},
		"but only as much of it as falls into the period": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, Period: tenant.Day}},
			before: func(b *quota.Tracker) {
				other := quota.Payer{Owner: "ann", Job: "j2"}
				b.Use(noon, other, fleet.OnDemand, 1, 2)
				b.Commit(other, quota.Commitment{RemainingCost: 1000, RemainingGPUHours: -1})
			},
			want: func(a *tenant.Allowance) { a.Money, a.LimitedBy.Money = 40-12*2, "ann's budget of $40.00 per day" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := trackerWith(t, c.limits...)
			if c.before != nil {
				c.before(b)
			}

			want := tenant.Unlimited()
			if c.want != nil {
				c.want(&want)
			}

			if want.FirstLimit == "" {
				for _, words := range []string{want.LimitedBy.GPUs, want.LimitedBy.Nodes, want.LimitedBy.Money,
					want.LimitedBy.GPUHours} {
					if want.FirstLimit == "" {
						want.FirstLimit = words
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
		limits []tenant.Quota
		now    time.Time
		hours  float64
		cost   money.Amount
		want   string
	}{
		"money by month": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar}}, cost: 40.12,
			want: "ann has used $40.12 of $40.00 this month; resets on Dec 1; an admin can raise it: trainyard quota set " +
				"user/ann --budget 60",
		},
		"exactly used up": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, OnExceeded: tenant.ExceededStop}}, cost: 40,
			want: "ann has used $40.00 of $40.00 this month; resets on Dec 1; an admin can raise it: trainyard quota set " +
				"user/ann --budget 60",
		},
		"a cent is left":       {limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar}}, cost: 39.99},
		"a soft limit":         {limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, OnExceeded: tenant.ExceededWarn}}, cost: 400},
		"one that leaves rest": {limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, OnExceeded: tenant.ExceededDowngrade}}, cost: 400},
		"the limit for each is raised for the one": {
			limits: []tenant.Quota{{Subject: anyone, GPUHours: 12.5, Period: tenant.Week}}, hours: 40.26,
			want: "ann has used 40.3 of 12.5 GPU-hours this week; resets on Nov 16; an admin can raise it: trainyard quota " +
				"set user/ann --gpu-hours 61",
		},
		"a project's, by day": {
			limits: []tenant.Quota{{Subject: vision, Budget: dollar / 20, Period: tenant.Day}}, cost: 0.0612,
			want: "project vision has used $0.06 of $0.05 today; resets on Nov 16; an admin can raise it: trainyard quota " +
				"set project/vision --budget 0.075",
		},
		"the next year is named": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar}}, now: time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC),
			cost: 50,
			want: "ann has used $50.00 of $40.00 this month; resets on Jan 1 2027; an admin can raise it: trainyard quota " +
				"set user/ann --budget 60",
		},
		"and for the whole of a week in which it begins": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, Period: tenant.Week}},
			now:    time.Date(2026, 12, 28, 12, 0, 0, 0, time.UTC), cost: 50,
			want: "ann has used $50.00 of $40.00 this week; resets on Jan 4 2027; an admin can raise it: trainyard quota set " +
				"user/ann --budget 60",
		},
		"of two the one that lasts longer": {
			limits: []tenant.Quota{{Subject: ann, Budget: 40 * dollar, Period: tenant.Day}, {Subject: vision, GPUHours: 1}},
			cost:   40, hours: 1,
			want: "project vision has used 1 of 1 GPU-hour this month; resets on Dec 1; an admin can raise it: trainyard " +
				"quota set project/vision --gpu-hours 1.5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := trackerWith(t, c.limits...)

			now := noon
			if !c.now.IsZero() {
				now = c.now
			}

			b.Spend(now, now, annsJ1, c.hours*3600, c.cost)

			for range 2 { // the second time it is known
				if got := b.Allow(now, annsJ1, 0, 0).HoldReason; got != c.want {
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
			b := trackerWith(t, tenant.Quota{Subject: ann, Budget: 10 * dollar, Period: c.period})
			b.Spend(at(c.spent), at(c.spent), annsJ1, 0, 10)

			if b.Allow(at(c.spent), annsJ1, 0, 0).HoldReason == "" {
				t.Error("used up, and nothing is held")
			}

			want := 0.0
			if c.anew {
				want = 10
			}

			same(t, "what is left", float64(b.Allow(at(c.then), annsJ1, 0, 0).Money), want)
			b.Spend(at(c.then), at(c.then), annsJ1, 0, 1) // has ended by then, and is of the time before
			later := at(c.then).Add(time.Millisecond)
			b.Spend(later, later, annsJ1, 0, 2)
			same(t, "what is left after more", float64(b.Allow(later, annsJ1, 0, 0).Money), max(want-2, 0))
		})
	}
}

func TestWhatRunsOverMidnightIsDivided(t *testing.T) {
	t.Parallel()
	midnight := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC) // of a Monday
	b := quota.New()
	b.Spend(midnight.Add(-3*time.Hour), midnight.Add(time.Hour), annsJ1, 4*3600, 8)
	b.Spend(midnight.Add(-time.Hour), midnight, annsJ1, 3600, 5) // told late
	b.Spend(midnight, midnight, annsJ1, 0, 3)
	b.Spend(midnight.Add(time.Hour), midnight.Add(time.Hour), annsJ1, 0, 1)
	want := map[tenant.Period]float64{tenant.Day: 3, tenant.Week: 3, tenant.Month: 17}

	hours := map[tenant.Period]float64{tenant.Day: 1, tenant.Week: 1, tenant.Month: 5}
	for _, total := range b.Usage() {
		same(t, "money by "+string(total.Period), total.Cost, want[total.Period])
		same(t, "GPU-hours by "+string(total.Period), total.GPUSeconds/3600, hours[total.Period])
	}

	if n := len(b.Usage()); n != 6 {
		t.Errorf("there are %d totals", n)
	}

	b = quota.New()
	b.Spend(midnight, midnight, annsJ1, 0, 1)

	if all := b.Usage(); len(all) != 2 || all[0].Period != tenant.Month || all[1].Period != tenant.Month {
		t.Errorf("what ended at midnight, a week's end, counts for %+v", all)
	}
}

func TestTheClockDoesNotGoBack(t *testing.T) {
	t.Parallel()
	b := trackerWith(t, tenant.Quota{Subject: ann, Budget: 10 * dollar})
	b.Spend(noon, noon, annsJ1, 0, 4)
	october := noon.AddDate(0, -1, 0)
	same(t, "what is left", float64(b.Allow(october, annsJ1, 0, 0).Money), 6)
	same(t, "what is left", float64(b.Allow(noon, annsJ1, 0, 0).Money), 6)

	if s := b.Status(october, ann); !s.Begin.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the period began on %s", s.Begin)
	}

	again := trackerWith(t, tenant.Quota{Subject: ann, Budget: 10 * dollar})
	if err := again.Load(b.Usage(), nil); err != nil {
		t.Fatal(err)
	}

	same(t, "what is left after a restart with a clock that is wrong", float64(again.Allow(october, annsJ1, 0, 0).Money), 6)

	if s := again.Status(october, ann); !s.Begin.Equal(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("after a restart the period began on %s", s.Begin)
	}
}

func TestSharesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	b := trackerWith(t, tenant.Quota{Subject: ann, GPUs: 2})

	shares := []float64{0.1, 1.0 / 3, 0.7, 0.2, 1.0 / 7}
	for range 1000 {
		for _, s := range shares {
			b.Use(noon, annsJ1, fleet.Local, s, money.PerHour(s/3))
		}

		for _, s := range shares {
			b.Use(noon, annsJ1, fleet.Local, -s, money.PerHour(-s/3))
		}
	}

	if a := b.Allow(noon, annsJ1, 0, 0); a.GPUs != 2 || a.Part != 0 {
		t.Errorf("%d and %g GPUs are left of 2 and nothing runs", a.GPUs, a.Part)
	}

	if s := b.Status(noon, ann); s.Hourly != 0 || s.Local != 0 {
		t.Errorf("nothing runs and uses %+v", s)
	}
}

func TestBorrowed(t *testing.T) {
	t.Parallel()
	b := trackerWith(t, tenant.Quota{Subject: ann, GPUs: 2, Borrow: true}, tenant.Quota{Subject: vision, GPUs: 8})
	elsewhere := quota.Payer{Owner: "ann", Project: "speech"}
	same(t, "borrowed by nobody", b.Borrowed(quota.Payer{}), 0)
	b.Use(noon, annsJ1, fleet.Local, 2, 0)
	same(t, "borrowed within the limit", b.Borrowed(annsJ1), 0)
	b.Use(noon, elsewhere, fleet.Reserved, 1.5, 0)
	same(t, "borrowed", b.Borrowed(annsJ1), 1.5)
	same(t, "borrowed by other jobs of hers", b.Borrowed(elsewhere), 1.5)

	if err := b.Put(tenant.Quota{Subject: vision, GPUs: 1}); err != nil { // lowered below what runs
		t.Fatal(err)
	}

	same(t, "borrowed by bob, whose project has too many", b.Borrowed(quota.Payer{Owner: "bob", Project: "vision"}), 1)
	b.Remove(ann)
	same(t, "borrowed by who has no limit", b.Borrowed(elsewhere), 0)
}

func TestLoadRefusesBadUsage(t *testing.T) {
	t.Parallel()

	for want, total := range map[string]quota.Usage{
		"neither a user nor a project": {Subject: anyone, Period: tenant.Day, Begin: noon},
		"unknown period":               {Subject: ann, Period: "year", Begin: noon},
	} {
		if err := quota.New().Load([]quota.Usage{total}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", total, err)
		}
	}

	if err := quota.New().Load(nil, []quota.Notice{{Subject: anyone}}); err == nil {
		t.Error("what was told to nobody was loaded")
	}
}

// TestReservedGPUsCountAsUsedToOthers: they are kept for one job, until it starts or has ended.
func TestReservedGPUsCountAsUsedToOthers(t *testing.T) {
	t.Parallel()

	b := trackerWith(t, tenant.Quota{Subject: tenant.Subject{User: "ada"}, GPUs: 4})
	one := quota.Payer{Owner: "ada", Project: "vision", Job: "j1"}
	other := quota.Payer{Owner: "ada", Job: "j2"}

	left := func(want int, w quota.Payer) {
		t.Helper()
		if got := b.Allow(noon, w, 0, 0).Ceiling; got != want {
			t.Errorf("%d GPUs are left for %s, want %d", got, w.Job, want)
		}
	}

	b.Reserve(one, 3)
	left(4, one)
	left(1, other)
	left(1, quota.Payer{Owner: "ada"})

	b.Reserve(one, 2)
	left(2, other)

	b.Reserve(one, 0)
	left(4, other)

	b.Reserve(one, 3)
	b.Done(one)
	left(4, other)

	if got := b.MaxGPUs(one); got != 4 {
		t.Errorf("at most %d GPUs at a time, want 4", got)
	}
	if got := b.MaxGPUs(quota.Payer{Owner: "bob"}); got != tenant.NoLimit {
		t.Errorf("at most %d GPUs at a time without a quota", got)
	}
}
