package calibrate

import (
	"math"

	"trainyard/internal/job"
)

// z90 is the 90 % quantile of the standard normal distribution.
const z90 = 1.2815515655446004

// A band stands for a distribution by its 10 %, 50 % and 90 % quantiles: a two-piece log-normal, with a standard
// deviation of its own on either side of the median, or normal below the median if the low end is zero.

// CDF returns the probability that an amount with the distribution of a band is at most v.
func CDF(b job.Band, v float64) float64 {
	switch {
	case b.Mid <= 0:
		return indicator(v >= 0)
	case v <= 0:
		return 0
	case v >= b.Mid:
		return normalCDF(math.Log(v/b.Mid), math.Log(b.High/b.Mid))
	case b.Low <= 0:
		return normalCDF(v-b.Mid, b.Mid)
	}

	return normalCDF(math.Log(v/b.Mid), math.Log(b.Mid/b.Low))
}

// normalCDF returns the cumulative normal distribution at v, if its 90 % quantile is q90.
func normalCDF(v, q90 float64) float64 {
	if q90 <= 0 || math.IsNaN(q90) {
		return indicator(v >= 0)
	}

	return 0.5 * math.Erfc(-v/q90*z90/math.Sqrt2)
}

func indicator(yes bool) float64 {
	if yes {
		return 1
	}

	return 0
}

// Scale returns a band times a factor.
func Scale(b job.Band, factor float64) job.Band {
	return job.Band{Low: b.Low * factor, Mid: b.Mid * factor, High: b.High * factor}
}

// Add returns the sum of two independent amounts: medians add up, the distances to the ends in quadrature.
func Add(a, b job.Band) job.Band {
	mid := a.Mid + b.Mid
	return job.Band{
		Low:  max(mid-math.Hypot(a.Mid-a.Low, b.Mid-b.Low), 0),
		Mid:  mid,
		High: mid + math.Hypot(a.High-a.Mid, b.High-b.Mid),
	}
}

// Widen returns a band with an independent error added, given as a standard deviation of the logarithm.
func Widen(b job.Band, deviation float64) job.Band {
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

// Clamp returns a band whose ends are in order and lie between 0 and limit.
func Clamp(b job.Band, limit float64) job.Band {
	fix := func(v float64) float64 {
		if math.IsNaN(v) {
			return 0
		}

		return min(max(v, 0), limit)
	}

	b = job.Band{Low: fix(b.Low), Mid: fix(b.Mid), High: fix(b.High)}
	b.Low, b.High = min(b.Low, b.Mid), max(b.High, b.Mid)

	return b
}
