package match_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/forecast/curve"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/match"
	"trainyard/internal/id"
)

// day is when the first of the past jobs ended.
var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// drop is a loss that falls slowly and then, when the learning rate is lowered in the last third, fast: what no
// fit without history foresees. u is the part of the job that is done.
func drop(u float64) float64 {
	v := 2 + 1.5*math.Exp(-6*u)
	if u > 0.65 {
		v -= 1.2 * (u - 0.65)
	}

	return v
}

// shape makes a curve of so many points until a part of its end.
func shape(f func(u float64) float64, end, until float64, n int) curve.Curve {
	var c curve.Curve
	for i := 1; i <= n; i++ {
		if u := float64(i) / float64(n); u <= until {
			c.X, c.Y = append(c.X, u*end), append(c.Y, f(u))
		}
	}

	return c
}

// family is past jobs of one kind, with ends from 800 to 1,250.
func family(n int, f func(u float64) float64, goal curve.Goal, features history.Features) []history.Past {
	chance := rand.New(rand.NewPCG(7, 7))
	past := make([]history.Past, n)
	for i := range past {
		end := 1000 * math.Exp(0.2*(2*chance.Float64()-1))
		noise := 0.004 * chance.NormFloat64()
		c := shape(func(u float64) float64 { return f(u) * (1 + noise*(1-u)) }, end, 1, 60)
		c.Goal = goal
		past[i] = history.Past{
			Job: id.NewJob(uint64(i + 1)), Group: fmt.Sprintf("g%d", i), Features: features,
			Finished: day.Add(time.Duration(i) * time.Hour), Seconds: end, Curve: c, End: end,
		}
	}

	return past
}

var gpt = history.Features{Name: "gpt-small", Owner: "ada", Task: "language", Model: "gpt2", Metric: "val_loss"}

func TestMatchSeesTheDropThatIsStillToCome(t *testing.T) {
	t.Parallel()
	rising := func(u float64) float64 { return 4 - drop(u) }

	negative := func(u float64) float64 { return drop(u) - 5 }
	for name, tc := range map[string]struct {
		f    func(u float64) float64
		goal curve.Goal
	}{
		"falling":       {drop, curve.Goal{Value: drop(1), Set: true}},
		"rising":        {rising, curve.Goal{Value: rising(1), Rising: true, Set: true}},
		"negative":      {negative, curve.Goal{Value: negative(1), Set: true}},
		"without goal":  {drop, curve.Goal{}},
		"an inner goal": {drop, curve.Goal{Value: drop(1) + 1e-9, Set: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := match.NewPool(family(24, tc.f, tc.goal, gpt))
			for _, part := range []float64{0.2, 0.4, 0.6, 0.8} {
				for _, end := range []float64{900, 1000, 1100} {
					c := shape(tc.f, end, part, 60)
					c.Goal = tc.goal
					m, err := pool.Match(match.Query{Curve: &c, Features: gpt})
					if err != nil {
						t.Fatal(err)
					}

					if math.Abs(m.End/end-1) > 0.15 || m.Low > m.End || m.End > m.High {
						t.Errorf("at %g of %g it says %.0f (%.0f to %.0f)", part, end, m.End, m.Low, m.High)
					}
				}
			}
		})
	}
}

func TestMatchOfAnotherTargetGoesByWherePastCurvesPassedIt(t *testing.T) {
	t.Parallel()
	pool := match.NewPool(family(24, drop, curve.Goal{Value: drop(1), Set: true}, gpt))
	c := shape(drop, 1000, 0.2, 60)
	c.Goal = curve.Goal{Value: drop(0.7), Set: true}
	m, err := pool.Match(match.Query{Curve: &c, Features: gpt})
	if err != nil {
		t.Fatal(err)
	}

	if math.Abs(m.End/700-1) > 0.15 {
		t.Errorf("it says %.0f, past curves had come so far at 0.7 of about 1000", m.End)
	}
}

func TestMatchLeavesOutWhomItIsTold(t *testing.T) {
	t.Parallel()
	past := family(12, drop, curve.Goal{Value: drop(1), Set: true}, gpt)
	pool := match.NewPool(past)
	c := shape(drop, 1000, 0.5, 60)
	c.Goal = past[0].Curve.Goal
	for name, tc := range map[string]struct {
		query match.Query
		want  []string
	}{
		"the job itself": {match.Query{Job: "j3", Skip: func(p *history.Past) bool { return p.Job > "j3" }}, []string{"j1", "j10", "j11", "j12", "j2"}},
		"a group":        {match.Query{Group: "g0", Before: day.Add(3 * time.Hour)}, []string{"j2", "j3"}},
		"later ones":     {match.Query{Before: day.Add(3 * time.Hour)}, []string{"j1", "j2", "j3"}},
		"others":         {match.Query{Skip: func(p *history.Past) bool { return p.Seconds != past[4].Seconds }}, []string{"j5"}},
	} {
		tc.query.Curve, tc.query.Features = &c, gpt
		m, err := pool.Match(tc.query)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		var got []string

		sum := 0.0
		for _, l := range m.Neighbours {
			got = append(got, string(l.Job))
			sum += l.Weight
		}

		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: matched (-want +got)\n%s", name, diff)
		}

		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: weights add up to %g", name, sum)
		}
	}
}

func TestMatchRefusesWithASentence(t *testing.T) {
	t.Parallel()
	goal := curve.Goal{Value: drop(1), Set: true}
	pool := match.NewPool(family(12, drop, goal, gpt))
	half := shape(drop, 1000, 0.5, 60)
	half.Goal = goal

	change := func(f func(*history.Features)) history.Features {
		c := gpt
		f(&c)
		return c
	}

	beyond := half
	beyond.Goal.Value = 0.5
	strange := shape(func(u float64) float64 { return 40 + 20*math.Sin(20*u) }, 1000, 0.5, 60)
	strange.Goal = goal
	for name, tc := range map[string]struct {
		pool     *match.Pool
		curve    *curve.Curve
		features history.Features
		want     string
	}{
		"no points":        {pool, &curve.Curve{}, gpt, "the job has no points yet"},
		"no curve":         {pool, nil, gpt, "the job has no points yet"},
		"empty pool":       {match.NewPool(nil), &half, gpt, "no finished job has a curve"},
		"another metric":   {pool, &half, change(func(f *history.Features) { f.Metric = "accuracy" }), "no similar job has finished yet"},
		"all else":         {pool, &half, history.Features{Name: "resnet", Task: "vision", Model: "cnn", Metric: "val_loss"}, "no similar job has finished yet"},
		"nothing is known": {pool, &half, history.Features{}, "declare in the job file what it trains"},
		"goal beyond all":  {pool, &beyond, gpt, "reached this goal"},
		"another shape":    {pool, &strange, gpt, "none has a curve like this one"},
	} {
		_, err := tc.pool.Match(match.Query{Curve: tc.curve, Features: tc.features})
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != "nothing_alike" || !strings.Contains(e.Error(), tc.want) {
			t.Errorf("%s: it says %v, want %q", name, err, tc.want)
		}
	}
}

func TestMatchSeesTheShapeBehindTheNoise(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(9, 9))
	noisy := func(u float64) float64 { return drop(u) * (1 + 0.03*chance.NormFloat64()) }

	past := family(24, drop, curve.Goal{}, gpt)
	for i := range past {
		past[i].Curve = shape(noisy, past[i].End, 1, 900)
	}

	pool := match.NewPool(past)
	for _, part := range []float64{0.4, 0.6, 0.8} {
		c := shape(noisy, 1000, part, 900)
		m, err := pool.Match(match.Query{Curve: &c, Features: gpt})
		if err != nil {
			t.Fatal(err)
		}

		if math.Abs(m.End/1000-1) > 0.15 {
			t.Errorf("at %g it says %.0f (%.0f to %.0f), want 1000", part, m.End, m.Low, m.High)
		}
	}
}

func TestMatchKnowsJobsByNameAndCommandWhereNothingElseIsSaid(t *testing.T) {
	t.Parallel()
	goal := curve.Goal{Value: drop(1), Set: true}
	c := shape(drop, 1000, 0.5, 60)
	c.Goal = goal
	past := family(12, drop, goal, history.Features{Name: "mri-segment-7", Command: "python train.py --lr 0.1"})
	pool := match.NewPool(past)
	for name, f := range map[string]history.Features{
		"name": {Name: "mri-segment-8"}, "command": {Name: "other", Command: "python train.py --lr 0.3"},
	} {
		if _, err := pool.Match(match.Query{Curve: &c, Features: f}); err != nil {
			t.Errorf("by its %s: %v", name, err)
		}
	}

	if _, err := pool.Match(
		match.Query{Curve: &c, Features: history.Features{Name: "speech", Command: "./run speech.sh"}},
	); err == nil {
		t.Error("a job of another name was matched")
	}
}

func TestMatchSaysHowManyOfItsLikeNeverGotThere(t *testing.T) {
	t.Parallel()
	full := family(20, drop, curve.Goal{}, gpt)
	for i := range full[:15] { // most stop before the last drop
		n := len(full[i].Curve.X) * 2 / 3
		full[i].Curve.X, full[i].Curve.Y = full[i].Curve.X[:n], full[i].Curve.Y[:n]
		full[i].End = full[i].Curve.X[n-1]
	}

	c := shape(drop, 1000, 0.4, 60)
	c.Goal = curve.Goal{Value: drop(0.98), Set: true}
	m, err := match.NewPool(full).Match(match.Query{Curve: &c, Features: gpt})
	if err != nil {
		t.Fatal(err)
	}

	if m.Never < 0.3 || m.Never >= 1 || m.Fails() {
		t.Errorf("three of four of its like ended without reaching the goal, it says %.2f and %g", m.Never, m.End)
	}
}

func TestMatchDoesNotDependOnTheOrderOfPastJobs(t *testing.T) {
	t.Parallel()
	goal := curve.Goal{Value: drop(1), Set: true}
	check := func(t rapid.TB, past, shuffled []history.Past, part float64) {
		c := shape(drop, 1000, part, 60)
		c.Goal = goal
		query := match.Query{Curve: &c, Features: gpt}
		want, err := match.NewPool(past).Match(query)
		if err != nil {
			t.Fatal(err)
		}

		got, err := match.NewPool(shuffled).Match(query)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("another order gives (-want +got)\n%s", diff)
		}
	}

	few := family(7, drop, goal, gpt)
	rapid.Check(t, func(t *rapid.T) {
		check(t, few, rapid.Permutation(few).Draw(t, "past"), rapid.Float64Range(0.05, 0.95).Draw(t, "part"))
	})

	// From so many it is learned how they are best compared.
	many := family(20, drop, goal, gpt)
	backward := slices.Clone(many)
	slices.Reverse(backward)
	check(t, many, backward, 0.4)
}

func TestMatchScalesWithTheUnitOfWork(t *testing.T) {
	t.Parallel()
	goal := curve.Goal{Value: drop(1), Set: true}
	past := family(7, drop, goal, gpt)
	rapid.Check(t, func(t *rapid.T) {
		unit := math.Exp(rapid.Float64Range(-10, 10).Draw(t, "unit"))
		part := rapid.Float64Range(0.1, 0.9).Draw(t, "part")
		ask := func(unit float64) match.Match {
			scaled := slices.Clone(past)
			for i := range scaled {
				scaled[i].End *= unit
				scaled[i].Curve.X = slices.Clone(scaled[i].Curve.X)
				for k := range scaled[i].Curve.X {
					scaled[i].Curve.X[k] *= unit
				}
			}

			c := shape(drop, 1000*unit, part, 60)
			c.Goal = goal
			m, err := match.NewPool(scaled).Match(match.Query{Curve: &c, Features: gpt})
			if err != nil {
				t.Fatal(err)
			}

			return m
		}

		if a, b := ask(1).End, ask(unit).End/unit; math.Abs(a/b-1) > 0.03 { // two scales may fit equally well
			t.Fatalf("in units of %g it says %g, else %g", unit, b, a)
		}
	})
}

// TestMatchAlwaysSaysANumber asks about curves of any form.
func TestMatchAlwaysSaysANumber(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(
		rapid.Float64Range(-10, 10),
		rapid.Float64Range(-1e9, 1e9),
		rapid.Just(0.0),
		rapid.Just(math.NaN()),
		rapid.Just(math.Inf(1)),
		rapid.Just(1e-300),
	)

	draw := func(t *rapid.T, name string) curve.Curve {
		n := rapid.IntRange(0, 80).Draw(t, name+" points")
		c := curve.Curve{
			Goal: curve.Goal{
				Value:  rapid.Float64Range(-10, 10).Draw(t, name+" goal"),
				Rising: rapid.Bool().Draw(t, name+" rising"),
				Set:    rapid.Bool().Draw(t, name+" set"),
			},
		}

		x := 0.0
		for range n {
			x += rapid.OneOf(rapid.Float64Range(0, 10), rapid.Just(1e12), rapid.Just(-1.0)).Draw(t, "step")
			c.X, c.Y = append(c.X, x), append(c.Y, value.Draw(t, "value"))
		}

		return c
	}

	rapid.Check(t, func(t *rapid.T) {
		var past []history.Past
		for i := range rapid.IntRange(0, 12).Draw(t, "past") {
			c := draw(t, "past")
			past = append(
				past,
				history.Past{
					Job:      id.NewJob(uint64(i + 1)),
					Features: gpt,
					Curve:    c,
					End:      rapid.OneOf(rapid.Float64Range(-1, 1000), rapid.Just(math.NaN())).Draw(t, "end"),
				},
			)
		}

		c := draw(t, "curve")
		m, err := match.NewPool(past).Match(match.Query{Curve: &c, Features: gpt})
		if err != nil {
			return
		}

		for _, v := range []float64{m.End, m.Low, m.High, m.Fit, m.Never} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("it says %+v", m)
			}
		}

		if m.Low > m.End || m.End > m.High || m.Never < 0 || m.Never > 1 || m.End < 0 || len(m.Neighbours) == 0 {
			t.Fatalf("it says %+v", m)
		}
	})
}

// Past jobs passed the goal at their very beginning, at a fraction of their work that is too small to be squared.
func TestMatchOfATargetThatPastCurvesPassedAtOnce(t *testing.T) {
	t.Parallel()
	long := curve.Curve{X: []float64{1}, Y: []float64{0}, Goal: curve.Goal{Value: 1, Rising: true, Set: true}}
	for i := range 60 {
		long.X, long.Y = append(long.X, 1e12*float64(i+1)), append(long.Y, 0.5+float64(i)/120)
	}

	past := []history.Past{{Job: id.NewJob(1), Features: gpt, Curve: long, End: 60e12}}
	c := curve.Curve{X: []float64{1, 1e12, 2e12, 3e12}, Y: make([]float64, 4)}
	c.Goal = curve.Goal{Value: 1e-163, Rising: true, Set: true}

	if m, err := match.NewPool(past).Match(match.Query{Curve: &c, Features: gpt}); err == nil {
		t.Errorf("it says %+v, want that no curve is like this one", m)
	}
}

func BenchmarkMatch(b *testing.B) {
	goal := curve.Goal{Value: drop(1), Set: true}
	pool := match.NewPool(family(200, drop, goal, gpt))
	c := shape(drop, 1000, 0.6, 800)
	c.Goal = goal
	for b.Loop() {
		if _, err := pool.Match(match.Query{Curve: &c, Features: gpt}); err != nil {
			b.Fatal(err)
		}
	}
}
