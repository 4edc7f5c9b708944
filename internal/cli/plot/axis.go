package plot

import (
	"math"
	"strconv"
	"strings"
)

// span is a range of numbers that grows with what it takes in.
type span struct {
	low, high float64
	any       bool
}

func (s *span) take(v float64) {
	if !s.any {
		*s = span{v, v, true}
	}

	s.low, s.high = min(s.low, v), max(s.high, v)
}

// axis maps numbers to places.
type axis struct {
	span
	log   bool // by logarithms
	whole bool // of whole numbers
}

// decades is the ratio from which on values are drawn by logarithms: else the small ones would
// all lie on the edge.
const decades = 100

func newAxis(s span) axis {
	// Ranges that are too narrow to tell their ends apart are those of a constant.
	if s.high/2-s.low/2 <= 1e-12*max(math.Abs(s.low), math.Abs(s.high)) {
		pad := 0.05 * max(math.Abs(s.low), math.Abs(s.high))
		if pad < 1e-300 {
			pad = 1
		}

		s.low, s.high = max(s.low-pad, -math.MaxFloat64), min(s.high+pad, math.MaxFloat64)
	}

	return axis{span: s}
}

// part returns where a number lies between the ends, 0 to 1.
func (a *axis) part(v float64) float64 {
	if a.log {
		if v <= 0 {
			return 0
		}

		low := math.Log(a.low)

		return (math.Log(v) - low) / (math.Log(a.high) - low)
	}

	return (v/2 - a.low/2) / (a.high/2 - a.low/2) // halves, since the whole may be too large for a number
}

// value returns the number at a part of the way.
func (a *axis) value(part float64) float64 { return a.low*(1-part) + a.high*part }

// at returns which of n places a number is at, the nearest if it is outside; from the
// other end if turned.
func (a *axis) at(v float64, n int, turned bool) int {
	p := a.part(v)
	if turned {
		p = 1 - p
	}

	return index(p, n)
}

// index returns which of n places a part of the way is at.
func index(part float64, n int) int {
	return min(int(min(max(part, 0), 1)*float64(n)), n-1)
}

// ticks returns about n round numbers within the range, and how they are written.
func (a *axis) ticks(n int) (values []float64, labels []string) {
	n = max(n, 2)
	if a.log {
		values = powers(a.low, a.high, n)
	} else {
		values = rounds(a.low, a.high, n, a.whole)
	}

	return values, write(values)
}

// rounds returns round numbers one, two or five apart, or ten times that: as far apart as
// possible, but not fewer than two thirds of n.
func rounds(low, high float64, n int, whole bool) []float64 {
	raw := 2 * ((high/2 - low/2) / float64(n))
	size := math.Pow(10, math.Floor(math.Log10(raw)))

	best := []float64{low}
	for _, f := range []float64{10, 5, 2, 1, 0.5} {
		step := f * size
		if !finite(step) || step <= 0 || whole && step < 1 {
			continue
		}

		if all := multiples(low, high, step, 3*n); len(all) > 0 {
			best = all
		}

		if 3*len(best) >= 2*n {
			break
		}
	}

	return best
}

// multiples returns the multiples of step within a range, at most limit of them.
func multiples(low, high, step float64, limit int) []float64 {
	var all []float64
	first := math.Ceil(low/step - 1e-9)
	for i := range limit {
		v := (first + float64(i)) * step
		if !finite(v) || v > high+step*1e-9 {
			break
		}

		all = append(all, v)
	}

	return all
}

// powers returns powers of ten, each or every so manieth.
func powers(low, high float64, n int) []float64 {
	first, last := math.Ceil(math.Log10(low)-1e-9), math.Floor(math.Log10(high)+1e-9)
	every := max(math.Ceil((last-first+1)/float64(n)), 1)

	var all []float64
	for p := first; p <= last; p += every {
		all = append(all, math.Pow(10, p))
	}

	return all
}

// write writes numbers as short as they can be told apart.
func write(values []float64) []string {
	var labels []string
	for digits := 4; digits <= 17; digits++ {
		labels = labels[:0]
		seen := map[string]bool{}
		for _, v := range values {
			text := number(v, digits)
			seen[text] = true
			labels = append(labels, text)
		}

		if len(seen) == len(values) {
			break
		}
	}

	return labels
}

// number writes a number with so many digits that matter: "1.5K", "0.35", "2e-06".
func number(v float64, digits int) string {
	size, letter := math.Abs(v), ""
	switch {
	case size != 0 && (size < 1e-3 || size >= 1e15):
		return strconv.FormatFloat(shorten(v, digits), 'e', -1, 64)
	case size >= 1e12:
		v, letter = v/1e12, "T"
	case size >= 1e9:
		v, letter = v/1e9, "B"
	case size >= 1e6:
		v, letter = v/1e6, "M"
	case size >= 1e3:
		v, letter = v/1e3, "K"
	}

	return strconv.FormatFloat(shorten(v, digits), 'f', -1, 64) + letter
}

// shorten keeps so many digits of a number.
func shorten(v float64, digits int) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64)
	if err != nil {
		return v // rounded up it is too large for a number
	}

	return short
}

// level gives labels of one size the same number of decimals.
func level(labels []string) []string {
	const letters = "KMBT"
	suffix, decimals := "", -1

	for _, l := range labels {
		if strings.ContainsRune(l, 'e') {
			return labels
		}
		if l == "0" {
			continue
		}

		bare := strings.TrimRight(l, letters)
		if decimals >= 0 && l[len(bare):] != suffix {
			return labels
		}

		suffix = l[len(bare):]
		_, fraction, _ := strings.Cut(bare, ".")
		decimals = max(decimals, len(fraction))
	}

	for i, l := range labels {
		bare := strings.TrimRight(l, letters)
		whole, fraction, _ := strings.Cut(bare, ".")
		if l != "0" && decimals > 0 {
			labels[i] = whole + "." + fraction + strings.Repeat("0", decimals-len(fraction)) + suffix
		}
	}

	return labels
}
