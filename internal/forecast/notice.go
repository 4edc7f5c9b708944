package forecast

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/metric"
	"trainyard/internal/quantile"
)

// The codes of notices. Each has a second one for when it holds no longer.
const (
	Slipped   = "forecast_slipped"   // it will end later than expected, or than its deadline
	OnTime    = "forecast_on_time"   // no longer
	Misses    = "target_unlikely"    // it will not reach its target
	Reachable = "target_likely"      // it may, after all
	NotNumber = job.NoticeNotNumber  // a loss is NaN or infinite
	Number    = "metric_number"      // it is a number again
	Stalled   = job.NoticeStalled    // nothing was reported for long
	Moving    = "progress_continues" // something was
)

// Notice is a change of a forecast that is worth an event.
type Notice struct {
	Code string
	Text string // a sentence with the figures
}

// Watch is what the forecast of a job is compared with.
type Watch struct {
	Now       time.Time
	Submitted time.Time
	Expect    time.Duration // of run time; 0 if nothing is expected
	Ran       time.Duration // so far, all runs together
	Deadline  time.Time     // zero if there is none
	Save      time.Duration // that a checkpoint takes, during which nothing is reported; 0 if not declared
	Running   time.Time     // since when the program works; zero if it does not
	Series    []metric.Series
}

const (
	// A forecast has slipped when the job finishes late by this fraction of its time, and is on time again when it
	// finishes early by as much: hysteresis, so that notices do not alternate.
	lateTolerance = 0.05
	// Probabilities of missing the target above which a notice is sent, and below which it is withdrawn.
	missedProbability, likelyProbability = 0.8, 0.5
	// A program has stalled when it reported nothing for this many of its usual intervals, and for minSilence.
	silentIntervals = 10
	minSilence      = 60.0 // seconds
)

// Compare returns the notices about a new forecast, given the one before it, which may be nil. Each is sent once, and
// withdrawn once when it no longer applies: the active ones are kept in the new forecast's Said, which Compare sets.
func Compare(before, now *job.Forecast, w Watch) []Notice {
	now.Notices, now.Remarks = nil, nil
	if before != nil {
		now.Notices, now.Remarks = slices.Clone(before.Notices), maps.Clone(before.Remarks)
	}

	n := notices{f: now}
	n.checkLateness(&w)
	n.checkTarget()
	n.checkFinite(&w)
	n.checkProgress(&w)

	return n.all
}

// notices gathers them.
type notices struct {
	f   *job.Forecast
	all []Notice
}

// toggle sends or withdraws a notice, unless that was done before.
func (n *notices) toggle(on bool, code string, format string, args ...any) {
	key := code
	if !on {
		key = beginning[code]
		delete(n.f.Remarks, key)
	}

	stands := slices.Contains(n.f.Notices, key)
	if on == stands {
		return
	}

	if on {
		n.f.Notices = append(n.f.Notices, key)
	} else {
		n.f.Notices = slices.DeleteFunc(n.f.Notices, func(s string) bool { return s == key })
	}

	n.all = append(n.all, Notice{Code: code, Text: fmt.Sprintf(format, args...)})
}

// remark sets what the owner of a job should know as long as a notice applies. It names times and not durations,
// so that it stays the same meanwhile.
func (n *notices) remark(code, format string, args ...any) {
	if n.f.Remarks == nil {
		n.f.Remarks = map[string]string{}
	}

	n.f.Remarks[code] = fmt.Sprintf(format, args...)
}

// beginning is, for the end of something, the code of its beginning.
var beginning = map[string]string{OnTime: Slipped, Reachable: Misses, Number: NotNumber, Moving: Stalled}

// checkLateness tells whether the job will be late.
func (n *notices) checkLateness(w *Watch) {
	limit, what := w.Deadline, "its deadline"
	margin := lateTolerance * limit.Sub(w.Submitted).Seconds()

	// It may run as long as expected. The time in the queue does not make it late: that is what deadlines are for.
	ending := n.f.End().Add(w.Expect - w.Ran - job.Seconds(n.f.Remaining.Mid))
	if w.Expect > 0 && (limit.IsZero() || ending.Before(limit)) {
		limit, what = ending, fmt.Sprintf("the expected %s of run time", span(w.Expect.Seconds()))
		margin = lateTolerance * w.Expect.Seconds()
	}

	if limit.IsZero() || n.f.Basis == job.BasisNone || n.f.Basis == job.BasisExpect {
		return
	}

	late := n.f.End().Sub(limit).Seconds()

	early, latest := n.f.Ends()
	switch {
	case late > margin:
		n.toggle(
			true,
			Slipped,
			"Expected to finish %s later than %s: in %s (80 %% prediction interval: %s to %s).",
			span(late),
			what,
			span(until(w.Now, n.f.End())),
			span(until(w.Now, early)),
			span(until(w.Now, latest)),
		)
	case late < -margin:
		n.toggle(false, OnTime, "Expected to finish within %s again: in %s, %s early.",
			what, span(until(w.Now, n.f.End())), span(-late))
	}
}

func until(now, then time.Time) float64 { return max(then.Sub(now).Seconds(), 0) }

// checkTarget tells whether the target will be reached.
func (n *notices) checkTarget() {
	switch percent := math.Floor(100 * n.f.Never); {
	case n.f.Never >= missedProbability:
		n.toggle(
			true,
			Misses,
			"It will probably not reach its target: the probability that %s gets there too late or never is %.0f %%.",
			n.metric(),
			percent,
		)
	case n.f.Never < likelyProbability:
		n.toggle(
			false,
			Reachable,
			"It may reach its target after all: the probability that %s does not is down to %.0f %%.",
			n.metric(),
			percent,
		)
	}
}

func (n *notices) metric() string {
	if n.f.Metric == "" {
		return "its metric"
	}

	return n.f.Metric
}

// checkFinite reports whether the metric of the forecast, or any loss, is NaN or infinite.
func (n *notices) checkFinite(w *Watch) {
	for i := range w.Series {
		s := &w.Series[i]
		if s.NonFinite == 0 || s.Name != n.f.Metric && lossLike(s.Name) == 0 {
			continue
		}

		last := ""
		if p, ok := s.Last(); ok {
			last = fmt.Sprintf("; last finite value %s at step %s", number(p.Value), number(p.Step))
		}

		n.toggle(true, NotNumber, "%s is NaN or infinite (%d %s)%s.", s.Name, s.NonFinite, plural(s.NonFinite, "value"), last)
		n.remark(NotNumber, "%s is NaN or infinite%s", s.Name, last)

		return
	}

	n.toggle(false, Number, "Its losses are finite again.")
}

// checkProgress reports whether the program still makes progress. One that never reported anything is not expected
// to, and
// one that reports NaN does report.
func (n *notices) checkProgress(w *Watch) {
	reported, usual := 0.0, 0.0

	for i := range w.Series {
		s := &w.Series[i]
		if s.NonFinite > 0 {
			return
		}

		p, ok := s.Last()
		if !ok {
			continue
		}

		reported = max(reported, p.At)

		if every := interval(s); usual == 0 || every < usual {
			usual = every
		}
	}

	if reported == 0 || w.Running.IsZero() {
		n.toggle(false, Moving, "It is not running, so no progress is expected.")
		return
	}

	quiet := unix(w.Now) - max(reported, unix(w.Running))
	if bound := max(minSilence, silentIntervals*usual, w.Save.Seconds()); quiet > bound {
		n.toggle(true, Stalled, "No progress for %s: the program usually reports every %s.", span(quiet), span(usual))
		n.remark(Stalled, "no progress since %s", humanize.Time(w.Now.Add(-job.Seconds(quiet)), w.Now.UTC()))
		return
	}

	n.toggle(false, Moving, "It makes progress again.")
}

// interval returns the median seconds between points of a series as reported: that of the points kept, corrected for
// downsampling.
func interval(s *metric.Series) float64 {
	if len(s.Points) < 2 {
		return 0
	}

	var gaps []float64
	for i := 1; i < len(s.Points); i++ {
		gaps = append(gaps, max(s.Points[i].At-s.Points[i-1].At, 0))
	}

	thinned := float64(len(s.Points)) / float64(max(s.Count, len(s.Points)))

	return quantile.Median(gaps) * thinned
}
