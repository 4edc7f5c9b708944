package harvest

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/sim/trace"
)

func fixedOf(t testing.TB, l load, jobs int, length time.Duration) *fixed {
	t.Helper()

	list, err := trace.Collect(l.jobs(trace.FreeTrainOptions{Jobs: jobs, Seed: 1}))
	if err != nil {
		t.Fatal(err)
	}

	return newFixed(list, length)
}

// One job alone on all nodes: its start, then its speed.
func TestAFixedAssignmentPaysForStartsAndNothingElse(t *testing.T) {
	t.Parallel()

	f := fixedOf(t, loads()[0], 1, time.Hour)
	j := &f.jobs[0]

	want := math.Min(j.work, j.rates[8]*(time.Hour-j.at-j.start).Seconds())
	if got := f.samples([]int{8}); math.Abs(got-want) > 1e-6*want || got <= 0 {
		t.Errorf("one job on 8 nodes does %g samples in an hour, want %g", got, want)
	}
}

// Nobody who divides the nodes in another way, once and for all, does more.
func TestNoFixedAssignmentDoesMoreThanTheBest(t *testing.T) {
	t.Parallel()

	const nodes, parts = 30, 5

	for _, l := range loads()[:2] {
		f := fixedOf(t, l, 40, 12*time.Hour)
		sizes, most := f.best(nodes, parts)

		sum := 0
		for _, n := range sizes {
			sum += n
		}

		if sum != nodes {
			t.Errorf("%s: parts of %v are not %d nodes", l.name, sizes, nodes)
		}

		rapid.Check(t, func(t *rapid.T) {
			chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			other := make([]int, parts)
			for i := range other {
				other[i] = 1
			}

			for range nodes - parts {
				other[chance.IntN(parts)]++
			}

			// Identical jobs have one optimum; for a mix hill climbing may miss it by a little.
			if got := f.samples(other); got > most*1.01 {
				t.Errorf("%s: parts of %v do %g samples, the best %v %g", l.name, other, got, sizes, most)
			}
		})
	}
}
