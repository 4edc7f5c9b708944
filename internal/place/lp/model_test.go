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
		"":                        {2, 1.5},
		"1 values for 2":          {2},
		"a is 4, outside of":      {4, 1.5},
		"b is 0, outside of":      {2, 0},
		"a is 1.5, which is not":  {1.5, 1.5},
		"a is NaN":                {math.NaN(), 1.5},
		"most comes to 4.5":       {2, 2.5},
		"least comes to 1.25":     {2, 1.25},
		"even comes to 2 and the": {1, 1.5},
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
