package timeline

import (
	"math"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// Size is an amount of the resources of one node: what a rank of a job takes, or what is free.
type Size struct {
	GPUs   int
	CPUs   job.CPUs
	Memory job.Bytes
}

// SizeOf returns what each rank of a job takes of its node.
func SizeOf(n *fleet.Need) Size { return Size{n.GPUs, n.CPUs, n.Memory} }

// Holds reports whether n fits into s.
func (s Size) Holds(n Size) bool { return s.GPUs >= n.GPUs && s.CPUs >= n.CPUs && s.Memory >= n.Memory }

// Plus returns the sum of both.
func (s Size) Plus(n Size) Size { return Size{s.GPUs + n.GPUs, s.CPUs + n.CPUs, s.Memory + n.Memory} }

func (s Size) minus(n Size) Size {
	return Size{s.GPUs - n.GPUs, s.CPUs - n.CPUs, s.Memory - n.Memory}
}

// step is what is free from a time on, as a duration from now.
type step struct {
	at   time.Duration
	free Size
}

// profile is what will be free in a room over time. It is never empty, and its first step is at 0,
// which is now.
type profile []step

// Never is later than any other time.
const Never = time.Duration(math.MaxInt64)

// until returns the end of something that begins at a time and lasts that long, without overflow.
func until(at, lasts time.Duration) time.Duration {
	if lasts > Never-at {
		return Never
	}

	return at + lasts
}

// earliest returns the first time from which on n is free for the whole duration, Never if there is
// none by latest.
func (p profile) earliest(n Size, lasts, latest time.Duration) time.Duration {
	return p.earliestFrom(0, n, lasts, latest)
}

// earliestFrom is earliest for a time that is not before from.
func (p profile) earliestFrom(from time.Duration, n Size, lasts, latest time.Duration) time.Duration {
	i := 0
	for i+1 < len(p) && p[i+1].at <= from {
		i++
	}

	for ; i < len(p); i++ {
		at := max(p[i].at, from)
		if at > latest {
			return Never
		}
		if !p[i].free.Holds(n) {
			continue
		}

		end, ok := until(at, lasts), true
		for k := i + 1; k < len(p) && p[k].at < end; k++ {
			if !p[k].free.Holds(n) {
				i, ok = k, false // a start before step k would overlap it
				break
			}
		}

		if ok {
			return at
		}
	}

	return Never
}

// fits reports whether n is free from a time on for the whole duration.
func (p profile) fits(at time.Duration, n Size, lasts time.Duration) bool {
	end := until(at, lasts)
	for i := range p {
		if i+1 < len(p) && p[i+1].at <= at {
			continue
		}
		if p[i].at >= end && p[i].at > at {
			break
		}
		if !p[i].free.Holds(n) {
			return false
		}
	}

	return true
}

// at returns what is free at a time.
func (p profile) at(t time.Duration) Size {
	n := p[0].free
	for i := range p {
		if p[i].at > t {
			break
		}

		n = p[i].free
	}

	return n
}

// cut makes a step begin at a time and returns its index.
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

// release adds n to what is free from a time on.
func (p *profile) release(at time.Duration, n Size) {
	for k := p.cut(at); k < len(*p); k++ {
		(*p)[k].free = (*p)[k].free.Plus(n)
	}
}

// reserve subtracts n from what is free for a duration.
func (p *profile) reserve(at time.Duration, n Size, lasts time.Duration) {
	from := p.cut(at)
	to := p.cut(until(at, lasts))
	for i := from; i < to; i++ {
		(*p)[i].free = (*p)[i].free.minus(n)
	}
}
