package tenant_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/tenant"
)

func TestAffords(t *testing.T) {
	t.Parallel()
	money := func(m float64) tenant.Allowance {
		a := tenant.Unlimited()
		a.Money = m
		return a
	}
	noRent, held := tenant.Unlimited(), tenant.Unlimited()
	noRent.NoRent, held.Hold = true, "ann has used it up"
	for name, c := range map[string]struct {
		allowance   tenant.Allowance
		rent, hours float64
		want        bool
	}{
		"nothing is limited":             {tenant.Unlimited(), 100, 1000, true},
		"just enough":                    {money(20), 2, 10, true},
		"not enough":                     {money(19.99), 2, 10, false},
		"unknown length, something left": {money(0.01), 2, 0, true},
		"unknown length, nothing left":   {money(0), 2, 0, false},
		"no rent, nothing left":          {money(0), 0, 10, true},
		"only where no rent is paid":     {noRent, 0.01, 1, false},
		"and there":                      {noRent, 0, math.Inf(1), true},
		"held":                           {held, 0, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.allowance.Affords(c.rent, c.hours); got != c.want {
				t.Errorf("affords $%g for %g hours: %t", c.rent, c.hours, got)
			}
		})
	}
}

// TestPeriodsFollowEachOther walks through four years, a leap day among them.
func TestPeriodsFollowEachOther(t *testing.T) {
	t.Parallel()
	for _, p := range tenant.Periods() {
		begin := p.Begin(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		for begin.Year() < 2030 {
			end := p.End(begin)
			if last := end.Add(-1); !p.Begin(last).Equal(begin) || !p.End(last).Equal(end) || !p.Begin(end).Equal(end) {
				t.Fatalf("the %s of %s ends on %s", p, begin, end)
			}
			if h, m, s := end.Clock(); h+m+s != 0 || end.Location() != time.UTC {
				t.Fatalf("the %s of %s ends at %s", p, begin, end)
			}
			switch days := end.Sub(begin).Hours() / 24; {
			case p == tenant.Day && days != 1, p == tenant.Week && (days != 7 || begin.Weekday() != time.Monday),
				p == tenant.Month && (days < 28 || days > 31 || begin.Day() != 1):
				t.Fatalf("the %s of %s has %g days", p, begin, days)
			}
			begin = end
		}
	}
}
