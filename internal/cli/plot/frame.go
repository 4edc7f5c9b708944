package plot

import (
	"strings"

	"trainyard/internal/cli/table"
)

// left writes what is left of a row: its number, and the line.
func (d *drawing) left(row int) string {
	text := d.ticks[row]
	line := d.pick("│", "|")
	if text != "" {
		line = d.pick("┤", "+")
	}

	return strings.Repeat(" ", d.tickWidth-len(text)) + text + " " + line
}

func (d *drawing) pick(letter, ascii string) string {
	if d.ASCII {
		return ascii
	}

	return letter
}

// bottom writes the line below, with marks at round steps and at the end, and the steps themselves.
func (d *drawing) bottom() (rule, labels string) {
	line := make([]string, d.columns)
	for i := range line {
		line[i] = d.pick("─", "-")
	}

	text := []rune(strings.Repeat(" ", d.tickWidth+2+d.columns))
	free := 0 // where the next label may begin

	steps, names := d.x.ticks(d.columns / 12)
	for i, v := range steps {
		column := d.x.at(v, d.columns, false)
		from := min(max(d.tickWidth+2+column-len(names[i])/2, 0), len(text)-len(names[i]))
		if from < free {
			continue
		}

		line[column] = d.pick("┬", "+")
		copy(text[from:], []rune(names[i]))
		free = from + len(names[i]) + 2
	}

	if mark, column := d.endMark(); mark != "" {
		line[column] = d.paint(colors[fit], mark)
	}

	if word := "step"; free+len(word) <= len(text) {
		copy(text[len(text)-len(word):], []rune(word))
	}

	return strings.Repeat(" ", d.tickWidth+1) + d.pick("└", "+") + strings.Join(line, ""),
		strings.TrimRight(string(text), " ")
}

// endMark returns how the expected end is marked, and where; "" if it is not.
func (d *drawing) endMark() (mark string, column int) {
	switch {
	case d.End == nil || !finite(*d.End) || *d.End < d.x.low:
		return "", 0
	case d.endBeyond:
		return d.pick("►", ">"), d.columns - 1
	}

	return d.pick("▲", "^"), d.x.at(*d.End, d.columns, false)
}

// legend says what the characters mean, as far as they are there.
func (d *drawing) legend() []string {
	type item struct {
		sign, word string
		color      table.Color
	}

	var items []item
	if d.Fit != nil {
		items = append(
			items,
			item{d.pick("⠒⠒", "**"), "measured", colors[measured]},
			item{d.pick("⠐⠐", "++"), "expected", colors[fit]},
			item{d.pick("··", ".."), "interval", colors[band]},
		)
	}

	if d.goalInside {
		items = append(items, item{d.pick("╌╌", "- -"), "target " + number(*d.Goal, 4), colors[goal]})
	}

	switch mark, _ := d.endMark(); {
	case mark != "" && d.endBeyond:
		items = append(items, item{mark, "end (farther on)", colors[fit]})
	case mark != "":
		items = append(items, item{mark, "end", colors[fit]})
	}

	if d.first != nil {
		items = append(items, item{"", "begins at " + number(*d.first, 4), table.NoColor})
	}

	if d.y.log {
		items = append(items, item{"", "logarithmic", table.NoColor})
	}

	var out []string
	used := 0

	for _, it := range items {
		text := strings.TrimSpace(d.paint(it.color, it.sign) + " " + it.word)
		long := table.Width(strings.TrimSpace(it.sign + " " + it.word))
		if len(out) > 0 && used+2+long <= max(d.Width, leastWidth) {
			out[len(out)-1] += "  " + text
			used += 2 + long
			continue
		}

		indent := min(d.tickWidth+2, max(d.Width, leastWidth)-long)
		out, used = append(out, strings.Repeat(" ", indent)+text), indent+long
	}

	return out
}
