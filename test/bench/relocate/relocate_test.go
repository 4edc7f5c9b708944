package relocate

import (
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/sim"
	"trainyard/test/bench/target"
)

// smallTrace writes a small trace in the form of the public one, with a crowd in both stretches of the quick study, and
// returns its folder.
func smallTrace(t *testing.T) string {
	t.Helper()

	var text strings.Builder
	text.WriteString("timestamp,duration,num_gpus,cluster\n")

	chance := rand.New(rand.NewPCG(7, 0))
	for _, day := range []string{"2017-10-09", "2017-11-06"} {
		begin, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}

		for range 150 {
			at := begin.Add(time.Duration(chance.Float64() * float64(20*time.Hour)))
			gpus := []int{1, 2, 4, 8}[chance.IntN(4)]
			lasts := 4 * time.Hour.Seconds() * math.Exp(chance.NormFloat64())
			fmt.Fprintf(&text, "%s,%.0f,%d,someone\n", at.Format(time.DateTime), lasts, gpus)
		}
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "philly", "philly_jobs.csv.gz")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}

	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	packed := gzip.NewWriter(file)
	if _, err := packed.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(packed.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestWithoutTheTraceItIsLeftOut(t *testing.T) {
	t.Parallel()

	var text strings.Builder
	figures, err := Run(&text, target.Options{Data: t.TempDir()})
	if err != nil || len(figures) != 0 || !strings.HasPrefix(text.String(), "left out: ") {
		t.Errorf("%v, %v, %q", figures, err, text.String())
	}
}

// TestMovesSaveMoney: on a small trace moves save money with forecasts of each kind and none makes its job later
// than it may; whoever moves whenever there is room moves more often, and for nothing.
func TestMovesSaveMoney(t *testing.T) {
	t.Parallel()

	var text strings.Builder
	figures, err := Run(&text, target.Options{Data: smallTrace(t), Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	for _, suffix := range []string{"", "_perfect", "_worse"} {
		if figures["saving_usd"+suffix] <= 0 || figures["moves"+suffix] < 5 || figures["late_beyond_margin_pct"+suffix] > 0 {
			t.Errorf("with forecasts %q moves do not save, or make jobs later: %v", suffix, figures)
		}
	}

	if figures["useless_moves_pct_perfect"] > 0 {
		t.Errorf("%.1f %% of the moves by perfect forecasts do not pay", figures["useless_moves_pct_perfect"])
	}

	if figures["clairvoyant_saving_usd"] <= 0 || figures["clairvoyant_share_pct"] <= 0 {
		t.Errorf("the clairvoyant saves nothing: %v", figures)
	}

	for _, label := range []string{
		"never moves", "moves whenever there is room", "clairvoyant", "forecasts perfect", "forecasts ours",
		"forecasts twice as bad",
	} {
		if !strings.Contains(text.String(), label) {
			t.Errorf("no row is labelled %q:\n%s", label, text.String())
		}
	}

	t.Log(text.String())
}

// TestForecastsAreAsWrongAsMeasured: the errors have the median and the 80th percentile that were measured, doubled if
// they are to be twice as bad; the interval holds in four of five cases; perfect ones are right.
func TestForecastsAreAsWrongAsMeasured(t *testing.T) {
	t.Parallel()

	const hours = 10

	for _, f := range []forecasts{perfect, ours, worse} {
		for _, m := range measured {
			var errs []float64
			held := 0
			left := hours * (1 - m.done)

			for i := range 5000 {
				j := &sim.Job{Name: fmt.Sprint("job-", i), Duration: hours * time.Hour}
				got := f.maker()(j, 0, time.Duration(left*float64(time.Hour))).Remaining
				errs = append(errs, math.Abs(got.Mid/time.Hour.Seconds()-left)/hours)

				if truth := left * time.Hour.Seconds(); got.Low <= truth+1 && truth <= got.High+1 {
					held++
				}
			}

			// A forecast that is too short by more than all that is left says that nothing is left, so the greatest errors
			// are cut off late in a run.
			median, q80 := quantileOf(errs, 0.5), quantileOf(errs, 0.8)
			if math.Abs(median-float64(f)*m.median) > 0.1*m.median*float64(f)+1e-9 ||
				math.Abs(q80-float64(f)*m.q80) > 0.1*m.q80*float64(f)+1e-9 {
				t.Errorf("%s after %.0f %%: median %.3f, 80th percentile %.3f; measured %+v", f, 100*m.done, median, q80, m)
			}

			if share := float64(held) / 5000; share < 0.77 {
				t.Errorf("%s after %.0f %%: the interval holds in %.2f of the cases", f, 100*m.done, share)
			}
		}
	}
}
