package forecast

import (
	"fmt"
	"strings"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/job"
)

// explain says in sentences what a forecast is based on: what is left, how fast the job is, what it was compared
// with, and whether the interval is a guess.
func (m *maker) explain(a *Answer, done float64, p pace, paceWhy string) {
	target := m.in.Job.Spec.Target
	total := m.v.curve.Total
	unit := m.v.unit()
	end := number(done + a.Left.Mid)

	ofTotal := fmt.Sprintf("%s of %s %s done", number(done), number(total), unit)
	switch {
	case a.Met && total > 0:
		m.tell("Target %s reached; the program continues: %s.", targetOf(target), ofTotal)
	case a.Met:
		m.tell("Target %s reached; the remaining time is how long similar jobs continue after that.", targetOf(target))
	case a.Misses:
		m.tell("It will probably not reach %s before the program ends; %s.", targetOf(target), ofTotal)
	case m.f.Basis == job.BasisSteps:
		m.tell("%s.", ofTotal)
	case m.v.goal.Set:
		m.tell("Expected to reach %s after about %s %s (%s done).", targetOf(target), end, unit, number(done))
	default:
		m.tell("Expected to end after about %s %s (%s done).", end, unit, number(done))
	}

	m.tell("%s", m.basis(a))

	speed := fmt.Sprintf("One %s takes %s", strings.TrimSuffix(unit, "s"), span(p.perUnit))
	if m.here.GPUs > 0 {
		speed += " on " + gpus(m.here.GPUs, m.here.GPU)
	}

	if paceWhy != "" {
		speed += ", " + paceWhy
	}

	m.tell("%s.", speed)

	if m.v.missingMetric != "" {
		m.tell("The target metric %s has not been reported yet.", m.v.missingMetric)
	}

	if a.Guess {
		m.tell("The interval is a guess until %d similar jobs have finished (%d so far).", calibrate.MinJobs, a.Records)
	}
}

// basis names what the answer is based on.
func (m *maker) basis(a *Answer) string {
	ownCurve := fmt.Sprintf("its own %s curve", m.f.Metric)

	switch m.f.Basis {
	case job.BasisSteps:
		return "Based on the amount of work that the program declares."
	case job.BasisCurve:
		points := len(m.v.curve.X)
		text := fmt.Sprintf("Based only on %s (%d %s); ", ownCurve, points, plural(points, "point"))
		if len(a.Similar) > 0 {
			return text + "similar jobs have been poor predictors so far."
		}

		return text + "no similar job has finished yet."
	case job.BasisHistory, job.BasisBoth:
		text := "Based on the durations of similar jobs"
		if n := len(a.Similar); n > 0 {
			text = fmt.Sprintf("Based on the %s of %d similar %s%s", plural(n, "curve"), n, plural(n, "job"), names(a.Similar))
		}

		if m.f.Basis == job.BasisBoth {
			text += " and " + ownCurve
		}

		return text + "."
	case job.BasisReported:
		return "Based on the remaining time that the program itself reports."
	case job.BasisNone, job.BasisExpect: // they have sentences of their own
	}

	return ""
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}

	return word + "s"
}
