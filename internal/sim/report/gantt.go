package report

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"trainyard/internal/humanize"
	"trainyard/internal/sim"
)

// maxSpans is the most that a Gantt chart can show and be read.
const maxSpans = 400

// track is what one node had, over time.
type track struct {
	node  string
	lanes int // GPUs that were in use at once, at most
	boxes []box
}

// box is a stretch of one node's time on adjoining lanes.
type box struct {
	span     sim.Span
	lane, of int // first lane, number of lanes
}

// tracks lays out spans: each run gets as many lanes of its node as it has GPUs.
func tracks(spans []sim.Span) []track {
	byNode := map[string][]sim.Span{}
	var nodes []string
	for _, s := range spans {
		if byNode[s.Node] == nil {
			nodes = append(nodes, s.Node)
		}

		byNode[s.Node] = append(byNode[s.Node], s)
	}

	slices.SortFunc(nodes, naturally)

	var all []track
	for _, n := range nodes {
		all = append(all, layOut(n, byNode[n]))
	}

	return all
}

// layOut gives the spans of one node the lowest lanes that are free.
func layOut(node string, spans []sim.Span) track {
	slices.SortStableFunc(spans, func(a, b sim.Span) int { return cmp.Compare(a.From, b.From) })
	t := track{node: node}

	var free []float64 // from when on each lane is free
	for _, s := range spans {
		want := max(s.GPUs, 1)
		from := -1
		for lane := 0; want > 0; lane++ {
			if lane == len(free) {
				free = append(free, 0)
			}

			usable := free[lane] <= s.From+1e-9
			if usable {
				free[lane] = s.To
				want--

				if from < 0 {
					from = lane
				}
			}

			if from >= 0 && (!usable || want == 0) {
				end := lane
				if usable {
					end++
				}

				t.boxes = append(t.boxes, box{s, from, end - from})
				from = -1
			}
		}
	}

	t.lanes = max(len(free), 1)

	return t
}

// naturally orders names so that n2 comes before n10.
func naturally(a, b string) int {
	if c := cmp.Compare(strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")); c != 0 {
		return c
	}

	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// jobColors is how many colours the style has for jobs.
const jobColors = 10

// gantt draws who had which node when.
func gantt(title string, spans []sim.Span) string {
	all := tracks(slices.Clone(spans))
	colors := map[string]int{}

	end := 0.0
	for _, s := range spans {
		end = max(end, s.To)
	}

	byStart := slices.Clone(spans)
	slices.SortStableFunc(byStart, func(a, b sim.Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range byStart {
		if _, known := colors[s.Job]; !known {
			colors[s.Job] = len(colors) % jobColors
		}
	}

	lane := 15.0
	if lanes := total(all); lanes > 48 {
		lane = max(720/float64(lanes), 3)
	}

	var out strings.Builder

	for _, z := range sizes() {
		height := marginBottom
		for _, t := range all {
			height += high(t, lane)
		}

		x := axis{from: 0, to: end, low: 2, high: z.width - marginRight}

		fmt.Fprintf(
			&out,
			`<svg class="plot %s" viewBox="0 0 %g %.1f" role="img" aria-label="%s">`,
			z.class,
			z.width,
			height,
			html.EscapeString(title),
		)

		top := 0.0
		for _, t := range all {
			fmt.Fprintf(&out, `<text class="name" x="2" y="%.1f">%s</text>`, top+14, html.EscapeString(t.node))
			fmt.Fprintf(
				&out,
				`<rect class="track" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`,
				x.low,
				top+19,
				x.high-x.low,
				lane*float64(t.lanes),
			)

			for _, b := range t.boxes {
				drawBox(&out, b, x, top+19, lane, colors[b.span.Job])
			}

			top += high(t, lane)
		}

		times(&out, z, x, top)
		out.WriteString("</svg>\n")
	}

	return out.String()
}

// total is the number of lanes of all tracks.
func total(all []track) int {
	n := 0
	for _, t := range all {
		n += t.lanes
	}

	return n
}

// high is how high a track is, with its name.
func high(t track, lane float64) float64 { return 19 + lane*float64(t.lanes) + 9 }

func drawBox(out *strings.Builder, b box, x axis, top, lane float64, color int) {
	left, right := x.at(b.span.From), x.at(b.span.To)
	y, height := top+lane*float64(b.lane), lane*float64(b.of)
	fmt.Fprintf(
		out,
		`<rect class="box j%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f">`+
			`<title>%s on %s, %s, %s to %s</title></rect>`,
		color,
		left,
		y+0.5,
		max(right-left-0.5, 0.5),
		height-1,
		html.EscapeString(b.span.Job),
		html.EscapeString(b.span.Node),
		humanize.Count(b.span.GPUs, "GPU"),
		axisTime(b.span.From),
		axisTime(b.span.To),
	)

	const letter = 7.0
	if height >= 14 && right-left > letter*float64(len(b.span.Job))+8 {
		fmt.Fprintf(
			out,
			`<text class="label" x="%.1f" y="%.1f">%s</text>`,
			left+5,
			y+height/2+4,
			html.EscapeString(b.span.Job),
		)
	}
}
