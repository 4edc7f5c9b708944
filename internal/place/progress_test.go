package place_test

import (
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Progress alone tells how fast a job is where it runs, also if each report repeats the amount of
// work, and how long its start takes.
func TestSpeedIsLearnedFromProgress(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := &fleet.Node{ID: "n1"}
	for i := range 4 {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "T4"})
	}

	node := func(id.Node) *fleet.Node { return n }
	o := &job.Outlook{}
	r := &place.Running{
		Item: &queue.Item{Outlook: o}, Allocations: []place.Allocation{{Node: "n1", GPUs: 0b11}}, GPUs: 2, Began: began,
	}

	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	r.RecordProgress(at(20), began, &job.Progress{Done: 0, Work: 1000}, true, node)
	if _, start := o.RestartCost(); start != 20*time.Second {
		t.Errorf("its start took %s, want 20s", start)
	}

	if !r.RecordProgress(at(50), began, &job.Progress{Done: 60, Work: 1000}, true, node) {
		t.Error("the first observation of its speed is no reason to plan")
	}
	if r.Rate < 1.9 || r.Rate > 2.1 {
		t.Errorf("it does %.3g units a second, observed were 2", r.Rate)
	}

	if left, known := o.RemainingWork(); !known || left != 940 {
		t.Errorf("remaining work: %g, %v", left, known)
	}

	four := []place.Allocation{{Node: "n1", GPUs: 0b1111}}
	if rate := place.ExpectedRate(o, four, node); rate < 3.2 || rate > 4 {
		t.Errorf("on 4 GPUs %.3g units a second are expected after 2 on 2", rate)
	}

	if len(o.Learned.Seen) != 1 || o.Learned.Seen[0].GPUs != 2 {
		t.Errorf("observed: %+v", o.Learned.Seen)
	}
}

// How far a job has come does not depend on whether it is known how far it has to go.
func TestProgressOfAJobWithUnknownWorkGoesOnBetweenReports(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rate := job.Rate{GPU: "T4", GPUs: 1, PerSecond: 2}

	for work, want := range map[float64]float64{0: 220, 1000: 220, 150: 150} {
		r := &place.Running{
			Item:  &queue.Item{Outlook: &job.Outlook{Speed: job.NewSpeed(work, 0, 0, rate), Done: 20, At: began}},
			Began: began, GPUs: 1, Rate: 2,
		}

		if got := r.Done(began.Add(100 * time.Second)); got != want {
			t.Errorf("of %g units (0: unknown) %g are done, want %g", work, got, want)
		}
	}
}
