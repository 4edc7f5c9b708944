package goodput_test

import (
	"testing"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/goodput"
	"trainyard/internal/queue"
)

// live plans every few minutes for two days and returns how much of its work each job does in a second.
func (y *yard) live(t *testing.T, p goodput.Policy, jobs []*queue.Item) []float64 {
	t.Helper()

	const round = 6 * time.Minute

	for range 480 {
		plan := p.Plan(y.view())
		if _, bad := place.Check(y.view(), plan); len(bad) > 0 {
			t.Fatalf("the plan cannot be carried out: %v", bad)
		}

		y.apply(plan, round)

		for _, it := range jobs {
			it.Outlook.Submitted = start
		}
	}

	done := make([]float64, len(jobs))
	for i, it := range jobs {
		done[i] = it.Outlook.Done
	}

	for _, r := range y.running {
		for i, it := range jobs {
			if r.Item == it {
				done[i] = r.Done(y.now)
			}
		}
	}

	for i := range done {
		done[i] /= y.now.Sub(start).Seconds()
	}

	return done
}

func onKinds(v100, k80 float64) *job.Speed {
	return job.NewSpeed(0, 0, 0, job.Rate{GPU: "V100", GPUs: 1, PerSecond: v100},
		job.Rate{GPU: "K80", GPUs: 1, PerSecond: k80})
}

// With an equal share of both GPUs each of three jobs would have two thirds of an average one. As the third gains
// most on the V100, each can have three quarters: the third half of the V100, the others the rest of both.
func TestFairnessRaisesTheThroughputOfTheJobThatHasLeast(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 1)
	y.node("b", "K80", 1)

	jobs := []*queue.Item{
		y.waits(exactly(1), onKinds(1, 1)), y.waits(exactly(1), onKinds(1, 1)), y.waits(exactly(1), onKinds(3, 1)),
	}

	got := y.live(t, goodput.Policy{Aim: goodput.Fairness}, jobs)
	for i, average := range []float64{1, 1, 2} {
		if share := got[i] / average; share < 0.72 {
			t.Errorf("job %d has %.3f of an average GPU, want 0.75 for each: %v", i+1, share, got)
		}
	}
}

// A job of four GPUs has them for a fifth of the time if four jobs of one GPU have theirs for the rest.
func TestFairnessCountsGPUsNotJobs(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 4)

	jobs := []*queue.Item{y.waits(exactly(4), scales(0, 1, 4, 0))}
	for range 4 {
		jobs = append(jobs, y.waits(exactly(1), scales(0, 1, 1, 0)))
	}

	for i, share := range y.live(t, goodput.Policy{Aim: goodput.Fairness}, jobs) {
		if share < 0.75 {
			t.Errorf("job %d has %.3f GPUs on average, want 0.8 for each", i+1, share)
		}
	}
}

// Twice the weight is twice the share.
func TestFairnessGoesByPriority(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 1)

	jobs := []*queue.Item{y.ranks(10, exactly(1), scales(0, 1, 1, 0)), y.waits(exactly(1), scales(0, 1, 1, 0))}

	got := y.live(t, goodput.Policy{Aim: goodput.Fairness}, jobs)
	if ratio := got[0] / got[1]; ratio < 1.8 || ratio > 2.2 {
		t.Errorf("the one with the higher priority has %.2f times as much, want twice: %v", ratio, got)
	}
}

// A job whose speed nobody knows takes turns as well, by the time that it has had.
func TestFairnessOfJobsOfUnknownSpeed(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "V100", 1)

	jobs := []*queue.Item{y.waits(exactly(1), nil), y.waits(exactly(1), nil)}
	y.live(t, goodput.Policy{Aim: goodput.Fairness}, jobs)

	served := map[*queue.Item]float64{}
	for _, it := range jobs {
		served[it] = it.Outlook.Served
	}

	for _, r := range y.running {
		served[r.Item] = r.Served(y.now)
	}

	for i, it := range jobs {
		if share := served[it] / y.now.Sub(start).Seconds(); share < 0.45 || share > 0.55 {
			t.Errorf("job %d has the GPU for %.2f of the time, want half", i+1, share)
		}
	}
}

// Two jobs of unknown speed have a GPU each. If nobody knows which of the two models is faster, they change places;
// if it is known, or if a restart takes too long, they do not.
func TestFairnessTakesTurnsOnModelsOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		tflops  float64
		startup time.Duration
		moves   bool
	}{
		"nothing known":   {moves: true},
		"TFLOPS known":    {tflops: 10},
		"a long start-up": {startup: 10 * time.Minute},
	} {
		y := newYard()
		y.node("a", "V100", 1)
		y.node("b", "K80", 1)

		for _, n := range []id.Node{"a", "b"} {
			room, _ := y.table.Get(n)
			room.Node.Inventory.GPUs[0].Peak = tc.tflops
		}

		p := goodput.Policy{Aim: goodput.Fairness}
		for range 2 {
			y.waits(exactly(1), nil).Outlook.Startup = tc.startup
		}

		onFirst, wake := 0, time.Time{}

		for range 48 {
			plan := p.Plan(y.view())
			y.apply(plan, 30*time.Minute)
			wake = plan.WakeAt

			for _, r := range y.running {
				if r.Number == 1 && r.Allocations[0].Node == "a" {
					onFirst++
				}
			}
		}

		moves := onFirst > 0 && onFirst < 48
		if moves != tc.moves || moves && (onFirst < 20 || onFirst > 28) || wake.IsZero() == tc.moves {
			t.Errorf("%s: the first has the V100 in %d of 48 rounds, and the next plan is at %v", name, onFirst, wake)
		}
	}
}
