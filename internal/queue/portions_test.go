package queue_test

import (
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/queue"
)

// TestPortionsAreOfThoseWhoHaveJobs lets jobs come and go and compares with what is
// counted anew.
func TestPortionsAreOfThoseWhoHaveJobs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"ada", "ben", "cyd", "dan"}
		usage := map[string]float64{}
		for _, n := range names {
			usage[n] = float64(rapid.IntRange(0, 4).Draw(t, "usage"))
		}

		var p queue.Portions[string]

		jobs := map[string]int{}
		for range rapid.IntRange(0, 30).Draw(t, "operations") {
			n := rapid.SampledFrom(names).Draw(t, "who")
			if jobs[n] > 0 && rapid.Bool().Draw(t, "leaves") {
				jobs[n]--
				p.Leave(n)
			} else {
				jobs[n]++
				p.Join(n)
			}
		}

		p.Weigh(func(n string) float64 { return usage[n] })

		count, sum := 0.0, 0.0
		for _, n := range names {
			if jobs[n] > 0 {
				count, sum = count+1, sum+usage[n]
			}
		}

		for _, n := range names {
			want := 0.0
			switch {
			case count < 2 || sum == 0:
			case jobs[n] == 0:
				want = -1
			default:
				want = usage[n]*count/sum - 1
			}

			if got := p.Of(n).Over; got != want {
				t.Fatalf("%s has had %g shares too many, want %g: %v of %v", n, got, want, jobs, usage)
			}
		}

		p.Weigh(nil)

		if got := p.Of("ada").Over; got != 0 {
			t.Fatalf("nobody told what was used, and ada has had %g too many", got)
		}
	})
}
