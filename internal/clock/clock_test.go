package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"trainyard/internal/clock"
)

func TestEveryCallsAtOnceAndThenEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		clock.Every(ctx, clock.Wall{}, time.Minute, func(now time.Time) {
			at = append(at, now.Sub(began))
			if len(at) == 3 {
				cancel()
			}
		})

		if len(at) != 3 || at[0] != 0 || at[1] != time.Minute || at[2] != 2*time.Minute {
			t.Errorf("called after %v, want 0, 1 and 2 minutes", at)
		}
	})
}

func TestSleepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !clock.Sleep(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("slept for %s, want an hour", time.Since(began))
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		began = time.Now()
		if clock.Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("slept for %s, want a minute, cut short", time.Since(began))
		}
	})
}

func TestWallIsUTC(t *testing.T) {
	t.Parallel()

	if now := (clock.Wall{}).Now(); now.Location() != time.UTC {
		t.Errorf("the time is in %s, want UTC", now.Location())
	}
}
