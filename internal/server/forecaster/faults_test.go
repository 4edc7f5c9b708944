package forecaster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
)

func TestCurvesAreWrittenWhenTheStoreWorksAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	for i := range 50 {
		b.measures(b.runs(i+1, 1, job.Spec{}).ID, 1, "loss", points(0, 20, noon))
	}

	b.store.fail(errors.New("disk full"))
	before := b.logged.n.Load()
	b.passes(60)

	if n := b.logged.n.Load() - before; n == 0 || n > 10 {
		t.Errorf("in a minute in which the store failed %d lines were logged, want a few", n)
	}

	b.store.fail(nil)
	b.passes(40)
	b = b.again(true)
	b.pass(t.Context())

	for _, j := range []id.Job{"j1", "j50"} {
		if diff := cmp.Diff(map[string]int{"loss": 20}, b.kept(j)); diff != "" {
			t.Errorf("%s after the crash: %s", j, diff)
		}
	}
}

func TestAServerThatLostTheStoreLeavesItAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 1, job.Spec{})
	b.measures(j.ID, 1, "loss", points(0, 20, noon))
	b.store.fail(store.ErrNotLeader)
	b.passes(2)
	tries, logged := b.store.tried(), b.logged.n.Load()
	b.measures(j.ID, 1, "loss", points(20, 40, noon))
	b.passes(120)
	b.flush(t.Context(), true)

	if b.store.tried() != tries || b.logged.n.Load() != logged || logged == 0 {
		t.Errorf("it tried %d times more and logged %d lines more", b.store.tried()-tries, b.logged.n.Load()-logged)
	}
}

func TestWhatTheLoopDidNotHearIsToldOnceItDoes(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 1, job.Spec{Target: target("loss", 0.2), Expect: job.Duration(2 * time.Minute)})
	list := append(points(0, 100, noon), api.MetricPoint{Step: 101, At: seconds(noon) + 100})
	b.clock.move(100 * time.Second)
	b.measures(j.ID, 1, "loss", list)
	saved := &api.MetricsReport{
		Runs: []api.RunMetrics{{Run: id.NewRun(j.ID, 1), Notes: []api.MetricNote{{Kind: "checkpoint_saved", At: 5}}}},
	}
	down := fault.New(fault.Unavailable, "store_down", "the yard cannot store anything now")
	b.breaks(down)

	if err := b.Take(t.Context(), saved); !errors.Is(err, down) {
		t.Fatalf("a note that nobody heard: %v", err)
	}

	b.breaks(nil)
	due := b.due(b.clock.Now())

	b.Do = failsOnce(b.Do, down)
	if err := b.make(t.Context(), due); err == nil {
		t.Fatal("the loop failed, and nobody was told")
	}

	b.passes(20)
	b.must(b.Take(t.Context(), saved))
	b.must(b.Take(t.Context(), saved))

	want := []string{"checkpoint_saved", "forecast_slipped", "metric_not_number"}
	if diff := cmp.Diff(want, sorted(b.kinds())); diff != "" {
		t.Error(diff)
	}
}

// What was said of a job whose curve does not grow any more is kept too.
func TestNothingIsSaidAgainAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 1, job.Spec{Target: target("loss", 0.2)})
	b.clock.move(100 * time.Second)
	b.measures(j.ID, 1, "loss", points(0, 100, noon))
	b.passes(40)
	b.clock.move(10 * time.Minute)
	b.passes(2)

	if n := has(b.kinds(), "progress_stalled"); n != 1 {
		t.Fatalf("told %v, want once that it has stalled", b.kinds())
	}

	b = b.again(true)
	b.passes(70)

	if len(b.kinds()) > 0 {
		t.Errorf("after a crash it was told again: %v", b.kinds())
	}
}

func TestACurveGoesOnAfterPauseAndRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 1, job.Spec{Target: target("loss", 0.2)})
	b.clock.move(100 * time.Second)
	b.measures(j.ID, 1, "loss", points(0, 100, noon))
	j.State, j.Seq = job.Pending, 12 // paused, and resumed
	b.change(
		[]job.Job{j},
		job.Run{
			ID:      id.NewRun(j.ID, 1),
			Job:     j.ID,
			Epoch:   1,
			Seq:     2,
			State:   job.RunEnded,
			Ordered: noon,
			Started: noon,
			Ended:   b.clock.Now(),
		},
	)

	b.clock.move(time.Hour)
	b = b.again(false)
	b.pass(t.Context())

	if made, err := b.Waiting([]job.Job{j}); err != nil || made[0] == nil || made[0].Metric != "loss" {
		t.Errorf("while it waits it is forecast as %+v, %v", made, err)
	}

	began := b.clock.Now()
	b.runs(1, 2, *j.Spec)
	b.clock.move(20 * time.Second)
	b.measures(j.ID, 2, "loss", points(100, 120, began.Add(-100*time.Second)))
	b.passes(1)

	if diff := cmp.Diff(map[string]int{"loss": 120}, b.kept(j.ID)); diff != "" {
		t.Error(diff)
	}

	b.mu.Lock()
	f := b.jobs[j.ID].forecast
	b.mu.Unlock()

	if f == nil || f.Remaining.Mid < 100 || f.Remaining.Mid > 1000 { // 280 s
		t.Errorf("the forecast is %+v, want some minutes", f)
	}

	b = b.again(false)
	b.pass(t.Context())

	if diff := cmp.Diff(map[string]int{"loss": 120}, b.kept(j.ID)); diff != "" {
		t.Errorf("as it was written: %s", diff)
	}
}

func TestPointsWaitForAServerThatDoesNotKnowItsJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	b.ready = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := b.Take(ctx, &api.MetricsReport{}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("points for a server that does not know its jobs: %v, want them refused for now", err)
	}
}

func TestAClockThatIsPutBackStopsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 1, job.Spec{Target: target("loss", 0.2)})
	b.clock.move(100 * time.Second)
	b.measures(j.ID, 1, "loss", points(0, 50, noon))
	b.passes(3)
	b.clock.move(-24 * time.Hour)
	b.measures(j.ID, 1, "loss", points(50, 100, noon))
	b.passes(1)
	docs, err := b.Store.Documents(t.Context(), store.DocumentFilter{Kind: store.CurveDocument, ID: "j1/loss", Limit: 1})
	b.must(err)
	b.mu.Lock()
	made := b.jobs[j.ID].forecast.At
	b.mu.Unlock()

	if made.After(b.clock.Now()) || len(docs) != 1 || docs[0].At.After(b.clock.Now()) {
		t.Errorf("at %s the forecast is of %s, and written was %v", b.clock.Now(), made, docs)
	}
}
