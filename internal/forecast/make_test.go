package forecast

import (
	"math"
	"strings"
	"testing"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time { return noon.Add(job.Seconds(seconds)) }

// trained is a job that has run on two A100 since noon and told its loss every ten
// steps of half a second, falling as 10/(1+step/100), until the given second.
func trained(until float64) *Input {
	in := &Input{
		Job: &job.Job{ID: "j9", Owner: "ann", Submitted: noon, Spec: &job.Spec{Name: "resnet", Run: "python train.py"}},
		Now: after(until), Runs: []Stretch{{Epoch: 1, GPU: "A100", GPUs: 2, Nodes: 1, From: noon}},
	}

	s := metric.Series{Name: "loss", Source: "stdout"}
	for step := 10.0; step*0.5 <= until; step += 10 {
		s.Add(1, metric.Point{Step: step, At: unix(after(step * 0.5)), Value: 10 / (1 + step/100)})
	}

	in.Series = []metric.Series{s}

	return in
}

func atMost(metric string, v float64) *job.Target  { return &job.Target{Metric: metric, AtMost: &v} }
func atLeast(metric string, v float64) *job.Target { return &job.Target{Metric: metric, AtLeast: &v} }

// finished are past jobs with the curve of trained, each somewhat slower, all of which ended at the
// goal after about so many steps of half a second.
func finished(n int, goal float64) []history.Past {
	var past []history.Past
	for i := range n {
		slow := 0.9 + 0.2*float64(i)/float64(max(n-1, 1))
		p := history.Past{
			Job:      id.Job("j" + string(rune('A'+i))),
			Group:    string(rune('a' + i)),
			Finished: noon.Add(time.Duration(i-100) * time.Hour),
			Features: history.Features{Name: "resnet", Owner: "ann", Command: "python train.py", Metric: "loss", Target: goal},
			Curve:    curve.Curve{Goal: curve.Goal{Value: goal, Set: true}},
			Start:    30,
			Wait:     120,
		}

		for step := 20.0; ; step += 20 {
			y := 10 / (1 + step/slow/100)
			p.Curve.X, p.Curve.Y, p.At = append(p.Curve.X, step), append(p.Curve.Y, y), append(p.At, step/2)
			if y <= goal {
				p.End, p.Seconds = step, step/2
				break
			}
		}

		past = append(past, p)
	}

	return past
}

func wants(t *testing.T, f *job.Forecast, parts ...string) {
	t.Helper()

	for _, p := range parts {
		if !strings.Contains(f.Why, p) {
			t.Errorf("%q does not say %q", f.Why, p)
		}
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()

	if math.Abs(got-want) > within*math.Abs(want) || math.IsNaN(got) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func TestNothingKnownIsSaid(t *testing.T) {
	t.Parallel()
	quiet := trained(0)
	quiet.Series, quiet.Now = nil, after(600)
	waiting := trained(0)
	waiting.Series, waiting.Runs = nil, nil
	late := trained(0)
	late.Series, late.Now, late.Job.Spec.Expect = nil, after(600), job.Duration(time.Minute)
	aimless := trained(100)
	deaf := trained(100)
	deaf.Job.Spec.Target = atLeast("accuracy", 0.9)
	for name, tt := range map[string]struct {
		in   *Input
		says string
	}{
		"a program that tells nothing":        {quiet, "Its program has reported no progress, and no similar job has finished."},
		"a job that waits":                    {waiting, "It has not run, and no similar job has finished."},
		"an expectation that has passed":      {late, "the expected 1 min have passed."},
		"neither a target nor a total":        {aimless, "Its program does not report how much work it has, it has no target"},
		"a target of which nothing was heard": {deaf, "The target metric accuracy has not been reported yet."},
	} {
		f := Make(tt.in)
		if f.Basis != job.BasisNone || f.Remaining != (job.Band{}) || f.Cost != (job.Band{}) {
			t.Errorf("%s: %+v", name, f)
		}

		wants(t, f, "Nothing is known yet", tt.says)
	}
}

func TestDeclaredStepsTimesStepTime(t *testing.T) {
	t.Parallel()
	in := trained(100)
	in.Progress = Progress{Total: 1000, Done: 200, At: after(100), Source: "tqdm"}
	in.Hourly, in.CostSoFar = 3.6, 1
	f := Make(in)
	if f.Basis != job.BasisSteps || !f.Guess {
		t.Errorf("basis %q, guess %v", f.Basis, f.Guess)
	}

	near(t, "what remains", f.Remaining.Mid, 400, 0.01)
	near(t, "what is done", f.Done, 0.2, 0.01)
	near(t, "the cost", f.Cost.Mid, 1.4, 0.01)
	near(t, "the width", f.Remaining.High/f.Remaining.Low, 2, 0.01)

	wants(
		t,
		f,
		"200 of 1000 steps done.",
		"Based on the amount of work that the program declares.",
		"One step takes 0.5 s on 2× A100.",
		"The interval is a guess until 20 similar jobs have finished (0 so far).",
	)
}

// TestStepsReportedAtOnceSayNothingOfTheirTime: after two steps that were reported within milliseconds the rest was
// said to be done at any moment.
func TestStepsReportedAtOnceSayNothingOfTheirTime(t *testing.T) {
	t.Parallel()

	at := func(now float64, times ...float64) *job.Forecast {
		in := trained(0)
		in.Now, in.Series = after(now), nil
		for i, at := range times {
			in.Progress.Marks = append(in.Progress.Marks, metric.Point{Step: float64(i + 1), At: unix(after(at))})
		}

		last := len(times) - 1
		in.Progress.Marks = in.Progress.Marks[:last]
		in.Progress.Total, in.Progress.Done, in.Progress.At = 120, float64(last+1), after(times[last])

		return Make(in)
	}

	f := at(9, 5, 5.003)
	if f.Basis != job.BasisNone || f.Remaining != (job.Band{}) || f.Done != 0 {
		t.Errorf("basis %q, %+v remain, %g are done", f.Basis, f.Remaining, f.Done)
	}

	wants(t, f, "It has reported too little so far.")

	// As soon as a step takes time, that counts; and after a minute the time since the start does.
	f = at(9, 5, 5.003, 9)
	near(t, "what remains", f.Remaining.Mid, 117*2, 0.05)
	near(t, "what is done", f.Done, 3./120, 0.01)

	f = at(80, 80, 80.003)
	near(t, "what remains after a minute", f.Remaining.Mid, 118*30, 0.05)
}

func TestUnitsOfTheProgramsOwnAreTakenForWork(t *testing.T) {
	t.Parallel()
	in := trained(100)

	// 64 samples a step; it has to do 64,000.
	in.Progress = Progress{
		Total: 64000,
		Done:  12800,
		At:    after(100),
		Marks: []metric.Point{{Step: 6400, At: unix(after(50))}},
	}

	f := Make(in)
	near(t, "what remains", f.Remaining.Mid, 400, 0.01)
	wants(t, f, "12,800 of 64,000 units done.")
}

func TestWorkIsNotStepsWhenTheBatchGrows(t *testing.T) {
	t.Parallel()
	in := trained(100) // 200 steps of 64 samples
	in.Runs[0].To = after(100)
	in.Runs = append(in.Runs, Stretch{Epoch: 2, GPU: "A100", GPUs: 8, From: after(100)})
	in.Progress.Marks = []metric.Point{{Step: 6400, At: unix(after(50))}, {Step: 12800, At: unix(after(100))}}
	for step := 210.0; step <= 300; step += 10 { // 256 samples each, as long as before
		at := after(step * 0.5)
		in.Series[0].Add(2, metric.Point{Step: step, At: unix(at), Value: 10 / (1 + step/100)})
		in.Progress.Marks = append(in.Progress.Marks, metric.Point{Step: 12800 + 256*(step-200), At: unix(at)})
	}

	in.Now = after(150)
	in.Progress.Done = 12800 + 25600
	in.Progress.At = in.Now
	in.Progress.Total = 64000
	f := Make(in)
	near(t, "what remains", f.Remaining.Mid, 25600.0/256*0.5, 0.05)
	v := newView(in)
	near(t, "the work at step 100", v.curve.X[9], 6400, 0.01)
	near(t, "the work at step 300", v.curve.X[len(v.curve.X)-1], 38400, 0.01)
}

func TestProgressWithoutMetricsIsEnough(t *testing.T) {
	t.Parallel()
	in := trained(0)
	in.Series, in.Now = nil, after(100)
	in.Progress = Progress{Total: 50, Done: 10, At: after(100)}
	f := Make(in)
	near(t, "with one mark, what remains", f.Remaining.Mid, 320, 0.01) // it is taken to have loaded for 20 s

	in.Runs[0].Setup = 60
	if f := Make(in); f.Basis != job.BasisNone {
		t.Errorf("one mark after 40 s, of which loading may be half, makes %+v; want nothing yet", f.Remaining)
	}

	in.Progress.Marks = []metric.Point{{Step: 2, At: unix(after(68))}, {Step: 6, At: unix(after(84))}}
	near(t, "with more marks, what remains", Make(in).Remaining.Mid, 160, 0.01)
	in.Progress.Total = 0
	in.Speed = job.NewSpeed(50, 0, 0)
	near(t, "with the total of the job file, what remains", Make(in).Remaining.Mid, 160, 0.01)
}

func TestOneWordAfterARestartIsTimedByAllRuns(t *testing.T) {
	t.Parallel()
	in := trained(0)
	in.Series = nil
	in.Runs[0].To, in.Runs[0].Setup = after(70), 20
	in.Runs = append(in.Runs, Stretch{Epoch: 2, GPU: "A100", GPUs: 2, From: after(1000), Setup: 20})
	in.Now = after(1070)
	in.Progress = Progress{Total: 50, Done: 10, At: after(1070)}
	f := Make(in) // 100 s for 10 units
	near(t, "what remains", f.Remaining.Mid, 400, 0.3)
	wants(t, f, "takes 10 s on 2× A100, averaged over all its runs.")
}

func TestTheCurveAloneComesToTheTarget(t *testing.T) {
	t.Parallel()
	in := trained(200) // step 400, loss 2
	in.Job.Spec.Target = atMost("loss", 1)
	f := Make(in) // reached at step 900
	if f.Basis != job.BasisCurve || f.Metric != "loss" || f.Source != "stdout" || !f.Guess {
		t.Errorf("%+v", f)
	}

	if f.Remaining.Low > 250 || f.Remaining.High < 250 {
		t.Errorf("250 s are left; the forecast says %+v", f.Remaining)
	}

	wants(
		t,
		f,
		"Expected to reach loss at most 1 after about",
		"Based only on its own loss curve (40 points); no similar job has finished yet.",
	)
}

func TestPastJobsComeToTheTarget(t *testing.T) {
	t.Parallel()
	in := trained(100)
	in.Job.Spec.Target = atMost("loss", 1)
	in.Library = NewLibrary(finished(12, 1), nil)
	f := Make(in)
	if f.Basis != job.BasisHistory && f.Basis != job.BasisBoth {
		t.Errorf("basis %q: %s", f.Basis, f.Why)
	}

	near(t, "what remains", f.Remaining.Mid, 350, 0.15)
	wants(t, f, "similar jobs (j")

	if len(f.Methods) != 2 || f.Methods[0].Method != calibrate.MethodMatch || f.Methods[0].Weight < 0.8 {
		t.Errorf("methods: %+v", f.Methods)
	}
}

func TestTheProgramsEndBoundsTheTarget(t *testing.T) {
	t.Parallel()
	in := trained(200)
	in.Job.Spec.Target = atMost("loss", 0.2) // step 4900
	in.Progress = Progress{Total: 600, Done: 400, At: after(200)}
	f := Make(in)
	if f.Never < 0.8 || f.Basis != job.BasisSteps {
		t.Errorf("never %g, basis %q", f.Never, f.Basis)
	}

	near(t, "what remains", f.Remaining.Mid, 100, 0.01)
	wants(t, f, "It will probably not reach loss at most 0.2 before the program ends; 400 of 600 steps done.")

	in.Job.Spec.Target = atMost("loss", 1.9) // step 426
	f = Make(in)
	if f.Never > 0.5 || f.Remaining.Mid > 60 || f.Remaining.High > 100.001 {
		t.Errorf("close to the target: never %g, remaining %+v", f.Never, f.Remaining)
	}
}

func TestAfterTheTargetTheProgramGoesOn(t *testing.T) {
	t.Parallel()
	in := trained(200)
	in.Job.Spec.Target = atMost("loss", 3)
	in.Progress = Progress{Total: 1000, Done: 400, At: after(200)}
	f := Make(in)
	near(t, "what remains", f.Remaining.Mid, 300, 0.01)
	wants(t, f, "Target loss at most 3 reached; the program continues: 400 of 1000 steps done.")

	if f.Never != 0 {
		t.Errorf("never %g", f.Never)
	}
}

func TestAProgramThatGoesOnBeyondItsTotalIsNotBelieved(t *testing.T) {
	t.Parallel()
	in := trained(200)
	in.Progress = Progress{Total: 300, Done: 300, At: after(150)}
	if f := Make(in); f.Basis != job.BasisNone {
		t.Errorf("400 of 300 steps are done: %s", f.Why)
	}
}

func TestTheStepTimeIsThatOfThePresentAllocation(t *testing.T) {
	t.Parallel()
	moved := func(points int) *Input {
		in := trained(100)
		in.Runs[0].To = after(100)

		// It waited, and goes on with 8 GPUs at four times the speed after a set-up of 40 s.
		in.Runs = append(in.Runs, Stretch{Epoch: 2, GPU: "A100", GPUs: 8, Nodes: 1, From: after(1000), Setup: 40})
		s := &in.Series[0]
		for k := range points {
			step := 210 + 10*float64(k)
			s.Add(2, metric.Point{Step: step, At: unix(after(1040 + (step-200)/8)), Value: 10 / (1 + step/100)})
		}

		in.Now = after(1040 + float64(points)*10/8)
		in.Progress = Progress{Total: 1000, Done: 200 + 10*float64(points), At: in.Now}

		return in
	}

	f := Make(moved(20))
	near(t, "by what was seen here", f.Remaining.Mid, 600.0/8, 0.02)

	if len(f.Elsewhere) != 0 {
		t.Errorf("nobody asked about elsewhere: %+v", f.Elsewhere)
	}

	in := moved(0)
	f = Make(in)

	// 800 steps at 0.125 s by the number of GPUs, bounded to twice as many as were seen: 0.25 s.
	near(t, "by TFLOPS before anything was seen here", f.Remaining.Mid, 200, 0.02)
	wants(t, f, "scaled from 2× A100, based on TFLOPS only; no faster than on 4")

	in.Speed = job.NewSpeed(
		1000,
		0,
		0,
		job.Rate{GPU: "A100", GPUs: 2, PerSecond: 2},
		job.Rate{GPU: "A100", GPUs: 8, PerSecond: 7},
	)

	f = Make(in)
	near(t, "by what was told before anything was seen here", f.Remaining.Mid, 800*0.5/3.5, 0.02)
	wants(t, f, "based on speeds declared on 2 and 8× A100")

	// The run is being restored: that is still to come.
	in.Now = after(1010)
	f = Make(in)
	near(t, "with the rest of the restore", f.Remaining.Mid, 800*0.5/3.5+30, 0.02)
}

func TestAPreemptedJobWaitsAndThenGoesOn(t *testing.T) {
	t.Parallel()
	in := trained(100)
	in.Runs[0].To, in.Runs[0].Setup = after(100), 20
	in.Now = after(160)
	in.Progress = Progress{Total: 1000, Done: 200, At: after(100)}
	in.Wait = job.Band{Low: 50, Mid: 100, High: 300}
	in.Hourly = 3600
	f := Make(in)
	near(t, "what remains", f.Remaining.Mid, 400, 0.05)
	near(t, "the wait", f.Wait.Mid, 120, 0.001)
	near(t, "the cost", f.Cost.Mid, f.Remaining.Mid+20, 0.001)

	if f.End() != f.At.Add(job.Seconds(f.Wait.Mid+f.Remaining.Mid)) {
		t.Error("its end is not after wait and run")
	}
}

func TestAWaitingJobIsForecastByWhatIsKnownBefore(t *testing.T) {
	t.Parallel()
	fresh := func() *Input {
		in := trained(0)
		in.Series, in.Runs = nil, nil
		in.Job.Spec.Resources.GPUs = job.Range{Min: 2}
		in.Job.Spec.Resources.GPU = []job.GPUKind{{Model: "A100"}}

		return in
	}

	in := fresh()
	in.Library = NewLibrary(finished(5, 1), nil)
	f := Make(in)
	if f.Basis != job.BasisHistory || !f.Guess {
		t.Errorf("by its namesakes: %+v", f)
	}

	near(t, "by its namesakes", f.Remaining.Mid, 450, 0.05)
	near(t, "its wait and start", f.Wait.Mid, 150, 0.001)
	wants(t, f, "5 earlier runs of train.py with other arguments or files suggest 7 min 48 s.")

	f = Make(func() *Input {
		in := fresh()
		in.Library = NewLibrary(finished(24, 1), nil)
		return in
	}())

	if f.Guess || f.Remaining.Low >= f.Remaining.Mid || f.Records != 24 {
		t.Errorf("by 24 namesakes: %+v", f)
	}

	in = fresh()
	in.Speed = job.NewSpeed(
		1000,
		10*time.Second,
		0,
		job.Rate{GPU: "A100", GPUs: 1, PerSecond: 2},
		job.Rate{GPU: "A100", GPUs: 2, PerSecond: 4},
	)

	f = Make(in)
	near(t, "by the speed of the job file", f.Remaining.Mid, 250, 0.001)
	near(t, "its start", f.Wait.Mid, 10, 0.001)
	wants(t, f, "1000 of 1000 units left; at the declared speed one takes 0.25 s on 2× A100.")

	in = fresh()
	in.Job.Spec.Expect = job.Duration(6 * time.Hour)
	f = Make(in)
	if f.Basis != job.BasisExpect || !f.Guess || len(f.Methods) != 1 || f.Methods[0].Weight != 1 {
		t.Errorf("by what is expected: %+v", f)
	}

	wants(t, f, "Only the researcher's own estimate is known: 6 h (`expect`).")
}

// TestAStartIsNotDueAtAnyMoment: others like it were queued for two minutes.
func TestAStartIsNotDueAtAnyMoment(t *testing.T) {
	t.Parallel()
	made := func(waited time.Duration, unknown bool) job.Band {
		in := trained(0)
		in.Series, in.Runs = nil, nil
		in.Job.Submitted = in.Now.Add(-waited)
		in.Library = NewLibrary(finished(5, 1), nil)
		in.StartUnknown = unknown

		return Make(in).Wait
	}

	early, later := made(time.Minute, false), made(3*time.Minute, false)
	if early.Mid != 90 { // a minute in the queue and 30 s for its start
		t.Errorf("after a minute it waits for %+v, want for about another", early)
	}

	if later != (job.Band{}) {
		t.Errorf("after three minutes it waits for %+v, want that nobody knows", later)
	}

	if held := made(time.Minute, true); held != (job.Band{}) {
		t.Errorf("a job that a quota holds waits for %+v, want that nobody knows", held)
	}
}

func TestTheExpectationIsShownBesideOthers(t *testing.T) {
	t.Parallel()
	in := trained(100)
	in.Progress = Progress{Total: 1000, Done: 200, At: after(100)}
	in.Job.Spec.Expect = job.Duration(time.Hour)
	f := Make(in)
	last := f.Methods[len(f.Methods)-1]
	if f.Basis != job.BasisSteps || last.Method != calibrate.MethodExpect || last.Weight != 0 || last.Remaining != 3500 {
		t.Errorf("methods: %+v", f.Methods)
	}
}

func TestTheMetricIsTheTargetsOrAValidationLoss(t *testing.T) {
	t.Parallel()
	with := func(target *job.Target, names ...string) *Input {
		in := trained(100)
		points := in.Series[0].Points

		in.Series = nil
		for _, n := range names {
			in.Series = append(in.Series, metric.Series{Name: n, Points: points})
		}

		in.Job.Spec.Target = target

		return in
	}

	for _, tt := range []struct {
		in   *Input
		want string
	}{
		{with(nil, "lr", "train_loss", "val_loss"), "val_loss"},
		{with(nil, "lr", "loss", "train_loss"), "loss"},
		{with(nil, "eval/perplexity", "loss"), "eval/perplexity"},
		{with(nil, "lr", "accuracy"), ""},
		{with(atMost("val_loss", 1), "loss", "val_loss"), "val_loss"},
		{with(atMost("val_loss", 1), "loss", "Val/Loss"), "Val/Loss"},
		{with(atMost("loss", 1), "train/loss", "lr"), "train/loss"},
		{with(atLeast("accuracy", 1), "loss", "lr"), "loss"},
	} {
		if f := Make(tt.in); f.Metric != tt.want {
			t.Errorf("of %d series it goes by %q, want %q", len(tt.in.Series), f.Metric, tt.want)
		}
	}
}

func TestASparseMetricIsTimedByADenserOne(t *testing.T) {
	t.Parallel()
	in := trained(400)

	val := metric.Series{Name: "val_loss"}
	for _, step := range []float64{250, 500, 750} {
		val.Add(1, metric.Point{Step: step, At: unix(after(step*0.5 + 1)), Value: 12 / (1 + step/100)})
	}

	in.Series = append(in.Series, val)
	in.Job.Spec.Target = atMost("val_loss", 1)
	v := newView(in)
	if len(v.marks) != 80 || len(v.curve.X) != 3 {
		t.Errorf("%d marks, %d points", len(v.marks), len(v.curve.X))
	}

	epochs := metric.Series{
		Name:   "val_loss",
		Points: []metric.Point{{Step: 1, At: unix(after(100)), Value: 3}, {Step: 2, At: unix(after(200)), Value: 2}},
	}

	in.Series[1] = epochs
	if v := newView(in); len(v.marks) != 2 {
		t.Errorf("epochs are timed by steps: %d marks", len(v.marks))
	}
}
