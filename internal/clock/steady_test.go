package clock_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/clock"
)

// machine has two clocks that a test moves.
type machine struct {
	wall    time.Time
	running time.Duration
}

func newMachine() *machine {
	return &machine{wall: time.Date(2026, 11, 16, 3, 0, 0, 0, time.UTC), running: time.Hour}
}

func (m *machine) source() clock.Source {
	return clock.Source{
		Wall:    func() time.Time { return m.wall },
		Running: func() time.Duration { return m.running },
	}
}

// pass lets time pass on both clocks.
func (m *machine) pass(d time.Duration) {
	m.wall, m.running = m.wall.Add(d), m.running+d
}

// near reports whether a steady clock may have shown that so much time passed when really d did.
func near(shown, d time.Duration) bool {
	return (shown - d).Abs() <= d/clock.Slew+time.Nanosecond
}

func TestStepsOfTheWallClockChangeNoDuration(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine()
		clk := clock.SteadyOf(m.source())
		first, began := clk.Now(), m.running

		hours := int64(30 * time.Hour)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := clk.Now()
			m.wall = m.wall.Add(time.Duration(rapid.Int64Range(-hours, hours).Draw(t, "step")))

			if now := clk.Now(); !now.Equal(before) {
				t.Fatalf("the step moved the clock from %s to %s", before, now)
			}

			d := time.Duration(rapid.Int64Range(0, hours).Draw(t, "pass"))
			m.pass(d)

			now := clk.Now()
			if shown := now.Sub(before); shown < 0 || !near(shown, d) {
				t.Fatalf("%s passed, the clock shows %s", d, shown)
			}
			if shown := now.Sub(first); !near(shown, m.running-began) {
				t.Fatalf("%s passed in all, the clock shows %s", m.running-began, shown)
			}
		}
	})
}

func TestTheClockFollowsTheWallClockSlowlyAndStopsThere(t *testing.T) {
	t.Parallel()

	for _, step := range []time.Duration{time.Second, -time.Second, 90 * time.Second, -90 * time.Second} {
		m := newMachine()
		clk := clock.SteadyOf(m.source())
		m.wall = m.wall.Add(step)

		if behind := clk.Behind(); behind != step {
			t.Errorf("after a step of %s the clock is %s behind", step, behind)
		}

		// Asked often or rarely, it gets there in the same time.
		for _, pause := range []time.Duration{time.Second, 7 * time.Second, time.Minute} {
			before := clk.Behind()
			for range 10 {
				m.pass(pause)
				clk.Now()
			}

			after := clk.Behind()
			if made := (before - after).Abs(); after.Abs() > before.Abs() || made > 10*pause/clock.Slew {
				t.Errorf("step %s: in %s the difference went from %s to %s", step, 10*pause, before, after)
			}
		}

		m.pass(step.Abs() * clock.Slew)
		clk.Now()
		m.pass(step.Abs() * clock.Slew)

		if behind := clk.Behind(); behind != 0 {
			t.Errorf("step %s: %s are left, want none", step, behind)
		}
	}
}

// A question every 10 ms, as the server's loop asks, must not lose the slew to rounding.
func TestOftenAskedTheClockFollowsToo(t *testing.T) {
	t.Parallel()
	m := newMachine()
	clk := clock.SteadyOf(m.source())
	m.wall = m.wall.Add(-100 * time.Millisecond)

	last := clk.Now()
	for range 25_000 { // 250 s
		m.pass(10 * time.Millisecond)

		now := clk.Now()
		if !now.After(last) {
			t.Fatalf("%s is followed by %s", last, now)
		}

		last = now
	}

	if behind := clk.Behind(); behind.Abs() > time.Millisecond {
		t.Errorf("the difference is still %s", behind)
	}
}

func TestAdvanceOnlyGoesForward(t *testing.T) {
	t.Parallel()
	m := newMachine()
	clk := clock.SteadyOf(m.source())
	now := clk.Now()

	if ahead := clk.Advance(now.Add(-time.Hour)); ahead != 0 || !clk.Now().Equal(now) {
		t.Errorf("an hour back: %s, and now %s", ahead, clk.Now())
	}
	if ahead := clk.Advance(time.Time{}); ahead != 0 || !clk.Now().Equal(now) {
		t.Errorf("an empty store: %s, and now %s", ahead, clk.Now())
	}
	if ahead := clk.Advance(now.Add(3 * time.Hour)); ahead != 3*time.Hour || !clk.Now().Equal(now.Add(3*time.Hour)) {
		t.Errorf("three hours on: %s, and now %s", ahead, clk.Now())
	}

	m.pass(time.Hour)

	if shown := clk.Now().Sub(now) - 3*time.Hour; !near(shown, time.Hour) {
		t.Errorf("an hour later %s have passed", shown)
	}
}

func TestTheMachinesSteadyClock(t *testing.T) {
	t.Parallel()
	clk := clock.NewSteady()
	before := clk.Now()

	if behind := clk.Behind(); behind.Abs() > time.Minute {
		t.Errorf("it starts %s behind the wall clock", behind)
	}
	if before.Location() != time.UTC || before != before.Round(0) {
		t.Errorf("%#v is not in UTC or has a monotonic reading", before)
	}

	for range 1000 {
		now := clk.Now()
		if now.Before(before) {
			t.Fatalf("%s is followed by %s", before, now)
		}

		before = now
	}
}

func BenchmarkSteady(b *testing.B) {
	clk := clock.NewSteady()
	for b.Loop() {
		clk.Now()
	}
}
