package metrics

import (
	"math"

	"trainyard/internal/agent/metrics/reading"
	"trainyard/internal/metric"
)

// trust is how much a source is believed, compared with others.
type trust int

// The sources by trust, the least first.
const (
	byState   trust = iota + 1 // trainer_state.json: right, but late
	byGuess                    // what is printed
	byPrinted                  // JSON lines on the output
	byStatus                   // Hugging Face's status messages: steps are only near
	byLogged                   // what Hugging Face's Trainer prints: each value, with its step
	byMLruns                   // MLflow's files
	byWandb                    // W&B's files
	byJSON                     // files of JSON lines
	byTable                    // CSV
	byEvents                   // TensorBoard
	bySent                     // sent to us, or to us as to MLflow
	byRule                     // the user said where it is
	bySDK                      // the program told us
)

// origin is a source as it is shown, and what sets it apart from others of its kind.
type origin struct {
	trust trust
	label string // "TensorBoard (runs/exp1)"
	short string // to tell apart two that say the same: "exp1"
}

// series is a metric and what of it is not sent yet.
type series struct {
	metric.Series
	origin      *origin
	count       float64 // how many values there were, for programs that count nothing
	unsent      []metric.Point
	lastInvalid *metric.Point // the newest that was no number, while none came after it
}

// progress is how far the program says it is.
type progress struct {
	trust       trust
	done, total reading.Number
	unsent      bool

	remaining       reading.Number // as the program estimates
	remainingUnsent bool
}

// note is something that happened in the program.
type note struct {
	reading.Note
	step float64
	at   float64
}

// slack is by how much the clocks of a program and of the agent may differ before a time is not believed.
const slack = 60

// maxStep is the highest step that is believed.
const maxStep = 1e15

// take takes what a source says; at is when, if it does not say that itself.
func (g *Gatherer) take(from *origin, r reading.Reading, at float64) {
	if r.At > 0 && r.At > g.started-slack && r.At < g.now+slack {
		at = r.At
	}

	if r.Step.Known && !(math.Abs(r.Step.Value) <= maxStep) {
		r.Step = reading.Number{}
	}

	for _, v := range r.Values {
		g.add(from, v, r.Step, at)
	}

	g.advance(from, r)

	if r.Note.Kind != "" && len(g.notes) < maxNotes {
		g.notes = append(g.notes, note{r.Note, r.Step.Value, at})
	}
}

// add takes one value.
func (g *Gatherer) add(from *origin, v reading.Value, step reading.Number, at float64) {
	s := g.choose(from, v)
	if s == nil {
		return
	}

	s.count++
	if !step.Known {
		step.Value = s.count
	}

	p := metric.Point{Step: step.Value, At: at, Value: v.Value}
	switch s.Add(g.run.Epoch, p) {
	case metric.Added, metric.Replaced, metric.Rewound:
		s.lastInvalid = nil
		s.queue(p)
	case metric.NonFinite:
		s.lastInvalid = &p
	case metric.Duplicate, metric.Stale:
	}
}

// queue puts a point among those to be sent. More than can wait are thinned out, as the server would do.
func (s *series) queue(p metric.Point) {
	if n := len(s.unsent); n > 0 && s.unsent[n-1].Step == p.Step {
		s.unsent[n-1] = p
		return
	}

	s.unsent = append(s.unsent, p)
	if len(s.unsent) >= 2*maxUnsent {
		sortPoints(s.unsent)
		s.unsent = metric.Downsample(s.unsent, maxUnsent)
	}
}

// choose returns the series that a value belongs to, nil if another source tells it or there are too many. A source
// that
// is trusted more takes a series over with its first number: that something is no number is heeded, but makes no curve.
func (g *Gatherer) choose(from *origin, v reading.Value) *series {
	name := v.Name
	if name == "" || len(name) > metric.MaxName {
		return nil
	}

	s := g.series[name]
	switch {
	case s == nil:
		return g.begin(from, name)
	case s.origin == from || s.Source == from.label:
		return s
	case s.origin.trust < from.trust && (math.IsNaN(v.Value) || math.IsInf(v.Value, 0)):
		return s
	case s.origin.trust > from.trust:
		return nil
	case s.origin.trust < from.trust:
		s.SetSource(g.run.Epoch, from.label)
		s.origin = from
		s.count = 0
		s.unsent = nil
		s.lastInvalid = nil

		return s
	}

	// Two of the same kind, such as the logs of two models: the second has its own names.
	if from.short == "" || len(from.short)+1+len(name) > metric.MaxName {
		return nil
	}

	name = from.short + "/" + name
	if s := g.series[name]; s != nil {
		if s.Source == from.label {
			return s
		}

		return nil
	}

	return g.begin(from, name)
}

// begin makes a new series.
func (g *Gatherer) begin(from *origin, name string) *series {
	if len(g.series) >= metric.MaxSeries {
		g.dropped++
		return nil
	}

	s := &series{Series: metric.Series{Name: name}, origin: from}
	s.SetSource(g.run.Epoch, from.label)
	g.series[name] = s
	g.order = append(g.order, name)

	return s
}

// advance takes how far the program says it is. A source that is trusted more is not contradicted.
func (g *Gatherer) advance(from *origin, r reading.Reading) {
	p := &g.progress
	if from.trust >= p.trust && r.Remaining.Known && plausible(r.Remaining) {
		p.remaining, p.remainingUnsent = r.Remaining, true
	}

	if !r.Done.Known && !r.Total.Known || from.trust < p.trust {
		return
	}

	// To count is not to know how far to go: who knows that is not silenced by who does not.
	if from.trust > p.trust && p.total.Value > 0 && !(r.Total.Value > 0) {
		return
	}

	before := *p

	p.trust = from.trust
	if plausible(r.Done) {
		p.done = r.Done
	}

	if plausible(r.Total) {
		p.total = r.Total
	}

	p.unsent = before.unsent || before.done != p.done || before.total != p.total
}

// plausible reports whether a count was told and can be one.
func plausible(n reading.Number) bool { return n.Known && n.Value >= 0 && n.Value <= maxStep }
