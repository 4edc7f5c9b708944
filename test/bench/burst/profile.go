package burst

import (
	"math"
	"slices"
)

// step is a time from which on a node has so many free GPUs.
type step struct {
	at   float64
	free int
}

// profile is what a node has free over time: steps in order, the first at the
// beginning, the last for ever.
type profile []step

// last returns the step that holds at a time.
func (p profile) last(t float64) int {
	n, _ := slices.BinarySearchFunc(p, t, func(s step, t float64) int {
		if s.at <= t {
			return -1
		}
		return 1
	})
	return n - 1
}

// earliest returns the first time between from and latest from which so many GPUs stay
// free for as long as a run takes, infinite if there is none.
func (p profile) earliest(gpus int, run, from, latest float64) float64 {
	start := math.Inf(1)
	for i := p.last(from); i < len(p); i++ {
		s := p[i]
		if s.free < gpus {
			start = math.Inf(1)
			if s.at > latest {
				return start
			}
			continue
		}
		if math.IsInf(start, 1) {
			if start = math.Max(s.at, from); start > latest {
				return math.Inf(1)
			}
		}
		if i+1 == len(p) || p[i+1].at >= start+run {
			return start
		}
	}
	return start
}

// book takes GPUs for a run, or gives them back if they are less than 0.
func (p profile) book(start float64, gpus int, run float64) profile {
	p = p.cut(start).cut(start + run)
	for i := p.last(start); i < len(p) && p[i].at < start+run; i++ {
		p[i].free -= gpus
	}
	return p
}

// cut makes a time a step of its own.
func (p profile) cut(t float64) profile {
	i := p.last(t)
	if p[i].at == t {
		return p
	}
	return slices.Insert(p, i+1, step{t, p[i].free})
}

// tidy joins steps of equal height.
func (p profile) tidy() profile {
	return slices.CompactFunc(p, func(a, b step) bool { return a.free == b.free })
}
