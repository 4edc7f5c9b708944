package table

import (
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Ago writes how long ago a time was: "2 hours ago", "in 5 minutes", "now".
func Ago(at, now time.Time) string { return humanize.Ago(at, now) }

// Amount writes a number of any size in four digits or less: "1.235M", "130M", "0.5".
func Amount(f float64) string {
	letter := ""
	for _, u := range []struct {
		letter string
		size   float64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"K", 1e3}} {
		if math.Abs(f) >= u.size {
			letter, f = u.letter, f/u.size
			break
		}
	}

	if math.Abs(f) >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64) + letter
	}

	return strconv.FormatFloat(f, 'g', 4, 64) + letter
}

// Dollars writes money with cents.
func Dollars(f float64) string { return humanize.Dollars(f) }

// Percent writes a share of one.
func Percent(rate float64) string { return humanize.Percent(rate) }

// Count writes a number of things: "1 job", "2 jobs".
func Count(n int, thing string) string { return humanize.Count(n, thing) }

// Duration writes a length of time in its two largest units: "2h47m", "12s".
func Duration(d time.Duration) string { return humanize.Duration(max(d, 0)) }

// fakeLabel marks GPUs that are declared and do not exist.
const fakeLabel = " (fake)"

// Model writes a GPU's whole name, labelled once if the GPU is fake.
func Model(name string, fake bool) string {
	name = strings.TrimSuffix(name, fakeLabel)
	if fake {
		name += fakeLabel
	}

	return name
}

// GPUs writes GPUs of one kind: "8× A100 80GB". Fake ones are labelled.
func GPUs(n int, model string, memory job.Bytes, fake bool) string {
	text := humanize.GPUs(n, Model(model, false), memory)
	if fake {
		text += fakeLabel
	}

	return text
}

// ShortModel writes a GPU's name as people say it: A100 for "NVIDIA A100-SXM4-80GB".
func ShortModel(model string) string { return humanize.Model(model) }
