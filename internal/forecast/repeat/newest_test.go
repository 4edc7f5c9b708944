package repeat

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestNewestOutcomes compares with the plain way: leave out all that are too late, and take the last of the others.
func TestNewestOutcomes(t *testing.T) {
	t.Parallel()

	noon := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

	rapid.Check(t, func(t *rapid.T) {
		known := make([]outcome, rapid.IntRange(0, 2*maxErrors).Draw(t, "outcomes"))
		for i := range known {
			known[i] = outcome{at: noon.Add(time.Duration(i) * time.Second), log: float64(i)}
		}

		for range rapid.IntRange(0, 5).Draw(t, "jobs added later") { // out of order
			at := noon.Add(time.Duration(rapid.IntRange(0, len(known)).Draw(t, "end")) * time.Second)
			known = append(known, outcome{at: at, log: float64(len(known))})
		}

		before := time.Time{}
		if rapid.Bool().Draw(t, "bounded") {
			before = noon.Add(time.Duration(rapid.IntRange(0, len(known)+1).Draw(t, "before")) * time.Second)
		}

		want := slices.Clone(known)
		if !before.IsZero() {
			want = slices.DeleteFunc(want, func(o outcome) bool { return !o.at.Before(before) })
		}

		want = want[max(len(want)-maxErrors, 0):]

		if got := newest(known, before); !slices.Equal(got, want) {
			t.Errorf("%d outcomes, want %d", len(got), len(want))
		}
	})
}
