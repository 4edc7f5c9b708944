// Package formula is a small language of expressions over named numbers, such
// as "weight * throughput / (1 + served_gpu_h)".
//
// Those who run a yard say with it what a job is worth to them; place/harvest
// compiles the text once and works it out for every size of every job. A formula
// has no loops, no assignments and no functions of its own, so it always comes to
// an end, in a number of steps that is known when it is compiled. The package
// knows nothing of jobs: what the names stand for is the caller's business. Why it is
// not a general expression library: docs/adr/0016-formula-language.md.
//
//	numbers     1  2.5  1e6
//	arithmetic  + - * / ^        2^3^2 is 2^(3^2), -2^2 is -4
//	comparison  < <= > >= == !=  1 if it holds, 0 if not; they cannot be chained
//	logic       && || !          what is not 0 holds
//	choice      c ? a : b
//	functions   min max (of two or more) abs log exp sqrt floor ceil
//
// What has no finite value, such as log(-1), 1/0 or exp(1000), is reported by Value, and the
// caller decides what that means. A comparison with NaN is false, and a conditional takes
// over only the side it chooses.
package formula

import "math"

// Limits of a formula. They bound what one costs to compile and to work out.
const (
	MaxText  = 4096 // bytes
	MaxSteps = 1000 // numbers, names, operators and functions
	MaxDepth = 100  // of one thing within another
)

// Program is a compiled formula. It is never changed, and may be worked out for
// any values of its names.
type Program struct {
	text  string
	steps []step
	names []string
	uses  []bool
}

// step is one step of working a formula out: a number, the value of a name, or
// something done to the last values.
type step struct {
	num   float64
	name  int // place of a name; -1 for none
	do    operation
	takes int // values that do takes off the stack; 0 for a number or a name
}

// operation works out one value from some.
type operation func(a []float64) float64

// Text returns the formula as it was written.
func (p *Program) Text() string { return p.text }

// Uses reports whether the formula looks at a name.
func (p *Program) Uses(name string) bool {
	for i, n := range p.names {
		if n == name {
			return p.uses[i]
		}
	}

	return false
}

// Value works the formula out. values are those of the names it was compiled
// with, in the same order. It returns 0 and false if the outcome is no number or
// an infinite one.
func (p *Program) Value(values []float64) (float64, bool) {
	if len(values) != len(p.names) {
		return 0, false
	}

	var small [16]float64
	v := p.work(values, small[:0])
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}

	return v, true
}

func (p *Program) work(values, stack []float64) float64 {
	for i := range p.steps {
		switch s := &p.steps[i]; {
		case s.takes > 0:
			first := len(stack) - s.takes
			stack[first] = s.do(stack[first:])
			stack = stack[:first+1]
		case s.name >= 0:
			stack = append(stack, values[s.name])
		default:
			stack = append(stack, s.num)
		}
	}

	return stack[0]
}
