package main

import (
	"math"

	"trainyard/internal/forecast"
	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/curve"
)

// What the table is made of.
const (
	minPoints = 3   // points that a forecast needs to count
	horizon   = 30  // an end later than so many times the present is a failure
	failure   = 2.0 // and counts as this error
)

// prediction is what one method said of a curve at one moment.
type prediction struct {
	source, kind string
	replayPoint  int // of calibrate.ReplayPoints
	method       string
	err          float64 // of the end, relative to the true one
	failed       bool
	interval     bool // it gave one
	guess        bool // too few finished jobs back it
	covered      bool
	width        float64 // upper over lower bound of what is left
}

// methodNames are the methods in the order of the table.
func methodNames() []string {
	out := []string{"blend", "history"}
	all := curve.Methods()
	for i := len(all) - 1; i >= 0; i-- {
		out = append(out, all[i].Name)
	}

	return out
}

// score foretells every curve at every part of its way.
func score(parts []*fold) []prediction {
	type task struct {
		f *fold
		s *sample
	}

	var tasks []task
	for _, f := range parts {
		for _, s := range f.test {
			tasks = append(tasks, task{f, s})
		}
	}

	each := make([][]prediction, len(tasks))
	parallel(len(tasks), func(i int) { each[i] = tasks[i].f.predict(tasks[i].s) })

	var out []prediction
	for _, r := range each {
		out = append(out, r...)
	}

	return out
}

// predict asks all methods about one curve.
func (f *fold) predict(s *sample) []prediction {
	var out []prediction
	library := f.seen(s)

	for part, share := range calibrate.ReplayPoints {
		c, ok := s.until(share)
		if !ok {
			continue
		}

		now := c.X[len(c.X)-1]
		say := func(method string, end float64) *prediction {
			r := prediction{
				source:      s.source,
				kind:        s.Features.Task,
				replayPoint: part,
				method:      method,
				err:         math.Abs(end-s.End) / s.End,
			}

			if !(end <= horizon*now) {
				r.err, r.failed = failure, true
			}

			out = append(out, r)

			return &out[len(out)-1]
		}

		for _, m := range curve.Methods() {
			end := math.Inf(1)
			if len(c.X) >= m.Points {
				end = m.Estimate(&c).End
			}

			r := say(m.Name, end)
			if m.Name == "nohistory" {
				a := forecast.Ask(&forecast.Case{Job: s.Job, Curve: c, Features: s.Features}, nil, f.recordWithoutHistory)
				r.setInterval(&a, s.End-now)
			}
		}

		a := forecast.Ask(&forecast.Case{Job: s.Job, Curve: c, Features: s.Features}, library, f.record)

		history, blend := math.Inf(1), math.Inf(1)
		for _, said := range a.Estimates {
			if said.Method == calibrate.MethodMatch {
				history = now + said.Left
			}
		}

		if a.Known() {
			blend = now + a.Left.Mid
		}

		say("history", history)
		say("blend", blend).setInterval(&a, s.End-now)
	}

	return out
}

// until returns a curve as it was when a share of its work was done, and false if that
// were too few points.
func (s *sample) until(share float64) (curve.Curve, bool) {
	n := 0
	for n < len(s.Curve.X) && s.Curve.X[n] <= share*s.End {
		n++
	}

	return curve.Curve{X: s.Curve.X[:n], Y: s.Curve.Y[:n], Goal: s.Curve.Goal}, n >= minPoints
}

// setInterval notes whether an interval held.
func (r *prediction) setInterval(a *forecast.Answer, left float64) {
	if !a.Known() {
		return
	}

	r.interval, r.guess = true, a.Guess
	r.covered = a.Left.Low <= left && left <= a.Left.High
	r.width = a.Left.High / a.Left.Low
}
