// Package information states what each side of a comparison knows.
//
// A policy that knows how long jobs run beats one that does not, and a table that shows only the two results
// hides why. So every benchmark with a comparison declares, for each row, what its side knows and what it tries
// to achieve; the declaration is checked, printed below the figures, and stands on the page of the benchmark.
// Our headline row never knows more than the opponent. Rows that do are labelled by what they know more.
package information

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Source is how a side comes to know something.
type Source int

// From nothing to the truth beforehand; each is worth more than the one before it. Published is what is known of the
// hardware and not of the job, as the TFLOPS of a GPU model. Learned is what the side finds out from what the running
// job reports, Forecast what it concludes from finished jobs as well. Declared is what
// comes with the job: in a replay it is the true value. Oracle is the truth beforehand for every choice, also for
// those that nobody has tried.
const (
	None Source = iota
	Published
	Learned
	Forecast
	Declared
	Oracle
)

// String is the word in the table.
func (s Source) String() string {
	words := []string{"none", "published", "learned", "forecast", "declared", "oracle"}
	if s < 0 || int(s) >= len(words) {
		return fmt.Sprintf("Source(%d)", int(s))
	}

	return words[s]
}

// Knowledge is what a side knows beforehand or finds out.
type Knowledge struct {
	Work     Source // how much a job has to do: steps, samples, epochs
	RunTimes Source // how long a job runs
	Speeds   Source // how fast a job is on other numbers and models of GPU, and what that costs
	Arrivals Source // which jobs come later, and which nodes go
}

// subjects names what is known, in the order of the columns.
func subjects() []string { return []string{"work", "run times", "speeds", "future"} }

func (k Knowledge) list() []Source { return []Source{k.Work, k.RunTimes, k.Speeds, k.Arrivals} }

// Role is what a row of a comparison is for.
type Role int

// The headline is the row of ours that is quoted, the opponent the row it is quoted against. A reference is any
// other row: ours with more or less information, simple rules, bounds.
const (
	Reference Role = iota
	Headline
	Opponent
)

// Side is one row of a comparison, or several that know the same.
type Side struct {
	Name      string // as the row is called in the table of figures
	Role      Role
	Knowledge Knowledge
	Objective string
	Figures   string // where its figures are from; empty: this run
}

// Comparison is a table of figures in which sides are compared.
type Comparison struct {
	Name  string // of the table, unique on its page: bench-burst, or bench-elastic: Pollux
	Sides []Side
	// Differs says why headline and opponent have different objectives. It must be given if they have.
	Differs string
}

// Check reports what is wrong with a declaration.
func (c *Comparison) Check() error {
	if c.Name == "" {
		return errors.New("a comparison has no name")
	}

	var wrong []error

	note := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(c.Name+": "+format, args...))
	}

	seen := map[string]bool{}

	for i := range c.Sides {
		s := &c.Sides[i]
		switch {
		case s.Name == "":
			note("a side has no name")
		case seen[s.Name]:
			note("side %s is declared twice", s.Name)
		case s.Objective == "":
			note("side %s has no objective", s.Name)
		}

		seen[s.Name] = true
	}

	headlines, opponents := c.with(Headline), c.with(Opponent)
	if len(headlines) == 0 || len(opponents) == 0 {
		note("it needs a headline and an opponent, and has %d and %d", len(headlines), len(opponents))
	}

	for _, h := range headlines {
		for _, o := range opponents {
			if more, _ := compare(h.Knowledge, o.Knowledge); len(more) > 0 {
				note("headline %s knows more than its opponent %s: %s", h.Name, o.Name, strings.Join(more, ", "))
			}
			if h.Objective != o.Objective && c.Differs == "" {
				note("headline %s and its opponent %s have different objectives, and it is not said why", h.Name, o.Name)
			}
		}
	}

	return errors.Join(wrong...)
}

func (c *Comparison) with(r Role) []Side {
	return slices.DeleteFunc(slices.Clone(c.Sides), func(s Side) bool { return s.Role != r })
}

// compare returns what one side knows more and what it knows less than another.
func compare(a, b Knowledge) (more, less []string) {
	x, y := a.list(), b.list()
	for i, name := range subjects() {
		switch {
		case x[i] > y[i]:
			more = append(more, name)
		case x[i] < y[i]:
			less = append(less, name)
		}
	}

	return more, less
}

// label says how much a side knows, measured by the first opponent.
func (c *Comparison) label(s *Side) string {
	opponents := c.with(Opponent)
	if s.Role == Opponent || len(opponents) == 0 {
		return "opponent"
	}

	var parts []string
	if s.Role == Headline {
		parts = append(parts, "headline")
	}

	more, less := compare(s.Knowledge, opponents[0].Knowledge)
	if len(more) > 0 {
		parts = append(parts, "knows more: "+strings.Join(more, ", "))
	}

	if len(less) > 0 {
		parts = append(parts, "knows less: "+strings.Join(less, ", "))
	}

	if len(more)+len(less) == 0 {
		parts = append(parts, "knows the same")
	}

	return strings.Join(parts, "; ")
}

// rows are the table with its heading.
func (c *Comparison) rows() [][]string {
	out := [][]string{append(append([]string{"side"}, subjects()...), "objective", "figures from", "against the opponent")}

	for i := range c.Sides {
		s := &c.Sides[i]

		row := []string{s.Name}
		for _, k := range s.Knowledge.list() {
			row = append(row, k.String())
		}

		figures := s.Figures
		if figures == "" {
			figures = "this run"
		}

		out = append(out, append(row, s.Objective, figures, c.label(s)))
	}

	return out
}

// Print writes the tables of a benchmark as text, after checking them.
func Print(w io.Writer, list []Comparison) error {
	for i := range list {
		c := &list[i]
		if err := c.Check(); err != nil {
			return err
		}

		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(t, "\nWhat each side knows (%s):\n", c.Name) // Flush returns its errors

		for _, row := range c.rows() {
			_, _ = fmt.Fprintln(t, strings.Join(row, "\t"))
		}

		if c.Differs != "" {
			_, _ = fmt.Fprintf(t, "Objectives differ: %s\n", c.Differs)
		}

		if err := t.Flush(); err != nil {
			return fmt.Errorf("print what each side knows: %w", err)
		}
	}

	return nil
}

// Markdown is the table of one comparison as it stands on a page, without the line of its marker.
func (c *Comparison) Markdown() string {
	var text strings.Builder
	for i, row := range c.rows() {
		text.WriteString("| " + strings.Join(row, " | ") + " |\n")

		if i == 0 {
			text.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}

	if c.Differs != "" {
		text.WriteString("\n" + wrap("Objectives differ: "+c.Differs) + "\n")
	}

	return text.String()
}

// wrap breaks a sentence into lines of a page.
func wrap(text string) string {
	const width = 120

	var out strings.Builder

	column := 0

	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			out.WriteByte('\n')

			column = 0
		default:
			out.WriteByte(' ')
			column++
		}

		out.WriteString(word)
		column += len(word)
	}

	return out.String()
}
