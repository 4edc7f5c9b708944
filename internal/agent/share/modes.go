package share

import "time"

// Where a queue counts as always full, as mostly empty, and how much less than its share a job may get in open mode.
const (
	saturation = 0.9
	idleness   = 0.5
	tolerance  = 0.95
)

// demand is how busy a job's queue on the GPU was of late: looks at it, and how many found it empty.
type demand struct {
	looks, empty float64
}

// demandFade is what one report leaves of the older ones: about a second counts.
const demandFade = 0.8

// enoughLooks is how many looks a decision needs.
const enoughLooks = 50

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

// measure enters what a job reports of its queue.
func (a *arbiter) measure(now time.Time, id string, looks, empty uint64) {
	a.settle(now)

	if c := a.clients[id]; c != nil {
		c.demand.add(looks, empty)
	}

	a.decide(now)
}

// got estimates which part of the GPU the driver's time-slicing gives a job: those that are busy at the same time get
// equal parts.
func (a *arbiter) got(c *client) float64 {
	others := 0.0
	for _, o := range a.clients {
		if o != c {
			others += o.demand.busy()
		}
	}

	return c.demand.busy() / (1 + others)
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
	a.tight = time.Time{}
	a.floor = 0

	for _, c := range a.clients {
		if c.lost {
			a.found(c)
		}

		c.wants = false
		c.virtual = 0
		c.demand = demand{}
	}

	a.do(actMode, "", a.measuring)
}

// measures reports whether the demand of jobs matters: not if there is one job, nor if terms decide the mode.
func (a *arbiter) measures() bool {
	return a.mode == Open || a.mode == Token && !a.needsToken()
}

// wanted returns the mode that terms and demand ask for.
func (a *arbiter) wanted(now time.Time) Mode {
	switch {
	case a.fixed != Whole:
		return a.fixed
	case a.needsToken():
		return Token
	case len(a.clients) <= 1:
		return Whole
	}

	// The token comes first, also for equal weights: only who has the GPU alone can be seen to leave it idle.
	switch {
	case a.mode == Open:
		return a.fromOpen(now)
	case a.mode == Token && !now.Before(a.stay) && a.wasteful():
		a.look = now.Add(a.trust)
		a.trust = min(2*a.trust, 60*a.tuning.Retry)

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
		if c.demand.looks >= enoughLooks/2 && c.demand.busy() < 1-idleness {
			return true
		}
	}

	return false
}

// fromOpen returns Token if for a while a job has got less than its share, or several always have work: then turns
// cost less than the driver's time-slicing, and keep the shares. It also does from time to time to look again.
func (a *arbiter) fromOpen(now time.Time) Mode {
	saturated, deprived := 0, false
	sum := a.weights()

	for _, c := range a.clients {
		if c.demand.looks < enoughLooks || c.demand.busy() < saturation {
			continue
		}

		saturated++
		deprived = deprived || a.got(c) < tolerance*c.terms.Weight/sum
	}

	if saturated < 2 && !deprived {
		a.tight = time.Time{}

		if now.Before(a.look) {
			return Open
		}

		return Token
	}

	if a.tight.IsZero() {
		a.tight = now
	}

	if now.Sub(a.tight) < a.tuning.Dwell {
		return Open
	}

	a.stay = now.Add(a.retry)
	a.retry = min(2*a.retry, 60*a.tuning.Retry)

	return Token
}
