package forecast

import (
	"math"

	"trainyard/internal/job"
)

// z90 is how many deviations from the middle nine tenths of a normal distribution end.
const z90 = 1.2815515655446004

// A band stands for a distribution: its ends are where a tenth is below and above. On
// either side of the middle it is that of a logarithm, with a deviation of its own, or a
// plain one below if the low end is zero.

// below returns how likely an amount in a band is below a value.
func below(b job.Band, v float64) float64 {
	switch {
	case b.Mid <= 0:
		return step(v >= 0)
	case v <= 0:
		return 0
	case v >= b.Mid:
		return normal(math.Log(v/b.Mid), math.Log(b.High/b.Mid))
	case b.Low <= 0:
		return normal(v-b.Mid, b.Mid)
	}
	return normal(math.Log(v/b.Mid), math.Log(b.Mid/b.Low))
}

// normal returns the part of a distribution below a value, if nine tenths are below ninety.
func normal(v, ninety float64) float64 {
	if ninety <= 0 || math.IsNaN(ninety) {
		return step(v >= 0)
	}
	return 0.5 * math.Erfc(-v/ninety*z90/math.Sqrt2)
}

func step(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// scale returns a band in other units.
func scale(b job.Band, by float64) job.Band {
	return job.Band{Low: b.Low * by, Mid: b.Mid * by, High: b.High * by}
}

// add returns the sum of two bands whose errors have nothing to do with each other: the
// middles add up, the distances to the ends as squares.
func add(a, b job.Band) job.Band {
	mid := a.Mid + b.Mid
	return job.Band{
		Low:  max(mid-math.Hypot(a.Mid-a.Low, b.Mid-b.Low), 0),
		Mid:  mid,
		High: mid + math.Hypot(a.High-a.Mid, b.High-b.Mid),
	}
}

// widen returns a band that is less sure by a deviation of its logarithm.
func widen(b job.Band, deviation float64) job.Band {
	if b.Mid <= 0 || deviation <= 0 {
		return b
	}
	more := deviation * z90
	wider := job.Band{Mid: b.Mid, High: b.Mid * math.Exp(math.Hypot(math.Log(max(b.High, b.Mid)/b.Mid), more))}
	if b.Low > 0 {
		wider.Low = b.Mid * math.Exp(-math.Hypot(math.Log(b.Mid/min(b.Low, b.Mid)), more))
	}
	return wider
}

// sound returns a band whose ends are in order and which is neither negative nor
// endless: at most so much.
func sound(b job.Band, most float64) job.Band {
	fix := func(v float64) float64 {
		if math.IsNaN(v) {
			return 0
		}
		return min(max(v, 0), most)
	}
	b = job.Band{Low: fix(b.Low), Mid: fix(b.Mid), High: fix(b.High)}
	b.Low, b.High = min(b.Low, b.Mid), max(b.High, b.Mid)
	return b
}
