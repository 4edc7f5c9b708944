package duration

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// some makes examples of so many words and amounts.
func some(n, words, amounts int, rng *rand.Rand) []example {
	xs := make([]example, n)
	for i := range xs {
		for w := range words {
			if rng.Float64() < 0.3 {
				xs[i].words = append(xs[i].words, w)
			}
		}

		for range amounts {
			xs[i].amounts = append(xs[i].amounts, rng.NormFloat64())
		}
	}

	return xs
}

func TestNetworkKnowsItsSlope(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	const words, amounts = 5, 3
	n, g := newNetwork(words+amounts, rng), newNetwork(words+amounts, rng)
	for _, w := range g.parameters() {
		clear(w)
	}

	x := &some(1, words, amounts, rng)[0]
	x.words = []int{1, 4}
	var p activations
	n.predict(x, words, &p)
	n.backpropagate(g, x, words, &p, 1)

	const step = 1e-2
	for k, w := range n.parameters() {
		for i := 0; i < len(w); i += 1 + len(w)/50 {
			was := w[i]
			w[i] = was + step
			up := n.predict(x, words, &p)
			w[i] = was - step
			down := n.predict(x, words, &p)
			w[i] = was

			want, got := (up-down)/(2*step), float64(g.parameters()[k][i])
			if math.Abs(want-got) > 0.02*(1+math.Abs(want)) {
				t.Errorf("weight %d of part %d moves the answer by %.4f, the gradient says %.4f", i, k, want, got)
			}
		}
	}
}

// TestLearnersLearn shows each learner something it can learn and asks about examples it has not seen.
func TestLearnersLearn(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	const words, amounts = 4, 3
	xs := some(300, words, amounts, rng)
	bent := make([]float64, len(xs))

	straight := make([]float64, len(xs))
	for i := range xs {
		straight[i] = 0.8*xs[i].amounts[0] - 0.5*xs[i].amounts[1]
		if slices.Contains(xs[i].words, 2) {
			straight[i]++
		}

		bent[i] = straight[i] + 0.7*math.Abs(xs[i].amounts[2])
	}

	var p activations
	n := trainNetwork(xs[:200], bent[:200], words+amounts, words, rng)
	f := trainForest(xs[:200], bent[:200], words, rng)
	l := trainRidge(xs[:200], straight[:200], words+amounts, words)

	if len(n) != checkpoints {
		t.Fatalf("%d networks, want one for each of %d stops", len(n), checkpoints)
	}

	for name, tc := range map[string]struct {
		says  func(x *example) float64
		truth []float64
		most  float64
	}{
		"network": {func(x *example) float64 { return n[checkpoints-1].predict(x, words, &p) }, bent, 0.25},
		"forest":  {func(x *example) float64 { return f.predict(x, words) }, bent, 0.35},
		"line":    {func(x *example) float64 { return l.predict(x, words) }, straight, 0.02},
	} {
		sum := 0.0
		for i := 200; i < 300; i++ {
			sum += math.Abs(tc.says(&xs[i])-tc.truth[i]) / 100
		}

		if sum > tc.most {
			t.Errorf("the %s is off by %.3f, want at most %.3f", name, sum, tc.most)
		}
	}
}

func TestCutsPartValuesThatDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float32 { return float32(rapid.IntRange(0, 60).Draw(t, "value")) }), 0, 400).
			Draw(t, "values")
		slices.Sort(values)
		cuts := thresholdsOf(values)
		if len(cuts) >= bins || !slices.IsSorted(cuts) {
			t.Fatalf("cuts %v", cuts)
		}

		distinct := slices.Compact(slices.Clone(values))
		if len(distinct) <= bins && len(cuts) != max(len(distinct)-1, 0) {
			t.Fatalf("%d values are parted by %d cuts", len(distinct), len(cuts))
		}
	})
}
