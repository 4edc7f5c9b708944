package curve

import (
	"math"
	"slices"
)

// shape is a family of curves that fall to 0, with one or two parameters that are tried
// on a grid. A curve is fitted as c + a*phi: a and c then have a closed form, so
// that no optimiser is needed and none can end in a wrong valley. Work counts in units of what is done.
type shape struct {
	grid [][2]float64
	phi  func(u float64, p [2]float64) float64
	at   func(v float64, p [2]float64) float64 // where phi has this value
}

func power() shape {
	return shape{
		grid([]float64{0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5}, 0),
		func(u float64, p [2]float64) float64 { return math.Pow(u, -p[0]) },
		func(v float64, p [2]float64) float64 { return math.Pow(v, -1/p[0]) },
	}
}

func hyperbola() shape {
	return shape{
		grid([]float64{0.01, 0.03, 0.1, 0.3, 1, 3}, 0),
		func(u float64, p [2]float64) float64 { return 1 / (u + p[0]) },
		func(v float64, p [2]float64) float64 { return 1/v - p[0] },
	}
}

func exponential() shape {
	return shape{
		grid([]float64{0.3, 0.6, 1.2, 2.5, 5, 10}, 0),
		func(u float64, p [2]float64) float64 { return math.Exp(-p[0] * u) },
		func(v float64, p [2]float64) float64 { return -math.Log(v) / p[0] },
	}
}

func weibull() shape {
	return shape{
		grid([]float64{0.3, 0.6, 1.2, 2.5, 5}, 0.3, 0.5, 0.7),
		func(u float64, p [2]float64) float64 { return math.Exp(-p[0] * math.Pow(u, p[1])) },
		func(v float64, p [2]float64) float64 { return math.Pow(-math.Log(v)/p[0], 1/p[1]) },
	}
}

func logistic() shape {
	return shape{
		grid([]float64{0.1, 0.3, 1, 3}, 0.5, 1, 1.5, 2),
		func(u float64, p [2]float64) float64 { return 1 / (1 + math.Pow(u/p[0], p[1])) },
		func(v float64, p [2]float64) float64 { return p[0] * math.Pow(1/v-1, 1/p[1]) },
	}
}

func grid(a []float64, b ...float64) [][2]float64 {
	out := make([][2]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			out = append(out, [2]float64{x, y})
		}
	}

	return out
}

// problem is a fit of families: an error that falls, its goal, and between what it may end.
type problem struct {
	u, e, w   []float64
	now, goal float64
	low, high float64
}

// newProblem turns a curve into one whose error falls and says where it ends. Bound to end below the goal: the
// researcher
// believes that the goal can be reached, and that is worth more than the choice of a family.
func newProblem(c *Curve, bound bool) (problem, bool) {
	u, y := clean(c)
	if len(u) < 3 {
		return problem{}, false
	}

	p := problem{now: u[len(u)-1]}
	u, y = thin(u, y, maxPoints)
	v := &view{}
	ends := slices.Clone(y)
	v.toError(c.Goal, ends)

	logs := v.logs
	for i := range ends {
		if logs {
			ends[i] = math.Exp(ends[i])
		}

		u[i] /= p.now
	}

	median3(ends)
	p.u, p.e, p.goal = u, ends, v.goal
	first, last := slices.Max(ends), slices.Min(ends)

	if logs {
		p.goal = math.Exp(v.goal)
		p.low, p.high = 0, 0.9*p.goal
	} else {
		p.low, p.high = p.goal-10*(first-min(last, p.goal)), p.goal-0.1*(first-min(last, p.goal))
	}

	if !bound {
		p.high = math.Inf(1)
	}

	p.setWeights(logs)

	return p, true
}

// setWeights has weights halve with each third of the points, and counts errors relative to the value
// where that has a floor.
func (p *problem) setWeights(relative bool) {
	n := float64(len(p.u))
	p.w = make([]float64, len(p.u))
	for i := range p.w {
		p.w[i] = math.Exp2(-3 * (n - 1 - float64(i)) / n)
		if relative {
			p.w[i] *= (p.goal / p.e[i]) * (p.goal / p.e[i])
		}
	}
}

// end fits a family and returns where it comes down to the goal, in units of work done.
func (p *problem) end(s shape) float64 {
	least, end := math.Inf(1), math.Inf(1)
	phi := make([]float64, len(p.u))

	for _, q := range s.grid {
		var sw, sp, se, spp, spe float64
		for i, u := range p.u {
			f, w := s.phi(u, q), p.w[i]
			phi[i] = f
			sw, sp, se, spp, spe = sw+w, sp+w*f, se+w*p.e[i], spp+w*f*f, spe+w*f*p.e[i]
		}

		a := (sw*spe - sp*se) / (sw*spp - sp*sp)
		c := (se - a*sp) / sw
		if !(c >= p.low) {
			c = p.low
			a = (spe - c*sp) / spp
		} else if c > p.high {
			c = p.high
			a = (spe - c*sp) / spp
		}

		if !(a > 0) {
			continue
		}

		var loss float64
		for i, f := range phi {
			r := p.e[i] - c - a*f
			loss += p.w[i] * r * r
		}

		if loss < least {
			least, end = loss, math.Inf(1)
			if p.goal > c {
				end = s.at((p.goal-c)/a, q)
			}
		}
	}

	return end
}

// unbounded is a family as published: it may end anywhere.
func unbounded(c *Curve, s shape) Estimate {
	p, ok := newProblem(c, false)
	if !ok {
		return noEnd()
	}

	return endAt(p.now, p.end(s))
}

// bounded is a family that ends below the goal. One that is below it by now is met with the next points.
func bounded(c *Curve, s shape) Estimate {
	p, ok := newProblem(c, true)
	if !ok {
		return noEnd()
	}

	return endAt(p.now, max(1, p.end(s)))
}
