package forecast

import (
	"fmt"
	"time"

	"trainyard/internal/forecast/calibrate"
	"trainyard/internal/forecast/duration"
	"trainyard/internal/forecast/history"
	"trainyard/internal/forecast/repeat"
	"trainyard/internal/job"
)

// What a job reports comes first. The estimates below are for jobs that have not started or report nothing; each is
// used
// if the one before has none.

// bySpeed uses the work and the speed that the job file or the program declares.
func (m *maker) bySpeed() bool {
	speed := m.in.Speed
	if speed == nil || speed.Work <= 0 {
		return false
	}

	perUnit, ok := m.declaredPace()
	if !ok {
		return false
	}

	done := m.in.Progress.Done
	if done <= 0 {
		for i := range m.in.Runs {
			s := &m.in.Runs[i]
			done += max(s.seconds(m.in.Now)-s.Setup, 0) / perUnit
		}
	}

	left := speed.Work - done
	if left <= 0 {
		return false // it takes longer than declared
	}

	m.guess(job.BasisSteps, calibrate.ClassSteps, left*perUnit)
	m.f.Done = done / speed.Work
	m.tell(
		"%s of %s units left; at the declared speed one takes %s on %s.",
		number(left),
		number(speed.Work),
		span(perUnit),
		gpus(m.here.GPUs, m.here.GPU),
	)

	return true
}

// declaredPace returns the seconds that a unit takes where the job is, by the declared speeds.
func (m *maker) declaredPace() (float64, bool) {
	declared := declaredSpeeds(m.in.Speed)
	if same := declared.of(m.here.GPU); len(same) > 0 {
		return secondsPerUnit(same, m.here.GPUs), true
	}

	for _, s := range declared.samples {
		if ratio, _, ok := speedup(m.here.location(), location{gpu: s.gpu, gpus: s.gpus}, declared); ok && ratio > 0 {
			return s.perUnit / ratio, true
		}
	}

	return 0, false
}

// reported returns the seconds that remain now by what the program itself estimated last during its present run; 0
// if it did not, or its time is up.
func (m *maker) reported() float64 {
	run, all := m.in.running(), m.in.Progress.Reports
	if run == nil || len(all) == 0 {
		return 0
	}

	last := &all[len(all)-1]
	if last.At.Before(run.From) {
		return 0
	}

	return max(last.Remaining-m.in.Now.Sub(last.At).Seconds(), 0)
}

// byReport uses the program's own estimate of the remaining time, with what similar jobs took.
func (m *maker) byReport() bool {
	left, elapsed := m.reported(), m.in.elapsed()
	if left <= 0 || elapsed <= 0 {
		return false
	}

	a := Ask(&Case{Job: m.in.Job.ID, Features: m.features, Elapsed: elapsed, PerUnit: 1, Reported: left}, m.in.Library,
		m.in.Record)
	if !a.Known() {
		return false
	}

	m.enterAnswer(&a, 1)
	m.f.Remaining = a.Left
	m.f.Done = elapsed / (elapsed + a.Left.Mid)
	m.tell("The program reports that %s remain.", span(left))
	m.tell("%s", m.basis(&a))

	if a.Guess {
		m.tell("The interval is a guess until %d similar jobs have finished (%d so far).", calibrate.MinJobs, a.Records)
	}

	return true
}

// byHistory uses the durations of earlier jobs: the same job if it has run before, otherwise whichever of the runs
// of its program and the duration model has been less wrong about jobs like it.
func (m *maker) byHistory() bool {
	elapsed := m.in.elapsed()
	c := Case{Job: m.in.Job.ID, Features: m.features, Elapsed: elapsed}

	runs, repeated := m.in.Library.repeated(&c, time.Time{})
	m.outlived = runs.Runs

	d, err := m.in.Library.duration(m.features, duration.Progress{Elapsed: elapsed})
	learned := err == nil && d.Mid > elapsed

	switch {
	case repeated && (!learned || precedes(&runs, &d)):
		m.byRepeats(&runs, elapsed)
	case learned:
		m.byDuration(&d, elapsed)
	default:
		return false
	}

	return true
}

// precedes reports whether earlier runs tell more of a job than the duration model does: the same job or command always
// does, others if they have been less wrong.
func precedes(runs *repeat.Prediction, d *duration.Duration) bool {
	return runs.Level <= repeat.SameCommand || !runs.Guess && runs.Error <= d.Error
}

// byRepeats uses earlier runs of the same job or program.
func (m *maker) byRepeats(runs *repeat.Prediction, elapsed float64) {
	f, s := m.f, runs.Seconds
	f.Basis, f.Guess = job.BasisHistory, runs.Guess
	f.Records, f.Covered, f.Checked = runs.Records, runs.Covered, runs.Checked
	f.Remaining = job.Band{Low: max(s.Low-elapsed, 0), Mid: max(s.Mid-elapsed, 0), High: max(s.High-elapsed, 0)}

	if elapsed > 0 {
		f.Done = elapsed / (elapsed + f.Remaining.Mid)
	}

	f.Methods = append(f.Methods, job.MethodForecast{
		Method: calibrate.MethodRepeat, Remaining: f.Remaining.Mid, Weight: 1, Error: runs.Error,
	})

	m.tell("%s", m.repeatsText(runs))

	if f.Guess {
		m.tell("That is a guess: too few forecasts like it have been checked.")
	}
}

// repeatsText says which earlier runs a forecast is based on.
func (m *maker) repeatsText(runs *repeat.Prediction) string {
	takes := span(runs.Seconds.Mid)
	program := history.ProgramOf(m.features.Command).Name
	if program == "" {
		program = "the same command"
	}

	switch runs.Level {
	case repeat.SameJob:
		return fmt.Sprintf("The same job has run before: %s, which makes %s (median).", count(runs.Runs, "run"), takes)
	case repeat.SameCommand:
		return fmt.Sprintf("The same command has run before: %s, which makes %s (median).", count(runs.Runs, "run"), takes)
	case repeat.SameProgram, repeat.SameScript:
		return fmt.Sprintf("%s of %s with other arguments or files suggest %s.", count(runs.Runs, "earlier run"), program,
			takes)
	case repeat.SameName:
	}

	return fmt.Sprintf("%s with the same name took %s (median).", jobs(runs.Runs), takes)
}

// byDuration uses the duration model.
func (m *maker) byDuration(d *duration.Duration, elapsed float64) {
	f := m.f
	f.Basis, f.Records = job.BasisHistory, m.in.Library.model.Records
	f.Remaining = job.Band{Low: max(d.Low-elapsed, 0), Mid: d.Mid - elapsed, High: d.High - elapsed}
	if elapsed > 0 {
		a := askModel(&Case{Job: m.in.Job.ID, Features: m.features, Elapsed: elapsed}, m.in.Library, m.in.Record)
		if a.Known() && !a.Guess {
			f.Remaining = a.Left
			f.Records = a.Records
			f.Covered = a.Covered
			f.Checked = a.Checked
		}
	}

	f.Done = elapsed / (elapsed + f.Remaining.Mid)
	f.Methods = append(
		f.Methods,
		job.MethodForecast{
			Method:    calibrate.MethodDuration,
			Remaining: d.Mid - elapsed,
			Weight:    1,
			Error:     m.in.Record.Calibration().MedianError(calibrate.MethodIndex(calibrate.MethodDuration)),
		},
	)

	m.tell("Similar jobs take %s in all, as learned from %d finished jobs.", span(d.Mid), m.in.Library.model.Records)
}

// byExpectation adds the researcher's own estimate. It decides only if there is no other estimate: then it returns
// true.
func (m *maker) byExpectation() bool {
	expect, left := m.expectation()
	if expect <= 0 {
		return false
	}

	say := job.MethodForecast{Method: calibrate.MethodExpect, Remaining: max(left, 0), Error: -1}

	decides := m.f.Basis == job.BasisNone && left > 0
	if decides {
		m.guess(job.BasisExpect, calibrate.ClassBefore, left)
		m.f.Done = 1 - left/expect
		say.Weight = 1
		m.tell("Only the researcher's own estimate is known: %s (`expect`)%s.",
			span(time.Duration(m.in.Job.Spec.Expect).Seconds()), m.elsewhereNote(expect))
		m.explainMissing()
	}

	m.f.Methods = append(m.f.Methods, say)

	return decides
}

// expectation returns how long the job takes where it is, in seconds, by what the researcher expects, and what is
// left of that: by the same rule by which policies place it. Stretches on other GPUs count for what was done there.
func (m *maker) expectation() (whole, left float64) {
	spec, need := m.in.Job.Spec, &m.in.Job.Spec.Resources
	asked := 0
	if need.UsesGPUs() {
		asked = max(need.GPUs.Min*max(need.Nodes.Min, 1), 1)
	}

	outlook := job.Outlook{Reference: m.in.Job.Reference}
	takes := func(s *Stretch) float64 {
		on := job.Hardware{GPU: s.GPU, TFLOPS: s.TFLOPS, GPUs: s.GPUs}
		return outlook.RunTime(spec, time.Duration(spec.Expect), asked, on).Seconds()
	}

	whole = takes(&m.here)
	if whole <= 0 {
		return 0, 0
	}

	undone := 1.0
	for i := range m.in.Runs {
		undone -= m.in.Runs[i].seconds(m.in.Now) / takes(&m.in.Runs[i])
	}

	return whole, undone * whole
}

// elsewhereNote says what an expected run time comes to where the job is, if that is not what it asks for.
func (m *maker) elsewhereNote(whole float64) string {
	if whole == time.Duration(m.in.Job.Spec.Expect).Seconds() {
		return ""
	}

	return fmt.Sprintf(", which is %s on %s", span(whole), gpus(m.here.GPUs, m.here.GPU))
}

// explainNothing says that nothing is known, and why.
func (m *maker) explainNothing() {
	if m.f.Starting {
		m.explainMissing()
		return
	}

	if expect := time.Duration(m.in.Job.Spec.Expect).Seconds(); expect > 0 {
		m.tell("Nothing is known yet, and the expected %s have passed.", span(expect))
	} else {
		m.tell("Nothing is known yet.")
	}

	m.explainMissing()
}

// explainMissing says what is missing.
func (m *maker) explainMissing() {
	switch {
	case m.f.Starting:
		m.tell("Its program is starting and has not reported anything yet.")
	case m.v.missingMetric != "":
		m.tell("The target metric %s has not been reported yet.", m.v.missingMetric)
	case m.outlived > 0:
		m.tell("It has run longer than %s like it.", count(m.outlived, "earlier run"))
	case len(m.in.Runs) == 0:
		m.tell("It has not run, and no similar job has finished.")
	case len(m.v.marks) == 0:
		m.tell("Its program has reported no progress, and no similar job has finished.")
	case !m.v.goal.Set && m.v.curve.Total == 0:
		m.tell("Its program does not report how much work it has, it has no target, and no similar job has finished.")
	default:
		m.tell("It has reported too little so far.")
	}
}

// guess enters a time with the wide interval of a class.
func (m *maker) guess(basis job.Basis, class calibrate.Class, seconds float64) {
	m.f.Basis = basis
	m.f.Guess = true
	m.f.Remaining = calibrate.PriorBounds(class).Apply(seconds)
}

func (m *maker) tell(format string, args ...any) {
	m.why = append(m.why, fmt.Sprintf(format, args...))
}

// count writes a number of things: "1 run", "12 runs".
func count(n int, thing string) string { return fmt.Sprintf("%d %s", n, plural(n, thing)) }

func jobs(n int) string {
	if n == 1 {
		return "One job"
	}

	return fmt.Sprintf("%d jobs", n)
}
