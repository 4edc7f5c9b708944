package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

func TestExpTrees(t *testing.T) {
	if os.Getenv("EXPR") == "" { t.Skip() }
	f, _ := os.Open("../../../../shared/data/mlperf-training/runs.csv.gz")
	defer f.Close()
	past, err := ReadMLPerf(f)
	if err != nil { t.Fatal(err) }
	if os.Getenv("RANDOM") != "" { for i := range past { past[i].Group = fmt.Sprint(i) } }
	recs := usable(past)
	tr := &training{records: recs, seed: uint64(fl(os.Getenv("EXPR"))), encoder: learnEncoder(recs)}
	tr.split()
	tr.encode()
	words := len(tr.encoder.Words)
	for _, c := range tr.encoder.Amounts { fmt.Print(c.Name, " ") }
	fmt.Println(words)
	ev := func(name string, fit func(xs []example, ys []float64, k int) func(x *example) float64) {
		start := time.Now()
		said := make([]float64, len(tr.xs))
		trainErr := 0.0
		for k := range folds {
			xs, ys, out := tr.without(k)
			g := fit(xs, ys, k)
			for _, i := range out { said[i] = g(&tr.xs[i]) }
			for i := range xs { trainErr += math.Abs(g(&xs[i])-ys[i]) / float64(len(xs)) / folds }
		}
		s := tr.score(name, said, 1)
		var e []float64
		for i := range said { e = append(e, math.Abs(said[i]-tr.ys[i])) }
		slices.Sort(e)
		fmt.Printf("%s median %.3f p80 %.3f in25 %.2f trainErr %.4f (%v)\n", name, s.Median, s.P80, s.Within25, trainErr*tr.scale, time.Since(start))
	}
	ev("trees", func(xs []example, ys []float64, k int) func(x *example) float64 {
		f := trainForest(xs, ys, words, rand.New(rand.NewPCG(1, uint64(k))))
		return func(x *example) float64 { return f.run(x, words) }
	})
	ev("line", func(xs []example, ys []float64, k int) func(x *example) float64 {
		f := trainLine(xs, ys, tr.encoder.width(), words)
		return func(x *example) float64 { return f.run(x, words) }
	})
	if os.Getenv("NET") == "" { return }
	ev("mlp", func(xs []example, ys []float64, k int) func(x *example) float64 {
		f := trainNetwork(xs, ys, tr.encoder.width(), words, rand.New(rand.NewPCG(1, uint64(k))))
		return func(x *example) float64 { var p pass; return f[len(f)-1].run(x, words, &p) }
	})
}
