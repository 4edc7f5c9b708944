package server

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// decay is a loss that falls as step^-0.5 from 4, heard every second for so many steps.
func decay(from, steps int, began time.Time) []api.MetricPoint {
	var points []api.MetricPoint
	for i := from; i < from+steps; i++ {
		v := 4 / math.Sqrt(float64(i+1))
		points = append(points, api.MetricPoint{Step: float64(i + 1), At: float64(began.Unix() + int64(i)), Value: &v})
	}
	return points
}

// measures tells the server what a run has measured.
func (n *node) measures(run id.Run, series ...api.SeriesPoints) {
	n.y.t.Helper()
	_, err := n.PushMetrics(n.y.t.Context(), api.MetricsReport{Runs: []api.RunMetrics{{Run: run, Series: series}}})
	n.y.must(err)
}

// awaitForecast waits until a job's forecast is as it should be.
func (y *yard) awaitForecast(c *api.Client, j id.Job, what string, good func(*api.Forecast) bool) *api.Forecast {
	y.t.Helper()
	var last *api.Forecast
	for range 600 {
		d, err := c.Job(y.t.Context(), j)
		y.must(err)
		if last = d.Forecast; last != nil && good(last) {
			return last
		}
		time.Sleep(20 * time.Millisecond)
	}
	y.t.Fatalf("%s did not come; the forecast is %+v", what, last)
	return nil
}

func TestForecastFollowsTheCurve(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j := y.submit(ada, "run: a\ntarget: {metric: val_loss, at_most: 0.2}\nexpect: 1h")[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	began := y.clock.Now()
	y.clock.advance(100 * time.Second)
	n.measures(run, api.SeriesPoints{Name: "val_loss", Source: "JSON lines on stdout", Points: decay(0, 100, began)})
	f := y.awaitForecast(ada, j, "a forecast by the curve", func(f *api.Forecast) bool { return f.Basis == job.BasisCurve })
	if f.Metric != "val_loss" || f.Source != "JSON lines on stdout" || !f.Guess || f.Why == "" {
		t.Errorf("forecast = %+v, want one by val_loss from stdout, and a guess", f)
	}
	// 4/sqrt(400) is 0.2: 300 more seconds, which no one can know exactly.
	if r := f.Remaining; !(r.Low > 0 && r.Low <= r.Mid && r.Mid <= r.High && r.Low < 300 && r.High > 300) {
		t.Errorf("remaining = %+v, want an interval around 300 s", r)
	}
	page, err := ada.Jobs(t.Context(), api.JobFilter{})
	y.must(err)
	if got := page.Jobs[0].Forecast; got == nil || got.Basis != job.BasisCurve || got.Methods != nil {
		t.Errorf("in the list the forecast is %+v, want a brief one", got)
	}
	list, err := ada.Metrics(t.Context(), j)
	y.must(err)
	if len(list.Metrics) != 1 || list.Metrics[0].Heard != 100 || list.Metrics[0].Step != 100 || list.Metrics[0].Goal == nil || *list.Metrics[0].Goal != 0.2 {
		t.Errorf("metrics = %+v, want val_loss with 100 values and its goal", list.Metrics)
	}
	curve, err := ada.Curve(t.Context(), j, "val_loss", 50)
	y.must(err)
	if len(curve.Points) > 50 || curve.Points[0].Step != 1 || curve.Points[len(curve.Points)-1].Step != 100 {
		t.Errorf("the curve has %d points, want at most 50 with first and last", len(curve.Points))
	}
	if curve.Fit == nil || curve.Fit.Step[len(curve.Fit.Step)-1] <= 100 {
		t.Errorf("fit = %+v, want one that goes beyond the last point", curve.Fit)
	}
	_, err = ada.Curve(t.Context(), j, "loss", 50)
	wantFault(t, err, fault.NotFound, "metric_not_found")
}

func TestBadLossAndLateEndAreTold(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j := y.submit(ada, "run: a\ntarget: {metric: loss, at_most: 0.2}\nexpect: 2m")[0].ID
	run := n.awaitRun(j, 1)
	n.starts(run, 0)
	began := y.clock.Now()
	y.clock.advance(100 * time.Second)
	points := decay(0, 100, began)
	points = append(points, api.MetricPoint{Step: 101, At: float64(began.Unix() + 100)})
	n.measures(run, api.SeriesPoints{Name: "loss", Source: "SDK", Points: points})
	kinds := func() []string {
		page, err := ada.Events(t.Context(), api.EventFilter{Job: j})
		y.must(err)
		var list []string
		for _, e := range page.Events {
			if strings.HasPrefix(e.Kind, "job.forecast_") || strings.HasPrefix(e.Kind, "job.metric_") {
				list = append(list, e.Kind)
			}
		}
		return list
	}
	for i := 0; i < 600 && len(kinds()) < 2; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	got := kinds()
	slices.Sort(got)
	if want := []string{"job.forecast_slipped", "job.metric_not_number"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	y.clock.advance(2 * time.Minute) // made anew, and not told again
	y.awaitForecast(ada, j, "a newer forecast", func(f *api.Forecast) bool { return y.clock.Now().Sub(f.At) < time.Minute })
	if again := kinds(); len(again) != len(got) {
		t.Errorf("told again: %v", again)
	}
}

func TestCurvesOutliveTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var j id.Job
	t.Run("first", func(t *testing.T) {
		y := startYard(t, dir)
		ada, n := y.researcher("ada"), y.join("n1")
		n.listen()
		j = y.submit(ada, "run: a\ntarget: {metric: loss, at_most: 0.2}")[0].ID
		run := n.awaitRun(j, 1)
		n.starts(run, 0)
		n.measures(run, api.SeriesPoints{Name: "loss", Source: "SDK", Points: decay(0, 100, y.clock.Now())})
	})
	y := startYard(t, dir)
	list, err := y.researcher("ada").Metrics(t.Context(), j)
	y.must(err)
	if len(list.Metrics) != 1 || list.Metrics[0].Heard != 100 {
		t.Errorf("after a restart metrics = %+v, want loss with 100 values", list.Metrics)
	}
}

func TestMetricsOfOthersRunsAreRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n, other := y.researcher("ada"), y.join("n1"), y.join("n2")
	n.listen()
	other.listen()
	j := y.submit(ada, "run: a")[0].ID
	var holder, stranger *node
	for holder == nil {
		d, err := ada.Job(t.Context(), j)
		y.must(err)
		if slices.Contains(d.Nodes, "n1") {
			holder, stranger = n, other
		} else if slices.Contains(d.Nodes, "n2") {
			holder, stranger = other, n
		}
	}
	run := holder.awaitRun(j, 1)
	_, err := stranger.PushMetrics(t.Context(), api.MetricsReport{Runs: []api.RunMetrics{{Run: run}}})
	wantFault(t, err, fault.Denied, "not_your_run")
	many := make([]api.MetricPoint, api.MaxMetricPoints+1)
	_, err = holder.PushMetrics(t.Context(), api.MetricsReport{Runs: []api.RunMetrics{{Run: run, Series: []api.SeriesPoints{
		{Name: "a", Points: many[:len(many)/2]}, {Name: "b", Points: many[len(many)/2:]}}}}})
	wantFault(t, err, fault.Invalid, "too_large")
}
