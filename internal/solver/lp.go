package solver

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"trainyard/internal/place/lp"
)

// writeLP writes a model in the LP format, which all the programs read. Variables
// are called x0, x1, … in their order, and the objective names every one: a program
// that answers by number then counts as the model does. They all minimise by habit,
// so the gain is written as a cost.
func writeLP(b *bytes.Buffer, m *lp.Model) {
	b.WriteString("Minimize\n cost:")

	for i := range m.Vars {
		term(b, i, -m.Vars[i].Gain)
	}

	b.WriteString("\nSubject To\n")
	signs := map[lp.Op]string{lp.AtMost: "<=", lp.AtLeast: ">=", lp.Exactly: "="}

	for i := range m.Rows {
		r := &m.Rows[i]
		if len(r.Terms) == 0 {
			continue
		}

		fmt.Fprintf(b, " c%d:", i)

		for _, t := range r.Terms {
			term(b, t.Var, t.Factor)
		}

		fmt.Fprintf(b, " %s %s\n", signs[r.Op], number(r.Limit))
	}

	b.WriteString("Bounds\n")

	for i := range m.Vars {
		fmt.Fprintf(b, " %s <= x%d <= %s\n", number(m.Vars[i].Low), i, number(m.Vars[i].High))
	}

	b.WriteString("Generals\n")

	for i := range m.Vars {
		if m.Vars[i].Whole {
			fmt.Fprintf(b, " x%d\n", i)
		}
	}

	b.WriteString("End\n")
}

// term writes one term, each on a line of its own: some readers limit their length.
func term(b *bytes.Buffer, i int, factor float64) {
	sign := "+"
	if factor < 0 {
		sign = "-"
	}

	fmt.Fprintf(b, "\n %s %s x%d", sign, number(math.Abs(factor)), i)
}

func number(v float64) string {
	if v == 0 {
		return "0" // also the one with a sign, which not everyone reads
	}

	return strconv.FormatFloat(v, 'g', -1, 64)
}
