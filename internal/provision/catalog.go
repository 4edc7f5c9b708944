package provision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
)

// How long an offer is not requested again after a refusal. The time doubles with each
// refusal that follows the last one, and the count is forgotten after a success
// or when nothing was refused for a while.
const (
	firstWait  = time.Minute      // capacity comes and goes
	maxWait    = time.Hour        //
	firstQuota = 10 * time.Minute // a quota stays until someone has raised it or a node went back
	maxQuota   = 6 * time.Hour    //
	resetAfter = time.Hour        // at least, and as long as it was closed
)

// The prior and the decay of the interruption rate of spot nodes.
const (
	defaultLossRate = 0.05 // per hour, where nobody told
	priorHours      = 24.0 // what was told counts as much as what so many hours of a node show
	halfLife        = 7 * 24 * time.Hour
)

// Catalog is the offers and what was learned about them: what was refused
// recently, and how often spot nodes were interrupted. The yardmaster owns it and reports
// what happens to leases; after a restart Replay does. It is not safe for
// concurrent use.
type Catalog struct {
	offers        []fleet.Offer // cheapest first
	index         map[string]int
	backoffs      map[scope]*backoff
	interruptions map[string]*interruptions
	undivided     map[string]bool // providers whose nodes turned out not to divide their GPUs
	available     []fleet.Offer   // what Open answered
	validUntil    time.Time       // and until when that is right; zero if it never closes by itself
	valid         bool
}

// scope is what a refusal is about: which offers are not worth asking for. What is
// empty does not matter.
type scope struct {
	code     string
	provider string
	region   string
	zone     string
	kind     string // type, family of GPUs or name of an offer, by the code
	gpus     int    // that many on a node or more
	spot     bool
}

// backoff is how long a scope is not requested and how often in a row it was refused.
type backoff struct {
	from, until time.Time
	last        time.Time // refused, also while it was closed
	times       int
}

// record is what was seen of the spot nodes of an offer, faded by time.
type interruptions struct {
	losses, hours float64
	at            time.Time
}

// NewCatalog returns a catalog of these offers without any history.
func NewCatalog(offers []fleet.Offer) *Catalog {
	m := &Catalog{
		backoffs: map[scope]*backoff{}, interruptions: map[string]*interruptions{}, undivided: map[string]bool{},
	}
	m.Update(offers)

	return m
}

// Update replaces the offers, as when the price file has changed. What was learned stays.
func (m *Catalog) Update(offers []fleet.Offer) {
	m.offers = slices.Clone(offers)
	slices.SortStableFunc(m.offers, func(a, b fleet.Offer) int {
		return cmp.Or(cmp.Compare(a.Hourly, b.Hourly), strings.Compare(a.Name, b.Name))
	})
	m.index = make(map[string]int, len(m.offers))
	for i := range m.offers {
		o := &m.offers[i]
		m.index[o.Name] = i

		if m.undivided[o.Provider] {
			o.Shares = ""
		}
	}

	m.valid = false
}

// All returns all offers, cheapest first, whether or not they may be requested now. They must not be changed.
func (m *Catalog) All() []fleet.Offer { return m.offers }

// Undivided records that a node of an offer has joined that does not divide its GPUs, although it was to: no other
// offer of its provider is expected to, because all its machines have one image. Otherwise one after the
// other would be provisioned for a job that none of them can run.
func (m *Catalog) Undivided(o *fleet.Offer) {
	if m.undivided[o.Provider] {
		return
	}

	m.undivided[o.Provider] = true
	m.Update(m.offers)
}

// Offer returns an offer as it is now, with what was learned about its losses.
func (m *Catalog) Offer(name string) (fleet.Offer, bool) {
	i, ok := m.index[name]
	if !ok {
		return fleet.Offer{}, false
	}

	o := m.offers[i]
	o.LossRate = m.lossRate(&o)

	return o, true
}

// Available returns the offers that may be requested now, cheapest first, with what was
// learned about their losses. They must not be changed.
func (m *Catalog) Available(now time.Time) []fleet.Offer {
	if m.valid && (m.validUntil.IsZero() || now.Before(m.validUntil)) {
		return m.available
	}

	m.available, m.validUntil, m.valid = make([]fleet.Offer, 0, len(m.offers)), time.Time{}, true
	shut := m.inBackoff(now)
	for _, s := range shut {
		if end := m.backoffs[s].until; m.validUntil.IsZero() || end.Before(m.validUntil) {
			m.validUntil = end
		}
	}

next:
	for i := range m.offers {
		for k := range shut {
			if shut[k].covers(&m.offers[i]) {
				continue next
			}
		}

		m.available = append(m.available, m.offers[i])
		last := &m.available[len(m.available)-1]
		last.LossRate = m.lossRate(last)
	}

	return m.available
}

// inBackoff lists the scopes that must not be requested now, in a fixed order.
func (m *Catalog) inBackoff(now time.Time) []scope {
	var shut []scope
	for s, c := range m.backoffs {
		if now.Before(c.until) {
			shut = append(shut, s)
		}
	}

	slices.SortFunc(shut, compareScopes)

	return shut
}

// Refused records that the provider gave no node for an offer, and why, by one of the
// codes of package fleet. What was asked for before it was closed and is refused
// only now, as happens when several nodes are asked for at once, counts once.
func (m *Catalog) Refused(offer, code string, now time.Time) {
	i, ok := m.index[offer]
	if !ok {
		return // it is offered no more
	}

	s := scopeOf(&m.offers[i], code)
	c := m.backoffs[s]
	if c != nil && now.Before(c.until) {
		c.last = now
		return
	}

	if c == nil || !now.Before(c.resetAt()) {
		c = &backoff{}
		m.backoffs[s] = c
	}

	c.times++
	c.from, c.last, c.until = now, now, now.Add(s.wait(c.times))
	maps.DeleteFunc(m.backoffs, func(_ scope, c *backoff) bool { return !now.Before(c.resetAt()) })
	m.valid = false
}

// Granted records that the provider gave a node: earlier refusals are forgotten.
func (m *Catalog) Granted(offer string, now time.Time) {
	if i, ok := m.index[offer]; ok {
		m.reopen(now, func(s scope) bool { return s.covers(&m.offers[i]) })
	}
}

// Released records that a node of an offer has ended, so that a quota that was used up
// has room again for one like it.
func (m *Catalog) Released(offer string, now time.Time) {
	if i, ok := m.index[offer]; ok {
		m.reopen(now, func(s scope) bool {
			s.gpus = 0
			return s.code == fleet.RefusedQuota && s.covers(&m.offers[i])
		})
	}
}

// reopen forgets what was refused before now. Of what was refused at this very moment
// it is not known which came first, and the refusal counts: as the first one.
func (m *Catalog) reopen(now time.Time, about func(scope) bool) {
	for s, c := range m.backoffs {
		switch {
		case !about(s):
		case c.last.Before(now):
			delete(m.backoffs, s)
		default:
			*c = backoff{from: c.last, last: c.last, until: c.last.Add(s.wait(1)), times: 1}
		}
	}

	m.valid = false
}

// Interrupted records that the provider reclaimed a spot node.
func (m *Catalog) Interrupted(offer string, now time.Time) { m.observe(offer, 1, 0, now) }

// Uptime records how long a spot node was up until now, whether it was interrupted or not.
func (m *Catalog) Uptime(offer string, d time.Duration, now time.Time) {
	m.observe(offer, 0, max(d, 0).Hours(), now)
}

// observe adds to what was seen of an offer after that has faded to now: what
// happened a week ago counts half.
func (m *Catalog) observe(offer string, losses, hours float64, now time.Time) {
	if _, ok := m.index[offer]; !ok {
		return // it is offered no more
	}

	r := m.interruptions[offer]
	if r == nil {
		r = &interruptions{at: now}
		m.interruptions[offer] = r
	}

	if age := now.Sub(r.at); age > 0 {
		keep := decay(age.Hours() / halfLife.Hours())
		r.losses, r.hours, r.at = r.losses*keep, r.hours*keep, now
	}

	r.losses, r.hours = r.losses+losses, r.hours+hours
	m.valid = false
}

// lossRate returns how often a node of an offer is interrupted, per hour: what was
// seen, drawn to what the price file says as if that had been seen for a day.
func (m *Catalog) lossRate(o *fleet.Offer) float64 {
	if !o.Spot {
		return 0
	}

	prior := o.LossRate
	if prior <= 0 {
		prior = defaultLossRate
	}

	r := m.interruptions[o.Name]
	if r == nil {
		return prior
	}

	return (prior*priorHours + r.losses) / (priorHours + r.hours)
}

// Replay tells the market again what happened to leases, as after a restart. It
// gives the same as if it had been told at the time, whatever the order of the leases.
func (m *Catalog) Replay(leases []fleet.Lease) {
	type event struct {
		at   time.Time
		kind int
		l    *fleet.Lease
	}

	const granted, refused, ended = 0, 1, 2

	var events []event
	for i := range leases {
		l := &leases[i]
		if !l.Granted.IsZero() {
			events = append(events, event{l.Granted, granted, l})
		}

		switch {
		case l.State == fleet.LeaseRefused:
			events = append(events, event{l.Since, refused, l})
		case l.State == fleet.LeaseEnded && !l.Ended.IsZero():
			events = append(events, event{l.Ended, ended, l})
		}
	}

	slices.SortStableFunc(events, func(a, b event) int {
		first, _ := a.l.ID.Number()
		second, _ := b.l.ID.Number()
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(first, second))
	})

	for _, e := range events {
		switch e.kind {
		case granted:
			m.Granted(e.l.Offer.Name, e.at)
		case refused:
			m.Refused(e.l.Offer.Name, RefusalCode(e.l.Reason), e.at)
		case ended:
			m.Ended(e.l)
		}
	}
}

// Ended records that a lease has ended: how long its node was up, that it was interrupted
// if we had not released it, and that the quota has room for another.
func (m *Catalog) Ended(l *fleet.Lease) {
	if l.Granted.IsZero() {
		return
	}

	name := l.Offer.Name
	if l.Offer.Spot {
		m.Uptime(name, l.PaidTime(l.Ended), l.Ended)

		if l.Released.IsZero() {
			m.Interrupted(name, l.Ended)
		}
	}

	m.Released(name, l.Ended)
}

// RefusalCode returns the code that the reason of a refused lease begins with, as in
// "no_capacity: there is none of this type in us-east-1 now", and "" if there is none.
func RefusalCode(reason string) string {
	word, _, _ := strings.Cut(reason, ":")
	if slices.Contains(
		[]string{fleet.RefusedCapacity, fleet.RefusedQuota, fleet.RefusedPrice, fleet.RefusedInvalid, fleet.RefusedDenied},
		word,
	) {
		return word
	}

	return ""
}

// Backoff is a group of offers that are not requested until a time, because the provider refused them.
type Backoff struct {
	What   string // the group of offers: "aws spot p5.48xlarge in us-east-1"
	Why    string
	Since  time.Time
	Until  time.Time
	Times  int // refused in a row
	Offers int // that it keeps from being asked for
}

// String says it in a sentence.
func (c Backoff) String() string {
	times := "refused once"
	if c.Times > 1 {
		times = fmt.Sprintf("refused %d times in a row", c.Times)
	}

	return fmt.Sprintf("%s: %s; %s, last at %s; not requested until %s", c.What, c.Why, times,
		c.Since.UTC().Format("15:04:05 MST"), c.Until.UTC().Format("15:04:05 MST"))
}

// Backoffs lists what is not requested now, why, and until when, in a fixed order.
func (m *Catalog) Backoffs(now time.Time) []Backoff {
	var all []Backoff
	for _, s := range m.inBackoff(now) {
		c := m.backoffs[s]
		one := Backoff{What: s.what(), Why: s.why(), Since: c.from, Until: c.until, Times: c.times}
		for i := range m.offers {
			if s.covers(&m.offers[i]) {
				one.Offers++
			}
		}

		all = append(all, one)
	}

	return all
}

// resetAt is when a backoff no longer counts towards the next one.
func (c *backoff) resetAt() time.Time { return c.until.Add(max(resetAfter, c.until.Sub(c.from))) }
