package forecast

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/money"
	"trainyard/test/fuzzing"
)

// soundForecast fails if a forecast says what no forecast may say.
func soundForecast(t interface{ Fatalf(string, ...any) }, f *job.Forecast) {
	for name, b := range map[string]job.Band{"remaining": f.Remaining, "wait": f.Wait, "cost": f.Cost} {
		if math.IsNaN(b.Low+b.Mid+b.High) || math.IsInf(b.High, 0) || b.Low < 0 || b.Low > b.Mid || b.Mid > b.High {
			t.Fatalf("%s is %+v: %s", name, b, f.Why)
		}
	}

	if f.Why == "" {
		t.Fatalf("it does not say why: %+v", f)
	}

	if math.IsNaN(f.Never) || f.Never < 0 || f.Never > 1 || math.IsNaN(f.Done) || f.Done < 0 || f.Done > 1 {
		t.Fatalf("never %g, done %g: %s", f.Never, f.Done, f.Why)
	}

	if f.Basis == job.BasisNone && f.Remaining != (job.Band{}) {
		t.Fatalf("nothing is known, and yet %+v remains", f.Remaining)
	}

	weights := 0.0
	for _, m := range f.Methods {
		if math.IsNaN(m.Remaining) || math.IsInf(m.Remaining, 0) {
			t.Fatalf("%s says %g", m.Method, m.Remaining)
		}

		weights += m.Weight
	}

	if weights > 1+1e-9 {
		t.Fatalf("the methods count %g in all", weights)
	}

	for _, e := range f.Elsewhere {
		if math.IsNaN(e.Remaining+float64(e.Cost)) || e.Remaining < 0 || e.Cost < 0 || e.Why == "" {
			t.Fatalf("elsewhere: %+v", e)
		}
	}

	if _, err := json.Marshal(f); err != nil {
		t.Fatalf("it cannot be written: %v", err)
	}
}

// wild makes an input of whatever a program may tell, by chance.
func wild(rng *rand.Rand) *Input {
	in := trained(0)
	in.Series = nil
	amount := func() float64 {
		return math.Exp(20*rng.Float64()-8) * float64(1-rng.IntN(2)*rng.IntN(2)*2)
	}

	at := 0.0
	for range rng.IntN(4) {
		s := Stretch{
			Epoch: len(in.Runs) + 1,
			GPU:   []string{"A100", "H100", "", "Quantum"}[rng.IntN(4)],
			GPUs:  rng.IntN(9),
			From:  after(at),
			Setup: 30 * rng.Float64(),
		}

		at += 1000 * rng.Float64()
		s.To = after(at)
		in.Runs = append(in.Runs, s)
		at += 100 * rng.Float64()
	}

	if n := len(in.Runs); n > 0 && rng.IntN(3) > 0 {
		in.Runs[n-1].To = time.Time{}
	}

	in.Now = after(at)
	for _, name := range []string{"loss", "val_loss", "accuracy"}[:rng.IntN(4)] {
		s := metric.Series{Name: name}
		step, slope := 0.0, amount()
		for range rng.IntN(60) {
			step += math.Abs(amount())
			v := slope / (1 + math.Sqrt(step))
			if rng.IntN(4) == 0 {
				v = amount()
			}

			s.Add(1+rng.IntN(2), metric.Point{Step: step, At: unix(after(at * rng.Float64())), Value: v})
		}

		in.Series = append(in.Series, s)
	}

	if rng.IntN(2) == 0 {
		in.Progress = Progress{Done: math.Abs(amount()), Total: math.Abs(amount()), At: after(at * rng.Float64())}
	}

	switch rng.IntN(4) {
	case 0:
		in.Job.Spec.Target = atMost("loss", amount())
	case 1:
		in.Job.Spec.Target = atLeast("accuracy", amount())
	}

	if rng.IntN(2) == 0 {
		in.Job.Spec.Expect = job.Duration(time.Duration(rng.IntN(1000)) * time.Second)
	}

	if rng.IntN(2) == 0 {
		in.Speed = job.NewSpeed(
			math.Abs(amount()),
			10*time.Second,
			0,
			job.Rate{GPU: "A100", GPUs: rng.IntN(4), PerSecond: math.Abs(amount())},
		)
	}

	if rng.IntN(2) == 0 {
		in.Library = NewLibrary(finished(5, 1), nil)
	}

	in.Wait = job.Band{Mid: 10, High: 20}
	in.Hourly, in.CostSoFar = money.PerHour(10*rng.Float64()), money.Amount(rng.Float64())
	in.Places = []Place{{GPU: "H100", GPUs: 8, Hourly: 30}, {GPU: "A100", GPUs: 1, Hourly: 2}}

	return in
}

func TestWhateverAProgramTellsTheForecastIsSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		in := wild(rand.New(rand.NewPCG(seed, 1)))
		f := Make(in)
		soundForecast(t, f)
		Compare(nil, f, Watch{Now: in.Now, Submitted: noon, Expect: time.Hour, Running: noon, Series: in.Series})

		if p, ok := Finished(in); ok {
			Score(&p, in.Library, in.Record)
			if _, err := json.Marshal(p); err != nil {
				t.Fatalf("the finished job cannot be written: %v", err)
			}
		}
	})
}

func FuzzMake(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, 100.0, 1.0, 0.5, 10.0)
	}

	f.Fuzz(func(t *testing.T, seed uint64, step, value, goal, total float64) {
		defer fuzzing.Bounded(t)()

		in := wild(rand.New(rand.NewPCG(seed, 2)))
		in.Job.Spec.Target = atMost("loss", goal)
		in.Progress.Total = total

		s := metric.Series{Name: "loss"}
		for k := range 10 {
			s.Add(1, metric.Point{Step: step * float64(k), At: unix(after(float64(k))), Value: value / float64(k+1)})
		}

		in.Series = append(in.Series, s)
		soundForecast(t, Make(in))
	})
}

func TestAnswersDoNotDependOnUnits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		by := math.Exp(rapid.Float64Range(-5, 10).Draw(t, "by"))
		in := trained(200)
		in.Job.Spec.Target = atMost("loss", 1)
		in.Library = NewLibrary(finished(8, 1), nil)
		a := Make(in)

		for i := range in.Series[0].Points {
			in.Series[0].Points[i].Step *= by
		}

		b := Make(in)
		if d := math.Abs(a.Remaining.Mid/b.Remaining.Mid - 1); d > 0.02 {
			t.Fatalf("with steps %g times as great, %g s remain and not %g", by, b.Remaining.Mid, a.Remaining.Mid)
		}
	})
}
