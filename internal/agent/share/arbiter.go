package share

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// act is something that the arbiter wants done.
type act struct {
	what actKind
	job  string // "" for all jobs
	on   bool   // of contend: the queue is kept short; of grant: the same; of mode: measure demand
}

type actKind int

const (
	actGrant actKind = iota
	actRevoke
	actContend
	actMode
	actMeasure // whether demand is measured has changed, and the mode has not
	actLost    // the job does not give the GPU back
	actFound   // it has
)

// client is a job that uses the GPU.
type client struct {
	id    string
	terms Terms
	use   Use

	virtual float64 // seconds of the GPU that it had, divided by its weight
	wants   bool
	since   time.Time // wants
	lost    bool

	limit     float64 // seconds that it may still use before its limit stops it
	exhausted bool    // it has reached its limit, and some of it must come back first
	guarantee float64 // seconds of its share that it has not used
	favoured  bool    // its guarantee puts it before normal jobs

	demand demand
	pace   pace
}

// arbiter decides who has the GPU. Time is what its callers say; they carry out what take returns after every call,
// and call tick at the time that next returns.
type arbiter struct {
	tuning Tuning
	fixed  Mode // MIG or MPS; Whole to choose
	mode   Mode

	measuring bool // jobs have to measure their demand

	clients map[string]*client
	settled time.Time // until when the accounts are right
	floor   float64   // the least virtual time that anyone who has or wants the GPU ever had

	holder    *client
	granted   time.Time // to the holder
	revoked   time.Time // zero while it may keep the GPU
	contended bool      // what the holder knows: it keeps its queue short

	opened time.Time     // when the GPU was opened
	trust  time.Duration // how long it stays open before jobs take turns to show whether they still leave it idle
	closed time.Time     // when they last began to do so; zero while these jobs have not

	acts []act
}

func newArbiter(t Tuning) *arbiter {
	return &arbiter{tuning: t, clients: map[string]*client{}}
}

// take returns what is to be done, and forgets it.
func (a *arbiter) take() []act {
	acts := a.acts
	a.acts = nil

	return acts
}

func (a *arbiter) do(what actKind, job string, on bool) {
	a.acts = append(a.acts, act{what: what, job: job, on: on})
}

// quantum returns how long a turn is now, in seconds.
func (a *arbiter) quantum() float64 {
	for _, c := range a.clients {
		if c.terms.Interactive {
			return a.tuning.InteractiveQuantum.Seconds()
		}
	}

	return a.tuning.Quantum.Seconds()
}

// join adds a job that begins to use the GPU.
func (a *arbiter) join(now time.Time, id string, terms Terms) {
	a.settle(now)

	depth := a.tuning.Depth.Seconds()
	a.clients[id] = &client{id: id, terms: terms, limit: depth, guarantee: depth, virtual: a.floor}
	a.closed = time.Time{}
	a.decide(now)
}

// leave removes a job whose last process is gone.
func (a *arbiter) leave(now time.Time, id string) {
	c := a.clients[id]
	if c == nil {
		return
	}

	a.settle(now)
	delete(a.clients, id)

	if a.holder == c {
		a.holder = nil
	}

	a.closed = time.Time{}
	a.decide(now)
}

// change gives a job other terms.
func (a *arbiter) change(now time.Time, id string, terms Terms) {
	a.settle(now)

	if c := a.clients[id]; c != nil {
		c.terms = terms
		c.exhausted = c.exhausted && terms.limited()
	}

	a.decide(now)
}

// want says that a job wants to launch.
func (a *arbiter) want(now time.Time, id string) {
	a.settle(now)

	c := a.clients[id]
	if c == nil || a.mode != Token {
		return
	}

	if c.lost {
		a.found(c)
	}

	if a.holder != c && !c.wants {
		// Whoever was away has not saved up time: at most a turn.
		c.virtual = max(c.virtual, a.floor-a.quantum()/c.terms.Weight)
		c.wants = true
		c.since = now
	}

	a.decide(now)
}

// release says that a job has given the GPU back.
func (a *arbiter) release(now time.Time, id string) {
	a.settle(now)

	c := a.clients[id]
	if c == nil {
		return
	}

	if c.lost {
		a.found(c)
	}

	if a.holder == c {
		a.holder = nil
	}

	a.decide(now)
}

// found ends the time of a job that did not answer. It is charged for it, but not so much that it never comes back.
func (a *arbiter) found(c *client) {
	c.lost = false
	c.virtual = min(c.virtual, a.floor+a.tuning.Patience.Seconds()/c.terms.Weight)
	a.do(actFound, c.id, false)
}

// tick does what time alone makes necessary.
func (a *arbiter) tick(now time.Time) {
	a.settle(now)
	a.decide(now)
}

// raiseFloor lets the floor follow those who have or want the GPU.
func (a *arbiter) raiseFloor() {
	least := math.Inf(1)

	for _, c := range a.clients {
		if c == a.holder || c.wants {
			least = min(least, c.virtual)
		}
	}

	if !math.IsInf(least, 1) {
		a.floor = max(a.floor, least)
	}
}

// weights returns the sum of all weights.
func (a *arbiter) weights() float64 {
	sum := 0.0
	for _, c := range a.clients {
		sum += c.terms.Weight
	}

	return sum
}

// settle enters the time since it was called last in the accounts.
func (a *arbiter) settle(now time.Time) {
	passed := now.Sub(a.settled)
	if a.settled.IsZero() || passed < 0 {
		passed = 0
	}

	a.settled = now

	seconds := passed.Seconds()
	parts := a.portions()
	depth := a.tuning.Depth.Seconds()
	scale := max(a.weights(), 1)

	for _, c := range a.clients {
		held, demanded := parts(c)
		c.use.Held += time.Duration(held * float64(passed))
		c.use.Demanded += time.Duration(demanded * float64(passed))
		c.use.Entitled += time.Duration(demanded * c.terms.Weight / scale * float64(passed))

		if a.mode == Token {
			c.virtual += held * seconds / c.terms.Weight
		}

		c.limit = min(c.limit+(c.terms.Limit-held)*seconds, depth)
		c.guarantee = min(c.guarantee+(c.terms.Weight/scale-held)*seconds, depth)
		a.updateBuckets(c)
	}

	a.raiseFloor()
}

// updateBuckets sees whether a job has reached its limit, and whether its guarantee puts it first. What was empty must
// fill up a little before it counts again, or turns would be as short as the clock is fine.
func (a *arbiter) updateBuckets(c *client) {
	switch {
	case !c.terms.limited():
		c.exhausted = false
		c.limit = a.tuning.Depth.Seconds()
	case c.limit <= 0:
		c.exhausted = true
	case c.limit >= a.refill():
		c.exhausted = false
	}

	// A job that was served beyond its share is not in debt for it.
	c.guarantee = max(c.guarantee, -a.tuning.Depth.Seconds())

	switch {
	case c.terms.Class != Guaranteed || c.guarantee <= 0:
		c.favoured = false
	case c.guarantee >= a.refill():
		c.favoured = true
	}
}

// refill is how many seconds must be in a bucket that was empty.
func (a *arbiter) refill() float64 {
	return min(a.quantum()/3, a.tuning.Depth.Seconds()/2)
}

// portions returns a function that says which part of the GPU a job has at the moment, and which part of the time it
// has or wants it.
func (a *arbiter) portions() func(*client) (held, demanded float64) {
	switch a.mode {
	case Whole, MIG:
		return func(*client) (float64, float64) { return 1, 1 }
	case Open, MPS:
		parts := a.got()
		return func(c *client) (float64, float64) { return parts[c.id], c.wish() }
	case Token:
	}

	return func(c *client) (float64, float64) {
		switch {
		case c == a.holder || c.lost:
			return 1, 1
		case c.wants:
			return 0, 1
		}

		return 0, 0
	}
}

// rank orders jobs before virtual time does.
func (c *client) rank() int {
	switch {
	case c.favoured:
		return 2
	case c.terms.Class == Opportunistic:
		return 0
	}

	return 1
}

// best returns the job that has the next claim on the GPU, nil if none wants it.
func (a *arbiter) best() *client {
	var best *client
	for _, id := range slices.Sorted(maps.Keys(a.clients)) {
		c := a.clients[id]
		if !c.wants || c.lost || c.exhausted {
			continue
		}

		if best == nil || compare(c, best) < 0 {
			best = c
		}
	}

	return best
}

func compare(x, y *client) int {
	return cmp.Or(
		-cmp.Compare(x.rank(), y.rank()),
		cmp.Compare(x.virtual, y.virtual),
		x.since.Compare(y.since),
	)
}

// decide grants and revokes.
func (a *arbiter) decide(now time.Time) {
	a.chooseMode(now)

	if a.mode != Token {
		return
	}

	if a.holder != nil && !a.revoked.IsZero() && now.Sub(a.revoked) >= a.tuning.Patience {
		a.do(actLost, a.holder.id, false)
		a.holder.lost = true
		a.holder = nil
	}

	next := a.best()
	if a.holder == nil && next != nil {
		a.grant(now, next)
		return
	}

	if a.holder == nil || !a.revoked.IsZero() {
		return
	}

	if bound := a.bounds(next); bound != a.contended {
		a.contended = bound
		a.do(actContend, a.holder.id, bound)
	}

	if due := a.revocation(now, next); !due.IsZero() && !due.After(now) {
		a.revoked = now
		a.do(actRevoke, a.holder.id, false)
	}
}

// bounds reports whether the holder has to keep its queue short: others wait for the GPU, or its limit will end its
// turn, which would go on beyond that for as long as the queue is.
func (a *arbiter) bounds(next *client) bool { return next != nil || a.holder.terms.limited() }

func (a *arbiter) grant(now time.Time, c *client) {
	c.wants = false
	c.use.Grants++
	a.holder = c
	a.granted = now
	a.revoked = time.Time{}
	a.contended = a.bounds(a.best())
	a.do(actGrant, c.id, a.contended)
}

// revocation returns when the holder has to give the GPU back if nothing else happens, zero for never.
func (a *arbiter) revocation(now time.Time, next *client) time.Time {
	h := a.holder
	var due time.Time

	if h.terms.limited() {
		due = later(now, h.limit/(1-h.terms.Limit))
	}

	switch {
	case next == nil || next.rank() < h.rank():
		return due
	case next.rank() > h.rank():
		return now
	}

	// The holder's virtual time passes that of the other: the turn ends with the quantum, or soon if the other is more
	// than a quantum behind. While the holder is behind it keeps the GPU, without a drain.
	ahead := h.virtual - next.virtual
	quantum := a.quantum()
	turn := latest(a.granted.Add(seconds(quantum)), later(now, -ahead*h.terms.Weight))
	short := latest(a.granted.Add(a.tuning.Short), later(now, (quantum/next.terms.Weight-ahead)*h.terms.Weight))

	return earliest(due, earliest(turn, short))
}

// next returns when tick has to be called, zero if time alone changes nothing.
func (a *arbiter) next(now time.Time) time.Time {
	var due time.Time
	if a.mode == Open || a.mode == Token && len(a.clients) > 1 {
		due = later(now, a.tuning.Dwell.Seconds()/8)
	}

	if a.mode != Token {
		return due
	}

	for _, c := range a.clients {
		if c.wants && c.exhausted {
			due = earliest(due, later(now, (a.refill()-c.limit)/c.terms.Limit))
		}

		if c.terms.Class == Guaranteed && c.wants && !c.favoured {
			due = earliest(due, later(now, (a.refill()-c.guarantee)*max(a.weights(), 1)/c.terms.Weight))
		}
	}

	switch {
	case a.holder == nil:
		return due
	case !a.revoked.IsZero():
		return earliest(due, a.revoked.Add(a.tuning.Patience))
	}

	if a.holder.favoured {
		due = earliest(due, later(now, max(a.holder.guarantee, 0)))
	}

	return earliest(due, a.revocation(now, a.best()))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// later returns a time some seconds from now; never before, and a little after what is computed, so that what is
// waited for has surely happened.
func later(now time.Time, s float64) time.Time {
	if s <= 0 {
		return now
	}

	return now.Add(seconds(min(s, 1e6)) + 10*time.Microsecond)
}

func latest(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}

	return y
}

// earliest returns the earlier of two times of which the zero time is none.
func earliest(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}

	return x
}
