package lp_test

import (
	"math"
	"strings"
	"testing"

	"trainyard/internal/place/lp"
)

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := &lp.Model{
		Vars: []lp.Var{{Name: "a", High: 3, Whole: true, Gain: 2}, {Name: "b", Low: 1, High: 5, Gain: -1}},
		Rows: []lp.Row{
			{Name: "most", Terms: []lp.Term{{Var: 0, Factor: 1}, {Var: 1, Factor: 1}}, Limit: 4},
			{Name: "least", Terms: []lp.Term{{Var: 1, Factor: 1}}, Op: lp.AtLeast, Limit: 1.5},
			{Name: "even", Terms: []lp.Term{{Var: 0, Factor: 2}}, Op: lp.Exactly, Limit: 4},
		},
	}

	for want, values := range map[string][]float64{
		"":                                     {2, 1.5},
		"1 values for 2":                       {2},
		"a must be between 0 and 3, got 4":     {4, 1.5},
		"b must be between 1 and 5, got 0":     {2, 0},
		"a must be an integer, got 1.5":        {1.5, 1.5},
		"a must be between 0 and 3, got NaN":   {math.NaN(), 1.5},
		"most must be at most 4, got 4.5":      {2, 2.5},
		"least must be at least 1.5, got 1.25": {2, 1.25},
		"even must be exactly 4, got 2":        {1, 1.5},
	} {
		err := m.Check(values)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v, want %q", values, err, want)
		}
	}

	if got := m.Gain([]float64{2, 1.5}); got != 2.5 {
		t.Errorf("gain %g, want 2.5", got)
	}
}
