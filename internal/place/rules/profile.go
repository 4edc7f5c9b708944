package rules

import (
	"math"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// size is how much of a room: what a rank takes, or what is free.
type size struct {
	gpus   int
	cpus   job.CPUs
	memory job.Bytes
}

// units is what a rank takes of a room.
func units(n *fleet.Need) size { return size{n.GPUs, n.CPUs, n.Memory} }

// holds reports whether a rank fits.
func (s size) holds(n size) bool { return s.gpus >= n.gpus && s.cpus >= n.cpus && s.memory >= n.memory }

func (s size) plus(n size) size { return size{s.gpus + n.gpus, s.cpus + n.cpus, s.memory + n.memory} }

func (s size) minus(n size) size {
	return size{s.gpus - n.gpus, s.cpus - n.cpus, s.memory - n.memory}
}

// step is what is free from some time on, counted from now.
type step struct {
	at   time.Duration
	free size
}

// profile is what will be free in a room as time passes: never empty, the first step
// is now.
type profile []step

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// until returns when something ends that begins then and lasts so long.
func until(at, lasts time.Duration) time.Duration {
	if lasts > never-at {
		return never
	}
	return at + lasts
}

// earliest returns when so much is free for so long, never if not by latest.
func (p profile) earliest(n size, lasts, latest time.Duration) time.Duration {
	for i := 0; i < len(p); i++ {
		at := p[i].at
		if at > latest {
			return never
		}
		if !p[i].free.holds(n) {
			continue
		}
		end, ok := until(at, lasts), true
		for k := i + 1; k < len(p) && p[k].at < end; k++ {
			if !p[k].free.holds(n) {
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

// fits reports whether so much is free from then on for so long.
func (p profile) fits(at time.Duration, n size, lasts time.Duration) bool {
	end := until(at, lasts)
	for i := range p {
		if i+1 < len(p) && p[i+1].at <= at {
			continue
		}
		if p[i].at >= end && p[i].at > at {
			break
		}
		if !p[i].free.holds(n) {
			return false
		}
	}
	return true
}

// at returns what is free at a time.
func (p profile) at(t time.Duration) size {
	n := p[0].free
	for i := range p {
		if p[i].at > t {
			break
		}
		n = p[i].free
	}
	return n
}

// from returns the profile from a time on.
func (p profile) from(t time.Duration) profile {
	i := 0
	for i+1 < len(p) && p[i+1].at <= t {
		i++
	}
	rest := slices.Clone(p[i:])
	rest[0].at = max(rest[0].at, t)
	return rest
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

// give adds what is free from a time on.
func (p *profile) give(at time.Duration, n size) {
	for k := p.cut(at); k < len(*p); k++ {
		(*p)[k].free = (*p)[k].free.plus(n)
	}
}

// book takes something for a while.
func (p *profile) book(at time.Duration, n size, lasts time.Duration) {
	from := p.cut(at)
	to := p.cut(until(at, lasts))
	for i := from; i < to; i++ {
		(*p)[i].free = (*p)[i].free.minus(n)
	}
}
