package forecast

import (
	"fmt"
	"math"
	"strings"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/history"
	"trainyard/internal/job"
)

// maxSeconds is the most that any forecast says, in seconds: a hundred years.
const maxSeconds = 100 * 365 * 86400.0

// Make forecasts how long a job will still take, when it will finish and what it will cost, and explains what that
// is based on. The result is never nil.
func Make(in *Input) *job.Forecast {
	m := maker{in: in, v: newView(in), f: &job.Forecast{At: in.Now}, here: in.here()}
	m.features = m.v.features(in, m.here)
	if m.v.series != nil {
		m.f.Metric, m.f.Source = m.v.series.Name, m.v.series.Source
	}

	m.speeds = []speeds{measuredSpeeds(in, m.v), declaredSpeeds(in.Speed)}
	m.estimateStart()

	known := m.byWork() || m.bySpeed() || m.byReport() || m.byHistory()
	m.f.Starting = !known && m.starting()

	if expected := m.byExpectation(); !known && !expected {
		m.explainNothing()
	}

	m.complete()
	m.f.Why = strings.Join(m.why, " ")

	return m.f
}

// maker puts a forecast together.
type maker struct {
	in       *Input
	v        *view
	f        *job.Forecast
	here     Stretch // where it runs, ran last, or will probably run
	features history.Features
	speeds   []speeds
	start    job.Band // seconds of set-up and start that are still to come
	outlived int      // earlier runs like it that were all shorter than what it has run
	why      []string
}

// here returns the allocation that a forecast is about: the newest, or the least that
// the job file asks for.
func (in *Input) here() Stretch {
	if n := len(in.Runs); n > 0 {
		return in.Runs[n-1]
	}

	r := &in.Job.Spec.Resources
	s := Stretch{GPUs: r.GPUs.Min * max(r.Nodes.Min, 1), Nodes: max(r.Nodes.Min, 1)}
	if ref := in.Job.Reference; r.UsesGPUs() && ref.GPU != "" {
		s.GPU, s.TFLOPS = ref.GPU, ref.TFLOPS
	} else if len(r.GPU) > 0 {
		s.GPU = r.GPU[0].Model
	}

	return s
}

// estimateStart estimates how long set-up and start still take: from now if the job waits, and the
// rest of them if its run has brought nothing yet.
func (m *maker) estimateStart() {
	usual, known := m.in.Library.start(&m.features, m.in.Job.ID)
	if !known && m.in.Speed != nil {
		s := max(float64(m.in.Speed.Start)/1e9, 0)
		usual = job.Band{Low: s, Mid: s, High: s}
	}

	if n := len(m.in.Runs); n > 0 && m.in.Runs[n-1].Setup > 0 {
		// It was set up before; that tells more than what others took.
		s := m.in.Runs[n-1].Setup
		usual = job.Band{Low: s / 2, Mid: s, High: 2 * s}
	}

	run := m.in.running()
	if run == nil {
		m.start = usual
		return
	}

	if len(pointsDuring(m.v.marks, run)) == 0 && len(m.v.marks) > 0 {
		gone := run.seconds(m.in.Now)
		m.start = job.Band{Low: max(usual.Low-gone, 0), Mid: max(usual.Mid-gone, 0), High: max(usual.High-gone, 0)}
	}
}

// maxStarting is how long a program is taken to be starting that reports nothing: importing its libraries, reading its
// data. A program that has reported nothing for longer perhaps never will.
const maxStarting = 2 * time.Minute

// starting reports whether the program of the present run has just been started and has reported nothing yet.
func (m *maker) starting() bool {
	run := m.in.running()

	return run != nil && len(pointsDuring(m.v.marks, run)) == 0 && m.reported() == 0 &&
		run.seconds(m.in.Now)-run.Setup < maxStarting.Seconds()
}

// byWork asks the methods on the axis of work, and turns work into seconds.
func (m *maker) byWork() bool {
	done, at := m.v.done()

	if len(m.v.marks) == 0 {
		return false
	}

	p, paceWhy := m.pace()
	if p.perUnit <= 0 {
		return false
	}

	c := Case{
		Job:      m.in.Job.ID,
		Curve:    m.v.curve,
		Features: m.features,
		Elapsed:  m.in.elapsed(),
		PerUnit:  p.perUnit,
		Done:     done,
		Reported: m.reported(),
	}

	a := Ask(&c, m.in.Library, m.in.Record)
	m.f.Never = a.Never

	if !a.Known() {
		return false
	}

	m.enterAnswer(&a, p.perUnit)
	m.f.Remaining = calibrate.Widen(calibrate.Scale(a.Left, p.perUnit), p.spread)
	if run := m.in.running(); run != nil && m.start == (job.Band{}) {
		// Since the last point it has advanced, but not beyond the next, which would have been reported.
		m.subtractElapsed(min(max(unix(m.in.Now)-at, 0), p.interval))
	}

	if left := done + a.Left.Mid; left > 0 {
		m.f.Done = min(done/left, 1)
	}

	m.explain(&a, done, p, paceWhy)

	return true
}

// subtractElapsed takes seconds that have passed off what remains, in proportion to the middle.
func (m *maker) subtractElapsed(gone float64) {
	if r := m.f.Remaining; r.Mid > 0 {
		m.f.Remaining = calibrate.Scale(r, max(1-gone/r.Mid, 0.1))
	}
}

// pace returns how long a unit of work takes where the job runs now. Before it has been
// seen there, it is what it was elsewhere by how much faster it should be here.
func (m *maker) pace() (pace, string) {
	last := len(m.v.paces) - 1
	for i := last; i >= 0; i-- {
		p := m.v.paces[i]
		if p.perUnit <= 0 {
			continue
		}

		from := &m.in.Runs[i]
		if i == last || from.GPUs == m.here.GPUs && strings.EqualFold(from.GPU, m.here.GPU) {
			return p, ""
		}

		ratio, why, ok := speedup(m.here.location(), from.location(), m.speeds...)
		if !ok || ratio <= 0 {
			return p, fmt.Sprintf(
				"as measured on %s (speed on %s unknown)",
				gpus(from.GPUs, from.GPU),
				gpus(m.here.GPUs, m.here.GPU),
			)
		}

		p.perUnit /= ratio
		p.spread = math.Hypot(p.spread, 0.2) // what hardware promises is not what programs get

		return p, fmt.Sprintf("scaled from %s, %s", gpus(from.GPUs, from.GPU), why)
	}

	return m.mean()
}

// mean returns the pace over all that the job has done, if it has told too little to see
// how fast it was when.
func (m *maker) mean() (pace, string) {
	done, at := m.v.done()
	worked := runSeconds(m.in, at)
	for i := range m.in.Runs {
		if s := &m.in.Runs[i]; unix(s.From) < at {
			worked -= s.Setup
		}
	}

	if done <= 0 || worked < minFirstInterval {
		return pace{}, ""
	}

	return pace{perUnit: worked / done, interval: worked, points: 1}, "averaged over all its runs"
}

// enterAnswer enters an answer in units of work into the forecast.
func (m *maker) enterAnswer(a *Answer, perUnit float64) {
	m.f.Guess = a.Guess
	m.f.Records = a.Records
	m.f.Covered = a.Covered
	m.f.Checked = a.Checked
	m.f.Basis = basisOf(a)
	for _, s := range a.Estimates {
		say := job.MethodForecast{
			Method:    s.Method,
			Remaining: min(s.Left*perUnit, maxSeconds),
			Weight:    s.Weight,
			Error:     s.Error,
		}

		if math.IsInf(s.Left, 1) {
			say.Remaining = -1
		}

		m.f.Methods = append(m.f.Methods, say)
	}
}

// basisOf returns what an answer is based on: methods with a weight of at least a tenth.
func basisOf(a *Answer) job.Basis {
	var steps, own, past, reported float64
	for _, s := range a.Estimates {
		switch s.Method {
		case calibrate.MethodSteps:
			steps += s.Weight
		case calibrate.MethodCurve:
			own += s.Weight
		case calibrate.MethodReported:
			reported += s.Weight
		default:
			past += s.Weight
		}
	}

	switch {
	case a.Misses || steps >= 0.5:
		return job.BasisSteps
	case reported > own && reported > past:
		return job.BasisReported
	case own >= 0.1 && past >= 0.1:
		return job.BasisBoth
	case past > own:
		return job.BasisHistory
	}

	return job.BasisCurve
}

// wait returns how long it takes until the job computes: the rest of its time in the queue and
// its start. It is zero if that is unknown.
func (m *maker) wait() job.Band {
	in := m.in

	switch {
	case in.Wait != (job.Band{}):
		return calibrate.Add(in.Wait, m.start)
	case in.StartUnknown || len(in.Runs) > 0:
		return job.Band{}
	}

	// Similar jobs were queued for so long in all. One that has been queued for longer than
	// they is not like them, and its start is not due at any moment.
	wait, _ := in.Library.wait(&m.features, in.Job.ID)
	waited := max(in.Now.Sub(in.Job.Submitted).Seconds(), 0)
	if waited > wait.Mid {
		return job.Band{}
	}

	rest := job.Band{Low: max(wait.Low-waited, 0), Mid: wait.Mid - waited, High: wait.High - waited}

	return calibrate.Add(rest, m.start)
}

// complete adds up the whole job: the wait before it runs, what it will have cost, and how
// it would fare elsewhere.
func (m *maker) complete() {
	in, f := m.in, m.f
	known := f.Basis != job.BasisNone

	if in.running() == nil {
		f.Wait = m.wait()
	} else if known {
		f.Remaining = calibrate.Add(f.Remaining, m.start)
	}

	f.Remaining, f.Wait = calibrate.Clamp(f.Remaining, maxSeconds), calibrate.Clamp(f.Wait, maxSeconds)

	if !known {
		return
	}

	if in.Hourly > 0 || in.CostSoFar > 0 {
		paid := f.Remaining
		if in.running() == nil {
			paid = calibrate.Add(paid, m.start)
		}

		cost := func(seconds float64) float64 {
			return float64(in.Rent.cost(in.Hourly, seconds) + in.CostSoFar)
		}

		f.Cost = job.Band{Low: cost(paid.Low), Mid: cost(paid.Mid), High: cost(paid.High)}
		f.Cost = calibrate.Clamp(f.Cost, math.MaxFloat64)
	}

	if f.Basis != job.BasisExpect {
		f.Elsewhere = elsewhere(in, f, m.here.location(), m.restart(), m.speeds...)
	}
}

// restart returns how long it takes to go on elsewhere.
func (m *maker) restart() float64 {
	if m.in.running() == nil {
		return 0 // its start is part of the wait wherever it is
	}
	if m.here.Setup > 0 {
		return m.here.Setup
	}

	usual, _ := m.in.Library.start(&m.features, m.in.Job.ID)

	return usual.Mid
}
