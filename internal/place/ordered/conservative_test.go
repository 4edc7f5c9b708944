package ordered_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/placetest"
)

func neverStop() bool { return false }

// TestConservativeNeverDelaysAnybody lets clusters run with run times that are
// known and exact: no job starts later than the first time at which it was expected to.
func TestConservativeNeverDelaysAnybody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := placetest.DrawCluster(t)
		w := placetest.NewWorld(c, ordered.Conservative{})
		given := map[id.Job]time.Time{}
		w.After = func(p place.Plan) {
			for _, s := range p.Starts {
				if at, known := given[s.Item.Job]; known && c.Now.After(at) {
					t.Fatalf("%s was to start at %s and does at %s", s.Item.Job, at, c.Now)
				}
			}

			for j, at := range ordered.ExpectStarts(c.View(), math.MaxInt, neverStop) {
				if first, known := given[j]; !known {
					given[j] = at
				} else if at.After(first) {
					t.Fatalf("%s was to start at %s, and now is to at %s", j, first, at)
				}
			}
		}

		for range rapid.IntRange(2, 10).Draw(t, "jobs") {
			j := placetest.DrawJob(t, true)
			j.Spec.GPUs.Max = j.Spec.GPUs.Min // a range may take more than it was given a time for
			c.Add(j)

			if rapid.Bool().Draw(t, "later") {
				w.Round(t)
				w.Step(t, c.Now.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "minutes"))*time.Minute))
			}
		}

		w.Live(t)

		for _, it := range c.Queue.Items() {
			if placetest.Feasible(c.Table.Rooms(), it.Shape.Need) {
				t.Fatalf("%s never ran", it.Job)
			}
		}
	})
}
