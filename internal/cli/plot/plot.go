// Package plot draws a curve as text: what was measured, how it is expected to go on, and
// how sure that is.
//
// It takes numbers and gives back lines; it asks nothing about the terminal, and the same
// numbers always make the same lines. The commands that show a job and its metrics call it.
package plot

import (
	"math"
	"slices"
	"strings"

	"trainyard/internal/cli/table"
)

// Plot is what is drawn. Steps are in order.
type Plot struct {
	X, Y  []float64 // what was measured; a value that is no number makes a gap
	Fit   *Fit      // how it is expected to go on; nil if nobody can tell
	Goal  *float64  // drawn across, as a dashed line
	End   *float64  // the step at which the job is expected to be done
	Width int       // of a line, in characters
	Rows  int       // of the area that is drawn in
	ASCII bool      // for terminals that show nothing else
	Color bool
}

// Fit is a curve with the interval around it.
type Fit struct {
	X, Mid, Low, High []float64
}

// The sizes of a plot.
const (
	leastWidth = 40
	leastRows  = 4
	// beyond is how many times the measured stretch the whole may be: what is measured
	// would be too small to see if an end far away had to fit in.
	beyond = 10
	// above is how much of the height the interval may add on each side; the rest of it is
	// cut off, because the curve is what people look for.
	above = 0.25
	// start is the part of the measured steps that may be cut off, if so many points are left.
	start     = 0.1
	manyLater = 20
)

// layer is what a character shows; a higher one hides a lower one.
type layer uint8

const (
	blank layer = iota
	band
	goal
	fit
	measured
	marker // one measured point of few
)

var colors = [...]table.Color{
	blank: table.NoColor, band: table.Gray, goal: table.Yellow, fit: table.Green, measured: table.Cyan, marker: table.Cyan,
}

// dots of a character, across and down.
const (
	across = 2
	down   = 4
)

type cell struct {
	layer layer
	dots  uint8 // of a braille character, by the number of its dot
}

// drawing is a plot under way.
type drawing struct {
	*Plot
	x, y       axis
	columns    int
	cells      [][]cell // by row, from the top
	endBeyond  bool     // the end is farther right than what is shown
	ticks      []string // what is written left of each row
	tickWidth  int
	points     int
	goalInside bool
	first      *float64 // the first value, if the steep beginning is cut off
}

// Lines returns the plot, nil if there is no measured number to draw.
func (p *Plot) Lines() []string {
	d := &drawing{Plot: p}
	if !d.frame() {
		return nil
	}

	d.drawBand()
	d.drawGoal()
	d.drawFit()
	d.drawPoints()

	out := make([]string, 0, len(d.cells)+3)
	for row := range d.cells {
		out = append(out, strings.TrimRight(d.left(row)+d.row(row), " "))
	}

	rule, labels := d.bottom()
	out = append(out, rule, labels)

	return append(out, d.legend()...)
}

// frame finds the ranges of both axes and the size of the area.
func (d *drawing) frame() bool {
	xs, ys := span{}, span{}
	for i := range min(len(d.X), len(d.Y)) {
		if finite(d.X[i], d.Y[i]) {
			xs.take(d.X[i])
			ys.take(d.Y[i])
			d.points++
		}
	}

	if d.points == 0 {
		return false
	}

	if log := ys.low > 0 && ys.high/ys.low > decades; !log {
		d.cutStart(xs, &ys)
	}

	d.wide(&xs)
	d.high(&xs, &ys)
	d.x = newAxis(xs)
	d.x.whole = !slices.ContainsFunc(d.X, func(x float64) bool { return finite(x) && x != math.Trunc(x) })
	rows := max(d.Rows, leastRows)
	d.y = newAxis(ys)
	d.y.log = d.y.low > 0 && d.y.high/d.y.low > decades
	d.ticks = make([]string, rows)
	values, labels := d.y.ticks(rows / 3)
	if !d.y.log {
		labels = level(labels)
	}

	for i, v := range values {
		if row := d.y.at(v, rows, true); d.ticks[row] == "" {
			d.ticks[row] = labels[i]
			d.tickWidth = max(d.tickWidth, len(labels[i]))
		}
	}

	d.columns = max(d.Width, leastWidth) - d.tickWidth - len(" |")
	d.cells = make([][]cell, rows)
	for row := range d.cells {
		d.cells[row] = make([]cell, d.columns)
	}

	return true
}

// cutStart narrows the range of values to what came after the beginning, if the
// beginning alone would take half of the height: curves fall, or rise, most at first, and what
// matters is where they are now.
func (d *drawing) cutStart(xs span, ys *span) {
	later, n := span{}, 0
	for i := range min(len(d.X), len(d.Y)) {
		if finite(d.X[i], d.Y[i]) && d.X[i]/2-xs.low/2 >= start*(xs.high/2-xs.low/2) {
			later.take(d.Y[i])
			n++
		}
	}

	if n < manyLater || later.high/2-later.low/2 > (ys.high/2-ys.low/2)/2 || later.high == later.low {
		return
	}

	at := slices.IndexFunc(d.Y, func(y float64) bool { return finite(y) })
	if y := d.Y[at]; y < later.low || y > later.high {
		*ys, d.first = later, &y
	}
}

// wide extends the range of steps to where the curve is expected to go.
func (d *drawing) wide(xs *span) {
	if xs.low == xs.high { // a single step: from the beginning to it
		xs.take(0)

		if xs.low == xs.high {
			xs.take(1)
		}
	}

	limit := xs.low/2 + beyond*(xs.high/2-xs.low/2)
	farthest := min(2*limit, math.MaxFloat64)
	if d.Fit != nil {
		for _, x := range d.Fit.X {
			if finite(x) && x <= farthest {
				xs.take(x)
			}
		}
	}

	if d.End != nil && finite(*d.End) && *d.End >= xs.low {
		d.endBeyond = *d.End > farthest
		xs.take(min(*d.End, farthest))
	}
}

// high extends the range of values to the fit and the goal, and some of the interval.
func (d *drawing) high(xs, ys *span) {
	if d.Goal != nil && finite(*d.Goal) {
		ys.take(*d.Goal)
		d.goalInside = true
	}

	if d.Fit == nil {
		return
	}

	f := d.Fit
	inside := func(i int) bool { return finite(f.X[i]) && f.X[i] >= xs.low && f.X[i] <= xs.high }
	for i := range min(len(f.X), len(f.Mid)) {
		if inside(i) && finite(f.Mid[i]) {
			ys.take(f.Mid[i])
		}
	}

	extent := span{}
	for i := range min(len(f.X), len(f.Low), len(f.High)) {
		if inside(i) && finite(f.Low[i], f.High[i]) {
			extent.take(f.Low[i])
			extent.take(f.High[i])
		}
	}

	if !extent.any {
		return
	}

	add := 2 * above * (ys.high/2 - ys.low/2)
	if ys.low == ys.high {
		add = math.Inf(1) // of a constant the interval is all there is to see
	}

	low, high := max(extent.low, ys.low-add), min(extent.high, ys.high+add)
	if ys.low > 0 && low <= 0 {
		low = ys.low // a metric that is always above zero keeps that, and its decades
	}

	ys.take(low)
	ys.take(high)
}

// drawBand fills the interval.
func (d *drawing) drawBand() {
	if d.Fit == nil {
		return
	}

	for column := range d.columns {
		x := d.x.value((float64(column) + 0.5) / float64(d.columns))
		low, high, ok := d.Fit.at(x)
		if !ok || high < d.y.low || low > d.y.high {
			continue
		}

		top, bottom := d.y.at(high, len(d.cells)*down, true)/down, d.y.at(low, len(d.cells)*down, true)/down
		for row := top; row <= bottom; row++ {
			d.put(row, column, band, 0)
		}
	}
}

// at returns the interval at a step, between its two neighbours.
func (f *Fit) at(x float64) (low, high float64, ok bool) {
	n := min(len(f.X), len(f.Low), len(f.High))
	for i := 1; i < n; i++ {
		a, b := f.X[i-1], f.X[i]
		if !finite(a, b) || x < a || x > b {
			continue
		}

		part := 0.0
		if b > a {
			part = (x - a) / (b - a)
		}

		low, high = between(f.Low[i-1], f.Low[i], part), between(f.High[i-1], f.High[i], part)

		return low, high, finite(low, high) && low <= high
	}

	return 0, 0, false
}

func between(a, b, part float64) float64 { return a*(1-part) + b*part }

func (d *drawing) drawGoal() {
	if !d.goalInside {
		return
	}

	row := d.y.at(*d.Goal, len(d.cells), true)
	for column := range d.columns {
		if column%2 == 0 || !d.ASCII {
			d.put(row, column, goal, 0)
		}
	}
}

func (d *drawing) drawFit() {
	if d.Fit == nil {
		return
	}

	f := d.Fit
	for i := 1; i < min(len(f.X), len(f.Mid)); i++ {
		d.line(f.X[i-1], f.Mid[i-1], f.X[i], f.Mid[i], func(x, y int) {
			if (x+y)%2 == 0 { // lighter than what was measured
				d.dot(x, y, fit)
			}
		})
	}
}

func (d *drawing) drawPoints() {
	n := min(len(d.X), len(d.Y))
	few := d.points <= d.columns/4

	known := func(i int) bool { return i >= 0 && i < n && finite(d.X[i], d.Y[i]) }
	for i := range n {
		if !known(i) {
			continue
		}

		if known(i - 1) {
			d.line(d.X[i-1], d.Y[i-1], d.X[i], d.Y[i], func(x, y int) { d.dot(x, y, measured) })
		}

		if d.Y[i] >= d.y.low && d.Y[i] <= d.y.high && (few || !known(i-1) && !known(i+1)) {
			d.put(d.y.at(d.Y[i], len(d.cells), true), d.x.at(d.X[i], d.columns, false), marker, 0)
		}
	}
}

// line calls dot for every dot between two points that is within what is shown.
func (d *drawing) line(x0, y0, x1, y1 float64, dot func(x, y int)) {
	ax := d.x.part(x0)
	ay := d.y.part(y0)
	bx := d.x.part(x1)
	by := d.y.part(y1)
	from, to, ok := clip(ax, ay, bx-ax, by-ay)
	if !ok {
		return
	}

	wide, high := d.columns*across, len(d.cells)*down
	place := func(t float64) (x, y int) {
		return index(ax+(bx-ax)*t, wide), index(1-ay-(by-ay)*t, high)
	}
	fx, fy := place(from)
	tx, ty := place(to)
	steps := max(abs(tx-fx), abs(ty-fy), 1)
	for i := range steps + 1 {
		dot(fx+divide((tx-fx)*i, steps), fy+divide((ty-fy)*i, steps))
	}
}

// clip returns from where to where, as parts of its length, a line lies within the unit square.
func clip(x, y, dx, dy float64) (from, to float64, ok bool) {
	if !finite(x, y, dx, dy) {
		return 0, 0, false
	}

	from, to = 0, 1
	for _, side := range [...]struct{ at, slope float64 }{{x, dx}, {1 - x, -dx}, {y, dy}, {1 - y, -dy}} {
		// Along the line at+t*slope must not be below zero.
		switch {
		case side.slope == 0 && side.at < 0:
			return 0, 0, false
		case side.slope > 0:
			from = max(from, -side.at/side.slope)
		case side.slope < 0:
			to = min(to, -side.at/side.slope)
		}
	}

	return from, to, from <= to
}

// divide divides and rounds to the nearest.
func divide(a, b int) int { return int(math.Round(float64(a) / float64(b))) }

func abs(n int) int { return max(n, -n) }

// braille holds the bit of each dot, by column and row.
var braille = [across][down]uint8{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}

// dot sets one dot of a character.
func (d *drawing) dot(x, y int, l layer) {
	d.put(y/down, x/across, l, braille[x%across][y%down])
}

// put puts something into a cell, over what is of a lower layer.
func (d *drawing) put(row, column int, l layer, dots uint8) {
	if row < 0 || row >= len(d.cells) || column < 0 || column >= d.columns {
		return
	}

	c := &d.cells[row][column]
	switch {
	case l > c.layer:
		*c = cell{l, dots}
	case l == c.layer:
		c.dots |= dots
	}
}

// finite reports whether all of them are numbers.
func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}

	return true
}

// letter returns the character of a cell; a braille character is made of its dots.
func (d *drawing) letter(c cell) rune {
	if d.ASCII {
		return [...]rune{blank: ' ', band: '.', goal: '-', fit: '+', measured: '*', marker: 'o'}[c.layer]
	}

	switch c.layer {
	case fit, measured:
		return rune(0x2800) + rune(c.dots)
	case blank, band, goal, marker:
	}

	return [...]rune{blank: ' ', band: '·', goal: '╌', fit: ' ', measured: ' ', marker: '•'}[c.layer]
}

// row writes one row of the area, neighbours of one colour together.
func (d *drawing) row(row int) string {
	var out, run strings.Builder
	was := blank
	flush := func() {
		out.WriteString(d.paint(colors[was], run.String()))
		run.Reset()
	}

	for _, c := range d.cells[row] {
		if colors[c.layer] != colors[was] {
			flush()
			was = c.layer
		}

		run.WriteRune(d.letter(c))
	}

	flush()

	return out.String()
}

func (d *drawing) paint(c table.Color, text string) string {
	if !d.Color {
		return text
	}

	return c.Paint(text)
}
