package yardmaster

import (
	"time"

	"trainyard/internal/yardmaster/timers"
)

func (y *Yard) after(at time.Time, due func()) *timers.Timer {
	return y.timers.After(at, func(time.Time) { due() })
}

// Tick lets time pass: what has fallen due happens.
type Tick struct{}

func (Tick) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	// A yard that did not tick for long was itself asleep, or its clock was set forward.
	if y.cfg.SuspectAfter > 0 && !y.lastTick.IsZero() && y.now.Sub(y.lastTick) > y.cfg.SuspectAfter/2 {
		y.nodes.ResetSilence(y.now)
	}

	y.lastTick = y.now
	for due, ok := y.timers.Due(y.now); ok; due, ok = y.timers.Due(y.now) {
		due(y.now)
	}

	return nil, nil
}

// NextTimer returns when the next thing falls due, and zero if nothing does.
func (y *Yard) NextTimer() time.Time { return y.timers.Next() }

// Idle reports whether the yard has not ticked for so long that it would take
// the silence for its own sleep.
func (y *Yard) Idle(now time.Time) bool { return now.Sub(y.lastTick) > y.cfg.SuspectAfter/8 }
