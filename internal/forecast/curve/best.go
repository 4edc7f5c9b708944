package curve

import (
	"math"
	"slices"
)

// The method nohistory is Bayesian.
//
// Over the logarithm of work a training curve is straighter than over work: each doubling brings about as much as the
// one before. So the present slope in log work is measured by least squares; the distance to the goal over that slope
// is
// the log work that is left. The posterior of the log work left is computed on a grid, from three parts.
//
// The slope has a standard error, because points are noisy (the likelihood). The future slope is not the present
// one: it decreases while a curve settles and increases when the learning rate is lowered (slopeDrift, slopeStdDev).
// And the prior: a job observed at a random time has done a uniformly distributed fraction of its work, so that the
// logarithm L of the whole over what is done has the density exp(-L). The prior decides when the points say
// nothing: about as long again as until now, with a wide interval.
//
// The constants were chosen on half of the groups of the public curves; docs/explanation/benchmarks-forecast.md
// says which and reports the errors on the other half.
const (
	maxSlopeError = 0.3  // standard error of a slope that is precise enough, as a fraction of it
	minTail       = 0.2  // smallest fraction of the points that it is fitted to
	slopeDrift    = 0.15 // mean change of the log slope: most runs lower the learning rate
	slopeStdDev   = 0.4  // standard deviation of the change of the log slope
	priorNever    = 0.1  // prior probability that a goal is never reached
)

// maxLogWork is the log work beyond which nothing is predicted: thirty times what is done.
const maxLogWork = 3.4011973816621555

const (
	cells         = 128
	slopeNodes    = 9    // quadrature nodes of the future slope
	nodeHalfWidth = 0.12 // half the distance between two nodes, relative
)

// slope is the fitted line at the last point: how fast the error falls with log work, and its level.
type slope struct {
	fall, stdErr float64 // stdErr is infinite if there is no slope
	level        float64
	noise        float64 // of one point
}

// slope fits a line to as few of the last points as give a precise slope.
func (v *view) slope() slope {
	n := len(v.x)
	last := slope{level: v.e[n-1], stdErr: math.Inf(1)}
	if n < 2 {
		return last
	}

	var sx, sy, sxx, sxy float64
	least, next := max(3, int(minTail*float64(n))), 3

	for m := 1; m <= n; m++ {
		x, e := v.x[n-m], v.e[n-m]
		sx, sy, sxx, sxy = sx+x, sy+e, sxx+x*x, sxy+x*e

		if m < n && (m < next || m < least) {
			continue
		}

		next = max(m+1, m*5/4)
		k := float64(m)
		spread := sxx - sx*sx/k
		b := (sxy - sx*sy/k) / spread
		noise := v.noise(m)
		last = slope{fall: -b, level: (sy - b*sx) / k, stdErr: noise / math.Sqrt(v.pointsPerMean*spread), noise: noise}
		if last.stdErr < maxSlopeError*math.Abs(b) {
			break
		}
	}

	if n == 2 {
		last.stdErr = math.Abs(last.fall)
	}

	return last
}

// posterior is the distribution of the log work that is left.
type posterior struct {
	bound [cells]float64 // upper bounds of cells
	cdf   [cells]float64 // given that the goal is reached
	never float64        // probability that it is not
}

// posterior returns the distribution of the log work left, for an error that has a distance to fall.
func (v *view) posterior(s slope, distance float64) *posterior {
	b := &posterior{}

	// The grid begins at the next point, or at a quarter of what the present slope predicts, whichever is earlier.
	least := v.step / 2
	if soon := distance / s.fall / 4; soon > 0 {
		least = min(least, soon)
	}

	least = min(max(least, 1e-4), maxLogWork/2)
	ratio := math.Pow(maxLogWork/least, 1/float64(cells))

	var steps, weights [slopeNodes]float64
	for k := range steps {
		z := -2 + 4*float64(k)/(slopeNodes-1)
		steps[k], weights[k] = math.Exp(-slopeDrift-slopeStdDev*z), math.Exp(-z*z/2)
	}

	var total, sum float64

	low := least
	for i := range cells {
		high := low * ratio
		l := (low + high) / 2

		var likelihood float64
		for k := range steps {
			likelihood += weights[k] * s.likelihood(distance/l*steps[k])
		}

		total += likelihood * math.Exp(-l) * (high - low)
		b.bound[i], b.cdf[i] = high, total
		low = high
	}

	for k := range weights {
		sum += weights[k]
	}

	for i := range b.cdf {
		b.cdf[i] /= total
	}

	b.never = s.neverProbability(distance, total/sum)

	return b
}

// likelihood is the density of the measured slope given the actual one, up to a factor: Student's t with four degrees
// of
// freedom, because noise estimated from a few points is itself uncertain.
func (s slope) likelihood(actual float64) float64 {
	if math.IsInf(s.stdErr, 1) {
		return 1
	}

	sd := math.Hypot(s.stdErr, actual*nodeHalfWidth)
	q := (s.fall - actual) / sd
	f := 1 / (1 + q*q/4)

	return 0.375 * f * f * math.Sqrt(f) / sd
}

// neverProbability is the posterior probability that the goal is not reached: that the actual slope would need more
// than
// thirty times the work, or has the wrong sign.
func (s slope) neverProbability(distance, reached float64) float64 {
	if math.IsInf(s.stdErr, 1) {
		return priorNever
	}

	edge := distance / maxLogWork
	sd := max(s.stdErr, edge*nodeHalfWidth)
	never := priorNever * (studentCDF((edge-s.fall)/sd) - studentCDF((-edge-s.fall)/sd)) / (2 * edge)
	if p := never / (never + (1-priorNever)*reached); p >= 0 {
		return p
	}

	return priorNever
}

// studentCDF is the cumulative distribution of Student's t with four degrees of freedom.
func studentCDF(q float64) float64 {
	r := 1 / (1 + q*q/4)
	return 0.5 + 0.375*q*math.Sqrt(r)*(1-q*q*r/12)
}

// quantile returns a quantile of the log work left.
func (b *posterior) quantile(p float64) float64 {
	for i, s := range b.cdf {
		if s < p {
			continue
		}

		low, before := b.bound[0]*b.bound[0]/b.bound[1], 0.0
		if i > 0 {
			low, before = b.bound[i-1], b.cdf[i-1]
		}

		if s <= before {
			return b.bound[i]
		}

		return low + (b.bound[i]-low)*(p-before)/(s-before)
	}

	return b.bound[cells-1]
}

// probability returns the probability that the log work left is at most l.
func (b *posterior) probability(l float64) float64 {
	var before, low float64
	for i, at := range b.bound {
		if l < at {
			return before + (b.cdf[i]-before)*max(0, l-low)/(at-low)
		}

		before, low = b.cdf[i], at
	}

	return 1
}

// distance returns how far the error has to fall until a point meets the goal. A noisy point meets it before the curve
// does, the earlier the more points come while the curve falls by as much as the noise.
func (v *view) distance(s slope) float64 {
	distance := s.level - v.goal
	if s.noise > 0 {
		tries := max(1, 1/(max(1, s.fall/s.noise)*v.step))
		distance -= s.noise * math.Sqrt(2*math.Log(tries)) // expected minimum of so many
	}

	return max(distance, 0.3*s.noise, 1e-9*math.Abs(v.goal), 1e-12)
}

// Best is our estimate without history. It exists for every curve with a goal and a point; one that has met its goal
// is at
// its end. Low and High are the 10 % and 90 % quantiles of the posterior.
func Best(c *Curve) Estimate {
	v := newView(c)
	switch {
	case v == nil || !c.Goal.Set:
		return Estimate{End: math.Inf(1)}
	case met(c):
		return Estimate{End: v.done, Low: v.done, High: v.done}
	}

	v.removeJumps()
	s := v.slope()
	b := v.posterior(s, v.distance(s))
	end := func(p float64) float64 { return min(v.done*math.Exp(max(b.quantile(p), v.step)), math.MaxFloat64) }
	e := Estimate{End: end(0.5), Low: end(0.1), High: end(0.9), Never: b.never}
	if c.Total > 0 {
		e.Never += (1 - e.Never) * (1 - b.probability(math.Log(max(c.Total, v.done)/v.done)+v.step/2))
	}

	return e
}

// met reports whether a point has met the goal.
func met(c *Curve) bool { return slices.ContainsFunc(c.Y, c.Goal.Met) }
