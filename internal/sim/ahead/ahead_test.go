package ahead_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim/ahead"
	"trainyard/internal/tenant"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// fake is a yard with one node of two GPUs.
type fake struct {
	jobs []api.JobDetail // oldest first
	data []api.Dataset
}

func (f *fake) Info(context.Context) (api.Info, error) {
	return api.Info{Policy: "fifo", Now: noon}, nil
}

func (f *fake) Whoami(context.Context) (api.Whoami, error) {
	return api.Whoami{User: "root", Role: tenant.Admin}, nil
}

func (f *fake) Nodes(context.Context, api.Page) (api.NodePage, error) {
	n := api.Node{ID: "lab", Class: fleet.Local, State: "idle", CPUs: 8000, CPUsFree: 8000, Memory: 64 << 30, MemFree: 64 << 30}
	for i := range 2 {
		n.GPUs = append(n.GPUs, api.GPU{Index: i, Model: "A100", Memory: 80 << 30, State: fleet.GPUIdle})
	}

	return api.NodePage{Nodes: []api.Node{n}}, nil
}

func (f *fake) Jobs(_ context.Context, want api.JobFilter) (api.JobPage, error) {
	var page api.JobPage
	for _, d := range slices.Backward(f.jobs) {
		if (len(want.States) == 0 || slices.Contains(want.States, d.State)) && !d.Submitted.Before(want.Since) {
			page.Jobs = append(page.Jobs, d.Job)
		}
	}

	return page, nil
}

func (f *fake) Job(_ context.Context, j id.Job) (api.JobDetail, error) {
	for _, d := range f.jobs {
		if d.ID == j {
			return d, nil
		}
	}

	return api.JobDetail{}, fault.New(fault.NotFound, "job_not_found", "job %s not found", j)
}

func (f *fake) Users(context.Context, api.Page) (api.UserPage, error) { return api.UserPage{}, nil }

func (f *fake) Datasets(context.Context, api.Page) (api.DatasetPage, error) {
	return api.DatasetPage{Datasets: f.data}, nil
}

func (f *fake) Events(context.Context, api.EventFilter) (api.EventPage, error) {
	return api.EventPage{}, nil
}

// queued adds a job that waits for both GPUs and takes an hour, or so long as its forecast says.
func (f *fake) queued(t *testing.T, priority int, forecast *api.Forecast) id.Job {
	t.Helper()
	n := len(f.jobs) + 1
	two := job.Range{Min: 2, Max: 2}
	spec, err := json.Marshal(job.Spec{
		Name: fmt.Sprint("job-", n), Run: "true", Place: job.PlaceAny, Expect: job.Duration(time.Hour), Priority: priority,
		Resources: job.Resources{GPUs: two, Nodes: job.Range{Min: 1, Max: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}

	name := id.Job(fmt.Sprint("j", n))
	f.jobs = append(f.jobs, api.JobDetail{Spec: spec, Job: api.Job{
		ID: name, Owner: "ada", State: job.Pending, Submitted: noon.Add(time.Duration(n-10) * time.Minute), Forecast: forecast,
	}})

	return name
}

// ended adds a job of yesterday that ran for an hour.
func (f *fake) ended(t *testing.T) {
	t.Helper()
	f.queued(t, 0, nil)
	d := &f.jobs[len(f.jobs)-1]
	end := noon.Add(-time.Hour)
	d.State, d.Ended, d.Submitted, d.Ran = job.Succeeded, &end, noon.Add(-3*time.Hour), job.Duration(time.Hour)
}

func ask(t *testing.T, f *fake, in api.WhatIfRequest) *api.WhatIf {
	t.Helper()

	yard := ahead.Yard{Policies: catalogue.All(nil), Patience: time.Hour, Clock: clock.Wall{}}
	out, err := yard.Ask(t.Context(), f, &in)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// figure returns a figure by its key.
func figure(t *testing.T, w *api.WhatIf, key string) api.WhatIfFigure {
	t.Helper()

	i := slices.IndexFunc(w.Figures, func(f api.WhatIfFigure) bool { return f.Key == key })
	if i < 0 {
		t.Fatalf("no figure %s among %+v", key, w.Figures)
	}

	return w.Figures[i]
}

func hours(b job.Band) [3]float64 {
	return [3]float64{b.Low / time.Hour.Seconds(), b.Mid / time.Hour.Seconds(), b.High / time.Hour.Seconds()}
}

func TestAnotherNodeHalvesTheTime(t *testing.T) {
	t.Parallel()

	f := &fake{}
	for range 4 {
		f.queued(t, 0, nil)
	}

	w := ask(t, f, api.WhatIfRequest{AddNodes: "1xA100:80GBx2"})
	makespan := figure(t, w, "makespan_s")

	if got, want := hours(makespan.Today), [3]float64{4, 4, 4}; got != want {
		t.Errorf("today the jobs end after %v hours, want %v", got, want)
	}
	if got, want := hours(makespan.Then), [3]float64{2, 2, 2}; got != want {
		t.Errorf("then the jobs end after %v hours, want %v", got, want)
	}
	if got := hours(makespan.Change)[1]; got != -2 {
		t.Errorf("the change is %v hours, want -2", got)
	}
	if diff := cmp.Diff([]string{"1xA100:80GBx2 added"}, w.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}

	last := w.List[len(w.List)-1]
	if last.Today.Start == nil || *last.Today.Start != 3*time.Hour.Seconds() || *last.Then.Start != time.Hour.Seconds() {
		t.Errorf("the last job starts %+v today and %+v then, want after 3 h and 1 h", last.Today, last.Then)
	}

	line := w.Timeline
	n := len(line.Seconds)
	if n != len(line.Left.Today.Mid) || n != len(line.Use.Then.High) || line.Left.Today.Mid[0] != 4 ||
		line.Left.Today.Mid[n-1] > 1 || line.Use.Today.Mid[n/2] != 1 {
		t.Errorf("the time line is %+v", line)
	}
}

func TestForecastsGiveIntervals(t *testing.T) {
	t.Parallel()

	f := &fake{}
	forecast := api.NewForecast(&job.Forecast{
		At: noon, Basis: job.BasisCurve,
		Remaining: job.Band{Low: time.Hour.Seconds(), Mid: 2 * time.Hour.Seconds(), High: 6 * time.Hour.Seconds()},
	})
	f.queued(t, 0, forecast)

	w := ask(t, f, api.WhatIfRequest{Draws: 25})
	if w.List[0].Basis != "forecast" || w.Draws != 25 {
		t.Errorf("the run time is from %s, in %d draws", w.List[0].Basis, w.Draws)
	}

	b := hours(*w.List[0].Today.End)
	if b[0] < 0.5 || b[0] > 1.8 || b[1] < 1 || b[1] > 4 || b[2] < 3 || b[2] > 15 {
		t.Errorf("it ends after %v hours, want about 1, 2 and 6", b)
	}
	if c := figure(t, w, "makespan_s").Change; c != (job.Band{}) {
		t.Errorf("without a change something changes: %+v", c)
	}
}

func TestTheLastDayComesAgain(t *testing.T) {
	t.Parallel()

	f := &fake{}
	for range 6 {
		f.ended(t)
	}

	f.queued(t, 0, nil)

	load := 2.0
	w := ask(t, f, api.WhatIfRequest{Load: &load, Draws: 1})
	if w.Arrived != 6 || w.Jobs != 1 {
		t.Errorf("%d jobs arrive beside %d, want 6 and 1", w.Arrived, w.Jobs)
	}

	use := figure(t, w, "utilisation")
	if use.Then.Mid <= use.Today.Mid && figure(t, w, "waiting_mean_s").Change.Mid <= 0 {
		t.Errorf("twice the load changes neither use %+v nor waiting", use)
	}
}

// A job that needs a dataset starts where the dataset may be used and is, as in the yard.
func TestJobsHaveTheirDatasets(t *testing.T) {
	t.Parallel()

	for _, place := range []job.Place{job.PlaceLocal, job.PlaceCloud} {
		starts := place == job.PlaceLocal
		f := &fake{data: []api.Dataset{{ID: "scans", Owner: "ada", DatasetRequest: api.DatasetRequest{
			Place: place, Copies: []api.Copy{{At: place, Path: "/data/scans"}},
		}}}}
		needs := f.queued(t, 0, nil)

		var spec job.Spec
		if err := json.Unmarshal(f.jobs[0].Spec, &spec); err != nil {
			t.Fatal(err)
		}

		spec.Data = []string{"scans"}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}

		f.jobs[0].Spec = text
		f.queued(t, 0, nil)
		w := ask(t, f, api.WhatIfRequest{Draws: 1})

		for _, j := range w.List {
			if (j.Today.Start != nil) != (starts || j.Job != needs) {
				t.Errorf("with the dataset at %s: %+v", place, j)
			}
		}

		// That a job never starts is not idle time.
		if use := figure(t, w, "utilisation"); use.Today.Mid != 1 {
			t.Errorf("both GPUs are in use until the last end, but the utilisation is %+v", use.Today)
		}
	}
}

func TestPrioritiesPricesAndPolicy(t *testing.T) {
	t.Parallel()

	f := &fake{}
	first, second := f.queued(t, 10, nil), f.queued(t, 10, nil)

	w := ask(t, f, api.WhatIfRequest{
		Priorities: map[id.Job]int{second: 90}, Prices: map[string]float64{"A100": 2}, Policy: "priority",
	})

	for _, j := range w.List {
		if j.Today.Start == nil || j.Then.Start == nil {
			t.Fatalf("%s starts %+v today and %+v then", j.Job, j.Today, j.Then)
		}

		today, then := *j.Today.Start, *j.Then.Start
		if j.Job == first && (today != 0 || then == 0) || j.Job == second && (today == 0 || then != 0) {
			t.Errorf("%s starts after %v today and %v then", j.Job, today, then)
		}
	}

	money := figure(t, w, "money")
	if money.Today.Mid != 0 || money.Then.Mid != 8 {
		t.Errorf("the money is %+v; want nothing without a tariff, and 2 × 2 GPUs × 1 h × $2", money)
	}

	if text := strings.Join(w.Changes, "; "); text != "policy priority; A100 at $2.00/h; other priorities of 1 job" {
		t.Errorf("the changes are %q", text)
	}
}

func TestBadQuestionsAreRefused(t *testing.T) {
	t.Parallel()

	for want, in := range map[string]api.WhatIfRequest{
		"bad_cluster":    {AddNodes: "many"},
		"unknown_policy": {Policy: "magic"},
		"bad_price":      {Prices: map[string]float64{"A100": -1}},
		"bad_priority":   {Priorities: map[id.Job]int{"j1": 101}},
		"job_not_found":  {Priorities: map[id.Job]int{"j7": 10}},
	} {
		f := &fake{}
		f.queued(t, 0, nil)
		yard := ahead.Yard{Policies: catalogue.All(nil), Patience: time.Hour, Clock: clock.Wall{}}

		var got *fault.Error
		if _, err := yard.Ask(t.Context(), f, &in); !errors.As(err, &got) || got.Code != want {
			t.Errorf("%+v: %v, want %s", in, err, want)
		}
	}
}

func TestASimulationEndsWhenNobodyWaitsForIt(t *testing.T) {
	t.Parallel()

	f := &fake{}
	f.queued(t, 0, nil)
	yard := ahead.Yard{Policies: catalogue.All(nil), Patience: time.Hour, Clock: clock.Wall{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := yard.Ask(ctx, f, &api.WhatIfRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the answer is %v, want that it was cancelled", err)
	}

	yard.Patience = -time.Second

	var got *fault.Error
	if _, err := yard.Ask(t.Context(), f, &api.WhatIfRequest{}); !errors.As(err, &got) || got.Code != "too_long" {
		t.Errorf("without time the answer is %v, want too_long", err)
	}
}
