package yardmaster

import (
	"time"

	"trainyard/internal/yardmaster/timers"
)

func (y *Yard) after(at time.Time, due func()) *timers.Timer {
	return y.timers.After(at, func(time.Time) { due() })
}

// Tick lets time pass: timers that are due fire.
type Tick struct{}

func (Tick) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	// After a long time without a tick the server was suspended, or its clock was set forward.
	if !y.lastTick.IsZero() && y.cfg.Stalled(y.now.Sub(y.lastTick)) {
		y.nodes.ResetSilence(y.now)

		for _, run := range y.runs {
			y.touch(y.jobs[run.Job])
		}

		if y.incarnation.Unsettled() {
			y.awaitSettled() // the contact leases of nodes did not count that time either
		}
	}

	y.lastTick = y.now
	for due, ok := y.timers.Due(y.now); ok; due, ok = y.timers.Due(y.now) {
		due(y.now)
	}

	return nil, nil
}

// NextTimer returns when the next timer is due, and zero if there is none.
func (y *Yard) NextTimer() time.Time { return y.timers.Next() }

// Idle reports whether a tick is needed so that the yard does not take the time since the
// last one for a suspension.
func (y *Yard) Idle(now time.Time) bool { return y.cfg.TickDue(now.Sub(y.lastTick)) }
