package demo

import (
	"testing"
	"time"
)

// The simulator takes jobs only in the order of their submission. What is drawn depends on when the month began, so
// many beginnings are tried.
func TestJobsAreSubmittedInOrder(t *testing.T) {
	t.Parallel()

	sweeps := 0

	for hour := range 200 {
		w := newWorkload(time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC), 1)
		last := time.Duration(0)

		for w.at < 30*24*time.Hour {
			w.ready = nil
			w.draw()

			if len(w.ready) > 1 {
				sweeps++
			}

			for _, o := range w.ready {
				if o.at < last {
					t.Fatalf("beginning in hour %d: %s%s at %s after %s", hour, o.name, o.suffix, o.at, last)
				}

				last = o.at
			}
		}
	}

	if sweeps == 0 {
		t.Error("no sweep was drawn")
	}
}
