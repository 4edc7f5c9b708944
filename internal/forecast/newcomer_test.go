package forecast

import (
	"fmt"
	"testing"
	"time"

	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// ended returns a job that took so long, as it is remembered.
func ended(number int, at, seconds float64, spec job.Spec) history.Past {
	j := &job.Job{ID: id.Job(fmt.Sprint("j", number)), Owner: "ann", Submitted: after(at), Spec: &spec, Workdir: "files"}

	p, ok := Finished(&Input{Job: j, Now: after(at + seconds), Runs: []Stretch{
		{Epoch: 1, GPU: "A100", GPUs: 1, Nodes: 1, From: after(at), To: after(at + seconds)},
	}})
	if !ok {
		panic("it never ran")
	}

	return p
}

// firstDay is what a newcomer had run: many jobs that take a moment, and two trainings of about 50 seconds.
func firstDay() []history.Past {
	past := []history.Past{ended(1, 0, 51, training), ended(2, 60, 54, training)}
	for i := range 55 {
		past = append(past, ended(10+i, 200+float64(i), 0.05, job.Spec{Run: "true"}))
	}

	return past
}

var training = job.Spec{Name: "digits", Run: "python train.py", Params: map[string]any{"lr": 0.1}}

// submitted returns a job of a spec that nobody has run yet, an hour later.
func submitted(spec job.Spec, l *Library) *Input {
	now := after(3600)
	j := &job.Job{ID: "j999", Owner: "ann", Submitted: now, Spec: &spec, Workdir: "files", State: job.Pending}

	return &Input{Job: j, Now: now, Library: l}
}

// TestARepetitionIsForecastByItsRuns: newcomer 2. The model had learned from 55 jobs that take a moment, and said
// of the repetition of a training "in 1s (0s to 19s)".
func TestARepetitionIsForecastByItsRuns(t *testing.T) {
	t.Parallel()

	past := firstDay()

	model, err := duration.Train(past, 1)
	if err != nil {
		t.Fatal(err)
	}

	f := Make(submitted(training, NewLibrary(past, model)))
	if f.Basis != job.BasisHistory || !f.Guess || f.Timed() || f.Remaining.Low < 20 || f.Remaining.High > 120 {
		t.Errorf("%+v", f)
	}

	near(t, "what remains", f.Remaining.Mid, 53, 0.05)
	wants(t, f, "The same job has run before: 2 runs, which makes 53 s (median).", "That is a guess")

	// It runs and has reported nothing: what has passed is taken off.
	in := submitted(training, NewLibrary(past, model))
	in.Runs, in.Now = []Stretch{{Epoch: 1, GPU: "A100", GPUs: 1, Nodes: 1, From: after(3600)}}, after(3620)
	f = Make(in)
	near(t, "what remains after 20 s", f.Remaining.Mid, 33, 0.2)

	if f.Starting {
		t.Errorf("it is known how long it takes: %+v", f)
	}

	// It runs longer than it ever did.
	in.Now = after(5000)
	f = Make(in)

	if f.Basis != job.BasisNone {
		t.Errorf("%+v", f)
	}

	wants(t, f, "It has run longer than 2 earlier runs like it.")
}

// TestAJobUnlikeAllOthersHasNoForecast: newcomer 2. `sleep 600` on four GPUs was said to be done in 8 s, "as
// learned from 22 jobs".
func TestAJobUnlikeAllOthersHasNoForecast(t *testing.T) {
	t.Parallel()

	past := firstDay()

	model, err := duration.Train(past, 1)
	if err != nil {
		t.Fatal(err)
	}

	unlike := job.Spec{Run: "sleep 600", Resources: job.Resources{GPUs: job.Range{Min: 4, Max: 4}}}

	f := Make(submitted(unlike, NewLibrary(past, model)))
	if f.Basis != job.BasisNone || f.Remaining != (job.Band{}) {
		t.Errorf("%+v", f)
	}

	wants(t, f, "It has not run, and no similar job has finished.")
}

// TestAJobThatHasJustEndedCounts: newcomer 32. 5 s after 16 jobs had ended, none was like the next of the same.
func TestAJobThatHasJustEndedCounts(t *testing.T) {
	t.Parallel()

	empty := NewLibrary(nil, nil)
	l := empty.With([]history.Past{ended(1, 0, 51, training)})

	if f := Make(submitted(training, l)); f.Basis != job.BasisHistory {
		t.Errorf("%+v", f)
	}

	if f := Make(submitted(training, empty)); f.Basis != job.BasisNone {
		t.Errorf("the library that was has changed: %+v", f)
	}

	if again := l.With([]history.Past{ended(1, 0, 51, training)}); again != l {
		t.Error("a job counts twice")
	}
}

// TestAProgramThatImportsItsLibrariesIsStarting: nothing was reported yet, and an hour is all that is expected.
func TestAProgramThatImportsItsLibrariesIsStarting(t *testing.T) {
	t.Parallel()

	quiet := func(seconds float64) *Input {
		in := trained(0)
		in.Series, in.Now, in.Job.Spec.Expect = nil, after(seconds), job.Duration(time.Hour)

		return in
	}

	f := Make(quiet(10))
	if !f.Starting || f.Timed() {
		t.Errorf("after 10 s: %+v", f)
	}

	wants(t, f, "Its program is starting and has not reported anything yet.")

	if f := Make(quiet(600)); f.Starting {
		t.Errorf("after 10 min: %+v", f)
	}

	silent := quiet(10)
	silent.Job.Spec.Expect = 0
	f = Make(silent)

	if !f.Starting || f.Basis != job.BasisNone || f.Why != "Its program is starting and has not reported anything yet." {
		t.Errorf("with nothing expected: %+v", f)
	}

	in := trained(10)
	in.Job.Spec.Expect = job.Duration(time.Hour)

	if f := Make(in); f.Starting {
		t.Errorf("it has reported: %+v", f)
	}

	waiting := trained(0)
	waiting.Series, waiting.Runs = nil, nil

	if f := Make(waiting); f.Starting {
		t.Errorf("it has not been started: %+v", f)
	}
}

func TestJobsAreTheSameByCommandParametersFilesAndResources(t *testing.T) {
	t.Parallel()

	of := func(change func(*job.Job)) string {
		spec := job.Spec{Run: "python train.py", Params: map[string]any{"lr": 0.1, "depth": 3},
			Env: map[string]string{"A": "1"}}
		j := &job.Job{ID: "j1", Owner: "ann", Spec: &spec, Workdir: "files"}
		change(j)

		return Features(j, Stretch{}).Identity
	}

	same := of(func(*job.Job) {})

	for name, tt := range map[string]struct {
		change func(*job.Job)
		same   bool
	}{
		"another number":   {func(j *job.Job) { j.ID, j.Submitted = "j2", noon }, true},
		"another priority": {func(j *job.Job) { j.Spec.Priority = 7 }, true},
		"another name":     {func(j *job.Job) { j.Spec.Name = "again" }, true},
		"command":          {func(j *job.Job) { j.Spec.Run += " --fast" }, false},
		"parameters":       {func(j *job.Job) { j.Spec.Params["lr"] = 0.2 }, false},
		"files":            {func(j *job.Job) { j.Workdir = "other" }, false},
		"variables":        {func(j *job.Job) { j.Spec.Env["A"] = "2" }, false},
		"resources":        {func(j *job.Job) { j.Spec.Resources.GPUs.Min = 2 }, false},
		"data":             {func(j *job.Job) { j.Spec.Data = []string{"large"} }, false},
	} {
		if got := of(tt.change) == same; got != tt.same {
			t.Errorf("with another %s it is the same: %v, want %v", name, got, tt.same)
		}
	}
}
