package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"trainyard/internal/sim/whatif"
)

// Style says how a table is laid out.
type Style struct {
	Width int  // of the terminal; 0 for as wide as it takes
	Color bool // the best values are coloured; else they have a star
}

// Table writes a table for people: measures down, policies across, a table for
// each source and load. Where the policies do not fit side by side the table is
// broken into several.
func Table(w io.Writer, cells []whatif.Cell, style Style) error {
	var out strings.Builder
	for i, s := range sections(cells) {
		if i > 0 {
			out.WriteByte('\n')
		}

		fmt.Fprintf(&out, "%s: %s\n", plain(s.title()), s.subtitle())
		s.write(&out, style)
	}

	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}

	return nil
}

// plain takes control characters out of a name that someone chose.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return -1
		}

		return c
	}, s)
}

// write lays out one section.
func (s *section) write(out *strings.Builder, style Style) {
	shown := s.shown()
	columns := make([][]string, len(s.Rows)) // by row of the section, then by measure
	widths := make([]int, len(s.Rows))

	best := make([][]bool, len(shown))
	for k, i := range shown {
		best[k] = s.best(i)
	}

	for r := range s.Rows {
		widths[r] = utf8.RuneCountInString(plain(s.Rows[r].Policy))
		for k, i := range shown {
			text := cell(&s.Rows[r], i)
			if best[k][r] && !style.Color {
				text += " *"
			} else if !style.Color && len(s.Rows) > 1 {
				text += "  "
			}

			columns[r] = append(columns[r], text)
			widths[r] = max(widths[r], utf8.RuneCountInString(text))
		}
	}

	labels := label(shown)

	left := 0
	for _, l := range labels {
		left = max(left, len(l))
	}

	for from := 0; from < len(s.Rows); {
		to, width := from, left
		for to < len(s.Rows) && (to == from || style.Width == 0 || width+2+widths[to] <= style.Width) {
			width += 2 + widths[to]
			to++
		}

		out.WriteByte('\n')
		line(out, left, "", func(r int) string { return pad(plain(s.Rows[r].Policy), widths[r]) }, from, to)

		for k := range shown {
			line(out, left, labels[k], func(r int) string {
				text := pad(columns[r][k], widths[r])
				if style.Color && best[k][r] {
					text = "\x1b[32m" + text + "\x1b[0m"
				}

				return text
			}, from, to)
		}

		from = to
	}
}

// line writes a label and the cells of some columns, without blanks at its end.
func line(out *strings.Builder, left int, label string, cell func(column int) string, from, to int) {
	text := fmt.Sprintf("%-*s", left, label)
	for r := from; r < to; r++ {
		text += "  " + cell(r)
	}

	out.WriteString(strings.TrimRight(text, " ") + "\n")
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// cell writes the value of a measure with its interval.
func cell(r *whatif.Row, measure int) string {
	e, u := r.Estimates[measure], whatif.Measures()[measure].Unit
	text := value(u, e.Mean)
	if uncertain(e) {
		text += " ± " + value(u, e.Half)
	}

	return text
}

// label names the measures; the name of a group stands at its first alone.
func label(shown []int) []string {
	all := whatif.Measures()
	var names []string
	before := ""

	for _, i := range shown {
		m := all[i]
		group := m.Group
		if group == before {
			group = ""
		}

		before = m.Group

		if m.Title == "" {
			names = append(names, group)
			continue
		}

		names = append(names, fmt.Sprintf("%-11s %s", group, m.Title))
	}

	return names
}
