package yardmaster

import (
	"time"

	"trainyard/internal/yardmaster/agenda"
)

// timer is something that falls due.
type timer = agenda.Entry[func(*Yard)]

func (y *Yard) after(at time.Time, due func(y *Yard)) *timer { return y.timers.After(at, due) }

func (y *Yard) drop(t *timer) { y.timers.Drop(t) }

// Tick lets time pass: what has fallen due happens.
type Tick struct{}

func (Tick) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	// A yard that did not tick for long was itself asleep, or its clock was set
	// forward. That nodes were not heard meanwhile says nothing about them.
	if y.cfg.SuspectAfter > 0 && !y.ticked.IsZero() && y.now.Sub(y.ticked) > y.cfg.SuspectAfter/2 {
		for _, n := range y.nodes {
			n.seen = y.now
		}
	}
	y.ticked = y.now
	for due, ok := y.timers.Due(y.now); ok; due, ok = y.timers.Due(y.now) {
		due(y)
	}
	return nil, nil
}

// NextTimer returns when the next thing falls due, and zero if nothing does.
func (y *Yard) NextTimer() time.Time { return y.timers.Next() }

// Idle reports whether the yard has not ticked for so long that it would take
// the silence for its own sleep.
func (y *Yard) Idle(now time.Time) bool { return now.Sub(y.ticked) > y.cfg.SuspectAfter/8 }
