package forecasts

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/console"
	"trainyard/internal/job"
)

// at is a clock that stands.
type at time.Time

func (a at) Now() time.Time { return time.Time(a) }

func TestASectionSaysWhatIsKnown(t *testing.T) {
	t.Parallel()
	hour := job.Band{Low: 1800, Mid: 3600, High: 7200}
	for name, tt := range map[string]struct {
		state    job.State
		started  bool
		forecast *job.Forecast
		spec     string
		deadline time.Duration
		want     string
	}{
		"nothing":                    {state: job.Running},
		"an ended job":               {state: job.Succeeded, forecast: &job.Forecast{Remaining: hour, Basis: job.BasisCurve}},
		"not known":                  {state: job.Running, forecast: &job.Forecast{Why: "nothing was heard"}, want: "Forecast: nothing was heard\n"},
		"not even why":               {state: job.Pending, forecast: &job.Forecast{}, want: "Forecast: nothing is known yet\n"},
		"start unknown":              {state: job.Pending, forecast: &job.Forecast{Remaining: hour, Basis: job.BasisHistory}, want: "Forecast:\n  Duration:          1h (80% prediction interval: 30m to 2h)\n  Estimated finish:  1h after it starts (start time unknown)\n  Basis:             similar jobs that have finished\n"},
		"late or not is unknown too": {state: job.Pending, forecast: &job.Forecast{Remaining: hour, Basis: job.BasisHistory}, deadline: 2 * time.Hour, want: "Forecast:\n  Duration:          1h (80% prediction interval: 30m to 2h)\n  Estimated finish:  1h after it starts (start time unknown)\n  Basis:             similar jobs that have finished\n"},
		"once begun":                 {state: job.Recovering, started: true, forecast: &job.Forecast{Remaining: hour, Wait: job.Band{Low: 60, Mid: 60, High: 60}, Basis: job.BasisBoth}, want: "Forecast:\n  Estimated start:   in 1m\n  Remaining:         1h (80% prediction interval: 30m to 2h)\n  Estimated finish:  today 13:01 UTC (12:31 to 14:01)\n  Basis:             its own curve and similar jobs that have finished\n"},
		"paused":                     {state: job.Paused, started: true, forecast: &job.Forecast{Remaining: hour, Basis: job.BasisBoth}, deadline: 2 * time.Hour, want: "Forecast:\n  Estimated start:   when it is resumed: trainyard resume j7\n  Remaining:         1h (80% prediction interval: 30m to 2h)\n  Estimated finish:  1h after it is resumed\n  Basis:             its own curve and similar jobs that have finished\n"},
		"time is up":                 {state: job.Running, started: true, forecast: &job.Forecast{At: noon.Add(-time.Hour), Remaining: hour, Basis: job.BasisSteps}, want: "Forecast:\n  Remaining:         any moment, in 1h at the latest\n  Estimated finish:  today 12:00 UTC (11:30 to 13:00)\n  Basis:             the amount of work that its program declares\n"},
		"no end":                     {state: job.Running, started: true, forecast: &job.Forecast{Remaining: hour, Never: 0.83, Basis: job.BasisCurve}, spec: `{"target":{"metric":"acc","at_least":0.9}}`, want: "Forecast:\n  Remaining:  unknown: it will probably not reach its target\n  Target:     acc at least 0.9: 83% probability of missing it\n  Basis:      its own curve\n"},
		"ends by itself":             {state: job.Running, started: true, forecast: &job.Forecast{Remaining: job.Band{Low: 60, Mid: 60, High: 60}, Never: 0.83, Basis: job.BasisSteps}, want: "Forecast:\n  Remaining:         1m\n  Estimated finish:  today 12:01 UTC\n  Target:            83% probability of missing it\n  Basis:             the amount of work that its program declares\n"},
		"a guess":                    {state: job.Running, started: true, forecast: &job.Forecast{Remaining: job.Band{Low: 60, Mid: 60, High: 60}, Guess: true, Basis: job.BasisExpect}, want: "Forecast:\n  Remaining:         1m (guess)\n  Estimated finish:  today 12:01 UTC\n  Basis:             its owner's estimate (expect)\n"},
		"a guess from too few jobs":  {state: job.Pending, forecast: &job.Forecast{Remaining: hour, Wait: job.Band{Low: 60, Mid: 60, High: 60}, Guess: true, Basis: job.BasisHistory}, want: "Forecast:\n  Estimated start:  in 1m\n  Duration:         1h (guess: 30m to 2h)\n  Basis:            similar jobs that have finished\n"},
		"a program that is starting": {state: job.Running, started: true, forecast: &job.Forecast{Remaining: hour, Guess: true, Starting: true, Basis: job.BasisExpect}, want: "Forecast:\n  Remaining:  unknown: its program is starting\n  Basis:      its owner's estimate (expect)\n"},
		"half of it has passed":      {state: job.Running, started: true, forecast: &job.Forecast{At: noon.Add(-30 * time.Minute), Remaining: job.Band{Low: 3600, Mid: 3600, High: 3600}, Done: 0.5, Basis: job.BasisSteps}, want: "Forecast:\n  Remaining:         30m\n  Estimated finish:  today 12:30 UTC\n  Done:              75%\n  Basis:             the amount of work that its program declares\n"},
		"a newer spec":               {state: job.Running, started: true, forecast: &job.Forecast{Remaining: job.Band{Low: 60, Mid: 60, High: 60}, Basis: job.BasisCurve}, spec: `{"expect":{"p90":"1h"}}`, want: "Forecast:\n  Remaining:         1m\n  Estimated finish:  today 12:01 UTC\n  Basis:             its own curve\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			f := New(console.New(console.Env{Stdin: strings.NewReader(""), Stdout: &out, Clock: at(noon)}), nil, nil)

			j := api.JobDetail{Job: api.Job{ID: "j7", State: tt.state}, Spec: json.RawMessage(tt.spec)}
			if tt.deadline > 0 {
				j.Deadline = new(noon.Add(tt.deadline))
			}

			if tt.started {
				j.Started = new(noon.Add(-2 * time.Hour))
			}

			if tt.forecast != nil {
				if tt.forecast.At.IsZero() {
					tt.forecast.At = noon
				}

				j.Forecast = api.NewForecast(tt.forecast)
			}

			if err := f.section(&j, "Forecast", false); err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongReasonsGoOnInTheNextLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	f := New(console.New(console.Env{Stdin: strings.NewReader(""), Stdout: &out, Clock: at(noon)}), nil, nil)

	made := &job.Forecast{
		At:        noon,
		Remaining: job.Band{Low: 60, Mid: 60, High: 60},
		Basis:     job.BasisCurve,
		Why:       strings.Repeat("It goes by its curve. ", 8),
	}

	j := api.JobDetail{Job: api.Job{State: job.Running, Forecast: api.NewForecast(made)}}
	if err := f.section(&j, "Forecast", false); err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(out.String()) {
		if len(line) > 81 {
			t.Errorf("%d characters: %q", len(line), line)
		}
	}

	if want := "\n                     It goes"; strings.Count(out.String(), "\n                     ") < 2 {
		t.Errorf("lines are not indented as in %q:\n%s", want, &out)
	}
}
