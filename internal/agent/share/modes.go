package share

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// idleness is from which part of its turns that a job leaves the GPU idle others should have it meanwhile.
	idleness = 0.5
	// slicing is what the driver's time-slicing leaves of the throughput of jobs that always have work.
	slicing = 0.93
	// steady is how much the launches of a job on an open GPU may change, as a factor, before it counts as another kind
	// of work.
	steady = 1.4
	// enoughLooks is how many looks at a queue a decision needs.
	enoughLooks = 25
	// demandFade is what one report leaves of the older ones: about a second counts.
	demandFade = 0.9
)

// demand is how busy a job's queue on the GPU was of late: looks at it during its turns, and how many found it empty.
type demand struct {
	looks, empty float64
}

func (d *demand) add(looks, empty uint64) {
	d.looks = d.looks*demandFade + float64(looks)
	d.empty = d.empty*demandFade + float64(min(empty, looks))
}

// busy returns for which part of the time there was something in the queue: all of it while that is unknown.
func (d *demand) busy() float64 {
	if d.looks == 0 {
		return 1
	}

	return 1 - d.empty/d.looks
}

// pace is how often a job launches on an open GPU, where its queue says nothing: what waits there may wait for the
// neighbours' time slices. Launches are counted in windows, of which the first is what the others are compared with.
type pace struct {
	until    time.Time // the end of this window
	launches uint64    // in this window
	usual    uint64    // in the first one
	counted  int       // windows that are over
	changed  int       // of them, the last that were different
	idle     bool      // nothing was launched in the last one
}

// add enters launches; windows begin a little after the GPU was opened.
func (p *pace) add(now time.Time, window time.Duration, launches uint64) {
	p.launches += launches
	if now.Before(p.until) {
		return
	}

	switch {
	case p.counted == 0: // some of these were launched before
	case p.counted == 1:
		p.usual = p.launches
	case float64(p.launches) > steady*float64(p.usual) || steady*float64(p.launches) < float64(p.usual):
		p.changed++
	default:
		p.changed = 0
	}

	p.idle = p.launches == 0
	p.counted++
	p.launches = 0
	p.until = now.Add(window)
}

// wish returns which part of the time a job would use the GPU if it were alone.
func (c *client) wish() float64 {
	if c.pace.idle {
		return 0
	}

	return c.demand.busy()
}

// measure enters what a job reports: looks at its queue during its turns, and launches.
func (a *arbiter) measure(now time.Time, id string, looks, empty, launches uint64) {
	a.settle(now)

	c := a.clients[id]
	switch {
	case c == nil:
	case a.mode == Open:
		c.pace.add(now, a.tuning.Dwell/2, launches)
	default:
		c.demand.add(looks, empty)
	}

	a.decide(now)
}

// got estimates which part of an open GPU each job has: time-slicing gives equal parts to those that want more than
// that, and the others all they want.
func (a *arbiter) got() map[string]float64 {
	jobs := slices.SortedFunc(maps.Values(a.clients), func(x, y *client) int {
		return cmp.Or(cmp.Compare(x.wish(), y.wish()), cmp.Compare(x.id, y.id))
	})

	parts, left := map[string]float64{}, 1.0
	for i, c := range jobs {
		parts[c.id] = min(c.wish(), left/float64(len(jobs)-i))
		left -= parts[c.id]
	}

	return parts
}

// fix sets a mode that needs no decisions, or Whole to decide again.
func (a *arbiter) fix(now time.Time, mode Mode) {
	a.settle(now)
	a.fixed = mode
	a.decide(now)
}

// chooseMode switches the mode if that is needed.
func (a *arbiter) chooseMode(now time.Time) {
	mode, measured := a.wanted(now), a.measuring
	same := mode == a.mode
	a.mode = mode
	a.measuring = a.measures()

	switch {
	case same && a.measuring != measured:
		a.do(actMeasure, "", a.measuring)
		return
	case same:
		return
	}

	a.holder = nil
	a.revoked = time.Time{}
	a.floor = 0

	for _, c := range a.clients {
		if c.lost {
			a.found(c)
		}

		c.wants = false
		c.virtual = 0
		c.pace = pace{}

		// How busy jobs are is seen while they take turns, and is what holds while the GPU is open.
		if mode != Open {
			c.demand = demand{}
		}
	}

	a.do(actMode, "", a.measuring)
}

// measures reports whether the demand of jobs matters: not if there is one job, nor if terms decide the mode.
func (a *arbiter) measures() bool {
	return a.mode == Open || a.mode == Token && !a.needsToken()
}

// wanted returns the mode that terms and demand ask for. The token comes first, also for equal weights: two that always
// have work lose less by turns than by time-slicing, and only who has the GPU alone can be seen to leave it idle.
func (a *arbiter) wanted(now time.Time) Mode {
	switch {
	case a.fixed != Whole:
		return a.fixed
	case a.needsToken():
		return Token
	case len(a.clients) <= 1:
		return Whole
	case a.mode == Open && !a.looksAgain(now):
		return Open
	case a.mode == Open:
		a.closed = now
		return Token
	case a.mode == Token && a.wasteful() && a.fits():
		a.open(now)
		return Open
	}

	return Token
}

// needsToken reports whether the terms can only be kept with a token: limits, and jobs of several classes.
func (a *arbiter) needsToken() bool {
	var class *Class
	for _, c := range a.clients {
		if c.terms.limited() || class != nil && *class != c.terms.Class {
			return true
		}

		class = &c.terms.Class
	}

	return false
}

// wasteful reports whether some job leaves the GPU idle for most of the time it has it: others could use it then.
func (a *arbiter) wasteful() bool {
	for _, c := range a.clients {
		if c.demand.looks >= enoughLooks && c.demand.busy() < 1-idleness {
			return true
		}
	}

	return false
}

// fits reports whether every job would get its share, or all it wants, if the GPU were open.
func (a *arbiter) fits() bool {
	parts, sum := a.got(), a.weights()
	for _, c := range a.clients {
		if parts[c.id] < c.wish() && slicing*parts[c.id] < c.terms.Weight/sum {
			return false
		}
	}

	return true
}

// open notes when an open GPU is looked at again: later every time that a look has changed nothing.
func (a *arbiter) open(now time.Time) {
	if !a.closed.IsZero() && now.Sub(a.closed) < a.tuning.Dwell {
		a.trust = min(2*a.trust, a.tuning.Trust)
	} else {
		a.trust = a.tuning.Retry
	}

	a.opened = now
}

// looksAgain reports whether it is time to let jobs take turns and see how busy they are: every now and then, and
// sooner if a job has begun to launch more or less often.
func (a *arbiter) looksAgain(now time.Time) bool {
	passed := now.Sub(a.opened)
	if passed >= a.trust {
		return true
	}

	// Each window is half of the time that a change has to last.
	for _, c := range a.clients {
		if c.pace.changed >= 2 {
			return passed >= a.trust/4
		}
	}

	return false
}
