package report

import (
	_ "embed" // the page's frame and style
	"fmt"
	"html/template"
	"io"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/sim/whatif"
)

//go:embed page.html
var pageText string

// page is the frame of the report.
var page = template.Must(template.New("page").Parse(pageText))

// pageData is what the frame is filled with.
type pageData struct {
	Title    string
	Sections []pageSection
	Command  string
}

// pageSection is what is compared side by side.
type pageSection struct {
	Title, Subtitle string
	Seed            string // which of several seeds the plots show
	Policies        []string
	Rows            []pageRow
	Use             template.HTML
	Distribution    template.HTML
	Cost            template.HTML
	Costs           []legend
	Gantts          []pageGantt
	Legend          []legend
}

type pageRow struct {
	Group, Name string
	Begins      bool // a group begins
	Cells       []pageCell
}

type pageCell struct {
	Text, Half string
	Best       bool
}

type pageGantt struct {
	Policy string
	Plot   template.HTML
}

type legend struct{ Name, Class string }

// HTML writes a page with the comparison and its plots. The command is what
// someone would type to get the same; "" leaves it out.
func HTML(w io.Writer, title, command string, cells []whatif.Cell) error {
	data := pageData{Title: title, Command: command}
	all := sections(cells)
	for i := range all {
		data.Sections = append(data.Sections, all[i].page())
	}

	if len(all) == 1 && all[0].title() == title {
		data.Sections[0].Title = "" // it is that of the page
	}

	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}

	return nil
}

// curveColors is how many colours the style has for policies.
const curveColors = 8

// page prepares a section for the frame.
func (s *section) page() pageSection {
	out := pageSection{Title: s.title(), Subtitle: s.subtitle()}
	var use, done []curve

	if n := s.Rows[0].Seeds; n > 1 {
		out.Seed = fmt.Sprintf("; the first of %d seeds", n)
	}

	for i := range s.Rows {
		r := &s.Rows[i]
		out.Policies = append(out.Policies, r.Policy)
		out.Legend = append(out.Legend, legend{r.Policy, fmt.Sprintf("c%d", i%curveColors)})

		if len(r.First.Use) > 0 {
			use = append(use, curve{r.Policy, i % curveColors, r.First.Use})
		}

		if len(r.First.Distribution) > 0 {
			done = append(done, curve{r.Policy, i % curveColors, r.First.Distribution})
		}

		if n := len(r.First.Spans); n > 0 && n <= maxSpans {
			out.Gantts = append(
				out.Gantts,
				pageGantt{r.Policy, drawn(gantt("Jobs on each node over time, policy "+r.Policy, r.First.Spans))},
			)
		}
	}

	out.Rows = s.pageRows()
	if len(use) > 0 {
		out.Use = drawn(lines("GPUs in use over time", use, false))
	}

	if len(done) > 0 {
		out.Distribution = drawn(lines("Share of jobs finished within a given time", done, true))
	}

	out.Cost, out.Costs = s.costs()

	return out
}

// drawn marks what the package drew itself, with all names escaped.
func drawn(svg string) template.HTML { return template.HTML(svg) } //nolint:gosec // see above

func (s *section) pageRows() []pageRow {
	measures := whatif.Measures()
	var rows []pageRow
	before := ""

	for _, i := range s.shown() {
		m := measures[i]
		row := pageRow{Group: m.Group, Name: m.Title, Begins: m.Group != before}
		before = m.Group

		best := s.best(i)
		for k := range s.Rows {
			e := s.Rows[k].Estimates[i]
			c := pageCell{Text: value(m.Unit, e.Mean), Best: best[k]}
			if uncertain(e) {
				c.Half = "± " + value(m.Unit, e.Half)
			}

			row.Cells = append(row.Cells, c)
		}

		rows = append(rows, row)
	}

	return rows
}

// costs draws what each policy cost, by class of node and for being late.
func (s *section) costs() (template.HTML, []legend) {
	var all []bar
	used := map[string]bool{}

	for i := range s.Rows {
		r := s.Rows[i].First
		b := bar{name: s.Rows[i].Policy}
		for _, c := range fleet.Classes() {
			if v := r.ByClass[c]; v > 0 {
				b.parts = append(b.parts, part{string(c), "m-" + string(c), v})
				used[string(c)] = true
			}
		}

		if r.LateMoney > 0 {
			b.parts = append(b.parts, part{"lateness", "m-late", r.LateMoney})
			used["lateness"] = true
		}

		all = append(all, b)
	}

	if len(used) == 0 {
		return "", nil
	}

	var names []legend
	for _, c := range fleet.Classes() {
		if used[string(c)] {
			names = append(names, legend{string(c), "m-" + string(c)})
		}
	}

	if used["lateness"] {
		names = append(names, legend{"lateness", "m-late"})
	}

	return drawn(bars("Cost by node class", all)), names
}

// Title makes a title of the names of what was simulated.
func Title(cells []whatif.Cell) string {
	var names []string
	for _, s := range sections(cells) {
		if len(names) == 0 || names[len(names)-1] != s.Source {
			names = append(names, s.Source)
		}
	}

	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}

	return strings.Join(names, ", ")
}
