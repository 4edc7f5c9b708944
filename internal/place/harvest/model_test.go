package harvest_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/place/harvest"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
)

// drawInstance draws a small decision over one or two kinds.
func drawInstance(t *rapid.T) *harvest.Instance {
	in := &harvest.Instance{}
	for range rapid.IntRange(1, 2).Draw(t, "kinds") {
		in.Nodes = append(in.Nodes, rapid.IntRange(0, 9).Draw(t, "nodes"))
	}

	for range rapid.IntRange(0, 4).Draw(t, "jobs") {
		s := harvest.Sizes{
			None:  float64(rapid.IntRange(-3, 3).Draw(t, "none")),
			Kinds: make([][]knapsack.Choice, len(in.Nodes)),
		}

		for k := range in.Nodes {
			for n := rapid.IntRange(1, 2).Draw(t, "least"); n <= rapid.IntRange(0, 6).Draw(t, "most"); n++ {
				s.Kinds[k] = append(s.Kinds[k], knapsack.Choice{Count: n, Value: float64(rapid.IntRange(-5, 30).Draw(t, "value"))})
			}
		}

		in.Jobs = append(in.Jobs, s)
	}

	if rapid.Bool().Draw(t, "condition") {
		row := harvest.SideRow{Name: "quota", AtMost: float64(rapid.IntRange(0, 6).Draw(t, "at most"))}
		for range in.Jobs {
			each := make([]float64, len(in.Nodes))
			for k := range each {
				each[k] = float64(rapid.IntRange(0, 2).Draw(t, "per node"))
			}

			row.PerNode, row.PerJob = append(row.PerNode, each), append(row.PerJob, float64(rapid.IntRange(0, 1).Draw(t, "per job")))
		}

		in.Rows = append(in.Rows, row)
	}

	return in
}

// express writes a decision as values of the model's variables.
func express(in *harvest.Instance, m *lp.Model, d harvest.Decision) []float64 {
	values := make([]float64, len(m.Vars))
	for j := range in.Jobs {
		for v := range m.Vars { // whichever reads back as the decision
			name := m.Vars[v].Name
			if d.Kind[j] < 0 && name == "none_"+itoa(j) {
				values[v] = 1
			}

			for start := d.Count[j]; start > 0 && d.Kind[j] >= 0; start-- {
				at := "_" + itoa(j) + "_" + itoa(d.Kind[j]) + "_" + itoa(start)
				more := slices.IndexFunc(m.Vars, func(x lp.Var) bool { return x.Name == "more"+at })
				if name == "at"+at && (start == d.Count[j] || more >= 0 && float64(d.Count[j]-start) <= m.Vars[more].High) {
					values[v] = 1
					if more >= 0 {
						values[more] = float64(d.Count[j] - start)
					}
				}
			}
		}
	}

	return values
}

func itoa(n int) string { return string(rune('0' + n)) }

func TestTheModelSaysWhatTheInstanceSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t)
		d, ok := in.Decide(knapsack.Effort{Rounds: 50, Prices: 50})
		if !ok {
			t.Fatal("nothing for anyone always fits")
		}

		m := in.Model()
		values := express(in, m, d)
		if err := m.Check(values); err != nil {
			t.Fatalf("a decision that is allowed is not so in the model: %v", err)
		}

		if got := m.Gain(values); math.Abs(got-d.Value) > 1e-6 {
			t.Errorf("worth %g, in the model %g", d.Value, got)
		}

		back := in.Read(&lp.Solution{Values: values, Proven: true})
		if !slices.Equal(back.Count, d.Count) || !slices.Equal(back.Kind, d.Kind) || math.Abs(back.Value-d.Value) > 1e-6 {
			t.Errorf("read back %+v, was %+v", back, d)
		}
	})
}

func TestMustIsKept(t *testing.T) {
	t.Parallel()
	in := &harvest.Instance{Nodes: []int{3}, Jobs: []harvest.Sizes{
		{Must: true, Kinds: [][]knapsack.Choice{{{Count: 2, Value: 1}}}},
		{Kinds: [][]knapsack.Choice{{{Count: 2, Value: 100}}}},
	}}

	d, ok := in.Decide(knapsack.Effort{})
	if !ok || !slices.Equal(d.Count, []int{2, 0}) || !d.Exact || d.Value != 1 {
		t.Errorf("%+v, want the first with 2 and the second with nothing", d)
	}

	in.Nodes[0] = 1
	d, ok = in.Decide(knapsack.Effort{})
	if ok {
		t.Errorf("%+v, want nothing: the first must have 2", d)
	}
}

func TestThePublishedObjectiveOverCounts(t *testing.T) {
	t.Parallel()
	in := &harvest.NodeInstance{Nodes: 4, LookAhead: 100, Jobs: []harvest.NodeJob{
		{
			Holds:  []bool{true, true, false, false},
			Least:  1,
			Most:   4,
			Points: []knapsack.Choice{{}, {Count: 1, Value: 10}, {Count: 4, Value: 25}},
			Up:     18,
			Down:   12,
		},
	}}

	c := in.Counts()

	// It holds 2 and does 15 there: growing costs 18 s of that and shrinking 12 s.
	want := []knapsack.Choice{
		{Count: 1, Value: 1000 - 180},
		{Count: 2, Value: 1500},
		{Count: 3, Value: 2000 - 270},
		{Count: 4, Value: 2500 - 270},
	}

	if got := c.Jobs[0]; !slices.Equal(got.Kinds[0], want) || got.None != -180 {
		t.Errorf("%+v, want %v and -180 for nothing", got, want)
	}
}
