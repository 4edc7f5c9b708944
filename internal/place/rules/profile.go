package rules

import (
	"math"
	"time"
)

// step is how many units are free from some time on, counted from now.
type step struct {
	at   time.Duration
	free int
}

// profile is what will be free in a room as time passes: never empty, the first step
// is now.
type profile []step

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// earliest returns when so many units are free for so long, never if not by latest.
func (p profile) earliest(units int, lasts, latest time.Duration) time.Duration {
	for i := 0; i < len(p); i++ {
		at := p[i].at
		if at > latest {
			return never
		}
		if p[i].free < units {
			continue
		}
		end, ok := at+lasts, true
		for k := i + 1; k < len(p) && p[k].at < end; k++ {
			if p[k].free < units {
				i, ok = k, false // what follows cannot start before that
				break
			}
		}
		if ok {
			return at
		}
	}
	return never
}

// fits reports whether so many units are free from then on for so long.
func (p profile) fits(at time.Duration, units int, lasts time.Duration) bool {
	end := at + lasts
	for i := range p {
		if i+1 < len(p) && p[i+1].at <= at {
			continue
		}
		if p[i].at >= end {
			break
		}
		if p[i].free < units {
			return false
		}
	}
	return true
}

// cut makes a time a step of its own and returns its place.
func (p *profile) cut(at time.Duration) int {
	for i := range *p {
		switch {
		case (*p)[i].at == at:
			return i
		case (*p)[i].at > at:
			*p = append(*p, step{})
			copy((*p)[i+1:], (*p)[i:])
			(*p)[i] = step{at, (*p)[i-1].free}
			return i
		}
	}
	*p = append(*p, step{at, (*p)[len(*p)-1].free})
	return len(*p) - 1
}

// book takes units for a while.
func (p *profile) book(at time.Duration, units int, lasts time.Duration) {
	from := p.cut(at)
	to := p.cut(at + lasts)
	for i := from; i < to; i++ {
		(*p)[i].free -= units
	}
}
