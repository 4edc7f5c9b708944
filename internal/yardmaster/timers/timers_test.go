package timers_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/yardmaster/timers"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// TestWhatFallsDueComesInOrderOfTimeAndThenOfMaking compares timers with a list.
func TestWhatFallsDueComesInOrderOfTimeAndThenOfMaking(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type due struct {
			at     time.Time
			number int
			entry  *timers.Timer
		}

		var a timers.Timers
		var want []due

		happened := -1
		for number := range rapid.IntRange(0, 30).Draw(t, "entries") {
			at := start.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "at")) * time.Second)
			want = append(want, due{at, number, a.After(at, func(time.Time) { happened = number })})
		}

		for len(want) > 0 && rapid.Bool().Draw(t, "drop one") {
			i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
			a.Stop(want[i].entry)
			a.Stop(want[i].entry) // twice is no matter
			want = slices.Delete(want, i, i+1)
		}

		slices.SortStableFunc(want, func(x, z due) int { return x.at.Compare(z.at) })
		for len(want) > 0 {
			if next := a.Next(); !next.Equal(want[0].at) || a.Len() != len(want) {
				t.Fatalf("next is %s of %d, want %s of %d", next, a.Len(), want[0].at, len(want))
			}

			if _, ok := a.Due(want[0].at.Add(-1)); ok {
				t.Fatalf("something fell due before %s", want[0].at)
			}

			do, ok := a.Due(want[0].at)
			if !ok {
				t.Fatalf("nothing fell due at %s", want[0].at)
			}

			do(want[0].at)

			if happened != want[0].number {
				t.Fatalf("%d fell due, want %d", happened, want[0].number)
			}

			want = want[1:]
		}

		if _, ok := a.Due(start.Add(time.Hour)); ok || !a.Next().IsZero() {
			t.Fatal("something is left")
		}
	})
}
