package fleet_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/fleet"
)

func TestClockOffsetAllowsForTheRoundTrip(t *testing.T) {
	t.Parallel()

	server := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)

	// The server read its clock somewhere in the round trip, so a clock that is right is never taken for a wrong one.
	for _, roundTrip := range []time.Duration{0, time.Millisecond, time.Second, time.Minute} {
		for _, before := range []float64{0, 0.3, 1} {
			sent := server.Add(-time.Duration(before * float64(roundTrip)))
			o := fleet.MeasureClock(sent, roundTrip, server)

			if got := o.Proven(); got != 0 {
				t.Errorf("a clock that is right is ahead by %s after a round trip of %s", got, roundTrip)
			}
		}
	}

	for _, ahead := range []time.Duration{5 * time.Second, -5 * time.Second, time.Hour} {
		o := fleet.MeasureClock(server.Add(ahead-50*time.Millisecond), 100*time.Millisecond, server)
		if got := o.Proven(); (ahead-got).Abs() > 60*time.Millisecond || got.Abs() > ahead.Abs() {
			t.Errorf("a clock that is ahead by %s is ahead by %s", ahead, got)
		}
	}
}

func TestAnyClockOffsetIsATime(t *testing.T) {
	t.Parallel()

	for _, ahead := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64} {
		for _, within := range []int64{math.MinInt64, 0, 1, math.MaxInt64} {
			o := fleet.ClockOffset{Ahead: ahead, Within: within}
			if got := o.Proven(); got > 0 != (ahead > 0 && within <= 0) && got != 0 && ahead < 0 == (got > 0) {
				t.Errorf("%+v is %s", o, got)
			}
		}
	}
}
