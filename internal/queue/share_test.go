package queue_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/queue"
)

func TestAGPUIsWorthItsSpeedAndItsPrice(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name   string
		tflops float64
		hourly money.PerGPUHour
		want   float64
	}{
		{"nothing is known", 0, 0, 1},
		{"the reference itself", queue.ReferenceTFLOPS, queue.ReferencePrice, 1},
		{"half as fast, price unknown", queue.ReferenceTFLOPS / 2, 0, 0.5},
		{"three times the price, speed unknown", 0, 3 * queue.ReferencePrice, 3},
		{"as fast and three times as dear", queue.ReferenceTFLOPS, 3 * queue.ReferencePrice, 2},
		{"as dear and half as fast", queue.ReferenceTFLOPS / 2, queue.ReferencePrice, 0.75},
	} {
		if got := queue.Worth(tc.tflops, tc.hourly); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%s: it is worth %g, want %g", tc.name, got, tc.want)
		}
	}

	if got := queue.Weight(4, 2, 16, 2); got != 18 {
		t.Errorf("2 nodes with 4 GPUs worth 2 each and 16 CPUs weigh %g, want 18", got)
	}
}

// TestProjectsAreChargedForWhatTheyUse compares with use that is added up second by
// second, over charges, restarts and pauses.
func TestProjectsAreChargedForWhatTheyUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		projects := []id.Project{"vision", "speech"}
		now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
		shares := &queue.Shares{}
		kept := map[id.Project]queue.Share{}
		rates, uses := map[id.Project]float64{}, map[id.Project]float64{}

		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			p := rapid.SampledFrom(projects).Draw(t, "project")
			delta := float64(rapid.IntRange(-4, 8).Draw(t, "delta"))
			if rates[p]+delta >= 0 {
				rates[p] += delta
				shares.Charge(now, p, delta)
			}

			shares.Charge(now, "", 5) // of no project

			for _, s := range shares.Take() {
				if s.Seq <= kept[s.Project].Seq {
					t.Fatalf("%s is kept with number %d after %d", s.Project, s.Seq, kept[s.Project].Seq)
				}

				kept[s.Project] = s
			}

			if again := shares.Take(); again != nil {
				t.Fatalf("nothing changed and %v is to be kept", again)
			}

			passed := time.Duration(rapid.IntRange(0, 100).Draw(t, "hours")) * time.Hour
			now = now.Add(passed)

			for _, p := range projects {
				uses[p] = queue.Decayed(uses[p], rates[p], passed)
			}

			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				shares = &queue.Shares{}
				var list []queue.Share
				for _, p := range projects {
					if s, ok := kept[p]; ok {
						list = append(list, s)
					}
				}

				shares.Load(list)

				for p, rate := range rates {
					shares.Resume(p, rate)
				}
			}

			for _, p := range projects {
				if got := shares.UsageOf(now, p); math.Abs(got-uses[p]) > 1e-6*max(1, uses[p]) {
					t.Fatalf("%s has used %g, want %g", p, got, uses[p])
				}

				if got := shares.Rate(p); got != rates[p] {
					t.Fatalf("%s uses %g, want %g", p, got, rates[p])
				}
			}
		}

		if got := shares.UsageOf(now, ""); got != 0 {
			t.Fatalf("no project has used %g", got)
		}

		if diff := cmp.Diff(0.0, shares.UsageOf(now, "nobody")); diff != "" {
			t.Fatal(diff)
		}
	})
}
