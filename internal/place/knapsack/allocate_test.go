package knapsack_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/place/knapsack"
)

// plain is the same dynamic programme without shortcuts.
func plain(jobs [][]knapsack.Choice, nodes int) (float64, bool) {
	best := make([]float64, nodes+1)
	for _, choices := range jobs {
		next := make([]float64, nodes+1)
		for m := range next {
			next[m] = math.Inf(-1)
			for _, c := range choices {
				if c.Count <= m {
					next[m] = math.Max(next[m], best[m-c.Count]+c.Value)
				}
			}
		}

		best = next
	}

	return best[nodes], !math.IsInf(best[nodes], -1)
}

// verify checks an allocation for consistency and against the plain programme.
func verify(t interface {
	Helper()
	Fatalf(string, ...any)
}, jobs [][]knapsack.Choice, nodes int,
) {
	t.Helper()
	got, ok := knapsack.Allocate(jobs, nodes)

	want, can := plain(jobs, nodes)
	if ok != can {
		t.Fatalf("found an allocation: %v, there is one: %v", ok, can)
	}

	if !ok {
		return
	}

	used, value := 0, 0.0
	for i, p := range got.Picks {
		used += jobs[i][p].Count
		value += jobs[i][p].Value
	}

	if used > nodes {
		t.Fatalf("%d nodes are given away and there are %d", used, nodes)
	}

	if slack := 1e-9 * math.Max(1, math.Abs(want)); math.Abs(value-got.Value) > slack || math.Abs(value-want) > slack {
		t.Fatalf("the picks are worth %g, said to be %g, the best is %g", value, got.Value, want)
	}
}

// drawChoices draws a job's choices of one of several shapes.
func drawChoices(t *rapid.T, most int) []knapsack.Choice {
	n := rapid.IntRange(1, most).Draw(t, "most")
	step := 1
	if rapid.IntRange(0, 3).Draw(t, "by steps") == 0 {
		step = rapid.IntRange(2, 4).Draw(t, "step")
	}

	value := func(c int) float64 { return float64(rapid.IntRange(-20, 100).Draw(t, "value")) }

	switch rapid.IntRange(0, 3).Draw(t, "shape") {
	case 0: // gains fall
		root := float64(rapid.IntRange(1, 100).Draw(t, "root"))
		value = func(c int) float64 { return root * math.Sqrt(float64(c)) }
	case 1: // and it is best left alone
		now := rapid.IntRange(0, n).Draw(t, "now")
		value = func(c int) float64 {
			if c == now {
				return 120 * math.Sqrt(float64(c))
			}

			return 100 * math.Sqrt(float64(c))
		}
	case 2: // with a bend
		bend := rapid.IntRange(0, n).Draw(t, "bend")
		value = func(c int) float64 { return 10*float64(c) + 5*math.Max(0, float64(c-bend)) }
	}

	least := 0
	if rapid.IntRange(0, 5).Draw(t, "must have some") == 0 {
		least = rapid.IntRange(1, 3).Draw(t, "least")
	}

	var choices []knapsack.Choice
	for c := 0; c <= n; c++ {
		choices = append(choices, knapsack.Choice{Count: least + c*step, Value: value(c)})
	}

	return choices
}

func TestAllocationIsTheBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := make([][]knapsack.Choice, rapid.IntRange(0, 7).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = drawChoices(t, 80)
		}

		verify(t, jobs, rapid.IntRange(0, 200).Draw(t, "nodes"))
	})
}

func TestAllocationOfManyJobsIsTheBest(t *testing.T) {
	t.Parallel()

	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 7))
		jobs := make([][]knapsack.Choice, 12)
		for i := range jobs {
			most := 40 + r.IntN(160)
			power := 0.5 + r.Float64()*0.6

			now := r.IntN(60)
			for c := range most {
				v := (1 + float64(i%3)) * math.Pow(float64(c), power)
				if c != now {
					v *= 0.85
				}

				jobs[i] = append(jobs[i], knapsack.Choice{Count: c, Value: v})
			}

			r.Shuffle(len(jobs[i]), func(a, b int) { jobs[i][a], jobs[i][b] = jobs[i][b], jobs[i][a] })
		}

		for _, nodes := range []int{0, 1, 37, 300, 700} {
			verify(t, jobs, nodes)
		}
	}
}

func TestAllocationsThatAreClear(t *testing.T) {
	t.Parallel()
	type c = knapsack.Choice

	none := c{0, 0}
	for name, tc := range map[string]struct {
		jobs  [][]c
		nodes int
		want  []int // counts; nil if it cannot be done
	}{
		"no jobs":                       {nil, 3, []int{}},
		"no nodes":                      {[][]c{{none, {1, 5}}}, 0, []int{0}},
		"enough for all":                {[][]c{{none, {2, 5}}, {none, {3, 1}}}, 5, []int{2, 3}},
		"to whom it is worth more":      {[][]c{{none, {2, 5}}, {none, {2, 6}}}, 2, []int{0, 2}},
		"two small ones beat a big one": {[][]c{{none, {4, 9}}, {none, {2, 5}}, {none, {2, 5}}}, 4, []int{0, 2, 2}},
		"one must have its least":       {[][]c{{{2, 1}}, {none, {2, 100}}}, 3, []int{2, 0}},
		"the least are too many":        {[][]c{{{2, 1}}, {{2, 1}}}, 3, nil},
		"a loss is never chosen":        {[][]c{{none, {1, -1}}}, 3, []int{0}},
		"unless it must":                {[][]c{{{1, -1}, {2, -3}}}, 3, []int{1}},
		"more for nothing is not taken": {[][]c{{none, {1, 5}, {2, 5}, {3, 4}}}, 3, []int{1}},
		"without any choice":            {[][]c{{}}, 3, nil},
	} {
		got, ok := knapsack.Allocate(tc.jobs, tc.nodes)
		if ok != (tc.want != nil) {
			t.Errorf("%s: found %v", name, ok)
			continue
		}

		counts := []int{}
		for i, p := range got.Picks {
			counts = append(counts, tc.jobs[i][p].Count)
		}

		if ok && !slices.Equal(counts, tc.want) {
			t.Errorf("%s: %v, want %v", name, counts, tc.want)
		}
	}
}

func BenchmarkAllocate(b *testing.B) {
	for _, size := range [][2]int{{10, 200}, {30, 1000}, {50, 4000}} {
		r := rand.New(rand.NewPCG(1, 2))
		jobs := make([][]knapsack.Choice, size[0])
		for i := range jobs {
			most, now := 64+r.IntN(448), r.IntN(100)
			a := 0.9 + 0.09*r.Float64()
			for c := range most + 1 {
				v := float64(c) / (1 - a + a*max(float64(c), 1)) * 100
				if c != now {
					v *= 0.85
				}

				jobs[i] = append(jobs[i], knapsack.Choice{Count: c, Value: v + float64(c)/3})
			}
		}

		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				knapsack.Allocate(jobs, size[1])
			}
		})
	}
}
