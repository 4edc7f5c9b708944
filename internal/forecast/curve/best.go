package curve

import (
	"math"
	"slices"
)

// How nohistory reckons.
//
// Over the logarithm of work a training curve is straighter than over work: each
// doubling brings about as much as the one before. So the present slope in log work is
// measured; the gap to the goal over that slope is the log work that is left. Three things
// stand against taking it at its word, and are weighed on a grid of how much log work is left.
//
// The slope has an error, because points are noisy. The slope to come is not the
// present one: it gets less while a curve settles and more when the learning rate is
// lowered. And before any point is seen something is known: who asks at a random time
// of a job has done a share of it that may be anything with equal chance, so that the
// logarithm L of the whole over what is done has the density exp(-L). This is what
// answers when the points say nothing: about as long again as until now, with a wide interval.
//
// The constants were chosen on half of the groups of the public curves; docs/benchmarks-forecast.md
// says which and what they come to on the other half.
const (
	pinned  = 0.3  // a slope is known when its error is this part of it
	recent  = 0.2  // part of the points that it is measured on at least
	steeper = 0.15 // how much steeper it gets, as a logarithm: most runs lower the learning rate
	unlike  = 0.4  // how far the slope to come is from the present one, as a logarithm: one standard deviation
	doubt   = 0.1  // chance that a goal is never reached, before any point is seen
)

// farthest is the log work beyond which nothing is foretold: thirty times what is done.
const farthest = 3.4011973816621555

const (
	cells  = 128
	leaves = 9    // of the distribution of the slope to come
	grain  = 0.12 // half the distance between two of them, as a part
)

// slope is how fast the error falls with log work at the last point, and where it stands.
type slope struct {
	fall, err float64 // the error of fall is infinite if there is none
	level     float64
	noise     float64 // of one point
}

// slope measures on as few of the last points as pin it down.
func (v *view) slope() slope {
	n := len(v.x)
	last := slope{level: v.e[n-1], err: math.Inf(1)}
	if n < 2 {
		return last
	}
	var sx, sy, sxx, sxy float64
	least, next := max(3, int(recent*float64(n))), 3
	for m := 1; m <= n; m++ {
		x, e := v.x[n-m], v.e[n-m]
		sx, sy, sxx, sxy = sx+x, sy+e, sxx+x*x, sxy+x*e
		if m < n && (m < next || m < least) {
			continue
		}
		next = max(m+1, m*5/4)
		k := float64(m)
		wide := sxx - sx*sx/k
		b := (sxy - sx*sy/k) / wide
		noise := v.noise(m)
		last = slope{fall: -b, level: (sy - b*sx) / k, err: noise / math.Sqrt(v.mean*wide), noise: noise}
		if last.err < pinned*math.Abs(b) {
			break
		}
	}
	if n == 2 {
		last.err = math.Abs(last.fall)
	}
	return last
}

// belief is what is thought of the log work that is left.
type belief struct {
	at    [cells]float64 // upper bounds of cells
	share [cells]float64 // chance that it is at most that, if the goal is reached at all
	never float64        // chance that it is not
}

// believe weighs what is left by the slope, for an error that has this far to fall.
func (v *view) believe(s slope, far float64) *belief {
	b := &belief{}
	// The grid begins where the present slope would soon be there, or the next point: what is sooner.
	least := v.step / 2
	if soon := far / s.fall / 4; soon > 0 {
		least = min(least, soon)
	}
	least = min(max(least, 1e-4), farthest/2)
	ratio := math.Pow(farthest/least, 1/float64(cells))
	var steps, weights [leaves]float64
	for k := range steps {
		z := -2 + 4*float64(k)/(leaves-1)
		steps[k], weights[k] = math.Exp(-steeper-unlike*z), math.Exp(-z*z/2)
	}
	var total, sum float64
	low := least
	for i := range cells {
		high := low * ratio
		l := (low + high) / 2
		var like float64
		for k := range steps {
			like += weights[k] * s.chance(far/l*steps[k])
		}
		total += like * math.Exp(-l) * (high - low)
		b.at[i], b.share[i] = high, total
		low = high
	}
	for k := range weights {
		sum += weights[k]
	}
	for i := range b.share {
		b.share[i] /= total
	}
	b.never = s.idle(far, total/sum)
	return b
}

// chance is how likely this slope is measured when it is truly so much, up to a factor. Its tails are
// heavy: noise estimated from a few points is itself not known well.
func (s slope) chance(truly float64) float64 {
	if math.IsInf(s.err, 1) {
		return 1
	}
	sd := math.Hypot(s.err, truly*grain)
	q := (s.fall - truly) / sd
	f := 1 / (1 + q*q/4)
	return 0.375 * f * f * math.Sqrt(f) / sd
}

// idle is the chance that the goal is not reached: the slope is rather one of a curve
// that would need more than thirty times the work, or goes the wrong way as fast.
func (s slope) idle(far, reached float64) float64 {
	if math.IsInf(s.err, 1) {
		return doubt
	}
	edge := far / farthest
	sd := max(s.err, edge*grain)
	never := doubt * (student((edge-s.fall)/sd) - student((-edge-s.fall)/sd)) / (2 * edge)
	if p := never / (never + (1-doubt)*reached); p >= 0 {
		return p
	}
	return doubt
}

// student is the distribution whose density chance has: Student's with four degrees of freedom.
func student(q float64) float64 {
	r := 1 / (1 + q*q/4)
	return 0.5 + 0.375*q*math.Sqrt(r)*(1-q*q*r/12)
}

// quantile returns the log work that is left with this chance at most.
func (b *belief) quantile(p float64) float64 {
	for i, s := range b.share {
		if s < p {
			continue
		}
		low, before := b.at[0]*b.at[0]/b.at[1], 0.0
		if i > 0 {
			low, before = b.at[i-1], b.share[i-1]
		}
		if s <= before {
			return b.at[i]
		}
		return low + (b.at[i]-low)*(p-before)/(s-before)
	}
	return b.at[cells-1]
}

// within returns the chance that it is at most so much.
func (b *belief) within(l float64) float64 {
	var before, low float64
	for i, at := range b.at {
		if l < at {
			return before + (b.share[i]-before)*max(0, l-low)/(at-low)
		}
		before, low = b.share[i], at
	}
	return 1
}

// far returns how far the error has to fall until a point meets the goal. Noise meets it before the
// curve does, the sooner the more points come while the curve falls by as much as the noise.
func (v *view) far(s slope) float64 {
	far := s.level - v.goal
	if s.noise > 0 {
		tries := max(1, 1/(max(1, s.fall/s.noise)*v.step))
		far -= s.noise * math.Sqrt(2*math.Log(tries)) // about the best of so many
	}
	return max(far, 0.3*s.noise, 1e-9*math.Abs(v.goal), 1e-12)
}

// Best is our answer without history. It has one for every curve with a goal and a point; one that has met its
// goal is at its end. Low and High are what it believes with four chances of five.
func Best(c *Curve) Estimate {
	v := look(c)
	switch {
	case v == nil || !c.Goal.Set:
		return Estimate{End: math.Inf(1)}
	case met(c):
		return Estimate{End: v.now, Low: v.now, High: v.now}
	}
	v.splice()
	s := v.slope()
	b := v.believe(s, v.far(s))
	end := func(p float64) float64 { return min(v.now*math.Exp(max(b.quantile(p), v.step)), math.MaxFloat64) }
	e := Estimate{End: end(0.5), Low: end(0.1), High: end(0.9), Never: b.never}
	if c.Total > 0 {
		e.Never += (1 - e.Never) * (1 - b.within(math.Log(max(c.Total, v.now)/v.now)+v.step/2))
	}
	return e
}

// met reports whether a point has met the goal.
func met(c *Curve) bool { return slices.ContainsFunc(c.Y, c.Goal.Met) }
