package ledger

import (
	"slices"
	"time"

	"trainyard/internal/tenant"
)

// cutter takes postings in the order of the ledger and emits the pieces of them that lie in a
// period, none of which crosses a border. The postings of one entry are cut together, so that
// their pieces add up exactly to the piece of the entry.
type cutter struct {
	from, to time.Time                 // zero for no end on that side
	next     func(time.Time) time.Time // the first border after a time; nil if there are none
	emit     func(p *Posting, at time.Time, v vector)
	entry    []Posting // postings to be cut, until the entry is complete
	a, b     []vector
}

// add takes the next posting.
func (c *cutter) add(p *Posting) {
	if len(c.entry) > 0 && !p.same(&c.entry[0]) {
		c.flush()
	}

	switch {
	case !c.within(p):
	case c.crosses(p):
		c.entry = append(c.entry, *p)
	default:
		c.emit(p, p.From, p.vector())
	}
}

// within reports whether a part of a posting lies in the period.
func (c *cutter) within(p *Posting) bool {
	return (c.to.IsZero() || p.From.Before(c.to)) &&
		(c.from.IsZero() || !p.From.Before(c.from) || p.To.After(c.from))
}

func (c *cutter) crosses(p *Posting) bool {
	return p.From.Before(c.from) || !c.to.IsZero() && p.To.After(c.to) || c.next != nil && c.next(p.From).Before(p.To)
}

// flush emits the pieces of the entry.
func (c *cutter) flush() {
	if len(c.entry) == 0 {
		return
	}

	from, to := c.entry[0].From, c.entry[0].To
	den := millis(to.Sub(from))

	begin, end := from, to
	if begin.Before(c.from) {
		begin = c.from
	}

	if !c.to.IsZero() && c.to.Before(end) {
		end = c.to
	}

	c.a = slices.Grow(c.a[:0], len(c.entry))[:len(c.entry)]
	c.b = slices.Grow(c.b[:0], len(c.entry))[:len(c.entry)]
	prefixOf(c.entry, millis(begin.Sub(from)), den, c.a)

	for begin.Before(end) {
		stop := end
		if c.next != nil {
			if border := c.next(begin); border.Before(end) {
				stop = border
			}
		}

		prefixOf(c.entry, millis(stop.Sub(from)), den, c.b)

		for i := range c.entry {
			if piece := c.b[i].minus(c.a[i]); piece != (vector{}) {
				c.emit(&c.entry[i], begin, piece)
			}
		}

		c.a, c.b = c.b, c.a
		begin = stop
	}

	c.entry = c.entry[:0]
}

// nextHour, nextDay, nextWeek and nextMonth return the first border after a time, in UTC.
func nextHour(t time.Time) time.Time  { return t.UTC().Truncate(time.Hour).Add(time.Hour) }
func nextDay(t time.Time) time.Time   { return tenant.Day.End(t) }
func nextWeek(t time.Time) time.Time  { return tenant.Week.End(t) }
func nextMonth(t time.Time) time.Time { return tenant.Month.End(t) }
