// Package lp describes linear programs with whole-number variables. Policy harvest writes
// its decision as one, and package solver has an external program solve it. The package
// solves nothing itself; it checks what a solver returns.
package lp

import (
	"fmt"
	"math"
)

// Model is a mixed-integer linear program: find the values of the variables with the greatest
// gain that satisfy every row.
type Model struct {
	Vars []Var
	Rows []Row
}

// Var is a variable.
type Var struct {
	Name      string
	Low, High float64
	Whole     bool
	Gain      float64 // of each unit
}

// Row is a condition: the sum of its terms is at most, at least or exactly the limit.
type Row struct {
	Name  string
	Terms []Term
	Op    Op
	Limit float64
}

// Term is so many times a variable.
type Term struct {
	Var    int
	Factor float64
}

// Times returns the term of a variable times a factor.
func Times(variable int, factor float64) Term { return Term{variable, factor} }

// Op is how a row's sum compares with its limit.
type Op int8

// The comparisons.
const (
	AtMost Op = iota
	AtLeast
	Exactly
)

// String writes the comparison as in "must be at most 4".
func (o Op) String() string {
	switch o {
	case AtMost:
		return "at most"
	case AtLeast:
		return "at least"
	case Exactly:
	}

	return "exactly"
}

// Solution is what a solver found.
type Solution struct {
	Values []float64 // of the variables
	Proven bool      // nothing is better, within the solver's gap
}

// Solve solves a model. It is a function that the policy is given, because policies run no
// programs.
type Solve func(*Model) (*Solution, error)

// Add adds a variable and returns its index.
func (m *Model) Add(v Var) int {
	m.Vars = append(m.Vars, v)
	return len(m.Vars) - 1
}

// AddRow adds a row.
func (m *Model) AddRow(name string, op Op, limit float64, terms ...Term) {
	m.Rows = append(m.Rows, Row{Name: name, Terms: terms, Op: op, Limit: limit})
}

// Gain returns what values of the variables are worth.
func (m *Model) Gain(values []float64) float64 {
	total := 0.0
	for i := range m.Vars {
		total += m.Vars[i].Gain * values[i]
	}

	return total
}

// Check reports what is wrong with values. The solver is an external program, so its answer is
// not trusted unchecked. Solvers keep to whole numbers and limits within a tolerance, and so
// does this.
func (m *Model) Check(values []float64) error {
	const slack = 1e-5

	if len(values) != len(m.Vars) {
		return fmt.Errorf("%d values for %d variables", len(values), len(m.Vars))
	}

	for i := range m.Vars {
		v, x := &m.Vars[i], values[i]
		switch room := slack * math.Max(1, math.Abs(x)); {
		case math.IsNaN(x) || x < v.Low-room || x > v.High+room:
			return fmt.Errorf("%s must be between %g and %g, got %g", v.Name, v.Low, v.High, x)
		case v.Whole && math.Abs(x-math.Round(x)) > room:
			return fmt.Errorf("%s must be an integer, got %g", v.Name, x)
		}
	}

	for i := range m.Rows {
		r := &m.Rows[i]
		sum, size := 0.0, math.Max(1, math.Abs(r.Limit))
		for _, t := range r.Terms {
			sum += t.Factor * values[t.Var]
			size = math.Max(size, math.Abs(t.Factor*values[t.Var]))
		}

		over := sum - r.Limit
		if over > slack*size && r.Op != AtLeast || over < -slack*size && r.Op != AtMost {
			return fmt.Errorf("%s must be %s %g, got %g", r.Name, r.Op, r.Limit, sum)
		}
	}

	return nil
}
