package cli

import (
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// around is a band of a value.
func around(mid float64) job.Band { return job.Band{Low: 0.8 * mid, Mid: mid, High: 1.3 * mid} }

// made is a forecast of a job that runs, by its curve and by jobs like it.
func made() job.Forecast {
	return job.Forecast{
		At:        ago(time.Minute),
		Remaining: around(7860),
		Cost:      around(12.4),
		Basis:     job.BasisBoth,
		Why:       "Based on the curves of 4 similar jobs (j2, j3, j5 …) and its own val_loss curve. One step takes 0.19 s.",
		Records:   143,
		Covered:   0.8112,
		Checked:   512,
		Never:     0.12,
		Metric:    "val_loss",
		Source:    "stdout (key=value)",
		Done:      0.41,
		Methods: []job.MethodForecast{
			{Method: "match", Remaining: 7700, Weight: 0.92, Error: 0.08},
			{Method: "nohistory", Remaining: 9100, Weight: 0.08, Error: 0.41},
			{Method: "duration", Remaining: -1, Error: -1},
		},
		Elsewhere: []job.Elsewhere{
			{GPU: "NVIDIA H100 80GB HBM3", GPUs: 8, Remaining: 4100, Cost: 28.5, Why: "based on TFLOPS only"},
			{GPU: "A100", GPUs: 4, Remaining: 15400, Why: "based on speeds measured on 8× A100"},
		},
	}
}

// foreseen are jobs of which the yard knows something, one in each way.
func foreseen() []api.Job {
	waiting, running := someJobs()[0], someJobs()[1]
	like := func(j api.Job, name id.Job, change func(*api.Job, *job.Forecast)) api.Job {
		f := made()
		j.ID, j.Deadline = name, nil
		change(&j, &f)
		j.Forecast = api.NewForecast(&f).Brief()

		return j
	}

	return []api.Job{
		like(running, "j30", func(*api.Job, *job.Forecast) {}),
		like(running, "j29", func(_ *api.Job, f *job.Forecast) { f.Guess = true }),
		like(running, "j28", func(j *api.Job, _ *job.Forecast) { j.Deadline = new(now.Add(time.Hour)) }),
		like(running, "j27", func(j *api.Job, _ *job.Forecast) { j.Deadline = new(now.Add(135 * time.Minute)) }),
		like(running, "j26", func(_ *api.Job, f *job.Forecast) { f.Never, f.Basis = 0.7, job.BasisCurve }),
		like(running, "j25", func(_ *api.Job, f *job.Forecast) { f.Remaining = around(10) }),
		like(running, "j24", func(j *api.Job, f *job.Forecast) { f.Basis = job.BasisNone }),
		like(waiting, "j23", func(_ *api.Job, f *job.Forecast) { f.Guess, f.Basis = true, job.BasisHistory }),
		like(waiting, "j22", func(j *api.Job, _ *job.Forecast) {
			j.State, j.Status, j.Started = job.Paused, job.StatusPaused, new(ago(time.Hour))
			j.Ran = job.Duration(time.Hour)
		}),
		like(running, "j21", func(j *api.Job, _ *job.Forecast) { j.State, j.Status = job.Cancelling, job.StatusCancelling }),
	}
}

// measured is a curve that falls and is expected to fall on.
func measured() api.Curve {
	c := api.Curve{Metric: api.Metric{
		Name:   "val_loss",
		Source: "stdout (key=value)",
		Count:  1240,
		At:     float64(ago(20 * time.Second).Unix()),
		Goal:   new(2.2),
	}}

	curve := func(step float64) float64 { return 2 + 2.2/math.Sqrt(1+step/300) }

	for i := range 124 {
		step := float64(i) * 100
		p := api.MetricPoint{Step: step, At: c.At - 12400 + step, Value: new(curve(step))}
		if i > 40 && i < 50 {
			p.Value = nil
		}

		c.Points = append(c.Points, p)
		c.Step, c.Value = step, curve(step)
	}

	c.Fit = &api.Fit{}
	for step := 12300.0; step <= 30000; step += 300 {
		c.Fit.Step = append(c.Fit.Step, step)
		c.Fit.Mid = append(c.Fit.Mid, curve(step))
		c.Fit.Low = append(c.Fit.Low, curve(step)-(step-12300)*6e-6)
		c.Fit.High = append(c.Fit.High, curve(step)+(step-12300)*9e-6)
	}

	return c
}

// withForecasts is a yard that knows when jobs will be done.
func withForecasts(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	running := api.JobDetail{Job: someJobs()[1]}
	running.Deadline, running.Budget = new(now.Add(2*time.Hour)), 15_000_000
	running.Spec = json.RawMessage(
		`{"run":"python train.py","resources":{"gpus":"8","nodes":"1","cpus":"8"},"place":"any","objective":"time","expect":"6h","target":{"metric":"val_loss","at_most":2.2}}`,
	)
	f := made()
	running.Forecast = api.NewForecast(&f)
	y.answer("GET /api/v1/jobs/j7", running)
	y.answer("GET /api/v1/jobs/j7/forecast", running.Forecast)
	c := measured()
	small := api.Metric{
		Name:      "accuracy",
		Source:    "TensorBoard",
		Step:      12300,
		Value:     0.7125,
		At:        c.At,
		Count:     12,
		NonFinite: 3,
	}

	never := api.Metric{Name: "grad_norm", Source: "TensorBoard", NonFinite: 1}
	y.answer("GET /api/v1/jobs/j7/metrics", api.MetricList{Metrics: []api.Metric{small, never, c.Metric}})

	y.mux.HandleFunc("GET /api/v1/jobs/j7/curve", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("metric") {
		case "val_loss":
			reply(w, http.StatusOK, c)
		case "accuracy":
			reply(
				w,
				http.StatusOK,
				api.Curve{
					Metric: small,
					Points: []api.MetricPoint{
						{Step: 1, At: c.At, Value: new(0.5)},
						{Step: 2, At: c.At + 0.25},
						{Step: 3.5, At: c.At + 60, Value: new(0.7125)},
					},
				},
			)
		case "grad_norm":
			reply(w, http.StatusOK, api.Curve{Metric: never, Points: []api.MetricPoint{}})
		default:
			reply(
				w,
				http.StatusNotFound,
				api.Problem{Detail: `job j7 has no metric "x"`, Kind: "not_found", Code: "metric_not_found"},
			)
		}
	})

	waiting := detail()
	early := made()
	early.Guess = true
	early.Basis = job.BasisHistory
	early.Records = 7
	early.Covered = 0
	early.Metric = ""
	early.Source = ""
	early.Done = 0
	early.Never = 0
	early.Why, early.Wait, early.Path, early.Methods = "3 jobs with the same name took 2 h 11 min (median).", around(
		5400,
	), []id.Job{
		"j3",
		"j5",
	}, nil

	waiting.Forecast = api.NewForecast(&early)
	y.answer("GET /api/v1/jobs/j9", waiting)
	y.answer("GET /api/v1/jobs/j9/forecast", waiting.Forecast)
	y.answer("GET /api/v1/jobs/j9/metrics", api.MetricList{Metrics: []api.Metric{}})
	y.list(foreseen()...)

	ended := api.JobDetail{Job: someJobs()[2], Spec: json.RawMessage(`{"run":"python train.py"}`)}
	y.answer("GET /api/v1/jobs/j6", ended)

	y.answer(
		"GET /api/v1/jobs/j6/metrics",
		api.MetricList{Metrics: []api.Metric{{Name: "accuracy"}, {Name: "Train/Loss"}}},
	)

	y.answer(
		"GET /api/v1/jobs/j6/curve",
		api.Curve{
			Metric: api.Metric{Name: "Train/Loss", Step: 3, Value: 1.5},
			Points: []api.MetricPoint{{Step: 1, Value: new(3.0)}, {Step: 3, Value: new(1.5)}},
		},
	)

	y.refuse(
		"GET /api/v1/jobs/j6/forecast",
		http.StatusConflict,
		api.Problem{Detail: "job j6 has ended: it is OUT_OF_MEMORY", Kind: "conflict", Code: "job_state"},
	)

	y.answer("GET /api/v1/forecasts", api.ForecastRecord{
		Jobs:      160,
		Scored:    143,
		Wanted:    20,
		Covered:   0.812,
		CoveredOf: 512,
		Methods: []api.MethodAccuracy{
			{
				Method: "blend",
				Errors: []api.Accuracy{
					{Quarter: 0, Median: 0.07, Count: 512},
					{Quarter: 1, Median: 0.121, Count: 120},
					{Quarter: 4, Median: 0.031, Count: 140},
				},
			},
			{
				Method: "nohistory",
				Errors: []api.Accuracy{{Quarter: 0, Median: 0.4, Count: 500, Failed: 12}, {Quarter: 1, Count: 3, Failed: 3}},
			},
		},
		Model: &api.DurationModel{
			Version: 7,
			Trained: ago(2 * time.Hour),
			Records: 143,
			Digest:  "0123456789abcdef",
			Validation: []api.LearnerErrors{
				{
					Learner:  "mlp",
					Median:   0.09,
					P80:      0.31,
					Within25: 0.72,
					Weight:   0.7,
				},
				{Learner: "trees", Median: 0.12, P80: 0.4, Within25: 0.66, Weight: 0.3},
			},
		},
		Bases: []api.BasisAccuracy{
			{Basis: "like", Quality: api.Quality{Median: 0.06, P80: 0.2, Count: 400, Covered: 0.82, CoveredOf: 380}},
			{Basis: "before", Quality: api.Quality{Median: 0.5, P80: 1.4, Count: 12}},
		},
		Worst: []api.WorstForecast{
			{
				Job: "j9", Name: "resnet", Owner: "ada", Finished: ago(time.Hour), Progress: 0.4, Basis: "like", Ratio: 3.21,
				Covered: new(false),
			},
			{Job: "j8", Owner: "ada", Finished: ago(2 * time.Hour), Progress: 0.2, Basis: "before", Ratio: 0.5},
		},
	})

	return y
}

func TestForecastsAreShownAsTheyAreDrawn(t *testing.T) {
	t.Parallel()
	y := withForecasts(t)
	utf8 := func(p *person) { p.vars["LANG"] = "en_US.UTF-8" }
	terminal := func(p *person) {
		utf8(p)
		p.terminal = true
		p.env.Width = func() int { return 60 }
	}

	for name, tt := range map[string]struct {
		setup func(*person)
		args  []string
	}{
		"forecast-jobs": {utf8, []string{"jobs", "--all"}},
		"forecast-jobs-terminal": {func(p *person) {
			terminal(p)
			p.env.Width = func() int { return 100 }
		}, []string{"jobs", "--all"}},
		"forecast-job":         {utf8, []string{"job", "j7"}},
		"forecast-job-methods": {utf8, []string{"job", "j7", "--methods", "--no-plot"}},
		"forecast-job-metric":  {utf8, []string{"job", "j7", "--metric", "accuracy"}},
		"forecast-job-waiting": {utf8, []string{"job", "j9"}},
		"forecast-job-ended":   {utf8, []string{"job", "j6"}},
		"forecast-one":         {func(*person) {}, []string{"forecast", "j7", "--methods"}},
		"forecast-brief":       {func(*person) {}, []string{"forecast", "j7", "--no-plot"}},
		"forecast-one-json":    {utf8, []string{"forecast", "j7", "-o", "json"}},
		"forecast-terminal":    {terminal, []string{"forecast", "j7"}},
		"forecast-zone": {func(p *person) {
			p.vars["LC_ALL"], p.vars["LANG"], p.env.Zone = "C", "de_DE.UTF-8", time.FixedZone("NZDT", 13*3600)
		}, []string{"forecast", "j7"}},
		"forecast-record":      {utf8, []string{"forecast"}},
		"forecast-record-json": {utf8, []string{"forecast", "-o", "json"}},
		"metrics":              {utf8, []string{"metrics", "j7"}},
		"metrics-csv":          {utf8, []string{"metrics", "j7", "accuracy"}},
		"metrics-table":        {utf8, []string{"metrics", "j7", "accuracy", "-o", "table"}},
		"metrics-json":         {utf8, []string{"metrics", "j7", "accuracy", "-o", "json"}},
		"metrics-plot":         {utf8, []string{"metrics", "j7", "val_loss", "-o", "plot"}},
		"metrics-terminal":     {terminal, []string{"metrics", "j7", "val_loss"}},
		"help-forecast":        {utf8, []string{"forecast", "--help"}},
		"help-metrics":         {utf8, []string{"metrics", "--help"}},
		"help-job":             {utf8, []string{"job", "--help"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPerson(t).at(t, y)
			tt.setup(p)

			if code := p.types(t.Context(), tt.args...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			if text := p.stderr.String(); text != "" && !p.terminal {
				t.Errorf("stderr has %q", text)
			}

			golden(t, name, p.stdout.String())
		})
	}
}

func TestWhatIsWrongWithForecastsIsTold(t *testing.T) {
	t.Parallel()
	y := withForecasts(t)
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"forecast", "j6"}, exit.Refused, "job j6 has ended"},
		{[]string{"forecast", "--no-plot"}, exit.Usage, "--metric, --no-plot and --methods need a job"},
		{[]string{"forecast", "--metric", "x"}, exit.Usage, "--metric, --no-plot and --methods need a job"},
		{[]string{"forecast", "j7", "--metric", "x"}, exit.NotFound, `has no metric "x"`},
		{[]string{"job", "j7", "--metric", "x"}, exit.NotFound, `has no metric "x"`},
		{[]string{"job", "j7", "--metric", "x", "--no-plot"}, exit.Usage, "[metric no-plot] were all set"},
		{[]string{"forecast", "j7", "j9"}, exit.Usage, "unexpected argument"},
		{[]string{"metrics"}, exit.Usage, "missing argument: job"},
		{[]string{"metrics", "j7", "-o", "csv"}, exit.Usage, "--points and this output format need a METRIC"},
		{[]string{"metrics", "j7", "--points", "10"}, exit.Usage, "--points and this output format need a METRIC"},
		{[]string{"metrics", "j7", "val_loss", "--points", "1"}, exit.Usage, "--points must be from 2 to 1024"},
		{[]string{"metrics", "j7", "x"}, exit.NotFound, `has no metric "x"`},
		{[]string{"metrics", "j7", "x", "-o", "gif"}, exit.Usage, `there is no format "gif"`},
		{[]string{"metrics", "j9"}, exit.OK, "j9 has reported no metrics yet"},
		{[]string{"metrics", "j7", "grad_norm", "-o", "plot"}, exit.OK, `j7 has no value of "grad_norm" yet`},
		{[]string{"metrics", "j7", "grad_norm", "-o", "table"}, exit.OK, `j7 has no value of "grad_norm" yet`},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), tt.args...); code != tt.code || !strings.Contains(p.stderr.String(), tt.says) {
			t.Errorf("%v: exit code %d, want %d; says %q, want %q", tt.args, code, tt.code, p.stderr, tt.says)
		}
	}
}

func TestAJobIsShownWithoutACurveThatCannotBeHad(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j9", detail())

	y.refuse(
		"GET /api/v1/jobs/j9/metrics",
		http.StatusInternalServerError,
		api.Problem{Detail: "the disk is full", Kind: "internal", Code: "internal"},
	)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "job", "j9"); code != exit.OK || !strings.Contains(p.stdout.String(), "File:") ||
		!strings.Contains(p.stderr.String(), "no curve: the disk is full") {
		t.Errorf("exit code %d:\n%s%s", code, p.stdout, p.stderr)
	}
}

func TestCurvesAreAskedForOnceAndOnlyWhenTheyAreDrawn(t *testing.T) {
	t.Parallel()
	y := withForecasts(t)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"job", "j7"}, []string{"GET /api/v1/jobs/j7", "GET /api/v1/jobs/j7/curve?metric=val_loss&points=500"}},
		{[]string{"job", "j6"}, []string{"GET /api/v1/jobs/j6", "GET /api/v1/jobs/j6/metrics", "GET /api/v1/jobs/j6/curve?metric=Train%2FLoss&points=500"}},
		{[]string{"job", "j7", "--no-plot"}, []string{"GET /api/v1/jobs/j7"}},
		{[]string{"job", "j7", "-o", "json"}, []string{"GET /api/v1/jobs/j7"}},
		{[]string{"forecast", "j7", "-o", "yaml"}, []string{"GET /api/v1/jobs/j7/forecast"}},
		{[]string{"forecast", "j9"}, []string{"GET /api/v1/jobs/j9/forecast", "GET /api/v1/jobs/j9", "GET /api/v1/jobs/j9/metrics"}},
		{[]string{"metrics", "j7", "val_loss", "-o", "csv", "--points", "50"}, []string{"GET /api/v1/jobs/j7/curve?metric=val_loss&points=50"}},
	} {
		before := len(y.called())
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), tt.args...); code != exit.OK {
			t.Errorf("%v: exit code %d: %s", tt.args, code, p.stderr)
		}

		if diff := cmp.Diff(tt.want, y.called()[before:]); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.args, diff)
		}
	}
}

func TestARecordWithoutHistorySaysSo(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer(
		"GET /api/v1/forecasts",
		api.ForecastRecord{
			Jobs:    1,
			Scored:  7,
			Wanted:  20,
			NoModel: "it takes 30 finished jobs to learn from, and there are 7",
		},
	)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "forecast"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	golden(t, "forecast-record-empty", p.stdout.String())
}

func TestNotesSayHowLongAJobStillTakes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	waits, runs := foreseen()[7], foreseen()[0]
	waits.ID, runs.ID = "j1", "j1"
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: waits})

	y.feed("GET /api/v1/jobs/j1/logs/follow", func(_ *http.Request, send func(kind, id string, data any)) {
		send("state", "", runs)
		send("end", "c1", ended(job.Succeeded, 0))
	})

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "logs", "-f", "j1"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	want := "j1 llama-sft PENDING: waits for 8 GPUs; j7 of grace holds them, takes ~2h11m\n" +
		"j1 resnet50 RUNNING: runs on box1, 2h10m left (fake GPUs)\n" +
		"j1 train SUCCEEDED in 2m5s\n"
	if diff := cmp.Diff(want, p.stderr.String()); diff != "" {
		t.Errorf("notes differ (-want +got):\n%s", diff)
	}
}

func TestTheShellIsToldWhichMetricsThereAre(t *testing.T) {
	t.Parallel()
	y := withForecasts(t)
	for want, args := range map[string][]string{
		"val_loss\n:4\n":            {"__complete", "metrics", "j7", "v"},
		"accuracy\ngrad_norm\nval_": {"__complete", "metrics", "j7", ""},
		"j30\tRUNNING resnet50\n":   {"__complete", "metrics", "j3"},
		":4\n":                      {"__complete", "metrics", "j7", "val_loss", ""},
		":1\n":                      {"__complete", "metrics", "j404", ""},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), args...); code != exit.OK || !strings.HasPrefix(p.stdout.String(), want) {
			t.Errorf("%v: exit code %d, suggests %q, want %q", args, code, p.stdout, want)
		}
	}
}

func TestEarlierJobsAreHandedIn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.answer("POST /api/v1/forecasts/history", api.ImportReply{Read: 1500, Kept: 1000})

	table := filepath.Join(t.TempDir(), "old.csv")
	if err := os.WriteFile(table, []byte("seconds\n10\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"forecast", "import", table, "--format", "mlperf"}, exit.OK, "1500 jobs read, the newest 1000 imported"},
		{[]string{"forecast", "import"}, exit.Usage, "missing argument: file"},
		{[]string{"forecast", "import", table + ".gone"}, exit.Refused, "no such file"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(
			t.Context(),
			tt.args...); code != tt.code ||
			!strings.Contains(p.stdout.String()+p.stderr.String(), tt.says) {
			t.Errorf("%v: exit code %d, want %d; says %q %q, want %q", tt.args, code, tt.code, p.stdout, p.stderr, tt.says)
		}
	}

	if diff := cmp.Diff([]string{"POST /api/v1/forecasts/history?format=mlperf"}, y.called()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
