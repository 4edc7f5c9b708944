package report

import (
	"fmt"
	"html"
	"math"
	"strings"

	"trainyard/internal/sim"
)

// size is how large a plot is drawn. Each is drawn twice: text that is shrunk with
// its plot to the width of a telephone cannot be read.
type size struct {
	class         string
	width, height float64
}

func sizes() []size { return []size{{"wide", 1100, 300}, {"narrow", 343, 250}} }

// curve is one line of a plot.
type curve struct {
	name   string
	color  int // number of a colour of the style
	points []sim.Point
}

// axis turns values into places.
type axis struct {
	from, to float64
	low      float64 // place of from
	high     float64 // place of to
	log      bool
}

func (a axis) at(v float64) float64 {
	from, to := a.from, a.to
	if a.log {
		from, to, v = math.Log(from), math.Log(to), math.Log(math.Max(v, a.from))
	}

	if to <= from {
		return a.low
	}

	return a.low + (v-from)/(to-from)*(a.high-a.low)
}

// Margins of a plot, for the labels.
const (
	marginLeft, marginRight, marginTop, marginBottom = 46.0, 10.0, 10.0, 28.0
)

// lines draws curves over time or over a logarithm of time; y is a share.
func lines(title string, curves []curve, logarithmic bool) string {
	var out strings.Builder

	for _, z := range sizes() {
		x, y := bounds(curves, z, logarithmic)
		fmt.Fprintf(
			&out,
			`<svg class="plot %s" viewBox="0 0 %g %g" role="img" aria-label="%s">`,
			z.class,
			z.width,
			z.height,
			html.EscapeString(title),
		)

		grid(&out, z, x, y)
		for _, c := range curves {
			fmt.Fprintf(
				&out,
				`<path class="curve c%d" d="%s"><title>%s</title></path>`,
				c.color,
				path(c.points, x, y, logarithmic),
				html.EscapeString(c.name),
			)
		}

		out.WriteString("</svg>\n")
	}

	return out.String()
}

// bounds returns the axes that hold all curves.
func bounds(curves []curve, z size, logarithmic bool) (x, y axis) {
	least, most := math.Inf(1), 0.0
	for _, c := range curves {
		for _, p := range c.points {
			if p.X > 0 {
				least = math.Min(least, p.X)
			}

			most = math.Max(most, p.X)
		}
	}

	x = axis{from: 0, to: most, low: marginLeft, high: z.width - marginRight}
	if logarithmic {
		x.from, x.log = least, true
		if most <= least {
			x.from, x.to = least/2, least*2
		}
	}

	y = axis{from: 0, to: 1, low: z.height - marginBottom, high: marginTop}

	return x, y
}

// grid draws the axes with their labels.
func grid(out *strings.Builder, z size, x, y axis) {
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		at := y.at(v)
		fmt.Fprintf(out, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x.low, at, x.high, at)
		fmt.Fprintf(out, `<text class="tick" x="%.1f" y="%.1f" text-anchor="end">%.0f %%</text>`, x.low-6, at+4, 100*v)
	}

	times(out, z, x, y.low)
}

// times draws the labels of an axis of time.
func times(out *strings.Builder, z size, x axis, bottom float64) {
	const room = 58.0 // that a label takes
	ticks := linearTicks(x, int((z.width-marginLeft)/room))
	if x.log {
		ticks = logTicks(x)
	}

	last := math.Inf(-1)

	for _, v := range ticks {
		at := x.at(v)
		if at-last < room*0.8 {
			continue
		}

		last = at

		anchor := "middle"
		switch {
		case at > x.high-room/3:
			anchor = "end"
		case at < room/3:
			anchor = "start"
		}

		fmt.Fprintf(out, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, at, bottom, at, bottom+5)

		fmt.Fprintf(
			out,
			`<text class="tick" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`,
			at,
			bottom+19,
			anchor,
			axisTime(v),
		)
	}
}

// steps are lengths of time that people count in, in seconds.
func steps() []float64 {
	return []float64{
		1,
		2,
		5,
		10,
		20,
		30,
		60,
		120,
		300,
		600,
		1200,
		1800,
		3600,
		7200,
		3 * 3600,
		6 * 3600,
		12 * 3600,
		86400,
		2 * 86400,
		5 * 86400,
		10 * 86400,
		20 * 86400,
		50 * 86400,
		100 * 86400,
		200 * 86400,
		500 * 86400,
		1000 * 86400,
	}
}

// linearTicks returns times for an axis, at most so many.
func linearTicks(x axis, most int) []float64 {
	all := steps()
	step := all[len(all)-1]
	for _, s := range all {
		if (x.to-x.from)/s <= float64(max(most, 2)) {
			step = s
			break
		}
	}

	var ticks []float64
	for v := math.Ceil(x.from/step) * step; v <= x.to*(1+1e-9); v += step {
		ticks = append(ticks, v)
	}

	return ticks
}

// logTicks returns times for a logarithmic axis.
func logTicks(x axis) []float64 {
	var ticks []float64
	for _, s := range append([]float64{0.001, 0.01, 0.1}, steps()...) {
		if s >= x.from*0.999 && s <= x.to*1.001 {
			ticks = append(ticks, s)
		}
	}

	if len(ticks) < 2 {
		ticks = []float64{x.from, x.to}
	}

	return ticks
}

// path draws a curve as steps: between two points it stays at the first. One that
// stays at its last value for ever is drawn to the end of the axis.
func path(points []sim.Point, x, y axis, ever bool) string {
	var out strings.Builder
	for i, p := range points {
		px, py := x.at(p.X), y.at(math.Min(p.Y, 1))
		if i == 0 {
			fmt.Fprintf(&out, "M%.1f %.1f", px, py)
			continue
		}

		fmt.Fprintf(&out, "H%.1fV%.1f", px, py)
	}

	if ever && len(points) > 0 {
		fmt.Fprintf(&out, "H%.1f", x.high)
	}

	return out.String()
}

// part is a stretch of a bar.
type part struct {
	name  string
	class string
	value float64
}

// bar is one bar of a plot of amounts.
type bar struct {
	name  string
	parts []part
}

// bars draws amounts of money as bars that lie one below the other.
func bars(title string, all []bar) string {
	most := 0.0
	for _, b := range all {
		most = math.Max(most, b.total())
	}

	var out strings.Builder

	for _, z := range sizes() {
		const row, thick = 46.0, 18.0
		height := row*float64(len(all)) + 4
		x := axis{from: 0, to: most, low: 2, high: z.width - 90}

		fmt.Fprintf(
			&out,
			`<svg class="plot %s" viewBox="0 0 %g %g" role="img" aria-label="%s">`,
			z.class,
			z.width,
			height,
			html.EscapeString(title),
		)

		for i, b := range all {
			top := row * float64(i)
			fmt.Fprintf(&out, `<text class="name" x="2" y="%.1f">%s</text>`, top+14, html.EscapeString(b.name))
			at := x.low

			sum := 0.0
			for _, p := range b.parts {
				sum += p.value
				to := x.at(sum)
				if to > at {
					fmt.Fprintf(&out, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s: $%s</title></rect>`,
						p.class, at, top+20, to-at, thick, html.EscapeString(p.name), amount(p.value))
				}

				at = to
			}

			fmt.Fprintf(&out, `<text class="tick" x="%.1f" y="%.1f">$%s</text>`, at+8, top+20+thick-4, amount(b.total()))
		}

		out.WriteString("</svg>\n")
	}

	return out.String()
}

func (b bar) total() float64 {
	sum := 0.0
	for _, p := range b.parts {
		sum += p.value
	}

	return sum
}
