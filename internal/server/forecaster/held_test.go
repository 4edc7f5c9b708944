package forecaster

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"trainyard/internal/forecast"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// The history is replaced whenever jobs have ended. Forecasts that were made from an earlier one must not hold on to
// it, nor stay when their job has left the queue: a yard of short jobs would keep hundreds of histories.
func TestForecastsHoldOnToNoEarlierHistory(t *testing.T) {
	t.Parallel()

	const rounds = 20

	b := newBench(t, t.TempDir(), &handClock{})

	var libraries []weak.Pointer[forecast.Library]

	for i := range rounds {
		queued := job.Job{
			ID: id.Job(fmt.Sprint("j", i+1)), Seq: 1, Owner: "ann", Spec: &job.Spec{Run: "python train.py"},
			State: job.Pending, Submitted: b.clock.Now(),
		}

		b.change([]job.Job{queued})
		b.pass(t.Context())

		if first, again := b.forecastOf(queued), b.forecastOf(queued); first == nil || first != again {
			t.Fatalf("asked twice at the same moment, a forecast is made twice: %p and %p", first, again)
		}

		b.succeeds(b.runs(i+1, 1, job.Spec{}))
		b.passes(int(learnEvery / time.Second))

		library, _ := b.trainer.current()
		libraries = append(libraries, weak.Make(library))

		if library.Len() != i+1 {
			t.Fatalf("after %d jobs the history has %d", i+1, library.Len())
		}
	}

	runtime.GC()

	held := 0
	for _, l := range libraries {
		if l.Value() != nil {
			held++
		}
	}

	if held > 2 { // the present one, and the one that the last forecast was made from
		t.Errorf("%d of %d histories are still in memory", held, rounds)
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if n := len(b.made.byJob); n > 0 {
		t.Errorf("forecasts of %d jobs are kept that have ended", n)
	}
}

// forecastOf asks for the forecast of a queued job.
func (b *bench) forecastOf(j job.Job) *job.Forecast {
	b.t.Helper()
	made, err := b.Waiting([]job.Job{j})
	b.must(err)

	return made[0]
}

// succeeds ends a job after ten seconds, and waits until its last points must have arrived.
func (b *bench) succeeds(j job.Job) {
	b.t.Helper()
	ordered := j.Since
	b.clock.move(10 * time.Second)

	now := b.clock.Now()
	j.State, j.Seq, j.Since, j.Ended = job.Succeeded, j.Seq+1, now, now

	b.change([]job.Job{j}, job.Run{
		ID: id.NewRun(j.ID, j.Epoch), Job: j.ID, Epoch: j.Epoch, Seq: 2, State: job.RunEnded,
		Ordered: ordered, Started: ordered, Ended: now,
	})
	b.clock.move(settleAfter)
}
