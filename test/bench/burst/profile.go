package burst

import (
	"math"
	"slices"
	"time"
)

// endless is later than anything.
const endless = time.Duration(math.MaxInt64)

// step is a time from which on a node has so many free GPUs.
type step struct {
	at   time.Duration
	free int
}

// profile is what a node has free over time: steps in order, the first at the
// beginning, the last for ever.
type profile []step

// last returns the step that holds at a time.
func (p profile) last(t time.Duration) int {
	n, _ := slices.BinarySearchFunc(p, t, func(s step, t time.Duration) int {
		if s.at <= t {
			return -1
		}

		return 1
	})

	return n - 1
}

// earliest returns the first time between from and latest from which so many GPUs stay
// free for as long as a run takes, endless if there is none.
func (p profile) earliest(gpus int, run, from, latest time.Duration) time.Duration {
	start := endless
	for i := p.last(from); i < len(p); i++ {
		s := p[i]
		if s.free < gpus {
			start = endless
			if s.at > latest {
				return start
			}

			continue
		}

		if start == endless {
			start = max(s.at, from)
			if start > latest {
				return endless
			}
		}

		if i+1 == len(p) || p[i+1].at >= start+run {
			return start
		}
	}

	return start
}

// book takes GPUs for a run, or gives them back if they are less than 0.
func (p profile) book(start time.Duration, gpus int, run time.Duration) profile {
	p = p.cut(start).cut(start + run)
	for i := p.last(start); i < len(p) && p[i].at < start+run; i++ {
		p[i].free -= gpus
	}

	return p
}

// cut makes a time a step of its own.
func (p profile) cut(t time.Duration) profile {
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
