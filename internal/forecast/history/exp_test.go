package history

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
	"strings"

	"trainyard/internal/forecast/curve"
	"trainyard/internal/id"
)

func gz(t *testing.T, name string) *csv.Reader {
	f, err := os.Open("../../../../shared/data/" + name)
	if err != nil { t.Skip(err) }
	t.Cleanup(func() { f.Close() })
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil { t.Fatal(err) }
		return csv.NewReader(z)
	}
	return csv.NewReader(f)
}
func fl(s string) float64 { v, err := strconv.ParseFloat(s, 64); if err != nil { return math.NaN() }; return v }

func nano(t *testing.T) []Past {
	idx, _ := gz(t, "loss-curves/nanogpt_index.csv").ReadAll()
	rec := map[string]string{}
	fin := map[string]float64{}
	for _, r := range idx[1:] { rec[r[0]] = r[1]; fin[r[0]] = fl(r[5]) }
	rows, _ := gz(t, "loss-curves/nanogpt_val.csv.gz").ReadAll()
	by := map[string]*Past{}
	var order []string
	for _, r := range rows[1:] {
		p := by[r[0]]
		if p == nil { p = &Past{Job: id.Job(r[0]), Group: rec[r[0]], Features: Features{Task: "language", Model: "gpt2", Metric: "val_loss"}}; by[r[0]] = p; order = append(order, r[0]) }
		if fl(r[1]) > 0 { p.Curve.X = append(p.Curve.X, fl(r[1])); p.Curve.Y = append(p.Curve.Y, fl(r[4])) }
	}
	var out []Past
	for _, k := range order {
		p := by[k]
		if len(p.Curve.X) < 10 { continue }
		g := p.Curve.Y[len(p.Curve.Y)-1]
		p.Curve.Goal = curve.Goal{Value: g, Set: true}
		for i, y := range p.Curve.Y { if y <= g { p.End = p.Curve.X[i]; break } }
		p.Features.Target = g
		out = append(out, *p)
	}
	return out
}

func mlperfCurves(t *testing.T) []Past {
	f, err := os.Open("../../../../shared/data/mlperf-training/runs.csv.gz")
	if err != nil { t.Skip(err) }
	defer f.Close()
	runs, err := ReadMLPerfRuns(f)
	if err != nil { t.Fatal(err) }
	by := map[int]*MLPerfRun{}
	seen := map[string]bool{}
	count := map[string]int{}
	for i := range runs {
		r := &runs[i]
		k := r.Round + r.Org + r.System + r.Benchmark
		if !r.Success || seen[k] || !r.Goal.Set { continue }
		seen[k] = true
		by[r.ID] = r
	}
	ps := map[int]*Past{}
	rows, _ := gz(t, "mlperf-training/evals.csv.gz").ReadAll()
	var order []int
	for _, r := range rows[1:] {
		n, _ := strconv.Atoi(r[0])
		run := by[n]
		if run == nil { continue }
		p := ps[n]
		if p == nil {
			p = &Past{Job: id.Job(r[0]), Group: canonicalOrg(run.Org), Features: run.Features, Seconds: run.Seconds}
			p.Features.Name = run.System
			p.Curve.Goal = run.Goal
			ps[n] = p
			order = append(order, n)
		}
		x, y := fl(r[1]), fl(r[3])
		if math.IsNaN(x) || math.IsNaN(y) { continue }
		if len(p.Curve.X) > 0 && x <= p.Curve.X[len(p.Curve.X)-1] { continue }
		if p.End > 0 { continue }
		p.Curve.X = append(p.Curve.X, x); p.Curve.Y = append(p.Curve.Y, y)
		if p.Curve.Goal.Met(y) { p.End = x }
	}
	// stride: at most 40 per benchmark
	var out []Past
	all := map[string][]int{}
	for _, n := range order {
		p := ps[n]
		if p.End == 0 || len(p.Curve.X) < 5 { continue }
		all[p.Features.Model] = append(all[p.Features.Model], n)
	}
	for b, l := range all {
		_ = b
		for i := 0; i < min(40, len(l)); i++ { out = append(out, *ps[l[i*len(l)/min(40, len(l))]]); count[b]++ }
	}
	slices.SortFunc(out, func(a, b Past) int { return strings.Compare(string(a.Job), string(b.Job)) })
	fmt.Println(count)
	return out
}

func score(t *testing.T, name string, past []Past, sameSystem bool, half func(string) bool) {
	pool := NewPool(past)
	for _, fr := range []float64{0.2, 0.4, 0.6, 0.8} {
		var errs []float64
		by := map[string][]float64{}
		fails := 0
		cover := 0
		start := time.Now()
		for i := range past {
			p := &past[i]
			if !half(p.Group) { continue }
			c := p.Curve
			n := 0
			for n < len(c.X) && c.X[n] <= fr*p.End { n++ }
			if n < 3 { continue }
			c.X, c.Y = c.X[:n], c.Y[:n]
			f := p.Features
			q := Query{Curve: &c, Features: f, Job: p.Job, Group: p.Group}
			if sameSystem { q.Skip = func(o *Past) bool { return o.Features.Name == f.Name } }
			m, err := pool.Match(q)
			e := 2.0
			if err == nil { e = math.Abs(m.End-p.End) / p.End; if m.Low <= p.End && p.End <= m.High { cover++ } } else { fails++ }
			if e > 1.5 { fmt.Println("OUT", fr, p.Job, p.Group, p.Features.Model, p.End, m.End, m.Fit, err, c.X, c.Y, m.Never) }
			errs = append(errs, e)
			bk := p.Features.Model; if bk == "gpt2" { bk = strings.SplitN(p.Group, "/", 2)[0]; if os.Getenv("DUMP") != "" && fr == 0.2 { fmt.Println("D", p.Group, p.End, m.End, e, p.Curve.Goal.Value, c.Y[n-1], c.X[n-1], len(m.Like)) } }
			by[bk] = append(by[bk], e)
		}
		d := time.Since(start) / time.Duration(max(len(errs), 1))
		slices.Sort(errs)
		n := len(errs)
		fmt.Printf("%s %.0f%% n=%d median %.1f p80 %.1f mean %.1f fails %d cover %.2f %v ", name, fr*100, n, 100*errs[n/2], 100*errs[n*4/5], 100*mean(errs), fails, float64(cover)/float64(n), d)
		var ks []string
		for k := range by { ks = append(ks, k) }
		slices.Sort(ks)
		for _, k := range ks { fmt.Printf(" %s:%.1f", k, 100*median(by[k])) }
		fmt.Println()
	}
}
func mean(v []float64) float64 { s := 0.0; for _, x := range v { s += x }; return s / float64(len(v)) }

func side(n byte) func(string) bool {
	return func(g string) bool { h := byte(0); for i := range g { h = h*31 + g[i] }; return n == 2 || (h>>3)&1 == n }
}

func TestExp(t *testing.T) {
	if os.Getenv("EXP") == "" { t.Skip() }
	n := byte(fl(os.Getenv("EXP")))
	score(t, "nano", nano(t), false, side(n))
	score(t, "mlperf", mlperfCurves(t), true, side(n))
}

func TestExpTrain(t *testing.T) {
	if os.Getenv("EXPT") == "" { t.Skip() }
	f, err := os.Open("../../../../shared/data/mlperf-training/runs.csv.gz")
	if err != nil { t.Skip(err) }
	defer f.Close()
	past, err := ReadMLPerf(f)
	if err != nil { t.Fatal(err) }
	fmt.Println("records", len(past))
	if os.Getenv("ROUND") != "" {
		for i := range past {
			if past[i].Features.Hyper == nil { past[i].Features.Hyper = map[string]float64{} }
			past[i].Features.Hyper["round"] = float64(past[i].Finished.Year()-2018) + float64(past[i].Finished.Month())/12
		}
	}
	seed := uint64(fl(os.Getenv("EXPT")))
	var all [][]float64
	cover, refused := 0, 0
	var width []float64
	var errs []float64
	nparts := 5
	for part := range nparts {
		if os.Getenv("ONE") != "" && part > 0 { break }
		var train, test []Past
		for i, p := range past {
			h := 0
			for _, c := range p.Group { h = h*131 + int(c) }
			if os.Getenv("RANDOM") != "" { h = i * 2654435761 >> 8; p.Group = fmt.Sprint(i) }
			if (h/7+int(seed))%nparts == part { test = append(test, p) } else { train = append(train, p) }
		}
		start := time.Now()
		m, err := Train(train, seed)
		if err != nil { t.Fatal(err) }
		fmt.Println(len(train), len(test), time.Since(start), len(m.parts.Encoder.Words), len(m.parts.Encoder.Amounts))
		for _, s := range m.Validation { fmt.Printf("  %s %.3f p80 %.3f in25 %.2f w %.2f\n", s.Learner, s.Median, s.P80, s.Within25, s.Weight) }
		for i := range test {
			p := &test[i]
			d, err := m.Predict(p.Features, 0)
			if err != nil { refused++; if refused < 8 { fmt.Println("   ", err) }; continue }
			errs = append(errs, math.Abs(d.Mid/p.Seconds-1))
			if d.Low <= p.Seconds && p.Seconds <= d.High { cover++ }
			width = append(width, d.High/d.Low)
		}
		_ = all
	}
	slices.Sort(errs)
	n := len(errs)
	in := 0
	for _, e := range errs { if e < .25 { in++ } }
	fmt.Printf("unseen orgs n=%d refused=%d median %.3f p80 %.3f within25 %.2f cover %.3f width %.2f\n", n, refused, errs[n/2], errs[n*4/5], float64(in)/float64(n), float64(cover)/float64(n), median(width))
}
