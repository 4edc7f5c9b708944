package metrics

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"trainyard/internal/api"
	"trainyard/internal/metric"
)

// sent is what was handed out to be sent, so that it can be struck off when it was taken.
type sent struct {
	points map[string]int
	bad    map[string]metric.Point
	notes  int
	moved  bool
}

// News returns what the server has not been told, at most as many points as given, and whether there is anything.
// It stays news until Sent is called.
func (g *Gatherer) News(most int) (api.RunMetrics, bool) {
	out := api.RunMetrics{Run: g.run.Run}
	g.sentOut = sent{points: map[string]int{}, bad: map[string]metric.Point{}}
	for _, name := range g.order {
		s := g.series[name]
		n := min(len(s.fresh), most)
		sp := api.SeriesPoints{Name: name, Source: clip(s.Source, 200)}
		for _, p := range s.fresh[:n] {
			sp.Points = append(sp.Points, api.WirePoint(p))
		}
		g.sentOut.points[name] = n
		if most -= n; s.bad != nil && most > 0 {
			most--
			sp.Points = append(sp.Points, api.WirePoint(*s.bad))
			g.sentOut.bad[name] = *s.bad
		}
		if len(sp.Points) > 0 {
			out.Series = append(out.Series, sp)
		}
	}
	if p := &g.progress; p.fresh {
		g.sentOut.moved = true
		if p.done.Known {
			out.Done = &p.done.Value
		}
		if p.total.Known {
			out.Total = &p.total.Value
		}
	}
	for _, n := range g.notes[:min(len(g.notes), api.MaxMetricNotes)] {
		out.Notes = append(out.Notes, api.MetricNote{Kind: n.Kind, Step: n.step, At: n.at, Text: clip(n.Text, 500)})
	}
	g.sentOut.notes = len(out.Notes)
	return out, len(out.Series) > 0 || g.sentOut.moved || len(out.Notes) > 0
}

// Sent says that the server has taken the last news.
func (g *Gatherer) Sent() {
	for name, n := range g.sentOut.points {
		s := g.series[name]
		s.fresh = slices.Delete(s.fresh, 0, n)
		if bad, ok := g.sentOut.bad[name]; ok && s.bad != nil && s.bad.At == bad.At {
			s.bad = nil
		}
	}
	if g.sentOut.moved {
		g.progress.fresh = false
	}
	g.notes = slices.Delete(g.notes, 0, g.sentOut.notes)
	g.sentOut = sent{}
}

// Again makes all that is known news: the server has started anew and may have lost some of it.
func (g *Gatherer) Again() {
	for _, s := range g.series {
		s.fresh = slices.Clone(s.Points)
	}
	g.progress.fresh = g.progress.done.Known || g.progress.total.Known
}

// sortPoints puts points in order of steps.
func sortPoints(points []metric.Point) {
	slices.SortStableFunc(points, func(a, b metric.Point) int { return cmp.Compare(a.Step, b.Step) })
}

// clip makes a text fit.
func clip(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
