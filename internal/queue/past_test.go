package queue_test

import (
	"testing"
	"time"

	"trainyard/internal/queue"
)

func TestPastSpeaksForTheNarrowestKinOfWhichItKnowsEnough(t *testing.T) {
	t.Parallel()
	var p queue.Past
	if mean, of := p.MeanDuration("ann", 1); mean != 0 || of != 0 {
		t.Errorf("an empty past expects %s of %d", mean, of)
	}

	for i := range 30 {
		p.Add("bob", 1, time.Duration(i+1)*time.Minute)
	}

	if mean, of := p.MeanDuration("ann", 1); mean != 15*time.Minute+30*time.Second || of != 30 {
		t.Errorf("ann's first job is expected to run %s by %d others, want 15m30s by bob's 30", mean, of)
	}

	for range 20 {
		p.Add("ann", 1, time.Hour)
	}

	if mean, of := p.MeanDuration("ann", 1); mean != time.Hour || of != 20 {
		t.Errorf("ann's jobs are expected to run %s by %d, want an hour by her own 20", mean, of)
	}

	if mean, _ := p.MeanDuration("ann", 8); mean == 0 {
		t.Error("nothing is expected of a job of another size, though 50 jobs are known")
	}

	if low, high := p.Interval("bob", 1); low != 4*time.Minute || high != 28*time.Minute {
		t.Errorf("four out of five end between %s and %s, want 4m and 28m", low, high)
	}
}

func TestPastExpectsOfAnOldJobThatItIsOneOfTheLongOnes(t *testing.T) {
	t.Parallel()
	var p queue.Past
	for i := range 100 {
		p.Add("ann", 1, time.Duration(i+1)*time.Minute)
	}

	if left := p.RemainingTime("ann", 1, 0); left != 51*time.Minute {
		t.Errorf("a new job has %s left, want the median, 51m", left)
	}

	if left := p.RemainingTime("ann", 1, 80*time.Minute); left != 11*time.Minute {
		t.Errorf("a job of 80m has %s left, want 11m: half of the 20 longer ones end by then", left)
	}

	if left := p.RemainingTime("ann", 1, 200*time.Minute); left != 0 {
		t.Errorf("a job older than all has %s left, want 0 for not known", left)
	}
}

func TestPastForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var p queue.Past
	for range 2000 {
		p.Add("ann", 1, time.Hour)
	}

	for range 2000 {
		p.Add("ann", 1, time.Minute)
	}

	if mean, of := p.MeanDuration("ann", 1); mean != time.Minute || of != 2000 {
		t.Errorf("expects %s by %d, want a minute by the newest 2000", mean, of)
	}
}
