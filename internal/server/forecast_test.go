package server

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	hybrid "trainyard/internal/place/rules"
	"trainyard/internal/yardmaster"
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

	eventually(y.t, what, func() bool {
		d, err := c.Job(y.t.Context(), j)
		y.must(err)

		last = d.Forecast

		return last != nil && good(last)
	})

	return last
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
	y.advance(100 * time.Second)
	n.measures(run, api.SeriesPoints{Name: "val_loss", Source: "JSON lines on stdout", Points: decay(0, 100, began)})

	f := y.awaitForecast(
		ada,
		j,
		"a forecast by the curve",
		func(f *api.Forecast) bool { return f.Basis == job.BasisCurve },
	)

	if f.Metric != "val_loss" || f.Source != "JSON lines on stdout" || !f.Guess || f.Why == "" {
		t.Errorf("forecast = %+v, want one by val_loss from stdout, and a guess", f)
	}

	// 4/sqrt(400) is 0.2: 300 more seconds, which no one can know exactly.
	if r := f.Remaining; !(r.Low > 0 && r.Low <= r.Mid && r.Mid <= r.High && r.Low < 300 && r.High > 300) {
		t.Errorf("remaining = %+v, want an interval around 300 s", r)
	}

	whole, err := ada.Forecast(t.Context(), j)
	y.must(err)

	for _, name := range []string{"poly3", "regression"} { // the textbook's fits stand beside, and count nothing
		at := slices.IndexFunc(whole.Methods, func(m job.MethodForecast) bool { return m.Method == name })
		if at < 0 || whole.Methods[at].Weight != 0 {
			t.Errorf("methods = %+v, want %s among them, without weight", whole.Methods, name)
		}
	}

	page, err := ada.Jobs(t.Context(), api.JobFilter{})
	y.must(err)

	if got := page.Jobs[0].Forecast; got == nil || got.Basis != job.BasisCurve || got.Methods != nil {
		t.Errorf("in the list the forecast is %+v, want a brief one", got)
	}

	list, err := ada.Metrics(t.Context(), j)
	y.must(err)

	if len(list.Metrics) != 1 || list.Metrics[0].Count != 100 || list.Metrics[0].Step != 100 ||
		list.Metrics[0].Goal == nil ||
		*list.Metrics[0].Goal != 0.2 {
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

func TestCurvesOfSeveralJobsAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	n.listen()
	began := y.clock.Now()

	var jobs []id.Job
	for _, file := range []string{"run: a\ntarget: {metric: acc, at_least: 0.9}", "run: b", "run: c"} {
		jobs = append(jobs, y.submit(ada, file)[0].ID)
	}

	runs := make([]id.Run, len(jobs))
	for i, j := range jobs {
		runs[i] = n.awaitRun(j, 1)
		n.starts(runs[i], 0)
	}

	y.advance(100 * time.Second)

	for _, run := range runs[:2] { // nothing is known of the third
		n.measures(run, api.SeriesPoints{Name: "acc", Source: "SDK", Points: decay(0, 10, began)},
			api.SeriesPoints{Name: "val_loss", Source: "SDK", Points: decay(0, 100, began)})
	}

	got, err := ada.Curves(t.Context(), append(jobs, "j999"), 20)
	y.must(err)

	if len(got.Curves) != 2 {
		t.Fatalf("got %+v, want the curves of two jobs", got.Curves)
	}

	if c := got.Curves[0]; c.Job != jobs[0] || c.Metric != "acc" || c.Goal == nil || len(c.Values) != 10 {
		t.Errorf("got %+v, want the ten values of the metric of the target", c)
	}

	c := got.Curves[1]
	if n := len(c.Values); c.Metric != "val_loss" || c.Goal != nil || n > 20 || c.Values[0] != 4 || c.Values[n-1] != 0.4 {
		t.Errorf("got %+v, want at most 20 values of the loss, from 4 to 0.4", c)
	}

	others, err := y.researcher("bob").Curves(t.Context(), jobs, 20)
	y.must(err)

	if len(others.Curves) != 0 {
		t.Errorf("bob sees %+v of ada's jobs", others.Curves)
	}
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
	y.advance(100 * time.Second)
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

	eventually(t, "both are reported", func() bool { return len(kinds()) >= 2 })

	got := kinds()
	slices.Sort(got)
	if want := []string{"job.forecast_slipped", "job.metric_not_number"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}

	y.advance(2 * time.Minute) // made anew, and not told again

	y.awaitForecast(
		ada,
		j,
		"a newer forecast",
		func(f *api.Forecast) bool { return y.clock.Now().Sub(f.At) < time.Minute },
	)

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

	if len(list.Metrics) != 1 || list.Metrics[0].Count != 100 {
		t.Errorf("after a restart metrics = %+v, want loss with 100 values", list.Metrics)
	}
}

func TestMetricsOfOthersRunsAreRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	n := y.join("n1")
	other := y.join("n2")
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
	_, err = holder.PushMetrics(
		t.Context(),
		api.MetricsReport{Runs: []api.RunMetrics{{Run: run, Series: []api.SeriesPoints{
			{Name: "a", Points: many[:len(many)/2]}, {Name: "b", Points: many[len(many)/2:]}}}}},
	)

	wantFault(t, err, fault.Invalid, "too_large")
}

// A yard that has seen enough jobs of a kind answers for another before its first point, and with an
// interval that is no guess; so does the yard that starts after it.
func TestHistoryBacksForecasts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent := withYard(func(c *yardmaster.Config) { c.SuspectAfter = 0 })
	const file = "name: tiny\nrun: a\nmodel: {kind: cnn, task: vision}\nparams: {lr: 0.1}\ntarget: {metric: loss, at_most: 0.4}\n"
	t.Run("learn", func(t *testing.T) {
		y := startYard(t, dir, silent)
		ada, n := y.researcher("ada"), y.join("n1")
		n.listen()

		for range 24 {
			j := y.submit(ada, file)[0].ID
			run := n.awaitRun(j, 1)
			release := y.clock.hold() // so that the job takes 100 s, however busy the machine is
			began := y.clock.Now()
			n.tell(api.RankReport{Run: run, State: job.RunRunning, Started: began})
			n.measures(run, api.SeriesPoints{Name: "loss", Source: "SDK", Points: decay(0, 100, began)})
			y.advance(100 * time.Second)
			n.tell(api.RankReport{Run: run, State: job.RunEnded, Started: began, Ended: y.clock.Now()})
			release()
		}

		y.advance(time.Minute)
		y.awaitRecord(ada, func(r *api.ForecastRecord) bool { return r.Jobs == 24 && r.Scored == 24 && r.Model != nil })
	})

	y := startYard(t, dir, silent)
	y.advance(24 * 100 * time.Second)
	ada := y.researcher("ada")
	record := y.awaitRecord(ada, func(r *api.ForecastRecord) bool { return r.Jobs == 24 && r.Model != nil })
	if record.Model.Version < 1 || len(record.Model.Validation) == 0 || len(record.Methods) == 0 {
		t.Errorf("the record is %+v, want a model with its errors, and methods with theirs", record)
	}

	waits := y.submit(ada, file+"resources: {gpus: 4}\n")[0].ID
	if f := y.awaitForecast(
		ada,
		waits,
		"a forecast from history",
		func(f *api.Forecast) bool { return f.Basis == job.BasisHistory },
	); f.Remaining.Mid < 80 ||
		f.Remaining.Mid > 125 {
		t.Errorf("a job that waits is to take %+v, want about 100 s", f.Remaining)
	}

	y.do(yardmaster.Cordon{Node: "n1", By: "root", On: true}) // nobody answers there
	n := y.join("n2")
	n.listen()
	j := y.submit(ada, file)[0].ID
	run := n.awaitRun(j, 1)

	defer y.clock.hold()()

	began := y.clock.Now()
	n.tell(api.RankReport{Run: run, State: job.RunRunning, Started: began})
	y.advance(30 * time.Second)
	n.measures(run, api.SeriesPoints{Name: "loss", Source: "SDK", Points: decay(0, 30, began)})

	f := y.awaitForecast(
		ada,
		j,
		"a forecast by curve and history",
		func(f *api.Forecast) bool { return f.Metric == "loss" },
	)

	if f.Guess || f.Records == 0 || f.Remaining.Mid < 60 || f.Remaining.Mid > 80 {
		t.Errorf("with history the forecast is %+v, want about 70 s, and no guess", f)
	}
}

// awaitRecord waits until the record of forecasts is as it should be.
func (y *yard) awaitRecord(c *api.Client, good func(*api.ForecastRecord) bool) *api.ForecastRecord {
	y.t.Helper()
	var last api.ForecastRecord

	eventually(y.t, "the record is as it should be", func() bool {
		var err error
		last, err = c.ForecastRecord(y.t.Context())
		y.must(err)

		return good(&last)
	})

	return &last
}

func TestEarlierJobsCanBeBroughtAlong(t *testing.T) {
	t.Parallel()
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.Policy = hybrid.New(hybrid.Defaults()) }))
	root := y.admin()
	y.join("n1").listen()
	var table strings.Builder
	table.WriteString("job,seconds,name,task,model,gpus,finished\n")

	for i := range 30 {
		fmt.Fprintf(&table, "old%d,%d,tiny,vision,cnn,1,2026-01-%02d\n", i, 95+i%10, 1+i%28)
	}

	for range 2 { // told again it is the same
		reply, err := root.ImportHistory(t.Context(), "csv", []byte(table.String()))
		y.must(err)

		if reply.Read != 30 || reply.Kept != 30 {
			t.Fatalf("reply = %+v, want 30 read and kept", reply)
		}
	}

	if r := y.awaitRecord(root, func(r *api.ForecastRecord) bool { return r.Model != nil }); r.Jobs != 30 {
		t.Errorf("%d jobs are remembered, want 30", r.Jobs)
	}

	reply, err := root.Submit(
		t.Context(),
		api.SubmitRequest{File: "name: tiny\nrun: a\nmodel: {kind: cnn, task: vision}\n", DryRun: true},
		"",
	)

	y.must(err)

	if o := reply.Plan[0].Options; len(o) == 0 || o[0].Basis != "its forecast" ||
		o[0].Finish.Sub(*o[0].Start).Round(10*time.Second) != 100*time.Second {
		t.Errorf("a dry run's options are %+v, want one of about 100 s by its forecast", o)
	}

	_, err = root.ImportHistory(t.Context(), "csv", []byte("name\nx\n"))

	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Errorf("a table without seconds: %v, want it refused as invalid", err)
	}
}
