package yardmaster_test

import (
	"testing"
	"time"

	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/relocate"
	"trainyard/internal/yardmaster"
)

// TestThreeForecastsInARow: the owner of a job that is too slow learns of it after three forecasts in a row that say
// so, also while no job is queued, and once.
func TestThreeForecastsInARow(t *testing.T) {
	t.Parallel()

	y := newYardOf(t, yardmaster.Defaults(relocate.Wrap(ordered.FIFO{}, relocate.Standard())))
	y.node("a", 2)

	hours := spec(2)
	hours.Expect = job.Duration(4 * time.Hour)
	j := y.submit("alice", hours)
	y.round()
	y.running(j, 0)

	got := 0

	const late, good = 20 * time.Hour, 3 * time.Hour

	for i, c := range []struct {
		left time.Duration
		want int // events so far
	}{
		{late, 0}, {late, 0}, {good, 0}, // not three in a row
		{late, 0}, {late, 0}, {late, 1}, {late, 1}, {good, 1}, {late, 1}, {late, 1}, {late, 1},
	} {
		y.pass(time.Minute, "a")
		y.foresee(j, c.left, job.BasisCurve)
		y.round()

		for _, e := range y.Take().Events {
			if e.Kind == "job.slow" {
				got++
			}
		}

		if got != c.want {
			t.Fatalf("after forecast %d there are %d events, want %d", i+1, got, c.want)
		}
	}
}
