// Package report shows what simulations came to: a table for terminals, CSV and
// JSON for programs, and one HTML page with plots that opens without a network.
//
// It is given the cells of a whatif matrix and writes to a writer. It reads no
// file and no clock and fetches nothing: the page carries its style and its plots,
// drawn here as SVG, so that it can be mailed and kept. trainyard simulate calls
// it. The same cells give the same bytes.
package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"trainyard/internal/sim"
	"trainyard/internal/sim/whatif"
)

// section is the rows of one source at one load: what is compared side by side.
type section struct {
	Source string
	Load   float64
	Rows   []whatif.Row
}

// sections groups rows by what is compared.
func sections(cells []whatif.Cell) []section {
	var all []section
	for _, r := range whatif.Summarise(cells) {
		if n := len(all); n == 0 || all[n-1].Source != r.Source || all[n-1].Load != r.Load {
			all = append(all, section{Source: r.Source, Load: r.Load})
		}

		last := &all[len(all)-1]
		last.Rows = append(last.Rows, r)
	}

	return all
}

// title names a section: what was simulated, how much of it, on what.
func (s *section) title() string {
	text := s.Source
	if s.Load != 1 {
		text += fmt.Sprintf(" at load %g", s.Load)
	}

	return text
}

// subtitle says how much was simulated.
func (s *section) subtitle() string {
	r := s.Rows[0]
	text := count(float64(r.First.Jobs)) + " jobs"
	if r.First.Jobs == 1 {
		text = "1 job"
	}

	if r.Seeds > 1 {
		text += fmt.Sprintf(", mean of %d seeds with its 95 %% confidence interval", r.Seeds)
	}

	return text
}

// shown lists the measures that say something about a section: those that are
// nothing in every row are left out, but for the first of what people look for.
func (s *section) shown() []int {
	var list []int
	for i, m := range whatif.Measures() {
		something := m.Group == "completion" || m.Group == "waiting" || m.Key == "utilisation" || m.Key == "makespan_s" ||
			m.Key == "fairness"
		for _, r := range s.Rows {
			something = something || r.Estimates[i].Mean != 0 && m.Key != "jobs"
		}

		if something {
			list = append(list, i)
		}
	}

	return list
}

// best reports for each row whether it has the best value of a measure. Nobody has
// if all are alike, if nothing is better, or if the interval of the best overlaps those of all others.
func (s *section) best(measure int) []bool {
	m := whatif.Measures()[measure]
	found := make([]bool, len(s.Rows))
	if m.Best == 0 || len(s.Rows) < 2 {
		return found
	}

	top, bottom := math.Inf(-1), math.Inf(1)
	for _, r := range s.Rows {
		v := r.Estimates[measure].Mean * float64(m.Best)
		top, bottom = math.Max(top, v), math.Min(bottom, v)
	}

	if equal(top, bottom) {
		return found
	}

	told := false

	for i, r := range s.Rows {
		found[i] = equal(r.Estimates[measure].Mean*float64(m.Best), top)
		told = told || !found[i] && s.apart(measure, i, top)
	}

	if !told {
		clear(found)
	}

	return found
}

// apart reports whether the interval of a row lies below that of the best value of a measure.
func (s *section) apart(measure, row int, top float64) bool {
	best := float64(whatif.Measures()[measure].Best)
	e := s.Rows[row].Estimates[measure]
	half := 0.0

	for _, r := range s.Rows {
		if equal(r.Estimates[measure].Mean*best, top) {
			half = math.Max(half, r.Estimates[measure].Half)
		}
	}

	return e.Mean*best+e.Half < top-half
}

// uncertain reports whether an estimate has an interval that is more than rounding.
func uncertain(e whatif.Estimate) bool { return e.Half > 1e-9*math.Abs(e.Mean) }

// equal reports whether two figures differ by rounding only.
func equal(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

// CSV writes one line for each simulation, with plain numbers: seconds, shares, kWh.
func CSV(w io.Writer, cells []whatif.Cell) error {
	out := csv.NewWriter(w)
	head := []string{"source", "policy", "load", "seed"}
	for _, m := range whatif.Measures() {
		head = append(head, m.Key)
	}

	if err := out.Write(head); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}

	for i := range cells {
		c := &cells[i]
		line := []string{c.Source, c.Policy, number(c.Load), strconv.FormatUint(c.Seed, 10)}
		for _, m := range whatif.Measures() {
			line = append(line, number(m.Of(c.Result)))
		}

		if err := out.Write(line); err != nil {
			return fmt.Errorf("write CSV: %w", err)
		}
	}

	out.Flush()

	if err := out.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}

	return nil
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// Document is what simulations came to, for programs.
type Document struct {
	Cells   []CellDocument `json:"simulations"`
	Summary []RowDocument  `json:"summary"`
}

// CellDocument is one simulation.
type CellDocument struct {
	whatif.Cell
	Measures map[string]float64 `json:"measures"`
	ByClass  map[string]float64 `json:"money_by_class,omitempty"`
}

// RowDocument sums up the simulations that differ only in their seed.
type RowDocument struct {
	Source   string                     `json:"source"`
	Policy   string                     `json:"policy"`
	Load     float64                    `json:"load"`
	Seeds    int                        `json:"seeds"`
	Measures map[string]whatif.Estimate `json:"measures"`
}

// DocumentOf makes the document of cells.
func DocumentOf(cells []whatif.Cell) Document {
	doc := Document{Cells: []CellDocument{}, Summary: []RowDocument{}}
	measures := whatif.Measures()
	for i := range cells {
		c := CellDocument{Cell: cells[i], Measures: map[string]float64{}, ByClass: byClass(cells[i].Result)}
		for _, m := range measures {
			c.Measures[m.Key] = m.Of(cells[i].Result)
		}

		doc.Cells = append(doc.Cells, c)
	}

	for _, r := range whatif.Summarise(cells) {
		row := RowDocument{
			Source:   r.Source,
			Policy:   r.Policy,
			Load:     r.Load,
			Seeds:    r.Seeds,
			Measures: map[string]whatif.Estimate{},
		}

		for i, m := range measures {
			row.Measures[m.Key] = r.Estimates[i]
		}

		doc.Summary = append(doc.Summary, row)
	}

	return doc
}

func byClass(r *sim.Result) map[string]float64 {
	out := map[string]float64{}
	for class, money := range r.ByClass {
		if money != 0 {
			out[string(class)] = money
		}
	}

	return out
}

// JSON writes the document of cells.
func JSON(w io.Writer, cells []whatif.Cell) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(DocumentOf(cells)); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}

	return nil
}

// value writes a value for people.
func value(u whatif.Unit, v float64) string {
	switch u {
	case whatif.UnitTime:
		return span(v)
	case whatif.UnitShare:
		return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
	case whatif.UnitEnergy:
		return rounded(v) + " kWh"
	case whatif.UnitMoney:
		return "$" + amount(v)
	case whatif.UnitCount:
		if v != math.Trunc(v) {
			return rounded(v)
		}

		return count(v)
	case whatif.UnitNumber:
	}

	return rounded(v)
}

// amount writes money with two decimals, and large amounts without.
func amount(v float64) string {
	if math.Abs(v) >= 1000 {
		return count(math.Round(v))
	}

	return strconv.FormatFloat(v, 'f', 2, 64)
}

// rounded writes a number with three digits that count.
func rounded(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 1000:
		return count(math.Round(v))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a >= 0.001:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}

	return strconv.FormatFloat(v, 'e', 1, 64)
}

// count writes a whole number with commas.
func count(v float64) string {
	text := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}

	if v < 0 {
		return "-" + text
	}

	return text
}

// span writes a length of time in its two largest units.
func span(seconds float64) string {
	switch {
	case seconds < 0:
		return "-" + span(-seconds)
	case seconds == 0:
		return "0"
	case seconds < 60:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	case seconds < time.Hour.Seconds():
		whole := int(math.Round(seconds))
		return pair(whole/60, "m", whole%60, "s")
	case seconds < 100*time.Hour.Seconds():
		whole := int(math.Round(seconds / 60))
		return pair(whole/60, "h", whole%60, "m")
	}

	whole := int(math.Round(seconds / time.Hour.Seconds()))

	return pair(whole/24, "d", whole%24, "h")
}

func pair(large int, unit string, small int, smaller string) string {
	if small == 0 {
		return fmt.Sprintf("%d%s", large, unit)
	}

	return fmt.Sprintf("%d%s %d%s", large, unit, small, smaller)
}

// axisTime writes a time of a simulation as an axis does: in its largest unit, and minutes of an hour as such.
func axisTime(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case seconds == 0:
		return "0"
	case seconds < 1:
		return strconv.FormatFloat(seconds, 'g', 2, 64) + "s"
	case d < 2*time.Minute:
		return trim(seconds) + "s"
	case d < 2*time.Hour && d%time.Hour != 0:
		return trim(d.Minutes()) + "m"
	case d < 72*time.Hour && d%time.Minute == 0 && d%time.Hour != 0:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 72*time.Hour:
		return trim(d.Hours()) + "h"
	}

	return trim(d.Hours()/24) + "d"
}

func trim(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
