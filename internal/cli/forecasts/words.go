package forecasts

import (
	"fmt"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// likelyNever is the probability from which on a target is reported as out of reach.
const likelyNever = 0.5

// anyMoment is how long a job takes whose time is up.
const anyMoment = "any moment"

// Left writes in a few characters how long a job still takes: "2h 10m", with a "~" if that is a
// guess; "takes 3h" for one that has not started. It is red, with a word, if the job will
// be late, yellow if it may be.
func Left(j *api.Job, now time.Time) table.Cell {
	text := brief(j, now)
	if text == "" {
		return table.Cell{}
	}

	f := j.Forecast
	switch late, perhaps := lateness(f, due(j, j.Expect, now)); {
	case never(f):
		return table.Cell{Text: text, Color: table.Red}
	case late > 0:
		return table.Cell{Text: text + " late", Color: table.Red}
	case perhaps > 0 || f.Never >= likelyNever:
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
	case text == "" || never(j.Forecast) || !runs(j.State):
		return text
	}

	return text + " left"
}

func brief(j *api.Job, now time.Time) string {
	f := j.Forecast
	if f == nil || f.Basis == job.BasisNone || j.State.Final() || j.State == job.Cancelling {
		return ""
	}

	mark := ""
	if f.Guess {
		mark = "~"
	}

	seconds := left(j, now).Mid
	rest := mark + length(seconds)
	switch {
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

// due returns when a job ought to be done: by its deadline, or when it has run as long as its owner expects,
// whichever is earlier; zero if there is neither. The time in the queue does not count against the latter.
func due(j *api.Job, expect job.Duration, now time.Time) time.Time {
	var at time.Time
	if j.Deadline != nil {
		at = *j.Deadline
	}

	if expect <= 0 {
		return at
	}

	ran := time.Duration(j.Ran)
	if ran == 0 && j.State == job.Running { // a server of an older release does not say
		ran = max(now.Sub(j.Since), 0)
	}

	whole := ran + job.Seconds(left(j, now).Mid)
	if ending := j.Forecast.End.Add(time.Duration(expect) - whole); at.IsZero() || ending.Before(at) {
		at = ending
	}

	return at
}

// lateness returns how much later than due a job will be done, and how much later it may be.
func lateness(f *api.Forecast, due time.Time) (expected, perhaps time.Duration) {
	if due.IsZero() {
		return 0, 0
	}

	return max(f.End.Sub(due), 0), max(f.EndHigh.Sub(due), 0)
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
