package tenant_test

import (
	"testing"
	"time"

	"trainyard/internal/tenant"
)

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
