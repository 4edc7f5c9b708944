package formula

import "math"

// binary are the operators between two values: how tightly they bind.
var binary = map[string]struct {
	tier int
	do   operation
}{
	"||": {1, func(a []float64) float64 { return truth(holds(a[0]) || holds(a[1])) }},
	"&&": {2, func(a []float64) float64 { return truth(holds(a[0]) && holds(a[1])) }},
	"<":  {compares, func(a []float64) float64 { return truth(a[0] < a[1]) }},
	"<=": {compares, func(a []float64) float64 { return truth(a[0] <= a[1]) }},
	">":  {compares, func(a []float64) float64 { return truth(a[0] > a[1]) }},
	">=": {compares, func(a []float64) float64 { return truth(a[0] >= a[1]) }},
	"==": {compares, func(a []float64) float64 { return truth(a[0] == a[1]) }},
	"!=": {compares, func(a []float64) float64 { return truth(a[0] < a[1] || a[0] > a[1]) }},
	"+":  {4, func(a []float64) float64 { return a[0] + a[1] }},
	"-":  {4, func(a []float64) float64 { return a[0] - a[1] }},
	"*":  {5, func(a []float64) float64 { return a[0] * a[1] }},
	"/":  {5, func(a []float64) float64 { return a[0] / a[1] }},
}

// compares is the tier of comparisons, which do not chain.
const compares = 3

// functions are the built-in ones. Those with more are of two or more values.
var functions = map[string]struct {
	more bool
	do   operation
}{
	"min":   {true, func(a []float64) float64 { return fold(a, math.Min) }},
	"max":   {true, func(a []float64) float64 { return fold(a, math.Max) }},
	"abs":   {false, func(a []float64) float64 { return math.Abs(a[0]) }},
	"log":   {false, func(a []float64) float64 { return math.Log(a[0]) }},
	"exp":   {false, func(a []float64) float64 { return math.Exp(a[0]) }},
	"sqrt":  {false, func(a []float64) float64 { return math.Sqrt(a[0]) }},
	"floor": {false, func(a []float64) float64 { return math.Floor(a[0]) }},
	"ceil":  {false, func(a []float64) float64 { return math.Ceil(a[0]) }},
}

func negate(a []float64) float64 { return -a[0] }

func not(a []float64) float64 { return truth(!holds(a[0])) }

func power(a []float64) float64 { return math.Pow(a[0], a[1]) }

func choose(a []float64) float64 {
	if holds(a[0]) {
		return a[1]
	}

	return a[2]
}

func fold(a []float64, two func(x, y float64) float64) float64 {
	v := a[0]
	for _, x := range a[1:] {
		v = two(v, x)
	}

	return v
}

// holds reports whether a value counts as true: it is a number and not 0.
func holds(v float64) bool { return v < 0 || v > 0 }

func truth(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
