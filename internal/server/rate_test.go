package server

import (
	"testing"
	"time"
)

// stoodClock stands still unless it is moved.
type stoodClock struct{ now time.Time }

func (c *stoodClock) Now() time.Time { return c.now }

func TestTheLimiterLetsABurstThroughAndThenTheRate(t *testing.T) {
	t.Parallel()
	clk := &stoodClock{now: time.Unix(1000, 0)}
	l := newRateLimiter(10, 5, clk)
	take := func(key string, tries int) int {
		let := 0
		for range tries {
			if l.allow(key) {
				let++
			}
		}

		return let
	}

	for i, step := range []struct {
		wait time.Duration
		key  string
		want int // of 100 tries
	}{
		{0, "a", 5}, {0, "a", 0}, {0, "b", 5}, // each has a bucket of its own
		{99 * time.Millisecond, "a", 0}, {time.Millisecond, "a", 1}, {300 * time.Millisecond, "a", 3},
		{time.Hour, "a", 5},                           // never more than a burst
		{-time.Minute, "a", 0}, {time.Minute, "a", 0}, // a clock that is set back gives nothing away
		{time.Second, "a", 5},
	} {
		clk.now = clk.now.Add(step.wait)

		if got := take(step.key, 100); got != step.want {
			t.Errorf("step %d: %d were let through, want %d", i, got, step.want)
		}
	}

	l.sweep()

	if len(l.keys) != 1 {
		t.Errorf("it remembers %d keys; that of b is full again", len(l.keys))
	}

	clk.now = clk.now.Add(time.Hour)
	l.sweep()

	if len(l.keys) != 0 {
		t.Errorf("it remembers %d keys", len(l.keys))
	}

	if free := newRateLimiter(0, 0, clk); !free.allow("x") || len(free.keys) != 0 {
		t.Error("no limit is one")
	}
}
