package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	foresight "trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// awaitEvent waits for an event of a job and returns its reason.
func (s *seer) awaitEvent(t *testing.T, j id.Job, kind string) string {
	t.Helper()
	reason := ""
	s.await(t, fmt.Sprintf("%s has an event %s", j, kind), func() bool {
		page, err := s.client.Events(t.Context(), api.EventFilter{Job: j, Kind: kind, Page: api.Page{Limit: 100}})
		if err != nil {
			t.Fatal(err)
		}

		if len(page.Events) > 0 {
			reason = page.Events[0].Reason
		}

		return len(page.Events) > 0
	})

	return reason
}

// curve returns the points of a metric that is known.
func (s *seer) curve(t *testing.T, j id.Job, name string) api.Curve {
	t.Helper()
	c, err := s.client.Curve(t.Context(), j, name, 1024)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// awaitCurve waits until a metric has been heard at a step.
func (s *seer) awaitCurve(t *testing.T, j id.Job, name string, step float64) api.Curve {
	t.Helper()
	var c api.Curve
	s.await(t, fmt.Sprintf("%s of %s is known at step %g", name, j, step), func() bool {
		list, err := s.client.Metrics(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}

		if !slices.ContainsFunc(list.Metrics, func(m api.Metric) bool { return m.Name == name && m.Step >= step }) {
			time.Sleep(100 * time.Millisecond)
			return false
		}

		c = s.curve(t, j, name)

		return true
	})

	return c
}

// checkCurve checks that a curve has a point at each of these steps and no other.
func checkCurve(t *testing.T, c *api.Curve, every, last int) {
	t.Helper()
	var got, want []int
	for _, p := range c.Points {
		got = append(got, int(p.Step))
	}

	for n := every; n <= last; n += every {
		want = append(want, n)
	}

	if !slices.Equal(got, want) {
		t.Errorf("the curve of %s has points at %v, want every %d until %d", c.Name, got, every, last)
	}

	for i := 1; i < len(c.Points); i++ {
		if c.Points[i].At < c.Points[i-1].At {
			t.Errorf("the point at step %g is older than the one before it", c.Points[i].Step)
		}
	}
}

func TestALossThatIsNoNumberIsTold(t *testing.T) {
	t.Parallel()
	s := newSeer(t)
	j := id.Job(s.submit(t, script(
		`for n in $(seq 1 8); do echo "step=$n loss=$((9 - n)).5"; sleep 0.3; done`,
		`for n in $(seq 9 400); do echo "step=$n loss=nan"; sleep 0.3; done`)))
	if reason := s.awaitEvent(t, j, "job."+foresight.NotNumber); !strings.Contains(reason, "loss") ||
		!strings.Contains(reason, "1.5 at step 8") {
		t.Errorf("it is told as %q", reason)
	}

	if c := s.curve(t, j, "loss"); c.NonFinite == 0 || c.Value != 1.5 {
		t.Errorf("the curve counts %d values that are no numbers, the last that is one is %g", c.NonFinite, c.Value)
	}

	s.succeed(t, "kill", string(j))
}

func TestAProgramThatStallsIsTold(t *testing.T) {
	t.Parallel()
	s := newSeer(t)
	j := id.Job(s.submit(t, script(
		`for n in $(seq 1 10); do echo "step=$n loss=$((20 - n)).5"; sleep 0.3; done`, `sleep 600`)))
	if reason := s.awaitEvent(t, j, "job."+foresight.Stalled); !strings.HasPrefix(reason, "No progress for ") {
		t.Errorf("it is told as %q", reason)
	}

	s.succeed(t, "kill", string(j))
}

func TestACurveIsStillThereAfterTheServerWas(t *testing.T) {
	t.Parallel()
	s := newSeer(t)
	j := s.train(t, "job.yaml", "python3", "--epochs 60 --steps 10 --pause 0.06")
	before := s.awaitCurve(t, j, "val_loss", 8)

	if err := s.Server().Kill(); err != nil {
		t.Fatal(err)
	}

	if err := s.StartServer(); err != nil {
		t.Fatal(err)
	}

	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	after := s.awaitCurve(t, j, "val_loss", before.Step+10)
	if after.Points[0].Step != 1 || !slices.EqualFunc(before.Points, after.Points[:len(before.Points)], samePoint) {
		t.Errorf("the curve was\n%v\nand after the restart of the server is\n%v", before.Points, after.Points)
	}

	s.await(t, "it is foretold again", func() bool {
		f, err := s.client.Forecast(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}

		return f.Basis == job.BasisSteps && f.Done >= before.Step/60
	})

	s.succeed(t, "wait", string(j))
	whole := s.awaitCurve(t, j, "val_loss", 60)
	checkCurve(t, &whole, 1, 60)
}

func samePoint(a, b api.MetricPoint) bool {
	return a.Step == b.Step && a.Value != nil && b.Value != nil && *a.Value == *b.Value
}

func TestTheCurveOfAPausedJobGoesOn(t *testing.T) {
	t.Parallel()
	s := newSeer(t)
	j := s.train(t, "sdk.yaml", "python3", "--steps 600")
	s.awaitCurve(t, j, "val_loss", 150)
	s.succeed(t, "pause", string(j))
	s.awaitState(t, string(j), job.Paused)
	s.awaitEvent(t, j, "job.checkpoint_saved")
	before := s.curve(t, j, "val_loss")
	s.succeed(t, "resume", string(j))
	s.awaitEvent(t, j, "job.checkpoint_restored")
	resumed := time.Now()
	var f api.Forecast
	s.await(t, "it is foretold again", func() bool {
		var err error
		f, err = s.client.Forecast(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}

		return f.At.After(resumed) && f.Informed()
	})

	if f.Done < before.Step/600 || f.Basis != job.BasisSteps {
		t.Errorf(
			"after the pause it is foretold by %s that %.0f %% of it are done (%s), and before it %g steps of 600 were",
			f.Basis,
			100*f.Done,
			f.Why,
			before.Step,
		)
	}

	s.succeed(t, "wait", string(j))

	if d := s.job(t, string(j)); d.State != job.Succeeded || len(d.Runs) != 2 {
		t.Errorf("the job is %s after %d runs (%s)", d.State, len(d.Runs), d.Reason)
	}

	whole := s.awaitCurve(t, j, "val_loss", 600)
	checkCurve(t, &whole, 10, 600)
	if whole.Source != "SDK" {
		t.Errorf("the curve is from %q", whole.Source)
	}
}

// TestTheYardLearnsFromJobsThatEnded ends as many jobs of one kind as an interval needs
// behind it.
func TestTheYardLearnsFromJobsThatEnded(t *testing.T) {
	t.Parallel()
	s := newSeer(t)
	short := func(seed int, pause float64) id.Job {
		return s.train(t, "job.yaml", "python3", fmt.Sprintf("--epochs 20 --steps 4 --seed %d --pause %g", seed, pause))
	}

	const ended = calibrate.MinJobs + 4
	for seed := range ended {
		short(seed+1, 0.02)
	}

	var record api.ForecastRecord
	s.await(t, "the jobs have become history", func() bool {
		var err error
		record, err = s.client.ForecastRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(200 * time.Millisecond)

		return record.Scored >= ended
	})

	if record.Jobs != ended || record.Wanted != calibrate.MinJobs || record.CoveredOf == 0 || len(record.Methods) == 0 {
		t.Errorf("the record is %+v", record)
	}

	s.await(t, "a model has been trained", func() bool {
		var err error
		record, err = s.client.ForecastRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		return record.Model != nil
	})

	if m := record.Model; m.Records < calibrate.MinJobs || m.Version < 1 || len(m.Validation) == 0 {
		t.Errorf("the model is %+v", m)
	}

	running := short(100, 0.5)
	var f api.Forecast
	s.await(t, "a running job is foretold", func() bool {
		var err error
		f, err = s.client.Forecast(t.Context(), running)
		if err != nil {
			t.Fatal(err)
		}

		return f.Basis == job.BasisSteps && len(f.Methods) > 0
	})

	if f.Guess || f.Covered <= 0 || f.Records < calibrate.MinJobs ||
		!(f.Remaining.Low < f.Remaining.Mid && f.Remaining.Mid < f.Remaining.High) {
		t.Errorf("with %d jobs behind it the forecast is %+v", ended, f.Forecast)
	}

	s.succeed(t, "kill", string(running))

	s.succeed(t, "cordon", "north")

	queued := short(101, 0.02)
	if f, err := s.client.Forecast(t.Context(), queued); err != nil || f.Basis != job.BasisHistory ||
		f.Remaining.Mid <= 0 ||
		f.Remaining.High <= f.Remaining.Low {
		t.Errorf("a queued job is foretold as %+v (%v)", f.Forecast, err)
	}
}
