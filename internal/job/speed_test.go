package job_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/job"
)

func TestSpeedIsReadOffTheCurveOfTheGPU(t *testing.T) {
	t.Parallel()
	s := job.NewSpeed(
		1000,
		20*time.Second,
		5*time.Second,
		job.Rate{
			GPU:       "A100",
			GPUs:      2,
			PerSecond: 10,
		},
		job.Rate{GPU: "A100", GPUs: 4, PerSecond: 18},
		job.Rate{GPU: "A100", GPUs: 8, PerSecond: 30},
		job.Rate{
			GPU:       "A100",
			GPUs:      4,
			Spread:    true,
			PerSecond: 12,
		},
		job.Rate{GPU: "A100", GPUs: 16, Spread: true, PerSecond: 36},
		job.Rate{GPU: "T4", GPUs: 1, PerSecond: 1},
	)

	for _, tc := range []struct {
		name, model string
		gpus, nodes int
		want        float64
	}{
		{"measured", "NVIDIA A100-SXM4-80GB", 4, 1, 18},
		{"between two points", "NVIDIA A100-SXM4-80GB", 3, 1, 14},
		{"more than was measured is no faster", "A100", 12, 1, 30},
		{"fewer than it can run with", "A100", 1, 1, 0},
		{"over several nodes by its own points", "A100", 10, 2, 24},
		{"over several nodes with fewer than those points have", "A100", 2, 2, 10},
		{"another kind", "Tesla T4", 1, 1, 1},
		{"a kind that nobody measured", "H100", 8, 1, 0},
	} {
		if got := s.On(tc.model, 0).Rate(tc.gpus, tc.nodes); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %d GPUs of %s on %d nodes do %g a second, want %g", tc.name, tc.gpus, tc.model, tc.nodes, got, tc.want)
		}
	}

	c := s.On("A100", 0)
	if c.MinGPUs() != 2 || c.MaxGPUs() != 16 || c.MaxRate() != 36 {
		t.Errorf("the curve goes from %d to %d, best %g; want 2 to 16, best 36", c.MinGPUs(), c.MaxGPUs(), c.MaxRate())
	}
}

func TestSpeedComesBackFromTheStore(t *testing.T) {
	t.Parallel()
	s := job.NewSpeed(10, time.Minute, time.Second, job.Rate{GPU: "T4", GPUs: 1, PerSecond: 2})
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}

	var back job.Speed
	if err := json.Unmarshal(text, &back); err != nil || !back.Equal(s) || back.On("T4", 0).Rate(1, 1) != 2 {
		t.Errorf("%s came back as %+v, %v", text, back, err)
	}
}

func TestWhatIsSeenMovesTheCurveHalfWay(t *testing.T) {
	t.Parallel()
	s := job.NewSpeed(10, 0, 0, job.Rate{GPU: "T4", GPUs: 1, PerSecond: 2})
	l := s.WithObservation(job.Rate{GPU: "T4", GPUs: 1, PerSecond: 4}).
		WithObservation(job.Rate{GPU: "T4", GPUs: 2, PerSecond: 5})
	if c := l.On("T4", 0); c.Rate(1, 1) != 3 || c.Rate(2, 1) != 5 {
		t.Errorf("it does %g on one and %g on two, want 3 and 5", c.Rate(1, 1), c.Rate(2, 1))
	}

	if s.On("T4", 0).Rate(1, 1) != 2 {
		t.Error("learning changed the speed it came from")
	}
}

func TestACurveNeverLeavesItsPoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rates []job.Rate
		least, most := math.Inf(1), 0.0
		for range rapid.IntRange(1, 6).Draw(t, "points") {
			r := job.Rate{GPUs: rapid.IntRange(0, 40).Draw(t, "gpus"), PerSecond: rapid.Float64Range(0.1, 100).Draw(t, "rate")}
			least, most = math.Min(least, r.PerSecond), math.Max(most, r.PerSecond)
			rates = append(rates, r)
		}

		c := job.NewSpeed(1, 0, 0, rates...).On("any", 0)
		for n := range 60 {
			switch got := c.Rate(n, 1); {
			case n < c.MinGPUs() && got != 0:
				t.Fatalf("%d GPUs are too few and do %g", n, got)
			case n >= c.MinGPUs() && (got < least-1e-9 || got > most+1e-9):
				t.Fatalf("%d GPUs do %g, outside of %g to %g", n, got, least, most)
			}
		}
	})
}

func TestOutlookTakesTheStartIntoAccount(t *testing.T) {
	t.Parallel()
	o := &job.Outlook{Speed: job.NewSpeed(100, 30*time.Second, 0, job.Rate{GPUs: 1, PerSecond: 2}), Done: 40}
	if d, known := o.RemainingTime(2); !known || d != time.Minute {
		t.Errorf("60 units at 2 a second take %v, %v; want a minute with the start", d, known)
	}

	if _, known := o.RemainingTime(0); known {
		t.Error("a job that does nothing is said to end")
	}

	if _, known := (&job.Outlook{}).RemainingTime(2); known {
		t.Error("a job of unknown work is said to end")
	}

	if job.Seconds(1e300) != 1<<63-1 {
		t.Error("a time without end is not the longest there is")
	}
}
