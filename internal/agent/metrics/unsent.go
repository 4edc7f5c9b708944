package metrics

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"trainyard/internal/api"
	"trainyard/internal/metric"
)

// batch is what Unsent returned last, to be removed once the server has accepted it.
type batch struct {
	points   map[string]int
	bad      map[string]metric.Point
	notes    int
	progress bool

	remaining bool
}

// Unsent returns what has not been sent to the server, at most limit points, and whether there is anything. It
// stays unsent until MarkSent is called.
func (g *Gatherer) Unsent(limit int) (api.RunMetrics, bool) {
	out := api.RunMetrics{Run: g.run.Run, UID: g.run.UID}
	g.inFlight = batch{points: map[string]int{}, bad: map[string]metric.Point{}}
	for _, name := range g.order {
		s := g.series[name]
		n := min(len(s.unsent), limit)

		sp := api.SeriesPoints{Name: name, Source: clip(s.Source, 200)}
		for _, p := range s.unsent[:n] {
			sp.Points = append(sp.Points, api.WirePoint(p))
		}

		g.inFlight.points[name] = n

		limit -= n
		if s.lastInvalid != nil && limit > 0 {
			limit--
			sp.Points = append(sp.Points, api.WirePoint(*s.lastInvalid))
			sp.NonFinite = s.NonFinite
			g.inFlight.bad[name] = *s.lastInvalid
		}

		if len(sp.Points) > 0 {
			out.Series = append(out.Series, sp)
		}
	}

	if p := &g.progress; p.unsent {
		g.inFlight.progress = true

		if p.done.Known {
			out.Done = &p.done.Value
		}

		if p.total.Known {
			out.Total = &p.total.Value
		}
	}

	if p := &g.progress; p.remainingUnsent {
		g.inFlight.remaining = true
		out.Remaining = &p.remaining.Value
	}

	for _, n := range g.notes[:min(len(g.notes), api.MaxMetricNotes)] {
		out.Notes = append(out.Notes, api.MetricNote{Kind: n.Kind, Step: n.step, At: n.at, Text: clip(n.Text, 500)})
	}

	g.inFlight.notes = len(out.Notes)

	return out, len(out.Series) > 0 || g.inFlight.progress || g.inFlight.remaining || len(out.Notes) > 0
}

// MarkSent says that the server has accepted the last batch.
func (g *Gatherer) MarkSent() {
	for name, n := range g.inFlight.points {
		s := g.series[name]
		s.unsent = slices.Delete(s.unsent, 0, n)
		if bad, ok := g.inFlight.bad[name]; ok && s.lastInvalid != nil && s.lastInvalid.At == bad.At &&
			s.lastInvalid.Step == bad.Step {
			s.lastInvalid = nil
		}
	}

	if g.inFlight.progress {
		g.progress.unsent = false
	}

	if g.inFlight.remaining {
		g.progress.remainingUnsent = false
	}

	g.notes = slices.Delete(g.notes, 0, g.inFlight.notes)
	g.inFlight = batch{}
}

// ResendAll marks everything as unsent: the server has restarted and may have lost some of it.
func (g *Gatherer) ResendAll() {
	for _, s := range g.series {
		s.unsent = slices.Clone(s.Points)
	}

	g.progress.unsent = g.progress.done.Known || g.progress.total.Known
}

// sortPoints puts points in order of steps.
func sortPoints(points []metric.Point) {
	slices.SortStableFunc(points, func(a, b metric.Point) int { return cmp.Compare(a.Step, b.Step) })
}

// clip makes a text fit.
func clip(text string, limit int) string {
	if len(text) <= limit && utf8.ValidString(text) {
		return text
	}

	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
