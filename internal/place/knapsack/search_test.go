package knapsack_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/place/knapsack"
)

// exhaust tries every answer.
func exhaust(p *knapsack.Problem) (float64, bool) {
	best, found := math.Inf(-1), false
	slack := slices.Clone(p.Limits)
	var try func(j int, value float64)
	try = func(j int, value float64) {
		if j == len(p.Jobs) {
			if !slices.ContainsFunc(slack, func(s float64) bool { return s < -1e-9 }) && value > best {
				best, found = value, true
			}

			return
		}

		for _, o := range p.Jobs[j] {
			for _, u := range o.Uses {
				slack[u.Row] -= u.Amount
			}

			try(j+1, value+o.Value)

			for _, u := range o.Uses {
				slack[u.Row] += u.Amount
			}
		}
	}

	try(0, 0)

	return best, found
}

func TestSearchFitsAndItsBoundHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.IntRange(1, 3).Draw(t, "rows")
		p := &knapsack.Problem{}
		for range rows {
			p.Limits = append(p.Limits, float64(rapid.IntRange(0, 12).Draw(t, "limit")))
		}

		for range rapid.IntRange(0, 5).Draw(t, "jobs") {
			options := []knapsack.Option{{}}
			for range rapid.IntRange(0, 5).Draw(t, "options") {
				o := knapsack.Option{Value: float64(rapid.IntRange(0, 50).Draw(t, "value"))}
				for r := range rows {
					if rapid.Bool().Draw(t, "uses") {
						o.Uses = append(o.Uses, knapsack.Use{Row: r, Amount: float64(rapid.IntRange(0, 8).Draw(t, "amount"))})
					}
				}

				options = append(options, o)
			}

			p.Jobs = append(p.Jobs, options)
		}

		got, ok := knapsack.Search(p, knapsack.Effort{})
		want, _ := exhaust(p) // nothing for anyone always fits

		if !ok {
			t.Fatal("found nothing that fits")
		}

		checkFound(t, p, got)

		if got.Bound < want-1e-6 {
			t.Errorf("bound %g, but %g can be reached", got.Bound, want)
		}

		if got.Value < want-1e-6 {
			t.Errorf("found %g, the best is %g: a few jobs are searched exhaustively", got.Value, want)
		}
	})
}

func checkFound(t interface {
	Helper()
	Errorf(string, ...any)
}, p *knapsack.Problem, got knapsack.Found,
) {
	t.Helper()
	value, slack := 0.0, slices.Clone(p.Limits)
	for j, k := range got.Picks {
		value += p.Jobs[j][k].Value

		for _, u := range p.Jobs[j][k].Uses {
			slack[u.Row] -= u.Amount
		}
	}

	for r, s := range slack {
		if s < -1e-6 {
			t.Errorf("row %d is overdrawn by %g", r, -s)
		}
	}

	if math.Abs(value-got.Value) > 1e-6*math.Max(1, math.Abs(value)) || got.Bound < got.Value {
		t.Errorf("said to be worth %g at most %g, is worth %g", got.Value, got.Bound, value)
	}
}

// mixed is a yard with four kinds of nodes, a budget and five tenants with quotas.
func mixed(jobs, nodes int, seed uint64) *knapsack.Problem {
	r := rand.New(rand.NewPCG(seed, 11))
	p := &knapsack.Problem{}
	price := []float64{1, 1.7, 2.6, 4.5}

	full := 0.0
	for k := range 4 {
		n := nodes / 4
		p.Limits = append(p.Limits, float64(n))
		full += price[k] * float64(n)
	}

	p.Limits = append(p.Limits, 0.75*full)
	for range 5 {
		p.Limits = append(p.Limits, 0.3*float64(nodes))
	}

	for j := range jobs {
		options := []knapsack.Option{{}}
		serial := 0.002 + 0.03*r.Float64()

		now, most := r.IntN(4), 8+r.IntN(57)
		for k := range 4 {
			speed := price[k] * (0.8 + 0.5*r.Float64())
			for n := 1; n <= most; n++ {
				v := 120 * speed * float64(n) / (1 + serial*float64(n-1))
				if k != now {
					v *= 80.0 / 120
				}

				options = append(options, knapsack.Option{Value: v, Uses: []knapsack.Use{
					{Row: k, Amount: float64(n)}, {Row: 4, Amount: price[k] * float64(n)}, {Row: 5 + j%5, Amount: float64(n)},
				}})
			}
		}

		p.Jobs = append(p.Jobs, options)
	}

	return p
}

func TestSearchIsNearItsBoundWithSeveralKinds(t *testing.T) {
	t.Parallel()

	for _, size := range [][2]int{{10, 100}, {20, 200}} {
		for seed := range uint64(2) {
			p := mixed(size[0], size[1], seed)
			effort := knapsack.Effort{Prices: 150, Rounds: 100}
			got, ok := knapsack.Search(p, effort)
			if !ok {
				t.Fatal("found nothing that fits")
			}

			checkFound(t, p, got)

			if gap := 1 - got.Value/got.Bound; gap > 0.01 {
				t.Errorf("%v, seed %d: found %g and proved %g, %.2f %% apart", size, seed, got.Value, got.Bound, 100*gap)
			}

			again, _ := knapsack.Search(p, effort)
			if !slices.Equal(again.Picks, got.Picks) || again.Bound != got.Bound {
				t.Errorf("%v, seed %d: two searches differ", size, seed)
			}
		}
	}
}

func TestSearchStopsWhenItIsToldTo(t *testing.T) {
	t.Parallel()
	p := mixed(10, 100, 1)
	asked := 0
	got, ok := knapsack.Search(p, knapsack.Effort{Enough: func() bool {
		asked++
		return asked > 3
	}})

	if !ok || asked > 6 {
		t.Errorf("asked %d times whether it is enough; found %v", asked, ok)
	}

	checkFound(t, p, got)
}

func TestSearchSaysWhenNothingFits(t *testing.T) {
	t.Parallel()
	p := &knapsack.Problem{Limits: []float64{1}, Jobs: [][]knapsack.Option{{{Uses: []knapsack.Use{{Row: 0, Amount: 2}}}}}}
	if got, ok := knapsack.Search(p, knapsack.Effort{}); ok {
		t.Errorf("found %+v, which does not fit", got)
	}
}

func TestARowMayBeGivenBackTo(t *testing.T) {
	t.Parallel()

	// The second job may only run together with the first: it draws what the first gives.
	p := &knapsack.Problem{Limits: []float64{0, 10}, Jobs: [][]knapsack.Option{
		{
			{},
			{Value: 1, Uses: []knapsack.Use{{Row: 0, Amount: -1}, {Row: 1, Amount: 6}}},
			{Value: 3, Uses: []knapsack.Use{{Row: 0, Amount: -1}, {Row: 1, Amount: 8}}},
		},
		{{}, {Value: 9, Uses: []knapsack.Use{{Row: 0, Amount: 1}, {Row: 1, Amount: 4}}}},
	}}

	got, ok := knapsack.Search(p, knapsack.Effort{})
	if !ok || got.Value != 10 {
		t.Errorf("found %+v, want both with 6 and 4 nodes", got)
	}

	p.Jobs[0] = p.Jobs[0][:1]
	got, ok = knapsack.Search(p, knapsack.Effort{})
	if !ok || got.Value != 0 {
		t.Errorf("found %+v, want nothing: the first job cannot run", got)
	}
}
