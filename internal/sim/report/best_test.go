package report

import (
	"slices"
	"testing"

	"trainyard/internal/sim"
	"trainyard/internal/sim/whatif"
)

// ofMeasure makes a section in which a measure has these estimates.
func ofMeasure(key string, estimates ...whatif.Estimate) (*section, int) {
	at := slices.IndexFunc(whatif.Measures(), func(m whatif.Measure) bool { return m.Key == key })
	s := &section{Load: 1}

	for _, e := range estimates {
		row := whatif.Row{Policy: "p", Load: 1, Seeds: 5, First: &sim.Result{}}
		row.Estimates = make([]whatif.Estimate, len(whatif.Measures()))
		row.Estimates[at] = e
		s.Rows = append(s.Rows, row)
	}

	return s, at
}

// A star stood beside values whose intervals overlap entirely, and rounding was shown as an interval: 1.33 ± 3.1e-16
// (newcomer 27).
func TestTheBestIsMarkedOnlyWhereItIsTold(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		estimates []whatif.Estimate
		want      []bool
	}{
		"apart":                {[]whatif.Estimate{{Mean: 10, Half: 1}, {Mean: 20, Half: 1}}, []bool{true, false}},
		"within the intervals": {[]whatif.Estimate{{Mean: 10, Half: 9}, {Mean: 11, Half: 9}}, []bool{false, false}},
		"one of three apart": {
			[]whatif.Estimate{{Mean: 10, Half: 1}, {Mean: 10.5, Half: 1}, {Mean: 30, Half: 1}}, []bool{true, false, false},
		},
		"one seed each": {[]whatif.Estimate{{Mean: 10}, {Mean: 11}}, []bool{true, false}},
	} {
		s, at := ofMeasure("completion_mean_s", c.estimates...)
		if got := s.best(at); !slices.Equal(got, c.want) {
			t.Errorf("%s: the best are %v, want %v", name, got, c.want)
		}
	}

	s, at := ofMeasure("completion_mean_s", whatif.Estimate{Mean: 1.33, Half: 3.1e-16})
	if got := cell(&s.Rows[0], at); got != "1.3s" {
		t.Errorf("rounding is shown as an interval: %s", got)
	}
}

func TestTooltipsAreWrittenForPeople(t *testing.T) {
	t.Parallel()

	for seconds, want := range map[float64]string{
		114.833253152: "114.8s", 0: "0", 3492: "58.2m", 5400: "90m", 8400: "2h 20m", 10800: "3h", 8410: "2.3h",
	} {
		if got := axisTime(seconds); got != want {
			t.Errorf("%v is %q, want %q", seconds, got, want)
		}
	}
}
