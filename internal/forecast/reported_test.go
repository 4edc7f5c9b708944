package forecast

import (
	"testing"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/history"
	"trainyard/internal/job"
	"trainyard/internal/metric"
)

// inPercent is a job that says how much it has done in percent, one each ten seconds, with a loss at a step that does
// not advance.
func inPercent(done float64) *Input {
	in := &Input{
		Job: &job.Job{ID: "j9", Owner: "ann", Submitted: noon, Spec: &job.Spec{Run: "python train.py"}},
		Now: after(10*done + 1), Runs: []Stretch{{Epoch: 1, GPU: "A100", GPUs: 1, Nodes: 1, From: noon}},
	}

	s := metric.Series{Name: "loss", Source: "status messages"}
	for p := 2.0; p <= done; p += 2 {
		at := after(10 * p)
		s.Add(1, metric.Point{Step: 0, At: unix(at) - 0.26, Value: 5 - p/100})
		in.Progress.Marks = append(in.Progress.Marks, metric.Point{Step: p, At: unix(at)})
		in.Progress.Done, in.Progress.At = p, at
	}

	in.Progress.Total = 100
	in.Series = []metric.Series{s}

	return in
}

func TestAPercentageGivesTheRemainingTime(t *testing.T) {
	t.Parallel()

	for _, done := range []float64{12, 24, 36, 60, 90} {
		f := Make(inPercent(done))
		near(t, "remaining time", f.Remaining.Mid, 10*(100-done), 0.02)
		near(t, "what is done", f.Done, done/100, 0.02)

		// Now with the loss by percent, as agents send it.
		in := inPercent(done)
		in.Series[0].Points = nil
		for _, m := range in.Progress.Marks {
			in.Series[0].Add(1, metric.Point{Step: m.Step, At: m.At, Value: 5 - m.Step/100})
		}

		near(t, "remaining time by the curve's steps", Make(in).Remaining.Mid, 10*(100-done), 0.02)
	}
}

func method(f *job.Forecast, name string) *job.MethodForecast {
	for i := range f.Methods {
		if f.Methods[i].Method == name {
			return &f.Methods[i]
		}
	}

	return nil
}

// TestTheProgramsOwnEstimateIsOneMethodAmongOthers: it is shown, and hardly counts beside steps that are right.
func TestTheProgramsOwnEstimateIsOneMethodAmongOthers(t *testing.T) {
	t.Parallel()
	in := inPercent(50)
	in.Progress.Reports = []Report{{At: after(400), Remaining: 900}, {At: after(500), Remaining: 5000}}

	f := Make(in)
	m := method(f, calibrate.MethodReported)
	if m == nil {
		t.Fatalf("the methods are %+v, without the program's own estimate", f.Methods)
	}

	near(t, "its estimate", m.Remaining, 4999, 0.01)
	near(t, "what remains", f.Remaining.Mid, 500, 0.03)

	if m.Weight > 0.01 || f.Basis != job.BasisSteps {
		t.Errorf("it has a weight of %g, basis %q", m.Weight, f.Basis)
	}
}

func TestTheProgramsOwnEstimateAlone(t *testing.T) {
	t.Parallel()
	in := &Input{
		Job: &job.Job{ID: "j9", Owner: "ann", Submitted: noon, Spec: &job.Spec{Run: "python train.py"}},
		Now: after(200), Runs: []Stretch{{Epoch: 1, GPU: "A100", GPUs: 1, Nodes: 1, From: noon}},
	}

	in.Progress.Reports = []Report{{At: after(100), Remaining: 500}, {At: after(150), Remaining: 800}} // it goes up

	f := Make(in)
	near(t, "what remains", f.Remaining.Mid, 750, 0.01)
	wants(t, f, "The program reports that 12 min 30 s remain.", "Based on the remaining time that the program itself reports.")

	if f.Basis != job.BasisReported || !f.Guess || f.Remaining.High < 1.5*f.Remaining.Mid {
		t.Errorf("basis %q, guess %v, %+v: nobody has checked such estimates yet", f.Basis, f.Guess, f.Remaining)
	}

	in.Now = after(2000)
	if f := Make(in); f.Basis != job.BasisNone {
		t.Errorf("its time is up, and the forecast is %+v", f)
	}

	in.Runs = append(in.Runs[:0:0], Stretch{Epoch: 1, From: noon, To: after(160)}, Stretch{Epoch: 2, From: after(170)})
	in.Now = after(200)
	if f := Make(in); f.Basis != job.BasisNone {
		t.Errorf("an estimate of the run before counts: %+v", f)
	}
}

// TestProgramsThatMisjudgeThemselvesLoseWeight replays jobs whose own estimates were three times too high, beside a
// curve that tells.
func TestProgramsThatMisjudgeThemselvesLoseWeight(t *testing.T) {
	t.Parallel()

	weight := func(wrong float64) float64 {
		past := finished(30, 1)
		for i := range past {
			p := &past[i]
			for at := 10.0; at < p.Seconds; at += 10 {
				p.Reported = append(p.Reported, history.Reported{At: at, Remaining: wrong * (p.Seconds - at)})
			}
		}

		record, library := &calibrate.Record{}, NewLibrary(nil, nil)
		for i := range past {
			record.Add(Score(&past[i], library, record))
		}

		in := trained(200)
		in.Job.Spec.Target = atMost("loss", 1)
		in.Progress.Reports = []Report{{At: in.Now.Add(-time.Second), Remaining: 300}}

		m := method(func() *job.Forecast { in.Record = record; return Make(in) }(), calibrate.MethodReported)
		if m == nil {
			t.Fatal("no estimate of the program's own")
		}

		return m.Weight
	}

	right, wrong := weight(1), weight(3)
	if !(right > 0.5 && wrong < right/2) {
		t.Errorf("programs that are right have a weight of %.3f, those that say thrice as much %.3f", right, wrong)
	}
}
