package forecast

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
	"trainyard/internal/metric"
)

func codes(all []Notice) []string {
	var list []string
	for _, n := range all {
		list = append(list, n.Code)
	}

	return list
}

// ending is a forecast of a job that ends so many seconds after noon.
func ending(seconds float64) *job.Forecast {
	return &job.Forecast{
		At:        noon,
		Basis:     job.BasisSteps,
		Remaining: job.Band{Low: seconds * 0.8, Mid: seconds, High: seconds * 1.5},
	}
}

func TestALateJobIsToldOfOnce(t *testing.T) {
	t.Parallel()
	w := Watch{
		Now:       noon,
		Submitted: after(-86400), // it was queued for most of that
		Expect:    2000 * time.Second,
		Ran:       1000 * time.Second,
	} // due 1000 s after noon, with 100 s of slack

	var before *job.Forecast

	for i, tt := range []struct {
		ends float64
		want []string
	}{
		{900, nil}, {1050, nil}, {1101, []string{Slipped}}, {1050, nil}, {1200, nil}, {950, nil}, {899, []string{OnTime}},
		{1000, nil}, {1500, []string{Slipped}},
	} {
		now := ending(tt.ends)
		got := Compare(before, now, w)
		if diff := cmp.Diff(tt.want, codes(got)); diff != "" {
			t.Errorf("forecast %d, of %g s: %s", i, tt.ends, diff)
		}

		if tt.ends == 1101 {
			want := "Expected to finish 1 min 41 s later than the expected 33 min 20 s of run time: in 18 min 21 s (80 % prediction " +
				"interval: 14 min 41 s to 27 min 32 s)."
			if got[0].Text != want {
				t.Errorf("it says %q, want %q", got[0].Text, want)
			}
		}

		before = now
	}
}

func TestTheEarlierOfDeadlineAndExpectationCounts(t *testing.T) {
	t.Parallel()
	w := Watch{Now: noon, Submitted: noon, Expect: time.Hour, Deadline: after(600)}
	if got := Compare(nil, ending(1000), w); len(got) != 1 ||
		!strings.HasPrefix(got[0].Text, "Expected to finish 6 min 40 s later than its deadline: ") {
		t.Errorf("%+v", got)
	}

	if got := Compare(nil, ending(1000), Watch{Now: noon, Submitted: noon}); got != nil {
		t.Errorf("nothing is expected: %+v", got)
	}

	guess := ending(1000)
	guess.Basis = job.BasisExpect
	if got := Compare(nil, guess, w); got != nil {
		t.Errorf("what is expected cannot be later than expected: %+v", got)
	}
}

func TestATargetOutOfReachIsToldOfOnce(t *testing.T) {
	t.Parallel()
	var before *job.Forecast
	for i, tt := range []struct {
		never float64
		want  []string
	}{{0.3, nil}, {0.79, nil}, {0.8, []string{Misses}}, {0.6, nil}, {0.9, nil}, {0.49, []string{Reachable}}, {0.7, nil}} {
		now := ending(10)
		now.Never, now.Metric = tt.never, "val_loss"
		if diff := cmp.Diff(tt.want, codes(Compare(before, now, Watch{Now: noon}))); diff != "" {
			t.Errorf("forecast %d, never %g: %s", i, tt.never, diff)
		}

		before = now
	}
}

func TestALossThatIsNoNumberIsTold(t *testing.T) {
	t.Parallel()
	s := metric.Series{
		Name:      "train_loss",
		Points:    []metric.Point{{Step: 12000, Value: 2.5, At: unix(noon)}},
		Count:     1,
		NonFinite: 3,
	}

	w := Watch{Now: noon, Running: noon, Series: []metric.Series{{Name: "grad_norm", NonFinite: 1}, s}}
	first := ending(10)
	got := Compare(nil, first, w)
	if len(got) != 1 ||
		got[0] != (Notice{NotNumber, "train_loss is NaN or infinite (3 values); last finite value 2.5 at step 12,000."}) {
		t.Errorf("%+v", got)
	}

	second := ending(10)
	if got := Compare(first, second, w); got != nil {
		t.Errorf("told twice: %+v", got)
	}

	// Newcomer 6: it is shown with the job as long as it holds.
	want := map[string]string{NotNumber: "train_loss is NaN or infinite; last finite value 2.5 at step 12,000"}
	if diff := cmp.Diff(want, second.Remarks); diff != "" {
		t.Errorf("remarks (-want +got):\n%s", diff)
	}

	w.Series[1].NonFinite = 0
	third := ending(10)
	if got := codes(Compare(second, third, w)); !cmp.Equal(got, []string{Number}) || len(third.Remarks) > 0 {
		t.Errorf("after it: %v, %v", got, third.Remarks)
	}
}

func TestSilenceIsToldOfByWhatIsUsual(t *testing.T) {
	t.Parallel()
	every := func(seconds float64, n, reported int) []metric.Series {
		s := metric.Series{Name: "loss", Count: reported}
		for i := range n {
			s.Points = append(s.Points, metric.Point{Step: float64(i + 1), At: unix(noon) - seconds*float64(n-1-i), Value: 1})
		}

		return []metric.Series{s}
	}

	for name, tt := range map[string]struct {
		w    Watch
		want []string
	}{
		"within a minute":                   {Watch{Now: after(59), Running: after(-100), Series: every(1, 50, 50)}, nil},
		"beyond a minute":                   {Watch{Now: after(61), Running: after(-100), Series: every(1, 50, 50)}, []string{Stalled}},
		"within ten intervals":              {Watch{Now: after(290), Running: after(-100), Series: every(30, 50, 50)}, nil},
		"beyond ten intervals":              {Watch{Now: after(310), Running: after(-100), Series: every(30, 50, 50)}, []string{Stalled}},
		"thinned out, beyond ten intervals": {Watch{Now: after(160), Running: after(-100), Series: every(30, 50, 100)}, []string{Stalled}},
		"within a checkpoint":               {Watch{Now: after(310), Running: after(-100), Save: 10 * time.Minute, Series: every(1, 50, 50)}, nil},
		"just restarted":                    {Watch{Now: after(310), Running: after(300), Series: every(1, 50, 50)}, nil},
		"it does not run":                   {Watch{Now: after(310), Series: every(1, 50, 50)}, nil},
		"it never told anything":            {Watch{Now: after(310), Running: noon}, nil},
	} {
		if diff := cmp.Diff(tt.want, codes(Compare(nil, ending(10), tt.w))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	w := Watch{Now: after(61), Running: after(-100), Series: every(1, 50, 50)}
	f := ending(10)
	got := Compare(nil, f, w)
	if got[0].Text != "No progress for 1 min 1 s: the program usually reports every 1 s." {
		t.Errorf("%q", got[0].Text)
	}

	// Newcomer 6: it is shown with the job, in the same words as long as it holds.
	for _, later := range []float64{61, 300} {
		w.Now = after(later)
		next := ending(10)
		Compare(f, next, w)

		if got := next.Remarks[Stalled]; got != "no progress since 12:00 UTC" {
			t.Errorf("after %g s the remark is %q", later, got)
		}
	}

	w.Now = after(1)
	moving := ending(10)
	if got := codes(Compare(f, moving, w)); !cmp.Equal(got, []string{Moving}) || len(moving.Remarks) > 0 {
		t.Errorf("after it: %v, %v", got, moving.Remarks)
	}
}
