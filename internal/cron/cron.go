// Package cron reads how often something recurs, and says when it does next.
//
// A recurrence is an interval (6h) or the five fields of a crontab: minute, hour, day of the month, month and day
// of the week. The parser of job files reads one, the yardmaster asks it when the next jobs of a schedule are due.
// It reads no clock, and knows nothing of jobs.
package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Recurrence is how often something recurs. The zero value never does.
type Recurrence struct {
	every                             time.Duration // 0 for fields
	minute, hour, day, month, weekday uint64        // bits of the values that are allowed
	anyDay, anyWeekday                bool          // written as *, or with a step
}

// MinInterval is the shortest interval.
const MinInterval = time.Minute

// Every returns the recurrence at an interval.
func Every(interval time.Duration) Recurrence { return Recurrence{every: interval} }

// field is one of the five.
type field struct {
	name  string
	least int
	most  int
	words []string // that stand for the values from least on
}

var fields = []field{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// shorthands are what stands for five fields.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
}

// Parse reads the five fields of a crontab, or @hourly, @daily, @weekly or @monthly. The error says what is wrong with
// which field.
func Parse(text string) (Recurrence, error) {
	if long, ok := shorthands[text]; ok {
		text = long
	}

	words := strings.Fields(text)
	if len(words) != len(fields) {
		return Recurrence{}, fmt.Errorf("needs five fields (minute, hour, day of the month, month, day of the week), has %d",
			len(words))
	}

	var sets [5]uint64
	for i, word := range words {
		set, err := fields[i].parse(strings.ToLower(word))
		if err != nil {
			return Recurrence{}, err
		}

		sets[i] = set
	}

	r := Recurrence{
		minute: sets[0], hour: sets[1], day: sets[2], month: sets[3], weekday: sets[4] | sets[4]>>7&1, // 7 is Sunday too
		anyDay: strings.HasPrefix(words[2], "*"), anyWeekday: strings.HasPrefix(words[4], "*"),
	}

	if r.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Recurrence{}, fmt.Errorf("no year has this day, such as 30 February")
	}

	return r, nil
}

// parse reads a list of values and ranges with steps: "1,5-10/2,*/15".
func (f *field) parse(word string) (uint64, error) {
	var set uint64

	for part := range strings.SplitSeq(word, ",") {
		span, stepText, stepped := strings.Cut(part, "/")

		step := 1
		if stepped {
			n, err := strconv.Atoi(stepText)
			if err != nil || n < 1 || n > f.most {
				return 0, fmt.Errorf("the step of the %s must be an integer between 1 and %d, got %q", f.name, f.most, stepText)
			}

			step = n
		}

		from, to, err := f.span(span, stepped)
		if err != nil {
			return 0, err
		}

		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}

	return set, nil
}

// span reads a value, a range, or * for all. A single value with a step begins a range to the greatest.
func (f *field) span(text string, stepped bool) (from, to int, err error) {
	if text == "*" {
		return f.least, f.most, nil
	}

	first, last, ranged := strings.Cut(text, "-")
	from, err = f.value(first)
	if err != nil {
		return 0, 0, err
	}

	switch {
	case ranged:
		to, err = f.value(last)
	case stepped:
		to = f.most
	default:
		to = from
	}

	if err == nil && to < from {
		err = fmt.Errorf("the range of the %s must go up, got %q", f.name, text)
	}

	return from, to, err
}

func (f *field) value(text string) (int, error) {
	for i, word := range f.words {
		if text == word {
			return f.least + i, nil
		}
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < f.least || n > f.most {
		return 0, fmt.Errorf("the %s must be between %d and %d, got %q", f.name, f.least, f.most, text)
	}

	return n, nil
}

// horizon bounds how far Next looks: every day of the calendar comes within it, the 29th of February too.
const horizon = 9

// Next returns the first time after t at which it recurs, in UTC; zero if it never does. Intervals count from t.
func (r Recurrence) Next(t time.Time) time.Time {
	if r.every > 0 {
		return t.Add(r.every)
	}

	t = t.UTC().Truncate(time.Minute).Add(time.Minute)
	end := t.AddDate(horizon, 0, 0)

	for t.Before(end) {
		switch {
		case r.month&(1<<int(t.Month())) == 0:
			t = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		case !r.onDay(t):
			t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC)
		case r.hour&(1<<t.Hour()) == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case r.minute>>t.Minute() == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		default:
			return t.Add(time.Duration(bits.TrailingZeros64(r.minute>>t.Minute())) * time.Minute)
		}
	}

	return time.Time{}
}

// onDay reports whether it recurs on the day of t. As in every crontab, a day of the month and a day of the week that
// are both given are alternatives.
func (r Recurrence) onDay(t time.Time) bool {
	day, weekday := r.day&(1<<t.Day()) != 0, r.weekday&(1<<int(t.Weekday())) != 0
	if r.anyDay || r.anyWeekday {
		return day && weekday
	}

	return day || weekday
}
