package duration

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"trainyard/internal/quantile"
)

// forest is gradient-boosted trees: each mends what those before it got wrong. Its nodes
// are in one row; a tree begins at each root.
type forest struct {
	Base  float32 `json:"base"`
	Roots []int32 `json:"roots"`
	Col   []int16 `json:"col"` // that a node asks about: a word, or an amount after all words; -1 is a leaf
	Cut   weights `json:"cut"` // of an amount: below goes left. A word that is not there goes left
	Right []int32 `json:"right"`
	Value weights `json:"value"` // of a leaf
}

// How a forest is grown. Usual values.
const (
	treeCount = 400
	treeDepth = 6
	leafSize  = 3
	bins      = 32
	shrink    = 0.06
	ridgeLeaf = 1.0 // examples of no error that each leaf is taken to have besides
	rowPart   = 0.8 // of the examples that a tree sees
	colPart   = 0.6 // of the columns
	treeHuber = 0.5
)

// run returns what the forest says of a job.
func (f *forest) run(x *example, words int) float64 {
	sum := float64(f.Base)
	for _, at := range f.Roots {
		for f.Col[at] >= 0 {
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
	col := int(f.Col[at])
	if col >= words {
		return float32(x.z[col-words]) > f.Cut[at]
	}
	_, on := slices.BinarySearch(x.on, col)
	return on
}

// grower grows a forest.
type grower struct {
	forest forest
	xs     []example
	words  int
	cuts   [][]float32 // between the bins of each amount
	binned [][]uint8   // bin of each amount of each example
	error  []float64   // what is left of each target
	push   []float64   // that, with large ones cut off
	chance *rand.Rand
	use    []bool // columns that the present tree may ask about
	// Sums by word, and by amount and bin, of the examples at a node.
	wordSum, wordCount []float64
	binSum, binCount   []float64
}

// trainForest grows a forest on examples with their targets, which have mean 0 and deviation 1.
func trainForest(xs []example, ys []float64, words int, chance *rand.Rand) *forest {
	base := quantile.Median(ys)
	g := &grower{xs: xs, words: words, chance: chance, error: make([]float64, len(ys)), push: make([]float64, len(ys))}
	g.forest.Base = float32(base)
	for i, y := range ys {
		g.error[i] = y - float64(g.forest.Base)
	}
	g.bin()
	rows := make([]int, 0, len(xs))
	for range treeCount {
		for i, e := range g.error {
			g.push[i] = min(max(e, -treeHuber), treeHuber)
		}
		rows = rows[:0]
		for i := range xs {
			if chance.Float64() < rowPart {
				rows = append(rows, i)
			}
		}
		for c := range g.use {
			g.use[c] = chance.Float64() < colPart
		}
		root := int32(len(g.forest.Col))
		g.forest.Roots = append(g.forest.Roots, root)
		g.grow(rows, treeDepth)
		one := forest{Roots: []int32{root}, Col: g.forest.Col, Cut: g.forest.Cut, Right: g.forest.Right, Value: g.forest.Value}
		for i := range xs {
			g.error[i] -= one.run(&xs[i], words)
		}
	}
	return &g.forest
}

// bin sorts the amounts into bins that hold about as many examples each.
func (g *grower) bin() {
	amounts := 0
	if len(g.xs) > 0 {
		amounts = len(g.xs[0].z)
	}
	g.cuts = make([][]float32, amounts)
	for a := range amounts {
		values := make([]float32, len(g.xs))
		for i := range g.xs {
			values[i] = float32(g.xs[i].z[a])
		}
		slices.SortFunc(values, cmp.Compare[float32])
		g.cuts[a] = cutsOf(values)
	}
	g.binned = make([][]uint8, len(g.xs))
	for i := range g.xs {
		g.binned[i] = make([]uint8, amounts)
		for a, z := range g.xs[i].z {
			v := float32(z)
			g.binned[i][a] = uint8(sort.Search(len(g.cuts[a]), func(k int) bool { return v <= g.cuts[a][k] }))
		}
	}
	g.use = make([]bool, g.words+amounts)
	g.wordSum, g.wordCount = make([]float64, g.words), make([]float64, g.words)
	g.binSum, g.binCount = make([]float64, amounts*bins), make([]float64, amounts*bins)
}

// cutsOf returns where values, which are in order, are cut into bins: between any two that differ if there are few,
// and else where enough have come together.
func cutsOf(values []float32) []float32 {
	distinct := 0
	for i := 1; i < len(values); i++ {
		if values[i] != values[i-1] {
			distinct++
		}
	}
	enough := 1
	if distinct >= bins {
		enough = len(values)/bins + 1
	}
	var cuts []float32
	since := 0
	for i := 1; i < len(values) && len(cuts) < bins-1; i++ {
		since++
		if values[i] != values[i-1] && since >= enough {
			cuts = append(cuts, (values[i]+values[i-1])/2)
			since = 0
		}
	}
	return cuts
}

// grow adds the node for some examples, and below it the tree.
func (g *grower) grow(rows []int, depth int) {
	f := &g.forest
	at := len(f.Col)
	sum := 0.0
	for _, i := range rows {
		sum += g.push[i]
	}
	f.Col, f.Cut, f.Right = append(f.Col, -1), append(f.Cut, 0), append(f.Right, 0)
	f.Value = append(f.Value, float32(shrink*sum/(float64(len(rows))+ridgeLeaf)))
	if depth == 0 || len(rows) < 2*leafSize {
		return
	}
	col, cut, ok := g.split(rows, sum)
	if !ok {
		return
	}
	f.Col[at], f.Cut[at] = int16(col), cut
	left := 0
	for k, i := range rows {
		if !f.goesRight(int32(at), &g.xs[i], g.words) {
			rows[left], rows[k] = rows[k], rows[left]
			left++
		}
	}
	g.grow(rows[:left], depth-1)
	f.Right[at] = int32(len(f.Col))
	g.grow(rows[left:], depth-1)
}

// split finds the question that tells the examples at a node apart best.
func (g *grower) split(rows []int, sum float64) (col int, cut float32, ok bool) {
	g.count(rows)
	n := float64(len(rows))
	best := sum*sum/(n+ridgeLeaf) + 1e-9
	consider := func(c int, at float32, right, count float64) {
		if count < leafSize || n-count < leafSize {
			return
		}
		left := sum - right
		if gain := right*right/(count+ridgeLeaf) + left*left/(n-count+ridgeLeaf); gain > best {
			best, col, cut, ok = gain, c, at, true
		}
	}
	for c := range g.words {
		if g.use[c] {
			consider(c, 0, g.wordSum[c], g.wordCount[c])
		}
	}
	for a, cuts := range g.cuts {
		if !g.use[g.words+a] {
			continue
		}
		right, count := sum, n
		for b, at := range cuts {
			right -= g.binSum[a*bins+b]
			count -= g.binCount[a*bins+b]
			consider(g.words+a, at, right, count)
		}
	}
	return col, cut, ok
}

// count adds up the examples at a node.
func (g *grower) count(rows []int) {
	clear(g.wordSum)
	clear(g.wordCount)
	clear(g.binSum)
	clear(g.binCount)
	for _, i := range rows {
		push := g.push[i]
		for _, w := range g.xs[i].on {
			g.wordSum[w] += push
			g.wordCount[w]++
		}
		for a, b := range g.binned[i] {
			g.binSum[a*bins+int(b)] += push
			g.binCount[a*bins+int(b)]++
		}
	}
}

// sound reports whether a forest that was read can be run: every node leads to others that come later,
// and asks about inputs that are there.
func (f *forest) sound(inputs int) bool {
	n := len(f.Col)
	if len(f.Cut) != n || len(f.Right) != n || len(f.Value) != n || !finite(float64(f.Base)) {
		return false
	}
	for i, col := range f.Col {
		if int(col) >= inputs || col >= 0 && (int(f.Right[i]) <= i+1 || int(f.Right[i]) >= n || math.IsNaN(float64(f.Cut[i]))) {
			return false
		}
	}
	return !slices.ContainsFunc(f.Roots, func(r int32) bool { return r < 0 || int(r) >= n })
}
