package plot

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/test/golden"
)

// falling is a loss that falls to a floor, of n points up to a step.
func falling(n int, last, from, floor float64) (x, y []float64) {
	for i := range n {
		step := last * float64(i) / float64(max(n-1, 1))
		x = append(x, step)
		y = append(y, floor+(from-floor)/math.Sqrt(1+40*step/last))
	}

	return x, y
}

// goesOn is a fit from a step on that falls to a value, with an interval that opens.
func goesOn(from, to, high, low float64) *Fit {
	f := &Fit{}
	const n = 50
	for i := range n + 1 {
		part := float64(i) / n
		mid := low + (high-low)*math.Exp(-2*part)
		f.X = append(f.X, from+(to-from)*part)
		f.Mid = append(f.Mid, mid)
		f.Low = append(f.Low, mid-part*0.3*math.Abs(high-low))
		f.High = append(f.High, mid+part*0.6*math.Abs(high-low))
	}

	return f
}

func noisy(y []float64, by float64) []float64 {
	out := slices.Clone(y)
	for i := range out {
		out[i] *= 1 + by*math.Sin(float64(i)*2.4)
	}

	return out
}

func plots() map[string]*Plot {
	x, y := falling(200, 12_400, 4.2, 2.1)
	whole := func() *Plot {
		return &Plot{X: x, Y: noisy(y, 0.01), Fit: goesOn(12_400, 31_000, 2.42, 2.18), Goal: new(2.2), End: new(30_000.0)}
	}

	gap := noisy(y, 0.01)
	for i := 60; i < 110; i++ {
		gap[i] = math.NaN()
	}

	gap[150], gap[152] = math.Inf(1), math.NaN()
	ascii := whole()
	colored := whole()
	narrow := whole()
	far := whole()
	ascii.ASCII, colored.Color, narrow.Width, far.End = true, true, 60, new(4e9)
	narrow.Fit, narrow.End = goesOn(12_400, 31_000, 2.42, 2.18), new(31_000.0)
	far.Fit = goesOn(12_400, 4e9, 2.42, 2.18)

	lx, ly := falling(120, 8e6, 900, 0)
	for i := range ly {
		ly[i] *= math.Exp(-float64(i) / 12)
	}

	ax, ay := falling(80, 3000, 0.95, 0.1)
	for i := range ay {
		ay[i] = 1 - ay[i]
	}

	rises := goesOn(3000, 9000, ay[79], 0.9)
	nx, ny := falling(60, 500, -1.5, -7.2)
	hx, hy := falling(60, 5e12, 3.2e306, 1.1e306)

	return map[string]*Plot{
		"whole": whole(), "ascii": ascii, "color": colored, "narrow": narrow, "far-end": far,
		"gaps":         {X: x, Y: gap},
		"few-points":   {X: []float64{0, 500, 1000, 1500, 2000}, Y: []float64{10.9, 6.2, 4.4, 3.9, 3.7}, Goal: new(3.0)},
		"one-point":    {X: []float64{100}, Y: []float64{0.6931}},
		"first-step":   {X: []float64{0}, Y: []float64{-3}, ASCII: true},
		"constant":     {X: []float64{1, 2, 3, 4}, Y: []float64{0.5, 0.5, 0.5, 0.5}},
		"zero":         {X: []float64{1, 2}, Y: []float64{0, 0}},
		"rising":       {X: ax, Y: ay, Fit: rises, Goal: new(0.85), End: new(8000.0)},
		"logarithmic":  {X: lx, Y: ly, Goal: new(1e-3)},
		"negative":     {X: nx, Y: ny},
		"huge":         {X: hx, Y: hy},
		"tiny":         {X: []float64{1, 2, 3}, Y: []float64{3e-7, 2e-7, 1.5e-7}},
		"close-values": {X: []float64{1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3}, Y: []float64{2.300001, 2.300002, 2.300004, 2.300003}},
	}
}

func TestPlotsLookAsTheyAreDrawn(t *testing.T) {
	t.Parallel()

	for name, p := range plots() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.Rows = 12
			if p.Width == 0 {
				p.Width = 80
			}

			got := strings.Join(p.Lines(), "\n") + "\n"
			golden.Compare(t, filepath.Join("testdata", name+".golden"), got)
		})
	}
}

func TestNothingMeasuredDrawsNothing(t *testing.T) {
	t.Parallel()

	for name, p := range map[string]*Plot{
		"no points":  {Width: 80, Rows: 12, Goal: new(1.0)},
		"no numbers": {X: []float64{1, 2}, Y: []float64{math.NaN(), math.Inf(-1)}, Width: 80, Rows: 12},
	} {
		if lines := p.Lines(); lines != nil {
			t.Errorf("%s: drew %q", name, lines)
		}
	}
}

// TestEveryPlotFits draws any numbers at all: lines keep to the width, and the same
// numbers make the same lines.
func TestEveryPlotFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 10), rapid.SampledFrom([]float64{
			math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 0,
		}))
		list := func(name string) []float64 { return rapid.SliceOfN(value, 0, 20).Draw(rt, name) }
		steps := func(name string) []float64 {
			s := list(name)
			slices.Sort(s)
			return s
		}

		p := Plot{
			X:     steps("x"),
			Y:     list("y"),
			Width: rapid.IntRange(0, 130).Draw(rt, "width"),
			Rows:  rapid.IntRange(0, 20).Draw(rt, "rows"),
			ASCII: rapid.Bool().Draw(rt, "ascii"),
		}

		if rapid.Bool().Draw(rt, "fit") {
			p.Fit = &Fit{X: steps("fit"), Mid: list("mid"), Low: list("low"), High: list("high")}
		}

		if rapid.Bool().Draw(rt, "goal") {
			p.Goal = new(value.Draw(rt, "target"))
		}

		if rapid.Bool().Draw(rt, "ends") {
			p.End = new(value.Draw(rt, "end"))
		}

		lines := p.Lines()
		if diff := cmp.Diff(lines, p.Lines()); diff != "" {
			rt.Fatalf("drawn again it differs:\n%s", diff)
		}

		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > max(p.Width, leastWidth) {
				rt.Fatalf("%d characters for a width of %d: %q", n, p.Width, l)
			}

			if p.ASCII && strings.ContainsFunc(l, func(c rune) bool { return c > '~' }) {
				rt.Fatalf("not ASCII: %q", l)
			}
		}

		if len(lines) > 0 && len(lines) < max(p.Rows, leastRows)+2 {
			rt.Fatalf("%d lines for %d rows", len(lines), p.Rows)
		}
	})
}

func TestNumbersAreShortAndTellApart(t *testing.T) {
	t.Parallel()

	for want, values := range map[string][]float64{
		"0 500 1K 1.5K":       {0, 500, 1000, 1500},
		"1 1.5 2":             {1, 1.5, 2},
		"0.1 0.2 0.3":         {0.1, 0.2, 0.30000000000000004},
		"2.300001 2.300002":   {2.300001, 2.300002},
		"1e-06 2e-06":         {1e-6, 2e-6},
		"-2K -1K 0 1K":        {-2000, -1000, 0, 1000},
		"1e+300":              {1e300},
		"123.4567K 123.4568K": {123456.7, 123456.8},
		"0.001 0.1 10 1K":     {0.001, 0.1, 10, 1000},
		"1B 2T":               {1e9, 2e12},
	} {
		if got := strings.Join(write(values), " "); got != want {
			t.Errorf("%v is written %q, want %q", values, got, want)
		}
	}
}

func TestLabelsOfOneSizeHaveTheSameDecimals(t *testing.T) {
	t.Parallel()

	for want, labels := range map[string][]string{
		"0 0.5 1.0": {"0", "0.5", "1"}, "1.50K 2.25K 3.00K": {"1.5K", "2.25K", "3K"}, "500 1K": {"500", "1K"}, "1e-06 0.5": {"1e-06", "0.5"}, "-1 0 1": {"-1", "0", "1"},
	} {
		if got := strings.Join(level(slices.Clone(labels)), " "); got != want {
			t.Errorf("%q become %q, want %q", labels, got, want)
		}
	}
}
