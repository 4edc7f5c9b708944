// Package humanize is the one way to write figures for people: counts, GPUs,
// money, sizes, durations, times, percentages and lists. Reasons, events, errors
// and the command line write with it, so that one thing looks the same
// wherever a researcher meets it.
//
// What it writes is for reading. What is read back (job files, the API, the
// store) is written by the String methods of job.Bytes, job.Duration and
// job.Money, which lose nothing. The package knows no noun of the yard and must not:
// it stands below them, so its functions take plain numbers and strings.
package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"trainyard/internal/money"
)

// Count writes a number of things: "1 GPU", "3 GPUs", "12,000 jobs".
func Count(n int, thing string) string {
	return Integer(int64(n)) + " " + Plural(n, thing)
}

// Plural writes the name of a thing as its number needs it: "GPU" for 1, "GPUs" for
// any other number. A thing of several words takes the plural in its last
// ("more nodes"), and -y after a consonant, -s, -x, -ch and -sh are spelled as English does.
func Plural(n int, thing string) string {
	if n == 1 || thing == "" {
		return thing
	}

	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		before, _ := utf8.DecodeLastRuneInString(stem)
		if stem != "" && !strings.ContainsRune("aeiou", before) {
			return stem + "ies"
		}
	}

	for _, ending := range []string{"s", "x", "ch", "sh"} {
		if strings.HasSuffix(thing, ending) {
			return thing + "es"
		}
	}

	return thing + "s"
}

// Integer writes a whole number with separators between thousands: "12,345".
func Integer(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign = "-"
		digits = digits[1:]
	}

	return sign + separate(digits)
}

// separate puts a comma between thousands of a string of digits.
func separate(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}

	return digits
}

// Dollars writes money with two decimals and separators between thousands: "$0.81",
// "$1,234.50", "-$3.00". An amount that two decimals would show as nothing is
// "<$0.01", so that a small cost does not read as no cost.
func Dollars[T float64 | money.Amount](a T) string {
	amount := float64(a)

	switch {
	case math.IsNaN(amount):
		return "$?"
	case math.IsInf(amount, 0):
		return "unlimited"
	case amount > 0 && amount < 0.005:
		return "<$0.01"
	}

	text := strconv.FormatFloat(math.Abs(amount), 'f', 2, 64)
	whole, cents, _ := strings.Cut(text, ".")
	text = "$" + separate(whole) + "." + cents

	if amount < 0 && text != "$0.00" {
		text = "-" + text
	}

	return text
}

// Rate writes the price of an hour: "$1.25/h". Prices below ten cents keep two digits
// that matter ("$0.0042/h"): half a cent an hour is a real difference between offers.
func Rate[T float64 | money.PerHour](price T) string {
	dollarsPerHour := float64(price)

	decimals := 2
	for p := math.Abs(dollarsPerHour); p > 0 && p < 0.0995 && decimals < 6; p *= 10 {
		decimals++
	}

	if decimals == 2 {
		return Dollars(dollarsPerHour) + "/h"
	}

	text := strconv.FormatFloat(math.Abs(dollarsPerHour), 'f', decimals, 64)
	for len(text) > len("0.00") && strings.HasSuffix(text, "0") {
		text = strings.TrimSuffix(text, "0")
	}

	sign := ""
	if dollarsPerHour < 0 {
		sign = "-"
	}

	return sign + "$" + text + "/h"
}

// Percent writes a share of one as a whole percentage: 0.8 is "80%". A share that
// rounds to none or to all and is neither is "<1%" or ">99%".
func Percent(share float64) string {
	switch {
	case share > 0 && share < 0.005:
		return "<1%"
	case share < 1 && share >= 0.995:
		return ">99%"
	}

	return strconv.FormatFloat(100*share, 'f', 0, 64) + "%"
}

// Size writes an amount of memory or data: "24 GB", "15.6 GB", "512 MB". As
// everywhere in our field GB means GiB: a card sold as 80GB has 80 GiB.
func Size[T ~int64](bytes T) string {
	number, unit := sizeParts(int64(bytes))

	return number + " " + unit
}

func sizeParts(bytes int64) (number, unit string) {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	amount := float64(bytes)

	step := 0

	// 1023.96 would be rounded to 1024.0 and belongs to the next unit.
	for math.Abs(amount) >= 1023.95 && step < len(units)-1 {
		amount /= 1024
		step++
	}

	decimals := 1
	if step == 0 {
		decimals = 0
	}

	number = strconv.FormatFloat(amount, 'f', decimals, 64)

	return strings.TrimSuffix(number, ".0"), units[step]
}

// List joins parts as a sentence does: "a", "a and b", "a, b and c".
func List(parts ...string) string { return join("and", parts) }

// Or joins alternatives as a sentence does: "a", "a or b", "a, b or c".
func Or(parts ...string) string { return join("or", parts) }

func join(word string, parts []string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0]
	}

	last := len(parts) - 1

	return strings.Join(parts[:last], ", ") + " " + word + " " + parts[last]
}

// ListUpTo joins at most so many parts and counts the others: "a, b and 3 more".
func ListUpTo(limit int, parts ...string) string {
	if len(parts) <= limit {
		return List(parts...)
	}

	more := Integer(int64(len(parts)-limit)) + " more"
	shown := append([]string(nil), parts[:limit]...)

	return List(append(shown, more)...)
}

// Time writes a time of day with its zone, "14:05 UTC", and with the date if it is on
// another day than now: "Mar 2 14:05 UTC", with the year if that differs too. The zone is now's, so that
// the caller decides once whether people read UTC or their own zone.
func Time(at, now time.Time) string {
	at = at.In(now.Location())

	switch {
	case at.Year() != now.Year():
		return at.Format("Jan 2 2006 15:04 MST")
	case at.YearDay() != now.YearDay():
		return at.Format("Jan 2 15:04 MST")
	}

	return at.Format("15:04 MST")
}

// Date writes a day, with the year if it is another one than now's: "Mar 2", "Mar 2 2027".
func Date(at, now time.Time) string {
	at = at.In(now.Location())
	if at.Year() != now.Year() {
		return at.Format("Jan 2 2006")
	}

	return at.Format("Jan 2")
}

// Ago writes how long before now a time was, in one unit and rounded: "2 hours ago", "in 5 minutes", "now". A
// time that is not known is "".
func Ago(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}

	past := now.Sub(at)
	switch {
	case past.Abs() < time.Second:
		return "now"
	case past < 0:
		return "in " + oneUnit(-past)
	}

	return oneUnit(past) + " ago"
}

func oneUnit(d time.Duration) string {
	for _, unit := range []struct {
		name          string
		size, smaller time.Duration
	}{
		{"day", 24 * time.Hour, time.Hour},
		{"hour", time.Hour, time.Minute},
		{"minute", time.Minute, time.Second},
	} {
		// What the smaller unit would round up to one of this is written in this: 59 minutes and 40 seconds are "1 hour".
		if d.Round(unit.smaller) >= unit.size {
			return Count(int(d.Round(unit.size)/unit.size), unit.name)
		}
	}

	return Count(int(d.Round(time.Second)/time.Second), "second")
}

// Duration writes a length of time in its two largest units: "1h30m", "2d4h", "12s",
// rounded to the smaller of them. Less than ten seconds are written with a decimal, if it has one: "1.5s".
func Duration[T ~int64](length T) string {
	d := time.Duration(length)
	if d < 0 {
		return "-" + Duration(-max(d, -math.MaxInt64))
	}

	if d < 10*time.Second {
		seconds := strconv.FormatFloat(d.Seconds(), 'f', 1, 64)

		return strings.TrimSuffix(seconds, ".0") + "s"
	}

	const day = 24 * time.Hour
	switch {
	case d.Round(time.Second) < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d.Round(time.Minute) < day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	}

	return twoUnits(d, day, "d", time.Hour, "h")
}

// Seconds writes a length of time that is known in seconds, as Duration does.
func Seconds(seconds float64) string {
	switch limit := float64(math.MaxInt64) / float64(time.Second); {
	case math.IsNaN(seconds):
		return "unknown"
	case seconds >= limit:
		return "forever"
	case seconds <= -limit:
		return "-forever"
	}

	return Duration(time.Duration(seconds * float64(time.Second)))
}

func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	whole := d.Round(small)
	text := ""

	if n := whole / large; n > 0 {
		text = fmt.Sprintf("%d%s", n, largeName)
	}

	if n := whole % large / small; n > 0 || text == "" {
		text += fmt.Sprintf("%d%s", n, smallName)
	}

	return text
}
