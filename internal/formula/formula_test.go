package formula_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/formula"
	"trainyard/test/fuzzing"
)

var names = []string{"n", "throughput", "weight", "served_gpu_h"}

func TestValues(t *testing.T) {
	t.Parallel()
	values := []float64{4, 100, 2, 3}
	for text, want := range map[string]float64{
		"1":                            1,
		"2.5e1":                        25,
		".5":                           0.5,
		"1+2*3":                        7,
		"(1+2)*3":                      9,
		"8/4/2":                        1,
		"8-4-2":                        2,
		"2^3^2":                        512,
		"-2^2":                         -4,
		"2^-1":                         0.5,
		"--2":                          2,
		"+n":                           4,
		"n":                            4,
		"weight * throughput":          200,
		"throughput/(1+served_gpu_h)":  25,
		"1 < 2":                        1,
		"2 <= 1":                       0,
		"n >= 4 && weight == 2":        1,
		"n > 4 || weight != 2":         0,
		"!n":                           0,
		"!0 + 1":                       2,
		"1 + 2 > 2 && 0 || 1":          1,
		"n > 3 ? 10 : 20":              10,
		"n < 3 ? 10 : n < 5 ? 30 : 20": 30,
		"n < 3 ? log(-1) : 7":          7,
		"(log(-1) < 1) + (log(-1) >= 1) + (log(-1) == log(-1)) + (log(-1) != 1)": 0,
		"!log(-1)":               1,
		"min(3, 1, 2)":           1,
		"max(3, n)":              4,
		"abs(-3) + sqrt(16)":     7,
		"floor(2.7) + ceil(2.1)": 5,
		"log(exp(2))":            2,
		" n\n\t* 2 ":             8,
	} {
		p, err := formula.Compile(text, names)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		if got, ok := p.Value(values); !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("%s = %g, %v, want %g", text, got, ok, want)
		}

		if p.Text() != text {
			t.Errorf("text of %q is %q", text, p.Text())
		}
	}
}

func TestWhatIsNoNumberIsSaid(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"1/(n-4)", "log(0-n)", "log(n-4)", "exp(n*1000)", "sqrt(-n)", "(n-4)/(n-4)", "10^400^n", "min(n, log(-n))"} {
		p, err := formula.Compile(text, names)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}

		if got, ok := p.Value([]float64{4, 0, 0, 0}); ok || got != 0 {
			t.Errorf("%s = %g, %v, want 0 and false", text, got, ok)
		}
	}

	p, err := formula.Compile("n", names)
	if err != nil {
		t.Fatal(err)
	}

	if _, ok := p.Value([]float64{1}); ok {
		t.Error("a formula over four names was worked out with one value")
	}
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                              "line 1, column 1: the formula is empty (write an expression, e.g. weight * speedup)",
		"  ":                            "line 1, column 1: the formula is empty (write an expression, e.g. weight * speedup)",
		"1 +":                           "line 1, column 4: expected a value, got the end of the formula (complete the last operation, or remove its operator)",
		"1 + * 2":                       `line 1, column 5: expected a number, a name or an opening parenthesis, got "*"`,
		"(1 + 2":                        `line 1, column 7: ")" is missing to close the parenthesis`,
		"1 2":                           `line 1, column 3: expected an operator, got "2" (put an operator before it, or close a parenthesis)`,
		"n +\n thruput":                 `line 2, column 2: unknown name "thruput" (did you mean throughput?)`,
		"troughput":                     `line 1, column 1: unknown name "troughput" (did you mean throughput?)`,
		"Weight":                        `line 1, column 1: unknown name "Weight" (did you mean weight?)`,
		"m":                             `line 1, column 1: unknown name "m" (use one of n, throughput, weight, served_gpu_h)`,
		"maxx(1,2)":                     `line 1, column 1: unknown function "maxx" (did you mean max?)`,
		"gcd(1,2)":                      `line 1, column 1: unknown function "gcd" (use one of abs, ceil, exp, floor, log, max, min, sqrt)`,
		"min + 1":                       "line 1, column 1: the function min needs arguments in parentheses (write min(…))",
		"min(1)":                        "line 1, column 1: min takes two or more arguments, got 1",
		"abs(1, 2)":                     "line 1, column 1: abs takes one argument, got 2",
		"abs(1":                         `line 1, column 6: ")" is missing to close abs(`,
		"abs()":                         `line 1, column 5: expected a number, a name or an opening parenthesis, got ")"`,
		"1 < n < 3":                     "line 1, column 7: comparisons cannot be chained (write a < b && b < c)",
		"n = 3":                         "line 1, column 3: unexpected '=' (write == to compare)",
		"n & 3":                         "line 1, column 3: unexpected '&' (write &&)",
		"n ? 1":                         `line 1, column 6: ":" is missing between the two sides of a conditional`,
		"größe":                         `line 1, column 3: unexpected 'ö'`,
		"1.2.3":                         `line 1, column 1: expected a finite number, got "1.2.3" (write it as 1.5 or 2e-3)`,
		"1e999":                         `line 1, column 1: expected a finite number, got "1e999" (write it as 1.5 or 2e-3)`,
		"0x10":                          `line 1, column 1: expected a decimal number, got "0x10" (write it as 1.5 or 2e-3)`,
		"1/0":                           "line 1, column 1: the formula is a constant without a finite value (remove the division by zero or the overflow)",
		strings.Repeat("(", 200):        "line 1, column 101: a formula must be nested at most 100 levels deep, got more (remove parentheses)",
		strings.Repeat("-", 200) + "1":  "line 1, column 101: a formula must be nested at most 100 levels deep, got more (remove parentheses)",
		"1" + strings.Repeat("+1", 600): "line 1, column 1002: a formula must have at most 1000 parts, got more (shorten the formula)",
		strings.Repeat("1", 5000):       "line 1, column 1: a formula must have at most 4096 bytes, got 5000",
	} {
		_, err := formula.Compile(text, names)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Code != "bad_formula" {
			t.Errorf("%.40q: %v, want an invalid formula", text, err)
			continue
		}

		if err.Error() != want {
			t.Errorf("%.40q:\n got %s\nwant %s", text, err, want)
		}
	}
}

func TestUsesTellsWhichNamesAreLookedAt(t *testing.T) {
	t.Parallel()
	p, err := formula.Compile("n * weight", names)
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range append(names, "nobody") {
		if got, want := p.Uses(name), name == "n" || name == "weight"; got != want {
			t.Errorf("uses %s: %v", name, got)
		}
	}
}

// drawFormula draws a formula and what it comes to, worked out by another way.
func drawFormula(t *rapid.T, depth int, values []float64) (string, float64) {
	if depth == 0 {
		if i := rapid.IntRange(0, len(names)).Draw(t, "leaf"); i < len(names) {
			return names[i], values[i]
		}

		v := float64(rapid.IntRange(0, 9).Draw(t, "number"))

		return fmt.Sprint(v), v
	}

	a, x := drawFormula(t, depth-1, values)
	b, y := drawFormula(t, depth-1, values)

	bit := func(is bool) float64 {
		if is {
			return 1
		}

		return 0
	}

	switch rapid.IntRange(0, 7).Draw(t, "operator") {
	case 0:
		return "(" + a + " + " + b + ")", x + y
	case 1:
		return "(" + a + "-" + b + ")", x - y
	case 2:
		return "(" + a + "*" + b + ")", x * y
	case 3:
		return "max(" + a + "," + b + ")", max(x, y)
	case 4:
		return "(" + a + "<" + b + ")", bit(x < y)
	case 5:
		return "(" + a + "&&" + b + ")", bit(x != 0 && y != 0)
	case 6:
		return "-" + "(" + a + ")", -x
	default:
		if x > y {
			return "(" + a + ">" + b + "?" + b + ":" + a + ")", y
		}

		return "(" + a + ">" + b + "?" + b + ":" + a + ")", x
	}
}

func TestComesToWhatItSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := make([]float64, len(names))
		for i := range values {
			values[i] = float64(rapid.IntRange(-5, 5).Draw(t, names[i]))
		}

		text, want := drawFormula(t, rapid.IntRange(0, 5).Draw(t, "depth"), values)
		p, err := formula.Compile(text, names)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}

		if got, ok := p.Value(values); !ok || got != want {
			t.Errorf("%s = %g, %v, want %g", text, got, ok, want)
		}
	})
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"1", "n*weight/(1+served_gpu_h)", "n>3?min(1,2):-2^3", "((", "1e", "a&&b||!c", "n<n<n", "\xff", "max(n,,)"} {
		f.Add(s, 1.0, -3.5)
	}

	for _, s := range []string{"(", "-", "n+", "n?", "max(n,"} {
		f.Add(fuzzing.Long(s), 1.0, 2.0)
	}

	f.Fuzz(func(t *testing.T, text string, a, b float64) {
		defer fuzzing.Bounded(t)()

		p, err := formula.Compile(text, names)
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 {
				t.Errorf("%q: %v is no mistake with a place", text, err)
			}

			return
		}

		v, ok := p.Value([]float64{a, b, a, b})
		if math.IsNaN(v) || math.IsInf(v, 0) || !ok && v != 0 {
			t.Errorf("%q with %g and %g = %g, %v", text, a, b, v, ok)
		}

		if w, again := p.Value([]float64{a, b, a, b}); w != v || again != ok {
			t.Errorf("%q is %g and then %g", text, v, w)
		}
	})
}

func BenchmarkValue(b *testing.B) {
	values := []float64{4, 100, 2, 3}
	for name, text := range map[string]string{
		"name":        "throughput",
		"product":     "weight * throughput",
		"fair":        "weight * throughput / (1 + served_gpu_h)",
		"conditional": "n < 0 ? 10 * weight * throughput : weight * throughput / (1 + served_gpu_h)",
	} {
		b.Run(name, func(b *testing.B) {
			p, err := formula.Compile(text, names)
			if err != nil {
				b.Fatal(err)
			}

			for b.Loop() {
				if _, ok := p.Value(values); !ok {
					b.Fatal("no value")
				}
			}
		})
	}
}
