package ledger

import (
	"math"
	"math/bits"
)

// vector is Amounts for arithmetic that treats all of them alike.
type vector [5]int64

// Places in a vector.
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

// minus returns what is left of v after w was taken off.
func (v vector) minus(w vector) vector {
	for i := range v {
		v[i] -= w[i]
	}

	return v
}

// plus returns the sum, and false if it does not fit; it is the greatest number there is then.
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

// accrue returns rate·times+carry in units of per, and what is left over. What does not
// fit into a word is the greatest number there is: years at a price beyond reason.
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

// scale returns x·num/den, rounded down. Num is at most den, so that it fits.
func scale(x, num, den int64) int64 {
	units, _ := accrue(x, num, 0, den)
	return units
}

// smallEntry is how many lines an entry has at most as a rule: so many are reckoned without
// asking for memory.
const smallEntry = 16

// split divides a total by weights to the last unit: each part is its exact share
// rounded down, and the units that are left go to the largest remainders, the first of
// equals. At least one weight is greater than 0. Parts are written to out.
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

// prefixOf writes to out what of the lines of an entry falls on its first num of den
// milliseconds. The lines together have exactly num/den of their total, rounded down;
// no line ever has less at a later time; and at the end each has all of its own. So
// pieces of a line add up to the line, and the lines of a piece to the piece.
//
// It works as if the total were so many coins that come in one by one: of the coins
// that are in, the first line gets its share rounded down, the second its share of the
// rest, and so on.
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

// whole returns x·unit as a whole number, rounded to the next, none if it is less than
// nothing or no number, and most if it is more than that.
func whole(x, unit float64, most int64) int64 {
	switch y := math.Round(x * unit); {
	case !(y > 0):
		return 0
	case y >= float64(most):
		return most
	default:
		return int64(y)
	}
}
