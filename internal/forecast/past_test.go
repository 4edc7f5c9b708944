package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/match"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

func TestFeaturesOfAJob(t *testing.T) {
	t.Parallel()
	j := &job.Job{Owner: "ann", Spec: &job.Spec{
		Name:      "bert-7",
		Run:       "python train.py",
		Framework: "pytorch",
		Model:     &job.Model{Kind: "transformer", Task: "language", Params: 110e6},
		Params: map[string]any{
			"lr":         0.1,
			"batch_size": 128,
			"epochs":     "3",
			"dropout":    0.2,
			"name":       "x",
			"bad":        math.NaN(),
		},
		Target: atLeast("accuracy", 0.72),
	}}

	got := Features(j, Stretch{GPU: "A100", GPUs: 8, Nodes: 2})

	want := history.Features{
		Name:      "bert-7",
		Owner:     "ann",
		Command:   "python train.py",
		Framework: "pytorch",
		Task:      "language",
		Model:     "transformer",
		Params:    110e6,
		Metric:    "accuracy",
		Target:    0.72,
		Batch:     128,
		Rate:      0.1,
		Amount:    3,
		Hyper:     map[string]float64{"dropout": 0.2},
		GPU:       "A100",
		TFLOPS:    312,
		GPUs:      8,
		Nodes:     2,
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAFinishedJobIsKeptAsItWasForecast(t *testing.T) {
	t.Parallel()
	in := trained(2000) // 400 points
	in.Job.Submitted = after(-50)
	in.Job.Spec.Target = atMost("loss", 1)
	in.Runs[0].To, in.Runs[0].Setup = after(1000), 3
	in.Runs = append(in.Runs, Stretch{Epoch: 2, GPU: "A100", GPUs: 2, From: after(1000), To: after(2000), Setup: 7})
	p, ok := Finished(in)
	if !ok || p.Job != "j9" || p.Seconds != 2000 || p.Wait != 50 || p.Start != 7 || !p.Finished.Equal(in.Now) ||
		p.Group != "ann/resnet" {
		t.Fatalf("%+v", p)
	}

	if p.End != 900 { // the first point at which the loss is at most 1
		t.Errorf("its end is at %g", p.End)
	}

	if n := len(p.Curve.X); n > pastPoints+1 || n < 100 || len(p.Curve.Y) != n || len(p.At) != n {
		t.Errorf("%d points, %d values, %d times", n, len(p.Curve.Y), len(p.At))
	}

	for i, x := range p.Curve.X {
		near(t, fmt.Sprintf("the time at step %g", x), p.At[i], x/2, 1e-6)
	}

	if _, ok := Finished(&Input{Job: in.Job, Now: noon}); ok {
		t.Error("a job that never ran is kept")
	}
}

func TestWaitsBetweenRunsAreNoRunTime(t *testing.T) {
	t.Parallel()
	in := trained(100)
	in.Runs[0].To = after(100)
	in.Runs = append(in.Runs, Stretch{Epoch: 2, GPU: "A100", GPUs: 2, From: after(1000), To: after(1200)})
	in.Now = after(1200)
	in.Series[0].Add(2, metric.Point{Step: 400, At: unix(after(1100)), Value: 1})

	p, _ := Finished(in)
	if last := p.At[len(p.At)-1]; p.Seconds != 300 || last != 200 {
		t.Errorf("%g s in all, %g s at the last point", p.Seconds, last)
	}
}

// durations are finished jobs whose length follows from what they are.
func durations(n int) []history.Past {
	rng := rand.New(rand.NewPCG(3, 4))
	var past []history.Past
	for i := range n {
		size := math.Exp(5 * rng.Float64())
		f := history.Features{
			Name:   fmt.Sprint("run", i),
			Owner:  fmt.Sprint("u", i%10),
			Task:   []string{"vision", "language"}[i%2],
			Model:  "net",
			Params: 1e6 * size,
			GPU:    "A100",
			TFLOPS: 312,
			GPUs:   float64(int(1) << (i % 4)),
		}

		past = append(past, history.Past{
			Job:      id.Job(fmt.Sprint("d", i)),
			Group:    f.Owner,
			Features: f,
			Finished: noon.Add(time.Duration(i-n) * time.Hour),
			Start:    20,
			Wait:     60,
			Seconds:  600 * size / f.GPUs * float64(1+i%2) * math.Exp(0.1*rng.NormFloat64()),
		})
	}

	return past
}

func TestAJobIsForecastByWhatWasLearnedOfDurations(t *testing.T) {
	t.Parallel()
	past := durations(120)
	model, err := duration.Train(past, 1)
	if err != nil {
		t.Fatal(err)
	}

	in := trained(0)
	in.Series, in.Runs = nil, nil
	in.Job.Owner = id.User("u1")
	in.Job.Spec = &job.Spec{Name: "new", Run: "x", Model: &job.Model{Kind: "net", Task: "language", Params: 20e6}}
	in.Job.Spec.Resources = job.Resources{
		GPUs:  job.Range{Min: 4},
		Nodes: job.Range{Min: 1},
		GPU:   []job.GPUKind{{Model: "A100"}},
	}

	in.Library = NewLibrary(past, model)
	f := Make(in)
	if f.Basis != job.BasisHistory || f.Guess || f.Records == 0 || f.Remaining.Low >= f.Remaining.High {
		t.Fatalf("%+v", f)
	}

	if f.Remaining.Mid < 3000 || f.Remaining.Mid > 12000 {
		t.Errorf("it takes about 6000 s; %+v remain", f.Remaining)
	}

	near(t, "its wait and start", f.Wait.Mid, 80, 0.001)
	wants(t, f, "Similar jobs take", "as learned from 120 finished jobs.")

	// It runs and tells nothing: what has passed is taken off, but never all.
	in.Runs = []Stretch{{GPU: "A100", GPUs: 4, Nodes: 1, From: noon}}
	for _, s := range []float64{600, 6000, 60000} {
		in.Now = after(s)
		g := Make(in)
		soundForecast(t, g)

		if g.Basis == job.BasisHistory && g.Remaining.Mid <= 0 {
			t.Errorf("after %g s: %+v", s, g)
		}
	}

	// A replay does not see a model that has learned from the job.
	for _, m := range Score(&past[50], in.Library, nil).Marks {
		if _, judged := m.Residuals[calibrate.MethodDuration]; judged {
			t.Errorf("a model judges its own teacher: %+v", m)
		}
	}

	later := durations(121)[120]
	later.Finished = noon.Add(time.Hour)
	s := Score(&later, in.Library, nil)
	if len(s.Marks) != len(calibrate.ReplayPoints) || s.Marks[0].Class != calibrate.ClassBefore {
		t.Fatalf("%+v", s)
	}

	if e := math.Abs(s.Marks[0].Residuals[calibrate.MethodDuration]); e > 1.5 {
		t.Errorf("off by e to the %g", e)
	}
}

func TestWordsForPeople(t *testing.T) {
	t.Parallel()

	for got, want := range map[string]string{
		span(0.25): "0.25 s", span(7): "7 s", span(61): "1 min 1 s", span(120): "2 min", span(5400): "1 h 30 min", span(90000): "1 d 1 h",
		number(0.35): "0.35", number(1000): "1000", number(12345.6): "12,346", number(-1234567): "-1,234,567", number(1e15): "1e+15",
		gpus(0, ""): "no GPU", gpus(1, ""): "1 GPU", gpus(2, ""): "2 GPUs", gpus(2, "A100"): "2× A100",
		names(nil): "", names([]match.Neighbour{{Job: "j1"}, {Job: "j2"}}): " (j1, j2)",
		names([]match.Neighbour{{Job: "j1"}, {Job: "j2"}, {Job: "j3"}, {Job: "j4"}}): " (j1, j2, j3 …)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNamesakesAreTheOwnersFirst(t *testing.T) {
	t.Parallel()
	job := func(name, owner string, hour int) history.Past {
		return history.Past{
			Job:      id.Job(fmt.Sprint(name, owner, hour)),
			Features: history.Features{Name: name, Owner: owner},
			Finished: noon.Add(time.Duration(hour) * time.Hour),
		}
	}

	l := NewLibrary(
		[]history.Past{job("net-1", "ann", 1), job("Net-2", "ann", 3), job("net", "ben", 2), job("other", "ann", 4)},
		nil,
	)

	got := func(owner string, self id.Job) []id.Job {
		var list []id.Job
		for _, p := range l.namesakes(&history.Features{Name: "net-9", Owner: owner}, self) {
			list = append(list, p.Job)
		}

		return list
	}

	if diff := cmp.Diff([]id.Job{"Net-2ann3", "net-1ann1"}, got("ann", "")); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]id.Job{"netben2"}, got("ben", "")); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]id.Job{"Net-2ann3", "netben2", "net-1ann1"}, got("cyd", "")); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]id.Job{"net-1ann1"}, got("ann", "Net-2ann3")); diff != "" {
		t.Error(diff)
	}
}
