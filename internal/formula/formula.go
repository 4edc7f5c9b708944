// Package formula is a small language of expressions over named numbers, such
// as "weight * throughput / (1 + served_gpu_h)".
//
// Those who run a yard say with it what a job is worth to them; place/harvest
// compiles the text once and works it out for every size of every job. A formula
// has no loops, no assignments and no functions of its own, so it always comes to
// an end, in a number of steps that is known when it is compiled. The package
// knows nothing of jobs: what the names stand for is the caller's business.
//
//	numbers     1  2.5  1e6
//	arithmetic  + - * / ^        2^3^2 is 2^(3^2), -2^2 is -4
//	comparison  < <= > >= == !=  1 if it holds, 0 if not; they do not chain
//	logic       && || !          what is not 0 holds
//	choice      c ? a : b
//	functions   min max (of two or more) abs log exp sqrt floor ceil
//
// What has no value, such as log(-1), 1/0 or exp(1000), is no number; Value says
// so and the caller decides what that means. A comparison with what is no number
// does not hold, and a choice takes over only the side it takes.
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

// step is one step of working a formula out: take some values off the stack, put one on.
type step struct {
	op   op
	args int32 // of min and max; the place of a name
	num  float64
}

type op uint8

const (
	opNumber op = iota
	opName
	opNeg
	opNot
	opAdd
	opSub
	opMul
	opDiv
	opPow
	opLess
	opLessEq
	opMore
	opMoreEq
	opEq
	opNotEq
	opAnd
	opOr
	opChoose
	opMin
	opMax
	opAbs
	opLog
	opExp
	opSqrt
	opFloor
	opCeil
)

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
		s := &p.steps[i]
		switch s.op {
		case opNumber:
			stack = append(stack, s.num)
			continue
		case opName:
			stack = append(stack, values[s.args])
			continue
		default:
		}
		n := s.takes()
		args := stack[len(stack)-n:]
		args[0] = s.apply(args)
		stack = stack[:len(stack)-n+1]
	}
	return stack[0]
}

// takes returns how many values the step takes off the stack.
func (s *step) takes() int {
	switch s.op {
	case opNumber, opName:
		return 0
	case opNeg, opNot, opAbs, opLog, opExp, opSqrt, opFloor, opCeil:
		return 1
	case opChoose:
		return 3
	case opMin, opMax:
		return int(s.args)
	case opAdd, opSub, opMul, opDiv, opPow, opLess, opLessEq, opMore, opMoreEq, opEq, opNotEq, opAnd, opOr:
	}
	return 2
}

// apply works out one step.
func (s *step) apply(a []float64) float64 {
	switch s.op {
	case opNeg:
		return -a[0]
	case opNot:
		return truth(!holds(a[0]))
	case opAdd:
		return a[0] + a[1]
	case opSub:
		return a[0] - a[1]
	case opMul:
		return a[0] * a[1]
	case opDiv:
		return a[0] / a[1]
	case opPow:
		return math.Pow(a[0], a[1])
	case opLess:
		return truth(a[0] < a[1])
	case opLessEq:
		return truth(a[0] <= a[1])
	case opMore:
		return truth(a[0] > a[1])
	case opMoreEq:
		return truth(a[0] >= a[1])
	case opEq:
		return truth(a[0] == a[1])
	case opNotEq:
		return truth(a[0] < a[1] || a[0] > a[1])
	case opAnd:
		return truth(holds(a[0]) && holds(a[1]))
	case opOr:
		return truth(holds(a[0]) || holds(a[1]))
	case opChoose:
		if holds(a[0]) {
			return a[1]
		}
		return a[2]
	case opMin, opMax, opAbs, opLog, opExp, opSqrt, opFloor, opCeil:
		return s.call(a)
	case opNumber, opName:
	}
	return math.NaN()
}

// call works out a function.
func (s *step) call(a []float64) float64 {
	switch s.op {
	case opMin:
		v := a[0]
		for _, x := range a[1:] {
			v = math.Min(v, x)
		}
		return v
	case opMax:
		v := a[0]
		for _, x := range a[1:] {
			v = math.Max(v, x)
		}
		return v
	case opAbs:
		return math.Abs(a[0])
	case opLog:
		return math.Log(a[0])
	case opExp:
		return math.Exp(a[0])
	case opSqrt:
		return math.Sqrt(a[0])
	case opFloor:
		return math.Floor(a[0])
	case opCeil:
		return math.Ceil(a[0])
	default:
	}
	return math.NaN()
}

// holds reports whether a value counts as true: it is a number and not 0.
func holds(v float64) bool { return v < 0 || v > 0 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
