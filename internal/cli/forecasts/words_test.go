package forecasts

import (
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

func TestLatenessIsMeasuredByTheEarlierWish(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		deadline time.Duration // from noon; 0 for none
		expect   time.Duration
		want     string
	}{
		"nobody said":         {0, 0, ""},
		"in time":             {5 * time.Hour, 0, "yes: 3h earlier than its deadline"},
		"perhaps":             {150 * time.Minute, 0, "maybe: up to 30m later than its deadline"},
		"late":                {time.Hour, 0, "no: 1h later than its deadline"},
		"expected earlier":    {5 * time.Hour, 2 * time.Hour, "no: 1h later than expected (2h of run time)"},
		"expected later":      {time.Hour, 9 * time.Hour, "no: 1h later than its deadline"},
		"expected and enough": {0, 9 * time.Hour, "yes: 6h earlier than expected (9h of run time)"},
	} {
		j := &api.JobDetail{
			Job: api.Job{State: job.Running, Submitted: noon.Add(-24 * time.Hour), Ran: job.Duration(time.Hour)},
		}
		if tt.deadline > 0 {
			j.Deadline = new(noon.Add(tt.deadline))
		}

		made := &api.Forecast{End: noon.Add(2 * time.Hour), EndHigh: noon.Add(3 * time.Hour)}
		made.At, made.Remaining.Mid = noon, 7200
		j.Forecast = made
		if got := late(made, j, &wishes{Expect: job.Duration(tt.expect)}, noon).Value; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
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
