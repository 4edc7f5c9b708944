package forecasts

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// likelyNever is the probability from which on a target is reported as out of reach.
const likelyNever = 0.5

// starting is said of a job whose program has reported nothing yet.
const starting = "starting"

// anyMoment is how long a job takes whose time is up.
const anyMoment = "any moment"

// stalled is said instead of the remaining time of a job whose program reports nothing any more.
const stalled = "stalled"

// noted reports whether a notice applies to a job that runs.
func noted(j *api.Job, code string) bool {
	return runs(j.State) && j.Forecast != nil && slices.Contains(j.Forecast.Notices, code)
}

// Left writes in a few characters how long a job still takes: "2h 10m", with a "~" if that is a
// guess; "takes 3h" for one that has not started. It is red, with a word, if the job will miss its
// deadline, yellow with a word if it will run longer than expected, and yellow if it may miss its deadline.
func Left(j *api.Job, now time.Time) table.Cell {
	text := brief(j, now)
	if text == "" {
		return table.Cell{}
	}

	if text == starting {
		return table.Cell{Text: text}
	}

	late, perhaps := lateness(j)
	over, _ := excess(j, j.Expect, now)

	switch {
	case never(j.Forecast) || text == stalled:
		return table.Cell{Text: text, Color: table.Red}
	case noted(j, job.NoticeNotNumber):
		return table.Cell{Text: text + ", NaN", Color: table.Red}
	case late > 0:
		return table.Cell{Text: text + ", late", Color: table.Red}
	case over > 0:
		return table.Cell{Text: text + ", over expect", Color: table.Yellow}
	case perhaps > 0 || j.Forecast.Never >= likelyNever:
		return table.Cell{Text: text, Color: table.Yellow}
	}

	return table.Cell{Text: text}
}

// Line writes the same for a line of text: "2h 10m left", "" if nothing is known.
func Line(j *api.Job, now time.Time) string {
	text := brief(j, now)
	switch {
	case text == anyMoment:
		return "done " + text
	case text == "" || text == starting || text == stalled || never(j.Forecast) || !runs(j.State):
		return text
	}

	return text + " left"
}

func brief(j *api.Job, now time.Time) string {
	f := j.Forecast
	if f == nil || j.State.Final() || j.State == job.Cancelling {
		return ""
	}
	if f.Starting && runs(j.State) {
		return starting
	}
	if f.Basis == job.BasisNone {
		return ""
	}

	mark := ""
	if f.Guess {
		mark = "~"
	}

	seconds := left(j, now).Mid
	rest := mark + length(seconds)
	switch {
	case noted(j, job.NoticeStalled):
		return stalled
	case never(f):
		return "never?"
	case runs(j.State) && seconds < 1:
		return anyMoment
	case runs(j.State):
		return rest
	case j.Started == nil:
		return "takes " + rest
	}

	return rest + " more"
}

// runs reports whether time counts down for a job.
func runs(s job.State) bool { return s == job.Starting || s == job.Running }

// paused reports whether a job waits until someone resumes it.
func paused(s job.State) bool { return s == job.Pausing || s == job.Paused }

// never reports whether a job is expected to go on without end: it does not reach its
// target, and its program does not say when it ends by itself.
func never(f *api.Forecast) bool { return f.Never >= likelyNever && f.Basis != job.BasisSteps }

// left returns what remains of a job now, in seconds: of one that runs some has passed
// since the forecast was made.
func left(j *api.Job, now time.Time) job.Band {
	f := j.Forecast
	b := f.Remaining
	if runs(j.State) {
		gone := max(now.Sub(f.At).Seconds(), 0)
		b = job.Band{Low: b.Low + f.Wait.Low - gone, Mid: b.Mid + f.Wait.Mid - gone, High: b.High + f.Wait.High - gone}
	}

	return job.Band{Low: max(b.Low, 0), Mid: max(b.Mid, 0), High: max(b.High, 0)}
}

// maxPassed is the most that the passing of time alone makes of the part that is done.
const maxPassed = 0.99

// asOf returns a forecast as it is at a time, so that all figures of a screen are of one moment: of a job that
// runs, some of what remained has passed.
func asOf(j *api.Job, now time.Time) *api.Forecast {
	f := *j.Forecast
	before := f.Remaining.Mid
	f.Remaining = left(j, now)
	f.Methods = slices.Clone(f.Methods)

	gone := 0.0
	if runs(j.State) {
		gone = max(now.Sub(f.At).Seconds(), 0)
		f.Wait = job.Band{}
	}

	for i := range f.Methods {
		if m := &f.Methods[i]; m.Remaining >= 0 {
			m.Remaining = max(m.Remaining-gone, 0)
		}
	}

	if before > 0 && f.Done > 0 {
		passed := 1 - (1-f.Done)*min(f.Remaining.Mid/before, 1)
		f.Done = min(passed, max(f.Done, maxPassed)) // it may take longer than estimated
	}

	return &f
}

// tolerance is by how much an estimate may miss without a word: estimates move by that much all the time.
const tolerance = time.Minute

// lateness returns how much later than its deadline a job will be done, and how much later it may be; 0 if that is
// within the tolerance or the job has no deadline.
func lateness(j *api.Job) (expected, perhaps time.Duration) {
	if j.Deadline == nil {
		return 0, 0
	}

	return beyond(j.Forecast.End.Sub(*j.Deadline), tolerance), beyond(j.Forecast.EndHigh.Sub(*j.Deadline), tolerance)
}

// excess returns how much longer than expected a job will run, and how much longer it may; 0 if that is within the
// tolerance or nothing is expected. The time in the queue does not count.
func excess(j *api.Job, expect job.Duration, now time.Time) (expected, perhaps time.Duration) {
	if expect <= 0 {
		return 0, 0
	}

	within := max(tolerance, time.Duration(expect)/20)
	rest := left(j, now)
	over := func(seconds float64) time.Duration {
		return beyond(ran(j, now)+job.Seconds(seconds)-time.Duration(expect), within)
	}

	return over(rest.Mid), over(rest.High)
}

// ran returns how long a job has run so far.
func ran(j *api.Job, now time.Time) time.Duration {
	if j.Ran == 0 && j.State == job.Running { // a server of an older release does not say
		return max(now.Sub(j.Since), 0)
	}

	return time.Duration(j.Ran)
}

// beyond returns a difference that is worth a word, 0 if it is not.
func beyond(by, within time.Duration) time.Duration {
	if by <= within {
		return 0
	}

	return by
}

// length writes seconds: "2h 10m".
func length(seconds float64) string {
	const year = 365 * 86400
	if seconds >= 2*year {
		return "over 2 years"
	}

	return humanize.Duration(job.Seconds(seconds))
}

// interval writes the ends of a band in parentheses after a label, nothing if they are the same.
func interval(b job.Band, label string, write func(float64) string) string {
	if b.Low == b.High {
		return ""
	}

	return " (" + label + write(b.Low) + " to " + write(b.High) + ")"
}

// moment writes when something will be, by the clock of this machine: "today 14:10 CET".
func (f *Forecasts) moment(at, now time.Time) string {
	return f.day(at, now) + at.Format("15:04 ") + at.Format("MST")
}

// day writes the day of a time, with a blank behind.
func (f *Forecasts) day(at, now time.Time) string {
	date := func(t time.Time) time.Time {
		y, m, d := t.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}

	const hours = 24 * time.Hour
	switch days := date(at).Sub(date(now)) / hours; {
	case days == 0:
		return "today "
	case days == 1:
		return "tomorrow "
	case at.Year() != now.Year():
		return at.Format("Mon 2 Jan 2006 ")
	}

	return at.Format("Mon 2 Jan ")
}

// ends writes when a job will be done, and the interval of that.
func (f *Forecasts) ends(made *api.Forecast, now time.Time) string {
	now = f.Here(now)
	end := f.Here(made.End)
	low := f.Here(made.EndLow)
	high := f.Here(made.EndHigh)

	text := f.moment(end, now)
	if low.Equal(high) {
		return text
	}

	early, late := f.day(low, now)+low.Format("15:04"), f.day(high, now)+high.Format("15:04")
	if f.day(low, now) == f.day(end, now) && f.day(high, now) == f.day(end, now) {
		early, late = low.Format("15:04"), high.Format("15:04")
	}

	return fmt.Sprintf("%s (%s to %s)", text, early, late)
}
