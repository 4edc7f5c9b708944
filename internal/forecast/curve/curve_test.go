package curve

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/test/fuzzing"
)

// trace is a curve over so many points of work.
func trace(n int, goal Goal, f func(x float64) float64) *Curve {
	c := &Curve{Goal: goal}
	for i := 1; i <= n; i++ {
		x := 10 * float64(i)
		c.X, c.Y = append(c.X, x), append(c.Y, f(x))
	}

	return c
}

func falls(to float64) Goal { return Goal{Value: to, Set: true} }
func rises(to float64) Goal { return Goal{Value: to, Rising: true, Set: true} }

// within reports whether an end is about where it should be.
func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()

	if !(math.Abs(got-want) <= share*want) {
		t.Errorf("%s: the end is seen at %.4g, want %.4g", what, got, want)
	}
}

func TestEachMethodFindsTheEndOfItsOwnFamily(t *testing.T) {
	for _, c := range []struct {
		method string
		curve  *Curve
		end    float64
	}{
		{"poly2", trace(30, falls(-2.5), func(x float64) float64 { return 10 - x/100 - x*x/1e5 }), 724.7},
		{"poly3", trace(30, falls(-2), func(x float64) float64 { return 10 - x*x*x/1e7 }), 493.2},
		{"regression", trace(30, falls(3), func(x float64) float64 { return 10 - math.Log(x) + 5/x }), 1101.6},
		{"slaq", trace(30, falls(1.5), func(x float64) float64 { return 1 + 1/(0.004*x+0.004*3) }), 497},
		{"power", trace(30, falls(1.5), func(x float64) float64 { return 1 + 10/math.Sqrt(x) }), 400},
		{"line", trace(30, falls(1), func(x float64) float64 { return 10 - x/50 }), 450},
		{"line", trace(30, rises(19), func(x float64) float64 { return 10 + x/50 }), 450},
		{"logline", trace(30, falls(1), func(x float64) float64 { return 8 - math.Log(x) }), math.Exp(7)},
		{"nohistory", trace(30, falls(0.1), func(x float64) float64 { return 2 / math.Sqrt(x) }), 400},
	} {
		m, ok := ByName(c.method)
		if !ok {
			t.Fatalf("there is no %s", c.method)
		}

		within(t, c.method, m.Estimate(c.curve).End, c.end, 0.1)
	}
}

func TestPublishedMethodsSeeNoEndOnAFlatStretch(t *testing.T) {
	flat := trace(40, falls(2), func(x float64) float64 { return 3 + 5*math.Exp(-x/30) })
	for _, name := range []string{"slaq", "power", "line"} {
		m, _ := ByName(name)
		if e := m.Estimate(flat); !e.Fails() {
			t.Errorf("%s sees an end at %v", name, e.End)
		}
	}

	for _, name := range []string{"families", "nohistory"} {
		m, _ := ByName(name)
		if e := m.Estimate(flat); e.Fails() {
			t.Errorf("%s sees no end", name)
		}
	}
}

func TestBestAnswersWhateverThereIs(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name  string
		curve Curve
		low   float64 // the end is seen between
		high  float64
	}{
		{"one point: as long again", Curve{X: []float64{10}, Y: []float64{5}, Goal: falls(1)}, 18, 30},
		{"two points", Curve{X: []float64{10, 20}, Y: []float64{5, 4}, Goal: falls(1)}, 25, 200},
		{"two equal points", Curve{X: []float64{10, 20}, Y: []float64{5, 5}, Goal: falls(1)}, 30, 600},
		{"constant", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{5, 5, 5, 5}, Goal: falls(1)}, 5, 120},
		{"getting worse", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{5, 6, 7, 8}, Goal: falls(1)}, 5, 120},
		{"all at the same work", Curve{X: []float64{7, 7, 7}, Y: []float64{5, 4, 3}, Goal: falls(1)}, 10, 21},
		{"negative values", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{-1, -2, -3, -4}, Goal: falls(-6)}, 5, 9},
		{"a goal of nothing", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{4, 3, 2, 1}, Goal: falls(0)}, 5, 7},
		{"a reward that rises", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{-300, -200, -100, 0}, Goal: rises(200)}, 5, 9},
		{"an accuracy", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{0.2, 0.4, 0.5, 0.56}, Goal: rises(0.7)}, 5, 12},
		{"per cent", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{20, 40, 50, 56}, Goal: rises(70)}, 5, 12},
		{"all of it", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{0.2, 0.4, 0.5, 0.6}, Goal: rises(1)}, 5, 20},
		{"huge", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{9e307, 8e307, 7e307, 6e307}, Goal: falls(-1e308)}, 5, 60},
		{"tiny", Curve{X: []float64{1, 2, 3, 4}, Y: []float64{9e-310, 8e-310, 7e-310, 6e-310}, Goal: falls(3e-310)}, 5, 12},
		{"not numbers in between", Curve{X: []float64{1, 2, 3, 4, 5}, Y: []float64{5, nan, 4, inf, 3}, Goal: falls(1)}, 6, 40},
		{"out of order", Curve{X: []float64{3, 1, 2, 4, 4, 5}, Y: []float64{5, 9, 9, 4, 9, 3}, Goal: falls(1)}, 6, 40},
		{"one point that would do it next", Curve{X: []float64{100, 200, 300}, Y: []float64{3, 2, 1.001}, Goal: falls(1)}, 400, 450},
	} {
		got := Best(&c.curve)
		if !(got.End >= c.low && got.End <= c.high) {
			t.Errorf("%s: the end is seen at %v, want %v to %v", c.name, got.End, c.low, c.high)
		}

		if !(got.Low <= got.End && got.End <= got.High) || !(got.Never >= 0 && got.Never <= 1) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestBestOfACurveThatNeedsNone(t *testing.T) {
	done := Curve{X: []float64{1, 2, 3}, Y: []float64{3, 0.9, 1.1}, Goal: falls(1)}
	if diff := cmp.Diff(Estimate{End: 3, Low: 3, High: 3}, Best(&done)); diff != "" {
		t.Errorf("a goal that is met:\n%s", diff)
	}

	for _, c := range []Curve{{Goal: falls(1)}, {X: []float64{1, 2}, Y: []float64{2, 1}},
		{X: []float64{0, -1}, Y: []float64{2, 1}, Goal: falls(0.5)}} {
		if e := Best(&c); !e.Fails() {
			t.Errorf("%v has an end at %v", c, e.End)
		}
	}
}

func TestJumpsAreNotSlopes(t *testing.T) {
	slow := func(x float64) float64 { return 4 - 0.3*math.Log(x) }
	for name, jump := range map[string]float64{"a lower learning rate": -0.5, "a restart": 0.5} {
		plain := trace(40, falls(1), slow)
		jumps := trace(40, falls(1), func(x float64) float64 {
			if x > 300 {
				return slow(x) + jump
			}

			return slow(x)
		})

		v := newView(jumps)
		if since := v.removeJumps(); since != 30-(40-len(v.x)) {
			t.Errorf("%s is seen at point %d", name, since)
		}

		was := newView(plain)
		if since := was.removeJumps(); since != 0 {
			t.Errorf("there is a jump at %d of a smooth curve", since)
		}

		a, b := v.slope().fall, was.slope().fall
		if !(a > 0.5*b && a < 2*b) {
			t.Errorf("%s: the slope is %.4g, without it %.4g", name, a, b)
		}
	}
}

func TestOneWildPointDoesNoHarm(t *testing.T) {
	c := trace(40, falls(1), func(x float64) float64 { return 4 - 0.4*math.Log(x) })
	calm := Best(c).End

	c.Y[37] = 40
	if wild := Best(c).End; !(math.Abs(math.Log(wild/calm)) < 0.2) {
		t.Errorf("the end moves from %v to %v", calm, wild)
	}
}

func TestNeverTellsHopeFromNone(t *testing.T) {
	noisy := func(f func(x float64) float64) func(x float64) float64 {
		r := rand.New(rand.NewPCG(1, 2))
		return func(x float64) float64 { return f(x) + 0.003*r.NormFloat64() }
	}

	flat := trace(200, falls(1), noisy(func(float64) float64 { return 2 }))
	worse := trace(200, falls(1), noisy(func(x float64) float64 { return 2 + x/1e4 }))
	fine := trace(200, falls(1), noisy(func(x float64) float64 { return 5 - 0.5*math.Log(x) }))

	for name, c := range map[string]*Curve{"flat": flat, "worse": worse} {
		if p := Best(c).Never; p < 0.8 {
			t.Errorf("%s: never is %.2f", name, p)
		}
	}

	if p := Best(fine).Never; p > 0.1 {
		t.Errorf("on its way: never is %.2f", p)
	}

	end := Best(fine).End
	for _, total := range []struct{ at, low, high float64 }{{1.02 * 2000, 0.8, 1}, {end, 0.4, 0.6}, {20 * end, 0, 0.1}} {
		fine.Total = total.at
		if p := Best(fine).Never; !(p >= total.low && p <= total.high) {
			t.Errorf("with a total of %.0f and the end at %.0f: never is %.2f", total.at, end, p)
		}
	}
}

func TestFitDrawsTheCurveAndItsWayToTheGoal(t *testing.T) {
	c := trace(100, falls(0.1), func(x float64) float64 { return 5 / math.Sqrt(x) })
	e := Best(c)
	d := Fit(c, e.End, 60)
	if len(d.X) != 60 || d.X[0] != c.X[2] && d.X[0] != c.X[0] && d.X[0] != c.X[1] || d.X[59] != e.End || d.Past < 10 ||
		d.Past > 59 {
		t.Fatalf("%d points from %v to %v, %d past", len(d.X), d.X[0], d.X[len(d.X)-1], d.Past)
	}

	for i, x := range d.X {
		if !(d.Low[i] <= d.Mid[i] && d.Mid[i] <= d.High[i]) {
			t.Errorf("at %v: %v is not between %v and %v", x, d.Mid[i], d.Low[i], d.High[i])
		}

		if want := 5 / math.Sqrt(x); i < d.Past && math.Abs(d.Mid[i]-want) > 0.05*want {
			t.Errorf("at %v: %v, the curve is at %v", x, d.Mid[i], want)
		}
	}

	if got := d.Mid[59]; math.Abs(got-0.1) > 0.01 {
		t.Errorf("the drawing ends at %v, the goal is 0.1", got)
	}

	other := FitTo(c, Estimate{End: 4000, Low: 3000, High: 6000}, 4000, 60)
	if mid, low, high := other.Mid[59], other.Low[59], other.High[59]; math.Abs(mid-0.1) > 0.01 ||
		!(low < 0.095 && high > 0.105) {
		t.Errorf("with an end that others expect the drawing ends at %v, %v to %v", mid, low, high)
	}

	without := *c
	without.Goal = Goal{}
	if d := Fit(&without, 2000, 10); len(d.X) != 10 || d.Past >= 10 || !(d.Mid[9] < d.Mid[d.Past-1]) {
		t.Errorf("without a goal: %+v", d)
	}

	single := Curve{X: []float64{5}, Y: []float64{1}}
	if d := Fit(&single, 10, 10); d.Past != len(d.X) {
		t.Errorf("something is foretold from a single point: %+v", d)
	}

	if d := Fit(&Curve{}, 10, 10); len(d.X) != 0 {
		t.Errorf("nothing is drawn as %+v", d)
	}
}

// anyCurve draws a curve as programs may report it.
func anyCurve(t *rapid.T) *Curve {
	n := rapid.IntRange(1, 150).Draw(t, "points")
	size := math.Pow(10, rapid.Float64Range(-12, 12).Draw(t, "size"))
	c := &Curve{
		Goal: Goal{
			Value:  size * rapid.Float64Range(-2, 2).Draw(t, "goal"),
			Rising: rapid.Bool().Draw(t, "rising"),
			Set:    true,
		},
	}

	x := 0.0
	for range n {
		x += rapid.Float64Range(0.01, 10).Draw(t, "step")
		c.X, c.Y = append(c.X, x), append(c.Y, size*rapid.Float64Range(-3, 3).Draw(t, "value"))
	}

	return c
}

func TestEveryMethodSaysSomethingSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCurve(t)
		was := Curve{X: slices.Clone(c.X), Y: slices.Clone(c.Y), Goal: c.Goal}

		last := c.X[len(c.X)-1]
		for _, m := range Methods() {
			if len(c.X) < m.Points || met(c) {
				continue
			}

			e := m.Estimate(c)
			if math.IsNaN(e.End) || e.End < last || !(e.Never >= 0 && e.Never <= 1) || math.IsNaN(e.Low) || math.IsNaN(e.High) {
				t.Fatalf("%s: %+v after %v", m.Name, e, last)
			}

			if m.Name == "nohistory" && (e.Fails() || !(e.Low <= e.End && e.End <= e.High)) {
				t.Fatalf("nohistory: %+v", e)
			}
		}

		if diff := cmp.Diff(&was, c); diff != "" {
			t.Fatalf("a method changed the curve:\n%s", diff)
		}
	})
}

func TestUnitsOfWorkDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCurve(t)
		times := math.Pow(2, float64(rapid.IntRange(-20, 20).Draw(t, "times"))) // exact, so that comparisons fall the same way

		other := Curve{Y: c.Y, Goal: c.Goal}
		for _, x := range c.X {
			other.X = append(other.X, times*x)
		}

		for _, m := range Methods() {
			if len(c.X) < m.Points || met(c) {
				continue
			}

			a, b := m.Estimate(c), m.Estimate(&other)
			if a.Fails() != b.Fails() || !a.Fails() && math.Abs(b.End/times/a.End-1) > 1e-6 {
				t.Fatalf("%s: %v, and %v in other units", m.Name, a.End, b.End/times)
			}
		}
	})
}

func TestUnitsOfALossDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		a := trace(
			rapid.IntRange(3, 60).Draw(t, "points"),
			falls(0.4),
			func(x float64) float64 { return 0.5 + (3+0.1*r.Float64())/math.Sqrt(x) },
		)

		times := math.Pow(2, float64(rapid.IntRange(-9, 9).Draw(t, "times")))
		b := &Curve{X: a.X, Goal: falls(0.4 * times)}
		for _, y := range a.Y {
			b.Y = append(b.Y, y*times)
		}

		if x, y := Best(a).End, Best(b).End; math.Abs(x/y-1) > 1e-3 {
			t.Fatalf("the end is %v, and %v in other units", x, y)
		}
	})
}

func FuzzBest(f *testing.F) {
	f.Add(uint64(1), 5, 1.0, 1.0, false)
	f.Add(uint64(2), 1, -1e300, 1e300, true)
	f.Add(uint64(3), 400, 1e-320, 0.0, false)

	f.Fuzz(func(t *testing.T, seed uint64, n int, size, goal float64, rising bool) {
		defer fuzzing.Bounded(t)()

		r := rand.New(rand.NewPCG(seed, 0))
		c := &Curve{Goal: Goal{Value: goal, Rising: rising, Set: true}}
		for x := 0.0; len(c.X) < n && len(c.X) < 500; {
			x += r.ExpFloat64() * math.Pow(10, 6*r.Float64()-3)
			c.X, c.Y = append(c.X, x), append(c.Y, size*math.Pow(r.NormFloat64(), float64(1+r.IntN(3))))
		}

		e := Best(c)
		d := Fit(c, e.End, 20)
		usable, _ := clean(c)

		if math.IsNaN(goal) || math.IsInf(goal, 0) {
			return // refused where job files are read
		}

		if len(usable) > 0 && (e.Fails() || e.End < usable[len(usable)-1] || math.IsNaN(e.Never)) {
			t.Fatalf("%+v of %d points", e, len(c.X))
		}

		for i := range d.X {
			if math.IsNaN(d.Mid[i]) || math.IsNaN(d.X[i]) {
				t.Fatalf("%v at %v", d.Mid[i], d.X[i])
			}
		}
	})
}

func BenchmarkBest500(b *testing.B) {
	c := trace(500, falls(0.3), func(x float64) float64 { return 1 + 20/math.Sqrt(x) + 0.01*math.Sin(x) })
	for b.Loop() {
		Best(c)
	}
}
