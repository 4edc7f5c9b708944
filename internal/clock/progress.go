package clock

import (
	"context"
	"time"
)

// Progress returns a context that ends with context.DeadlineExceeded as its cause when moved is not called for d.
// It is for work that may take long but must not stand still. stop must be called in the end.
func Progress(parent context.Context, d time.Duration) (ctx context.Context, moved, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	t := time.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })

	return ctx, func() { t.Reset(d) }, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}

// Alarm calls a function when something takes longer than it may.
type Alarm struct{ timer *time.Timer }

// NewAlarm returns an alarm that calls fn. It is not set yet.
func NewAlarm(fn func()) *Alarm {
	t := time.AfterFunc(time.Hour, fn)
	t.Stop()

	return &Alarm{timer: t}
}

// Set sets the alarm to go off after d.
func (a *Alarm) Set(d time.Duration) { a.timer.Reset(d) }

// Stop keeps the alarm from going off.
func (a *Alarm) Stop() { a.timer.Stop() }
