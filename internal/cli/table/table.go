// Package table lays out what people read on a terminal: tables, times and amounts.
//
// It takes values and the time and gives back text; it never asks whether
// there is a terminal, never reads the clock and lets no control character of
// a name or reason through to the screen. cli alone calls it.
package table

import (
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
)

// Cell is one cell of a table: its text and the colour it has on a terminal.
type Cell struct {
	Text  string
	Color Color
}

// Color is a colour of the terminal.
type Color string

// The colours, as the terminal takes them.
const (
	NoColor Color = ""
	Red     Color = "31"
	Green   Color = "32"
	Yellow  Color = "33"
	Blue    Color = "34"
	Cyan    Color = "36"
	Gray    Color = "90"
)

// Paint puts a text in a colour.
func (c Color) Paint(text string) string {
	if c == NoColor || text == "" {
		return text
	}

	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// Table is a table that is being filled.
type Table struct {
	head  []string
	rows  [][]Cell
	color bool
	width int
}

// New returns an empty table with these headings. Lines longer than width are
// cut, with a mark, unless it is 0. Cells are coloured only if color is set.
func New(color bool, width int, head ...string) *Table {
	return &Table{head: head, color: color, width: width}
}

// Row adds a line of plain cells.
func (t *Table) Row(texts ...string) {
	cells := make([]Cell, len(texts))
	for i, s := range texts {
		cells[i].Text = s
	}

	t.Cells(cells...)
}

// Cells adds a line. Cells without text show a dash, so that columns stay
// readable and a script that splits at blanks is not led astray.
func (t *Table) Cells(cells ...Cell) {
	for i := range cells {
		cells[i].Text = Plain(cells[i].Text)
		if cells[i].Text == "" {
			cells[i].Text = "-"
		}
	}

	t.rows = append(t.rows, cells)
}

// Len returns the number of lines below the headings.
func (t *Table) Len() int { return len(t.rows) }

// Write writes the table.
func (t *Table) Write(w io.Writer) error {
	widths := make([]int, len(t.head))
	for i, h := range t.head {
		widths[i] = Width(h)
	}

	for _, row := range t.rows {
		for i, c := range row {
			widths[i] = max(widths[i], Width(c.Text))
		}
	}

	var out strings.Builder

	head := make([]Cell, len(t.head))
	for i, h := range t.head {
		head[i].Text = h
	}

	t.line(&out, head, widths)
	for _, row := range t.rows {
		t.line(&out, row, widths)
	}

	_, err := io.WriteString(w, out.String())

	return err
}

const gap = "  "

// line writes one line; what does not fit into the width is cut.
func (t *Table) line(out *strings.Builder, cells []Cell, widths []int) {
	left := t.width

	for i, c := range cells {
		text, last := c.Text, i == len(cells)-1
		if t.width > 0 {
			text = Cut(text, left)
		}

		pad := widths[i] - Width(text)

		if t.color {
			out.WriteString(c.Color.Paint(text))
		} else {
			out.WriteString(text)
		}

		left -= widths[i] + len(gap)
		if last || t.width > 0 && left <= 0 {
			break
		}

		out.WriteString(strings.Repeat(" ", pad) + gap)
	}

	out.WriteByte('\n')
}

// Cut shortens a text to a number of cells, with a mark where it was cut.
func Cut(text string, width int) string {
	if Width(text) <= width {
		return text
	}
	if width <= 0 {
		return ""
	}

	return (&runewidth.Condition{}).Truncate(text, width, "…")
}

// Wrap breaks a text at blanks into lines of at most so many cells, but no fewer than
// can be read. A longer word is left whole.
func Wrap(text string, width int) []string {
	const minWidth = 20
	width = max(width, minWidth)
	var lines []string

	used := 0 // of the last line
	for word := range strings.FieldsSeq(text) {
		long := Width(word)
		if used > 0 && used+1+long <= width {
			lines[len(lines)-1] += " " + word
			used += 1 + long
			continue
		}

		lines, used = append(lines, word), long
	}

	return lines
}

// Plain takes out of a text what would do something to the terminal other than
// show it: control characters, escape sequences' first bytes and marks that
// turn the direction of writing. Line ends and tabs become blanks.
func Plain(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t' || c == '\r':
			return ' '
		case c < ' ' || c >= 0x7f && c < 0xa0, c == 0x2028, c == 0x2029,
			c >= 0x202a && c <= 0x202e, c >= 0x2066 && c <= 0x2069, c == 0x200e, c == 0x200f, c == 0xfeff:
			return -1
		}

		return c
	}, text)
}

// Width counts the cells of a terminal that a text takes, whatever the locale.
func Width(text string) int { return (&runewidth.Condition{}).StringWidth(text) }
