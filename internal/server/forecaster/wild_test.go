package forecaster

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// failsOnce lets the loop fail at the next message.
func failsOnce(
	do func(context.Context, yardmaster.Message) (any, error),
	err error,
) func(context.Context, yardmaster.Message) (any, error) {
	return func(ctx context.Context, m yardmaster.Message) (any, error) {
		if once := err; once != nil {
			err = nil
			return nil, once
		}

		return do(ctx, m)
	}
}

// at makes a point.
func at(step, when, value float64) api.MetricPoint {
	return api.MetricPoint{Step: step, At: when, Value: &value}
}

func TestWhateverIsToldTheAnswerCanBeWritten(t *testing.T) {
	t.Parallel()
	unix, huge, none := seconds(noon), math.MaxFloat64, 0.0

	few, many, nan := 5.0, 10.0, math.NaN()
	for name, r := range map[string]api.RunMetrics{
		"huge steps":        {Series: []api.SeriesPoints{{Name: "loss", Points: []api.MetricPoint{at(1, unix, 3), at(1e308, unix+1, 2), at(huge, unix+2, 1)}}}},
		"steps below zero":  {Series: []api.SeriesPoints{{Name: "loss", Points: []api.MetricPoint{at(-huge, unix, 3), at(-5, unix+1, 2), at(0, unix+2, 1), at(huge, unix+3, 1)}}}},
		"one step":          {Series: []api.SeriesPoints{{Name: "loss", Points: []api.MetricPoint{at(7, unix, 3), at(7, unix+1, 2), at(7, unix+2, 1)}}}},
		"other centuries":   {Series: []api.SeriesPoints{{Name: "loss", Points: []api.MetricPoint{at(1, 0, 3), at(2, 32503680000, 2), at(3, -huge, 1), at(4, huge, 0.9)}}}},
		"huge values":       {Series: []api.SeriesPoints{{Name: "loss", Points: []api.MetricPoint{at(1, unix, huge), at(2, unix+1, -huge), at(3, unix+2, 1e308), at(4, unix+3, 1e-308)}}}},
		"back by a day":     {Series: []api.SeriesPoints{{Name: "loss", Points: append(points(0, 20, noon), points(20, 40, noon.Add(-24*time.Hour))...)}}},
		"ahead by a day":    {Series: []api.SeriesPoints{{Name: "loss", Points: append(points(0, 20, noon), points(20, 40, noon.Add(24*time.Hour))...)}}},
		"all at once":       {Series: []api.SeriesPoints{{Name: "loss", Points: []api.MetricPoint{at(1, unix, 3), at(2, unix, 2), at(3, unix, 1)}}}},
		"more done than is": {Done: &many, Total: &few},
		"nothing to do":     {Done: &few, Total: &none},
		"done is no number": {Done: &nan, Total: &many},
		"total is huge":     {Done: &few, Total: &huge},
		"done is huge":      {Done: &huge, Total: &huge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, t.TempDir(), &handClock{})
			j := b.runs(1, 1, job.Spec{Target: target("loss", 0.5), Expect: job.Duration(time.Minute)})
			b.clock.move(50 * time.Second)
			r.Run = id.NewRun(j.ID, 1)
			b.must(b.Take(t.Context(), &api.MetricsReport{Runs: []api.RunMetrics{r}}))
			b.passes(2)
			b.mu.Lock()
			f := b.jobs[j.ID].forecast
			b.mu.Unlock()

			if f == nil {
				t.Fatal("there is no forecast")
			}

			if _, err := json.Marshal(api.NewForecast(f)); err != nil {
				t.Errorf("the forecast cannot be sent: %v: %+v", err, f)
			}

			if end := f.End(); end.Before(f.At) {
				t.Errorf("made at %s, it ends at %s: %+v", f.At, end, f.Remaining)
			}

			if len(r.Series) > 0 {
				c, err := b.getCurve(t.Context(), &j, &curveInput{Metric: "loss", Points: 50})
				b.must(err)

				if _, err := json.Marshal(c); err != nil {
					t.Errorf("the curve cannot be sent: %v", err)
				}
			}

			j.State, j.Seq, j.Ended = job.Succeeded, 100, b.clock.Now()
			b.change(
				[]job.Job{j},
				job.Run{ID: r.Run, Job: j.ID, Epoch: 1, Seq: 2, State: job.RunEnded, Ordered: noon, Started: noon, Ended: j.Ended},
			)

			b.passes(40)

			if b.watched() != 0 || len(b.trainer.past) != 1 || b.logged.n.Load() > 0 {
				t.Errorf(
					"%d jobs are left, %d are history, %d lines were logged",
					b.watched(),
					len(b.trainer.past),
					b.logged.n.Load(),
				)
			}
		})
	}
}

func TestNamesOfMetricsAreTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	one, ten := b.runs(1, 1, job.Spec{}).ID, b.runs(10, 1, job.Spec{}).ID
	names := []string{"j10/loss", "0/loss", "a/b\nc", "/", "..", "%", "ß", "nul\uFFFD", strings.Repeat("x", 128)}

	want := map[string]int{}
	for i, name := range names {
		want[name] = i + 1
		b.measures(one, 1, name, points(0, i+1, noon))
	}

	b.measures(one, 1, "nul\x00", points(0, 3, noon)) // is one of them to a store
	b.measures(ten, 1, "loss", points(0, 9, noon))

	b = b.again(false)
	for range 2 { // as it is kept, and as it is recalled
		if diff := cmp.Diff(want, b.kept(one)); diff != "" {
			t.Error(diff)
		}

		if diff := cmp.Diff(map[string]int{"loss": 9}, b.kept(ten)); diff != "" {
			t.Error(diff)
		}

		b.pass(t.Context())
	}

	for i := range 100 {
		b.measures(ten, 1, fmt.Sprint("m", i), points(0, 1, noon))
	}

	if n := len(b.kept(ten)); n != 64 {
		t.Errorf("%d metrics are kept, want 64", n)
	}
}

func TestAnEarlierRunChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 2, job.Spec{}).ID
	b.pass(t.Context())
	done, total, before := 50.0, 100.0, 80.0
	tell := func(epoch int, done *float64) {
		b.must(
			b.Take(
				t.Context(),
				&api.MetricsReport{Runs: []api.RunMetrics{{Run: id.NewRun(j, epoch), Done: done, Total: &total}}},
			),
		)
	}

	tell(2, &done)
	tell(1, &before)
	b.measures(j, 2, "loss", points(10, 20, noon))
	b.measures(j, 1, "loss", points(0, 10, noon))

	if told := b.jobs[j].progress; told.Done != 50 || len(told.Marks) != 1 || b.kept(j)["loss"] != 10 {
		t.Errorf("told is %+v, and %v points are kept", told, b.kept(j))
	}
}

func TestManyNotesDoNotHideTheLast(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	j := b.runs(1, 1, job.Spec{}).ID
	note := func(kind string, when float64) {
		b.must(
			b.Take(
				t.Context(),
				&api.MetricsReport{Runs: []api.RunMetrics{{Run: id.NewRun(j, 1), Notes: []api.MetricNote{{Kind: kind, At: when}}}}},
			),
		)
	}

	for i := range 5000 {
		note("checkpoint_saved", float64(i))
	}

	note("target_reached", 1e6)

	if kinds := b.kinds(); has(kinds, "checkpoint_saved") != maxNotes || has(kinds, "target_reached") != 1 {
		t.Errorf(
			"%d times it was told of a checkpoint, %d times of the target",
			has(kinds, "checkpoint_saved"),
			has(kinds, "target_reached"),
		)
	}
}

func TestJobsThatEndByTheThousandAreLetGo(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	const n = 2000
	var jobs []job.Job

	var runs []job.Run
	for i := range n {
		j := job.Job{
			ID:        id.Job(fmt.Sprint("j", i+1)),
			Seq:       1,
			Owner:     "ann",
			Spec:      &job.Spec{Run: "x"},
			State:     job.Running,
			Epoch:     1,
			Submitted: noon,
			Started:   noon,
		}

		jobs, runs = append(jobs, j), append(
			runs,
			job.Run{ID: id.NewRun(j.ID, 1), Job: j.ID, Epoch: 1, Seq: 1, State: job.RunRunning, Ordered: noon, Started: noon},
		)
	}

	b.Follow(&yardmaster.Batch{Jobs: jobs, Runs: runs})

	for i := range jobs {
		b.measures(jobs[i].ID, 1, "loss", points(0, 5, noon))
	}

	b.clock.move(10 * time.Second)

	for i := range jobs {
		jobs[i].State, jobs[i].Seq, jobs[i].Ended = job.Succeeded, 2, b.clock.Now()
		runs[i].State, runs[i].Seq, runs[i].Ended = job.RunEnded, 2, b.clock.Now()
	}

	b.Follow(&yardmaster.Batch{Jobs: jobs, Runs: runs})
	b.clock.move(settleAfter)

	for i := 0; i < 200 && b.watched() > 0; i++ {
		b.passes(1)
	}

	if b.watched() > 0 || len(b.trainer.past) != maxLearnQueue {
		t.Errorf("%d jobs are left, %d are history", b.watched(), len(b.trainer.past))
	}

	if diff := cmp.Diff(map[string]int{"loss": 5}, b.kept("j1")); diff != "" {
		t.Errorf("of one that was not learned from: %s", diff)
	}
}

func TestTheModelIsTrainedAgainThoughHistoryIsFull(t *testing.T) {
	t.Parallel()
	clock := &handClock{}
	b := newBench(t, t.TempDir(), clock)
	clock.move(79 * 24 * time.Hour) // since the newest of the jobs
	chance := rand.New(rand.NewPCG(1, 2))

	var past []history.Past
	for i := range 30 {
		past = append(
			past,
			history.Past{
				Job:      id.Job(fmt.Sprint("j", i+1)),
				Group:    fmt.Sprint("u", i%5),
				Seconds:  90 + 20*chance.Float64(),
				Finished: noon.Add(time.Duration(i) * time.Minute),
				Features: history.Features{Name: "tiny", Task: "vision", Model: "cnn", GPUs: 1},
			},
		)
	}

	learn := func(want int, past []history.Past) {
		b.must(b.trainer.learn(t.Context(), past))
		b.must(b.trainer.train(t.Context()))

		if got := b.trainer.model.Version; got != want || len(b.trainer.past) != 30 {
			t.Errorf("version %d was learned from %d jobs, want %d", got, len(b.trainer.past), want)
		}
	}

	learn(1, past)
	learn(1, past[:1])
	learn(2, past[:5]) // as many as before, and others among them

	// It was trained now, whenever the jobs ended, and that is known after a restart too.
	for _, b := range []*bench{b, b.again(true)} {
		if r, _ := b.trainer.report(); r.Model == nil || !r.Model.Trained.Equal(clock.Now()) {
			t.Errorf("the model is %+v, trained just now", r.Model)
		}
	}
}

// TestWhatTheProgramEstimatesIsShown: it comes with a report, and is one method of the forecast.
func TestWhatTheProgramEstimatesIsShown(t *testing.T) {
	t.Parallel()
	clock := &handClock{}
	b := newBench(t, t.TempDir(), clock)
	j := b.runs(1, 1, job.Spec{}).ID
	b.pass(t.Context())

	for i := range 3 * maxReports {
		clock.move(10 * time.Second)
		left := float64(5000 - 10*i)
		b.must(b.Take(t.Context(), &api.MetricsReport{Runs: []api.RunMetrics{{Run: id.NewRun(j, 1), Remaining: &left}}}))
	}

	reports := b.jobs[j].progress.Reports
	if n := len(reports); n > maxReports || n < maxReports/2 || reports[n-1].Remaining != 5000-10*(3*maxReports-1) {
		t.Errorf("%d reports are kept, the last %+v", n, reports[n-1])
	}

	clock.move(time.Minute)
	b.pass(t.Context())

	f := b.jobs[j].forecast
	if f == nil || f.Basis != job.BasisReported || f.Remaining.Mid < 1000 || f.Remaining.Mid > 1170 {
		t.Errorf("the forecast is %+v", f)
	}
}

func TestAJobThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	b.must(
		b.trainer.learn(
			t.Context(),
			[]history.Past{{Job: "j1", Seconds: math.Inf(1), Finished: noon}, {Job: "j2", Seconds: 10, Finished: noon}},
		),
	)

	if len(b.trainer.past) != 1 || b.trainer.past[0].Job != "j2" || b.logged.n.Load() != 1 {
		t.Errorf("history is %+v, and %d lines were logged", b.trainer.past, b.logged.n.Load())
	}
}

// Many do everything at once; the race detector watches.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	b.store.slow = time.Millisecond // so that others come between
	const n = 20

	var jobs []job.Job
	for i := range n {
		jobs = append(jobs, b.runs(i+1, 1, job.Spec{Name: "net", Target: target("loss", 0.2)}))
	}

	var all sync.WaitGroup
	each := func(times int, do func(i int)) {
		all.Go(func() {
			for i := range times {
				do(i)
			}
		})
	}

	ctx := t.Context()
	each(400, func(i int) { b.measures(jobs[i%n].ID, 1, "loss", points(i, i+60, noon)) })
	each(400, func(i int) { b.measures(jobs[i%n].ID, 1, "val/loss", points(400-i, 460-i, noon)) })
	each(30, func(int) { b.passes(1) })

	each(400, func(i int) {
		j := jobs[i%n]
		j.Seq += uint64(i)
		b.Follow(&yardmaster.Batch{Jobs: []job.Job{j}})
	})

	read := func(i int) {
		j := &jobs[i%n]
		if _, err := b.listMetrics(ctx, j); err != nil {
			t.Error(err)
		}

		if b.kept(j.ID)["loss"] > 0 {
			if _, err := b.getCurve(ctx, j, &curveInput{Metric: "loss", Points: 30}); err != nil {
				t.Error(err)
			}
		}

		if f, err := b.getForecast(ctx, j); err != nil || f.Why == "" {
			t.Errorf("%+v, %v", f, err)
		}

		b.trainer.report()
	}

	each(200, read)
	each(200, read)

	for k := range 2 {
		each(5, func(i int) {
			p := history.Past{Job: id.Job(fmt.Sprintf("j%d", 1000+10*k+i)), Group: "g", Seconds: 100, Finished: noon}
			b.must(b.trainer.learn(ctx, []history.Past{p}))
		})
	}

	all.Wait()

	if len(b.trainer.past) != 10 || b.watched() != n {
		t.Errorf("%d jobs are history, want 10; %d are watched, want %d", len(b.trainer.past), b.watched(), n)
	}
}

// TestAJobThatEndedCountsForTheNext: newcomer 32. The history of a job is complete only after a while, when its last
// points have arrived; its duration is known at once.
func TestAJobThatEndedCountsForTheNext(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})

	first := b.runs(1, 1, job.Spec{Name: "digits"})
	b.clock.move(50 * time.Second)

	now := b.clock.Now()
	first.State, first.Seq, first.Ended = job.Succeeded, first.Seq+1, now
	b.change([]job.Job{first}, job.Run{
		ID: id.NewRun(first.ID, 1), Job: first.ID, Epoch: 1, Seq: 2, State: job.RunEnded, Ordered: noon,
		Started: noon, Ended: now,
	})
	b.passes(1)

	next := job.Job{ID: "j2", Owner: "ann", Spec: first.Spec, State: job.Pending, Submitted: now}
	forecastOf := func() *job.Forecast {
		made, err := b.Waiting([]job.Job{next})
		b.must(err)

		return made[0]
	}

	f := forecastOf()
	if f.Basis != job.BasisHistory || f.Remaining.Mid < 45 || f.Remaining.Mid > 55 {
		t.Fatalf("a second later: %+v", f)
	}

	// Once it is history it counts, and still once.
	b.clock.move(settleAfter)
	b.passes(2)

	if again := forecastOf(); again.Basis != job.BasisHistory || again.Why != f.Why || len(b.trainer.past) != 1 {
		t.Errorf("%d past jobs, %+v", len(b.trainer.past), again)
	}
}
