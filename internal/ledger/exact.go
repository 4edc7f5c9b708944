package ledger

import (
	"math"
	"math/bits"
)

// vector is Amounts as an array, for arithmetic that treats all of them alike.
type vector [5]int64

// Indices in a vector.
const (
	inNodeTime = iota
	inGPUTime
	inNodeCost
	inEnergyCost
	inEnergy
)

func (a Amounts) vector() vector {
	return vector{
		inNodeTime:   int64(a.NodeTime),
		inGPUTime:    int64(a.GPUTime),
		inNodeCost:   int64(a.NodeCost),
		inEnergyCost: int64(a.EnergyCost),
		inEnergy:     int64(a.Energy),
	}
}

func (v vector) amounts() Amounts {
	return Amounts{
		NodeTime:   Span(v[inNodeTime]),
		GPUTime:    Span(v[inGPUTime]),
		NodeCost:   Nanos(v[inNodeCost]),
		EnergyCost: Nanos(v[inEnergyCost]),
		Energy:     Millijoules(v[inEnergy]),
	}
}

// minus returns v - w.
func (v vector) minus(w vector) vector {
	for i := range v {
		v[i] -= w[i]
	}

	return v
}

// plus returns v + w. If a sum overflows it returns false, and that sum is the largest or smallest int64.
func (v vector) plus(w vector) (vector, bool) {
	fits := true
	for i := range v {
		sum := v[i] + w[i]
		switch {
		case v[i] > 0 && w[i] > 0 && sum < 0:
			sum, fits = math.MaxInt64, false
		case v[i] < 0 && w[i] < 0 && sum >= 0:
			sum, fits = math.MinInt64, false
		}

		v[i] = sum
	}

	return v, fits
}

// accrue returns the quotient and the remainder of (rate·times + carry) / per. A quotient that
// overflows becomes the largest int64; that takes years at an absurd price.
func accrue(rate, times, carry, per int64) (units, left int64) {
	hi, lo := bits.Mul64(uint64(rate), uint64(times))
	lo, over := bits.Add64(lo, uint64(carry), 0)
	hi += over
	if hi >= uint64(per) {
		return math.MaxInt64, 0
	}

	q, r := bits.Div64(hi, lo, uint64(per))
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}

	return int64(q), int64(r)
}

// scale returns x·num/den, rounded down. num must be at most den, so that the result fits.
func scale(x, num, den int64) int64 {
	units, _ := accrue(x, num, 0, den)
	return units
}

// smallEntry is the usual largest number of lines of an entry; up to that many are computed without
// allocating memory.
const smallEntry = 16

// split divides a total by weights to the last unit: each part is its exact share rounded down, and
// the remaining units go to the largest remainders, the first of equals. At least one weight must
// be greater than 0. The parts are written to out.
func split(total int64, weights, out []int64) {
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}

	var few [smallEntry]int64
	rests := few[:]
	if len(weights) > smallEntry {
		rests = make([]int64, len(weights))
	}

	left := total
	for i, w := range weights {
		out[i], rests[i] = accrue(w, total, 0, sum)
		left -= out[i]
	}

	for ; left > 0; left-- {
		at := 0
		for i := range weights {
			if rests[i] > rests[at] {
				at = i
			}
		}

		out[at]++
		rests[at] = -1
	}
}

// prefixOf computes how much of each line of an entry falls on its first num of den milliseconds,
// and writes it to out. All lines together have exactly num/den of their total, rounded down; no
// line ever decreases as num grows; and at the end each line has all of its amount. Therefore the
// pieces of a line add up to the line, and the lines of a piece to the piece.
//
// It works as if the units of the total arrived one by one: of the units that have arrived, the
// first line gets its share rounded down, the second its share of the rest, and so on.
func prefixOf(lines []Posting, num, den int64, out []vector) {
	var total vector
	for i := range lines {
		out[i] = lines[i].vector()
		total, _ = total.plus(out[i])
	}

	for k := range total {
		in, all := scale(total[k], num, den), total[k]

		for i := range out {
			own := out[i][k]
			if own == 0 {
				continue
			}

			out[i][k] = scale(in, own, all)
			in -= out[i][k]
			all -= own
		}
	}
}

// whole returns x·unit rounded to the nearest integer: 0 if it is negative or not a number, and
// most if it is larger than that.
func whole[T ~float64](x T, unit float64, most int64) int64 {
	switch y := math.Round(float64(x) * unit); {
	case !(y > 0):
		return 0
	case y >= float64(most):
		return most
	default:
		return int64(y)
	}
}
