package forecast

import (
	"fmt"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/job"
)

// explain says in sentences what an answer goes by: what is left, how fast it goes, whom
// it was compared with, and how far the interval can be trusted.
func (m *maker) explain(a *Answer, done float64, p pace, paceWhy string) {
	target := m.in.Job.Spec.Target
	total := m.v.curve.Total
	switch {
	case a.Met && total > 0:
		m.tell("The target of %s is reached; the program goes on: %s of %s %s are done.", targetOf(target), number(done), number(total), m.v.unit())
	case a.Met:
		m.tell("The target of %s is reached; how long jobs like it go on is what remains.", targetOf(target))
	case a.Misses:
		m.tell("It will probably not come to %s before the program ends by itself; %s of %s %s are done.", targetOf(target), number(done), number(total), m.v.unit())
	case m.f.Basis == job.BasisSteps:
		m.tell("%s of %s %s are done.", number(done), number(total), m.v.unit())
	case m.v.goal.Set:
		m.tell("It should come to %s after about %s %s; %s are done.", targetOf(target), number(done+a.Left.Mid), m.v.unit(), number(done))
	default:
		m.tell("It should end after about %s %s; %s are done.", number(done+a.Left.Mid), m.v.unit(), number(done))
	}
	m.tell("%s", m.basis(a))
	step := "Each takes " + span(p.perUnit)
	if m.here.GPUs > 0 {
		step += " on " + gpus(m.here.GPUs, m.here.GPU)
	}
	if paceWhy != "" {
		step += ", " + paceWhy
	}
	m.tell("%s.", step)
	if m.v.unheard != "" {
		m.tell("%s, the metric of its target, was not heard yet.", m.v.unheard)
	}
	switch {
	case a.Guess:
		m.tell("The interval is a guess until %d jobs like it have ended; %s.", calibrate.MinJobs, sofar(a.Records))
	}
}

// sofar says how many jobs have ended.
func sofar(n int) string {
	switch n {
	case 0:
		return "none has so far"
	case 1:
		return "one has so far"
	}
	return fmt.Sprintf("%d have so far", n)
}

// basis names what the answer was taken from.
func (m *maker) basis(a *Answer) string {
	switch m.f.Basis {
	case job.BasisSteps:
		return "That is what the program says."
	case job.BasisCurve:
		text := fmt.Sprintf("That is by its own curve of %s (%d %s)", m.f.Metric, len(m.v.curve.X), plural(len(m.v.curve.X), "point"))
		if len(a.Similar) > 0 {
			return text + "; finished jobs have told little about jobs like it so far."
		}
		return text + " alone: no job like it has ended."
	case job.BasisHistory, job.BasisBoth:
		text := "That is by what finished jobs of its kind took"
		if n := len(a.Similar); n > 0 {
			text = fmt.Sprintf("That is by the curves of %d finished %s like it%s", n, plural(n, "job"), names(a.Similar))
		}
		if m.f.Basis == job.BasisBoth {
			text += fmt.Sprintf(" and its own curve of %s", m.f.Metric)
		}
		return text + "."
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
