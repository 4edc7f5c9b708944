package forecasts

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/job"
)

var noon = time.Date(2026, 12, 30, 12, 0, 0, 0, time.UTC)

func TestTimesAreToldByTheClockOfTheMachine(t *testing.T) {
	t.Parallel()
	f := &Forecasts{Console: &console.Console{Env: console.Env{Zone: time.FixedZone("CET", 3600)}}}
	for _, tt := range []struct {
		low, mid, high time.Duration // from noon UTC
		want           string
	}{
		{time.Hour, 2 * time.Hour, 3 * time.Hour, "today 15:00 CET (14:00 to 16:00)"},
		{2 * time.Hour, 2 * time.Hour, 2 * time.Hour, "today 15:00 CET"},
		{time.Hour, 2 * time.Hour, 20 * time.Hour, "today 15:00 CET (today 14:00 to tomorrow 09:00)"},
		{11 * time.Hour, 20 * time.Hour, 40 * time.Hour, "tomorrow 09:00 CET (tomorrow 00:00 to Fri 1 Jan 2027 05:00)"},
	} {
		made := &api.Forecast{End: noon.Add(tt.mid), EndLow: noon.Add(tt.low), EndHigh: noon.Add(tt.high)}
		if got := f.ends(made, noon); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.mid, got, tt.want)
		}
	}
}

// TestLateIsSaidOfDeadlines is newcomer 4: "late" was said of jobs without a deadline, and of differences of 0 s.
func TestLateIsSaidOfDeadlines(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		deadline time.Duration // from noon; 0 for none
		expect   time.Duration
		onTime   string
		expected string
		left     string
	}{
		"not declared":     {0, 0, "", "", "2h"},
		"in time":          {5 * time.Hour, 0, "yes: 3h before its deadline", "", "2h"},
		"just in time":     {2 * time.Hour, 0, "maybe: up to 1h after its deadline", "", "2h"},
		"perhaps":          {150 * time.Minute, 0, "maybe: up to 30m after its deadline", "", "2h"},
		"late":             {time.Hour, 0, "no: 1h after its deadline", "", "2h, late"},
		"late by nothing":  {2*time.Hour - 10*time.Second, 0, "maybe: up to 1h after its deadline", "", "2h"},
		"over expect":      {5 * time.Hour, 2 * time.Hour, "yes: 3h before its deadline", "no: 1h longer than its expect of 2h", "2h, over expect"},
		"both":             {time.Hour, 2 * time.Hour, "no: 1h after its deadline", "no: 1h longer than its expect of 2h", "2h, late"},
		"within 5 %":       {0, 172 * time.Minute, "", "yes, but perhaps 1h8m longer than its expect of 2h52m", "2h"},
		"expected later":   {time.Hour, 9 * time.Hour, "no: 1h after its deadline", "yes: within its expect of 9h", "2h, late"},
		"longer than that": {0, 9 * time.Hour, "", "yes: within its expect of 9h", "2h"},
	} {
		j := &api.Job{
			State: job.Running, Submitted: noon.Add(-24 * time.Hour), Ran: job.Duration(time.Hour),
			Expect: job.Duration(tt.expect),
		}
		if tt.deadline > 0 {
			j.Deadline = new(noon.Add(tt.deadline))
		}

		j.Forecast = api.NewForecast(&job.Forecast{
			At: noon, Remaining: job.Band{Low: 3600, Mid: 7200, High: 10800}, Basis: job.BasisCurve,
		})
		if got := onTime(j).Value; got != tt.onTime {
			t.Errorf("%s: on time %q, want %q", name, got, tt.onTime)
		}
		if got := asExpected(j, j.Expect, noon).Value; got != tt.expected {
			t.Errorf("%s: as expected %q, want %q", name, got, tt.expected)
		}
		if got := Left(j, noon).Text; got != tt.left {
			t.Errorf("%s: left %q, want %q", name, got, tt.left)
		}
	}
}

// TestAStalledJobSaysSo is newcomer 6: a job that hung was shown with a remaining time that moved with the clock.
func TestAStalledJobSaysSo(t *testing.T) {
	t.Parallel()

	for notice, want := range map[string]struct{ left, line string }{
		job.NoticeStalled:   {"stalled", "stalled"},
		job.NoticeNotNumber: {"2h, NaN", "2h left"},
		"forecast_slipped":  {"2h", "2h left"},
	} {
		made := &job.Forecast{
			At: noon, Remaining: job.Band{Low: 7200, Mid: 7200, High: 7200}, Basis: job.BasisCurve, Notices: []string{notice},
			Remarks: map[string]string{job.NoticeStalled: "no progress since 11:40 UTC"},
		}

		j := &api.JobDetail{Job: api.Job{State: job.Running, Forecast: api.NewForecast(made)}}
		if got := Left(&j.Job, noon).Text; got != want.left {
			t.Errorf("%s: left is %q, want %q", notice, got, want.left)
		}
		if got := Line(&j.Job, noon); got != want.line {
			t.Errorf("%s: the line says %q, want %q", notice, got, want.line)
		}

		if notice != job.NoticeStalled {
			continue
		}

		f := New(console.New(console.Env{Stdin: strings.NewReader(""), Clock: at(noon)}), nil, nil)
		for _, field := range f.times(j, &wishes{}, noon) {
			if field.Name == "Remaining" && field.Value != "unknown: no progress since 11:40 UTC" ||
				field.Name == "Estimated finish" && field.Value != "" {
				t.Errorf("%s is %q", field.Name, field.Value)
			}
		}
	}
}

func TestTheMetricThatMattersMostIsDrawn(t *testing.T) {
	t.Parallel()

	for want, metrics := range map[string][]api.Metric{
		"":         nil,
		"lr":       {{Name: "lr"}, {Name: "accuracy"}},
		"Eval/NLL": {{Name: "accuracy"}, {Name: "Eval/NLL"}, {Name: "loss"}},
		"top1":     {{Name: "loss"}, {Name: "top1", Goal: new(0.9)}},
	} {
		if got := choose(metrics); got != want {
			t.Errorf("of %v %q is chosen, want %q", metrics, got, want)
		}
	}
}

func TestAccuracyIsNotClaimedForGuesses(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		forecast job.Forecast
		want     string
	}{
		"nothing":  {job.Forecast{}, ""},
		"a guess":  {job.Forecast{Guess: true, Records: 7, Covered: 1}, ""},
		"a record": {job.Forecast{Records: 143, Covered: 0.81, Checked: 512}, "81% of 512 such intervals contained the actual finish"},
		"one":      {job.Forecast{Records: 1, Covered: 1, Checked: 1}, "100% of 1 such interval contained the actual finish"},
		"untried":  {job.Forecast{Records: 30}, "based on 30 forecasts of finished jobs; no such interval has been checked yet"},
	} {
		if got := accuracy(&api.Forecast{Forecast: tt.forecast}); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestLengthsBeyondReasonAreNotSpelledOut(t *testing.T) {
	t.Parallel()

	for want, seconds := range map[string]float64{"0s": 0, "2h10m": 7800, "12d3h": 12*86400 + 3*3600, "over 2 years": 3.2e9} {
		if got := length(seconds); got != want {
			t.Errorf("%g seconds are %q, want %q", seconds, got, want)
		}
	}
}

// TestAllFiguresAreOfOneMoment: newcomer 14. "Remaining 4s" stood beside "steps 10s".
func TestAllFiguresAreOfOneMoment(t *testing.T) {
	t.Parallel()

	j := &api.Job{State: job.Running, Forecast: api.NewForecast(&job.Forecast{
		At: noon, Remaining: job.Band{Low: 5, Mid: 10, High: 20}, Done: 1. / 3, Basis: job.BasisSteps,
		Methods: []job.MethodForecast{{Method: "steps", Remaining: 10}, {Method: "match", Remaining: 4}, {Method: "x", Remaining: -1}},
	})}

	f := asOf(j, noon.Add(6*time.Second))
	if f.Remaining != (job.Band{Mid: 4, High: 14}) || f.Done < 0.73 || f.Done > 0.74 {
		t.Errorf("%+v remain, %g are done", f.Remaining, f.Done)
	}

	if f.Methods[0].Remaining != 4 || f.Methods[1].Remaining != 0 || f.Methods[2].Remaining != -1 {
		t.Errorf("the methods say %+v", f.Methods)
	}

	if late := asOf(j, noon.Add(time.Minute)); late.Done != 0.99 {
		t.Errorf("when the estimate has passed %g of a job that runs are done", late.Done)
	}

	if j.Forecast.Methods[0].Remaining != 10 {
		t.Error("what was given has changed")
	}

	// What is queued does not pass.
	j.State = job.Pending
	if f := asOf(j, noon.Add(6*time.Second)); f.Remaining.Mid != 10 || f.Methods[0].Remaining != 10 {
		t.Errorf("of a queued job: %+v", f)
	}
}

// TestAProgramThatReportsNothingYetIsStarting: the column LEFT showed the whole of its expect.
func TestAProgramThatReportsNothingYetIsStarting(t *testing.T) {
	t.Parallel()

	j := &api.Job{State: job.Running, Forecast: api.NewForecast(&job.Forecast{
		At: noon, Remaining: job.Band{Low: 3600, Mid: 3600, High: 3600}, Guess: true, Starting: true, Basis: job.BasisExpect,
	})}
	if got := Left(j, noon).Text; got != "starting" {
		t.Errorf("LEFT is %q", got)
	}

	if got := Line(j, noon); got != "starting" {
		t.Errorf("the line is %q", got)
	}

	j.Forecast.Basis = job.BasisNone
	if got := Left(j, noon).Text; got != "starting" {
		t.Errorf("with nothing expected LEFT is %q", got)
	}
}
