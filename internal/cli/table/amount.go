package table

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/job"
)

// Ago writes how long ago a time was: "2 hrs ago", "in 5 mins", "now".
func Ago(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	d := now.Sub(at)
	if d.Abs() < time.Second {
		return "now"
	}
	if d < 0 {
		return "in " + coarse(-d)
	}
	return coarse(d) + " ago"
}

// coarse writes a length of time in its largest unit.
func coarse(d time.Duration) string {
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hr", time.Hour}, {"min", time.Minute}} {
		if n := d / u.size; n >= 1 {
			return Count(int(n), u.name)
		}
	}
	return Count(int(d/time.Second), "sec")
}

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

// Dollars writes money with cents, and less than a cent with more digits.
func Dollars(f float64) string {
	digits, sign := 2, ""
	if f < 0 {
		sign, f = "-", -f
	}
	if f != 0 && f < 0.01 {
		digits = 4
	}
	return sign + "$" + strconv.FormatFloat(f, 'f', digits, 64)
}

// Percent writes a share of one.
func Percent(rate float64) string { return strconv.FormatFloat(100*rate, 'f', 0, 64) + "%" }

// Count writes a number of things: "1 job", "2 jobs".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// Duration writes a length of time in its two largest units: "2h 47m", "12s".
func Duration(d time.Duration) string {
	d = max(d, 0)
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		n := d / u.size
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%d%s", n, u.name)
		if i+1 < len(units) {
			if rest := (d - n*u.size) / units[i+1].size; rest > 0 {
				text += fmt.Sprintf(" %d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

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

// GPUs writes GPUs of one kind: "8x A100:80GB". Fake ones are labelled.
func GPUs(n int, model string, memory job.Bytes, fake bool) string {
	text := strconv.Itoa(n) + "x " + ShortModel(Model(model, false))
	if memory > 0 {
		const gib = 1 << 30
		text += fmt.Sprintf(":%dGB", (int64(memory)+gib/2)/gib)
	}
	if fake {
		text += fakeLabel
	}
	return text
}

// ShortModel writes a GPU's name as people say it: A100 for "NVIDIA A100-SXM4-80GB".
func ShortModel(model string) string {
	words := strings.FieldsFunc(model, func(c rune) bool { return c == ' ' || c == '-' })
	vendors := []string{"nvidia", "tesla", "geforce", "quadro"}
	for len(words) > 1 && slices.Contains(vendors, strings.ToLower(words[0])) {
		words = words[1:]
	}
	for i, w := range words {
		upper := strings.ToUpper(w)
		form := strings.HasPrefix(upper, "SXM") || upper == "PCIE" || strings.HasPrefix(upper, "HBM") || upper == "NVL"
		if i > 0 && (form || isMemory(upper)) {
			return strings.Join(words[:i], " ")
		}
	}
	return strings.Join(words, " ")
}

func isMemory(word string) bool {
	digits, ok := strings.CutSuffix(word, "GB")
	_, err := strconv.Atoi(digits)
	return ok && err == nil
}
