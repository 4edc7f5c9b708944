package preemptive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/place/placetest"
)

// TestPreemptionStopsNoMoreThanItMust has three nodes; the one that comes takes
// the place of the last in order, and leaves alone who need not go.
func TestPreemptionStopsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 2)
	c.Box("b", 2)
	c.Box("c", 2)
	w := placetest.NewWorld(c, placetest.Policy("srtf"))

	for _, d := range []time.Duration{4, 3, 6, 5, 2} { // by what is left: j5 and j2 on a, j1 and j4 on b, j3 on c
		c.Add(placetest.Lasting(d*time.Hour, 1))
	}

	w.Round(t)

	if len(c.Runs) != 5 {
		t.Fatalf("%d jobs run", len(c.Runs))
	}

	c.Items["j3"].Outlook.Resumes = false
	c.Add(placetest.Lasting(time.Hour, 2)) // wants two of one node: those on b have more left than those on a

	p := w.Round(t)
	if diff := cmp.Diff([]id.Job{"j1", "j4"}, placetest.StoppedBy(p)); diff != "" {
		t.Fatal("stopped:", diff)
	}

	// One of them goes to the GPU that is free on c; the other, which has more left, waits.
	if diff := cmp.Diff([]id.Job{"j6", "j1"}, placetest.Started(p)); diff != "" {
		t.Error("started:", diff)
	}

	if diff := cmp.Diff([]id.Node{"c"}, placetest.Where(p, "j1")); diff != "" {
		t.Error(diff)
	}

	got := []string{p.Stops[0].Reason, p.Stops[1].Reason}
	if want := []string{
		"moved to make room for j6, which has less time remaining",
		"preempted for j6, which has less time remaining",
	}; !slices.Equal(got, want) {
		t.Errorf("j1 and j4 are stopped because each %q, want %q", got, want)
	}
}

func TestLeastAttainedServiceTakesTurnsAtItsThresholds(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 1)
	w := placetest.NewWorld(c, placetest.Policy("las"))

	for range 3 {
		c.Add(placetest.Lasting(2*time.Hour, 1))
	}

	var ends []time.Duration
	w.Live(t)

	for _, j := range []id.Job{"j1", "j2", "j3"} {
		ends = append(ends, w.Ended[j].Sub(placetest.Start).Round(time.Second))
	}

	// Each runs 3,250 s. Then the one that runs stays until it is done, and the others follow.
	want := []time.Duration{(3*3250 + 2*3950) * time.Second, 3 * 7200 * time.Second, (3*3250 + 3950) * time.Second}
	if !slices.Equal(ends, want) {
		t.Errorf("they end after %v, want %v", ends, want)
	}

	if w.Stops != 2 {
		t.Errorf("%d stops, want 2: the first two at their first threshold", w.Stops)
	}
}

// TestFairShareGivesUsersEqualParts fills the yard with ada's jobs; bob's come later.
func TestFairShareGivesUsersEqualParts(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 4)
	w := placetest.NewWorld(c, placetest.Policy("fairshare"))

	for range 6 {
		c.Add(placetest.Job{User: "ada", Lasts: time.Hour, Spec: placetest.GPUs(1)})
	}

	w.Round(t)

	c.Now = c.Now.Add(time.Minute)
	for range 3 {
		c.Add(placetest.Job{User: "bob", Lasts: time.Hour, Spec: placetest.GPUs(1)})
	}

	p := w.Round(t)
	if diff := cmp.Diff([]id.Job{"j3", "j4"}, placetest.StoppedBy(p)); diff != "" {
		t.Error("stopped:", diff)
	}

	if diff := cmp.Diff([]id.Job{"j7", "j8"}, placetest.Started(p)); diff != "" {
		t.Error("started:", diff)
	}

	if p := w.Round(t); len(p.Stops)+len(p.Starts) > 0 {
		t.Errorf("and then it changes its mind: %+v", p)
	}

	c.Add(
		placetest.Job{User: "eve", Lasts: time.Hour, Spec: placetest.GPUs(8)},
	) // fits nowhere, and is not held against eve
	c.Add(placetest.Job{User: "eve", Lasts: time.Hour, Spec: placetest.GPUs(1)})

	if diff := cmp.Diff([]id.Job{"j11"}, placetest.Started(w.Round(t))); diff != "" {
		t.Error("started:", diff)
	}
}
