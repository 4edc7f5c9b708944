package yardmaster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// foresee tells the yard that a job has so much left.
func (y *yard) foresee(j id.Job, left time.Duration, basis job.Basis) {
	y.t.Helper()
	y.ok(yardmaster.PutForecasts{Jobs: []yardmaster.JobForecast{{Job: j, Forecast: &job.Forecast{
		At: y.now, Basis: basis, Remaining: job.Band{Low: left.Seconds() / 2, Mid: left.Seconds(), High: 2 * left.Seconds()},
	}}}})
}

// waitsUntil returns when a job that waits for a node is expected to start.
func (y *yard) waitsUntil(j id.Job) time.Time {
	y.t.Helper()
	why, ok := y.Why(y.now, j)
	if !ok {
		y.t.Fatalf("%s does not wait", j)
	}

	return why.Start
}

func TestForecastSaysWhenANodeIsFree(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	long := spec(2)
	long.Expect = job.Duration(time.Hour)
	first, second := y.submit("alice", long), y.submit("alice", spec(2))
	y.round()
	y.running(first, 0)
	y.round()

	began := y.now
	if got := y.waitsUntil(second); !got.Equal(began.Add(time.Hour)) {
		t.Errorf("without a forecast it waits until %v, want what the owner expects, %v", got, began.Add(time.Hour))
	}

	y.pass(time.Minute, "a")
	y.foresee(first, 3*time.Hour, job.BasisCurve)
	y.round()

	if got, want := y.waitsUntil(second), y.now.Add(3*time.Hour); !got.Equal(want) {
		t.Errorf("with a forecast it waits until %v, want %v", got, want)
	}

	before := y.now
	y.pass(time.Minute, "a")
	y.foresee(first, 3*time.Hour-70*time.Second, job.BasisCurve) // ten seconds sooner than it was: nothing that matters

	if y.PlanDue() {
		t.Error("a forecast that hardly changed asks the policy again")
	}

	if got, want := y.waitsUntil(second), before.Add(3*time.Hour); !got.Equal(want) {
		t.Errorf("after a forecast that hardly changed it waits until %v, want %v", got, want)
	}

	y.foresee(first, 10*time.Minute, job.BasisExpect)
	y.round()

	if got, want := y.waitsUntil(second), before.Add(3*time.Hour); !got.Equal(want) {
		t.Errorf("after a forecast by what the owner expects it waits until %v, want %v", got, want)
	}
}

func TestForecastNeverOutlivesWhatARunMayTake(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	short := spec(2)
	short.MaxDuration = job.Duration(time.Hour)
	first, second := y.submit("alice", short), y.submit("alice", spec(2))
	y.round()
	y.running(first, 0)
	began := y.now
	y.pass(time.Minute, "a")
	y.foresee(first, 9*time.Hour, job.BasisSteps)
	y.round()

	if got, want := y.waitsUntil(second), began.Add(time.Hour); !got.Equal(want) {
		t.Errorf("it waits until %v, want %v: the run is stopped then", got, want)
	}
}

func TestNoticesGoIntoTheFeedOfTheirJob(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	j := y.submit("alice", spec(2))
	y.round()
	y.running(j, 0)
	y.Take()

	say := func() []yardmaster.Event {
		y.ok(yardmaster.PutForecasts{Jobs: []yardmaster.JobForecast{
			{Job: "j99", Notices: []yardmaster.Notice{{Kind: "forecast.slipped", Reason: "nobody's"}}},
			{Job: j, Notices: []yardmaster.Notice{{Kind: "forecast.nan", Reason: "loss is NaN"}}},
		}})

		events := y.Take().Events
		for i := range events {
			events[i].Seq, events[i].At = 0, time.Time{}
		}

		return events
	}

	want := []yardmaster.Event{
		{Kind: "forecast.nan", Actor: "yard", Owner: "alice", Job: j, Run: id.NewRun(j, 1), Reason: "loss is NaN"},
	}
	if diff := cmp.Diff(want, say()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	y.ends(j, 0, yardmaster.RankReport{})
	y.Take()

	if events := say(); len(events) != 0 {
		t.Errorf("a job that has ended is still told of: %+v", events)
	}
}

func TestStandsTellCostProgressAndStart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 2)
	s := spec(2)
	s.Speed = job.NewSpeed(100, 0, 0, job.Rate{GPUs: 2, PerSecond: 0.1})
	first, second := y.submit("alice", s), y.submit("alice", spec(2))
	y.round()
	y.running(first, 0)
	y.round()
	y.pass(100*time.Second, "a")

	stands := y.JobStatuses([]id.Job{first, second, "j99"}).Answer()
	if p := stands[0].Progress; p == nil || p.Work != 100 || p.Done < 9 || p.Done > 11 {
		t.Errorf("progress = %+v, want about 10 of 100", p)
	}

	if got := stands[1].Start; got.Sub(y.now).Round(time.Minute) != 15*time.Minute {
		t.Errorf("the second starts at %v, want 15 minutes from %v", got, y.now)
	}

	if diff := cmp.Diff(yardmaster.JobStatus{}, stands[2], cmp.AllowUnexported(job.Speed{})); diff != "" {
		t.Errorf("a job that is not there stands somewhere: %s", diff)
	}
}

func TestAJobThatWaitsLastsAsLongAsIsForeseen(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	owned := spec(2)
	owned.Expect = job.Duration(time.Hour)
	silent, said := y.submit("alice", spec(2)), y.submit("alice", owned)

	lasts := func() map[id.Job]time.Duration {
		all := map[id.Job]time.Duration{}
		for _, it := range y.View(y.now).Queue.Items() {
			all[it.Job] = it.Lasts
		}

		return all
	}

	for _, j := range []id.Job{silent, said} {
		y.foresee(j, 10*time.Minute, job.BasisExpect)
	}

	if diff := cmp.Diff(map[id.Job]time.Duration{silent: 0, said: time.Hour}, lasts()); diff != "" {
		t.Errorf("by what the owner expects (-want +got):\n%s", diff)
	}

	for _, j := range []id.Job{silent, said} {
		y.foresee(j, 10*time.Minute, job.BasisHistory)
	}

	if diff := cmp.Diff(map[id.Job]time.Duration{silent: 10 * time.Minute, said: time.Hour}, lasts()); diff != "" {
		t.Errorf("by history (-want +got):\n%s", diff)
	}
}
