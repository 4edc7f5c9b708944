package duration

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"trainyard/internal/quantile"
)

// forest is an ensemble of gradient-boosted regression trees (Friedman, "Greedy Function Approximation: A Gradient
// Boosting Machine") with histogram splits. The nodes of all trees are in one array; a left child follows its parent.
type forest struct {
	Base      float32 `json:"base"`
	Roots     []int32 `json:"roots"`
	Feature   []int16 `json:"col"` // that a node splits on: a word, or an amount after all words; -1 is a leaf
	Threshold weights `json:"cut"` // of an amount: up to it goes left. An absent word goes left
	Right     []int32 `json:"right"`
	Value     weights `json:"value"` // of a leaf
}

// Hyperparameters of boosting: common defaults.
const (
	treeCount        = 400
	treeDepth        = 6
	minLeafSize      = 3
	bins             = 32
	treeLearningRate = 0.06
	treeLambda       = 1.0 // L2 penalty on leaf values, in examples
	subsample        = 0.8 // fraction of the examples that a tree sees
	colsample        = 0.6 // fraction of the features that a tree sees
	treeHuberDelta   = 0.5
)

// predict returns the standardized log duration of a job.
func (f *forest) predict(x *example, words int) float64 {
	sum := float64(f.Base)
	for _, at := range f.Roots {
		for f.Feature[at] >= 0 {
			if f.goesRight(at, x, words) {
				at = f.Right[at]
			} else {
				at++
			}
		}

		sum += float64(f.Value[at])
	}

	return sum
}

func (f *forest) goesRight(at int32, x *example, words int) bool {
	feature := int(f.Feature[at])
	if feature >= words {
		return float32(x.amounts[feature-words]) > f.Threshold[at]
	}

	_, present := slices.BinarySearch(x.words, feature)

	return present
}

// booster trains a forest.
type booster struct {
	forest      forest
	xs          []example
	words       int
	thresholds  [][]float32 // between the bins of each amount
	binOf       [][]uint8   // bin of each amount of each example
	residuals   []float64   // of each example
	gradients   []float64   // negative gradients of the Huber loss: residuals, clipped
	rng         *rand.Rand
	featureUsed []bool // by the present tree
	// Histograms of the examples at a node: by word, and by amount and bin.
	wordGradients, wordCounts []float64
	binGradients, binCounts   []float64
}

// trainForest trains a forest on examples and standardized targets.
func trainForest(xs []example, ys []float64, words int, rng *rand.Rand) *forest {
	base := quantile.Median(ys)
	g := &booster{
		xs:        xs,
		words:     words,
		rng:       rng,
		residuals: make([]float64, len(ys)),
		gradients: make([]float64, len(ys)),
	}

	g.forest.Base = float32(base)
	for i, y := range ys {
		g.residuals[i] = y - float64(g.forest.Base)
	}

	g.binAmounts()
	rows := make([]int, 0, len(xs))

	for range treeCount {
		for i, e := range g.residuals {
			g.gradients[i] = min(max(e, -treeHuberDelta), treeHuberDelta)
		}

		rows = rows[:0]
		for i := range xs {
			if rng.Float64() < subsample {
				rows = append(rows, i)
			}
		}

		for c := range g.featureUsed {
			g.featureUsed[c] = rng.Float64() < colsample
		}

		root := int32(len(g.forest.Feature))
		g.forest.Roots = append(g.forest.Roots, root)
		g.grow(rows, treeDepth)

		tree := g.forest
		tree.Base = 0
		tree.Roots = []int32{root}
		for i := range xs {
			g.residuals[i] -= tree.predict(&xs[i], words)
		}
	}

	return &g.forest
}

// binAmounts assigns the amounts to bins that hold about as many examples each.
func (g *booster) binAmounts() {
	amounts := 0
	if len(g.xs) > 0 {
		amounts = len(g.xs[0].amounts)
	}

	g.thresholds = make([][]float32, amounts)
	for a := range amounts {
		values := make([]float32, len(g.xs))
		for i := range g.xs {
			values[i] = float32(g.xs[i].amounts[a])
		}

		slices.SortFunc(values, cmp.Compare[float32])
		g.thresholds[a] = thresholdsOf(values)
	}

	g.binOf = make([][]uint8, len(g.xs))
	for i := range g.xs {
		g.binOf[i] = make([]uint8, amounts)
		for a, z := range g.xs[i].amounts {
			v := float32(z)
			g.binOf[i][a] = uint8(sort.Search(len(g.thresholds[a]), func(k int) bool { return v <= g.thresholds[a][k] }))
		}
	}

	g.featureUsed = make([]bool, g.words+amounts)
	g.wordGradients, g.wordCounts = make([]float64, g.words), make([]float64, g.words)
	g.binGradients, g.binCounts = make([]float64, amounts*bins), make([]float64, amounts*bins)
}

// thresholdsOf returns the thresholds between the bins of sorted values: between any two that differ if there are few,
// and else so that bins hold about as many values each.
func thresholdsOf(values []float32) []float32 {
	distinct := 0
	for i := 1; i < len(values); i++ {
		if values[i] != values[i-1] {
			distinct++
		}
	}

	minInBin := 1
	if distinct >= bins {
		minInBin = len(values)/bins + 1
	}

	var thresholds []float32

	inBin := 0
	for i := 1; i < len(values) && len(thresholds) < bins-1; i++ {
		inBin++
		if values[i] != values[i-1] && inBin >= minInBin {
			thresholds = append(thresholds, (values[i]+values[i-1])/2)
			inBin = 0
		}
	}

	return thresholds
}

// grow adds the node for some examples, and below it the subtree.
func (g *booster) grow(rows []int, depth int) {
	f := &g.forest
	at := len(f.Feature)

	sum := 0.0
	for _, i := range rows {
		sum += g.gradients[i]
	}

	f.Feature = append(f.Feature, -1)
	f.Threshold = append(f.Threshold, 0)
	f.Right = append(f.Right, 0)
	f.Value = append(f.Value, float32(treeLearningRate*sum/(float64(len(rows))+treeLambda)))

	if depth == 0 || len(rows) < 2*minLeafSize {
		return
	}

	feature, threshold, ok := g.split(rows, sum)
	if !ok {
		return
	}

	f.Feature[at] = int16(feature)
	f.Threshold[at] = threshold

	left := 0
	for k, i := range rows {
		if !f.goesRight(int32(at), &g.xs[i], g.words) {
			rows[left], rows[k] = rows[k], rows[left]
			left++
		}
	}

	g.grow(rows[:left], depth-1)
	f.Right[at] = int32(len(f.Feature))
	g.grow(rows[left:], depth-1)
}

// split finds the split of the examples at a node with the greatest gain.
func (g *booster) split(rows []int, sum float64) (feature int, threshold float32, ok bool) {
	g.accumulate(rows)
	n := float64(len(rows))
	best := sum*sum/(n+treeLambda) + 1e-9
	consider := func(candidate int, at float32, right, count float64) {
		if count < minLeafSize || n-count < minLeafSize {
			return
		}

		left := sum - right
		if gain := right*right/(count+treeLambda) + left*left/(n-count+treeLambda); gain > best {
			best = gain
			feature = candidate
			threshold = at
			ok = true
		}
	}

	for c := range g.words {
		if g.featureUsed[c] {
			consider(c, 0, g.wordGradients[c], g.wordCounts[c])
		}
	}

	for a, thresholds := range g.thresholds {
		if !g.featureUsed[g.words+a] {
			continue
		}

		right, count := sum, n
		for b, at := range thresholds {
			right -= g.binGradients[a*bins+b]
			count -= g.binCounts[a*bins+b]
			consider(g.words+a, at, right, count)
		}
	}

	return feature, threshold, ok
}

// accumulate builds the histograms of the examples at a node.
func (g *booster) accumulate(rows []int) {
	clear(g.wordGradients)
	clear(g.wordCounts)
	clear(g.binGradients)
	clear(g.binCounts)
	for _, i := range rows {
		gradient := g.gradients[i]
		for _, w := range g.xs[i].words {
			g.wordGradients[w] += gradient
			g.wordCounts[w]++
		}

		for a, b := range g.binOf[i] {
			g.binGradients[a*bins+int(b)] += gradient
			g.binCounts[a*bins+int(b)]++
		}
	}
}

// valid reports whether a forest that was read can be run: children come after their parents, and features exist.
func (f *forest) valid(inputs int) bool {
	n := len(f.Feature)
	if len(f.Threshold) != n || len(f.Right) != n || len(f.Value) != n || !finite(float64(f.Base)) {
		return false
	}

	for i, feature := range f.Feature {
		right := int(f.Right[i])
		badSplit := right <= i+1 || right >= n || math.IsNaN(float64(f.Threshold[i]))
		if int(feature) >= inputs || feature >= 0 && badSplit {
			return false
		}
	}

	return !slices.ContainsFunc(f.Roots, func(r int32) bool { return r < 0 || int(r) >= n })
}
