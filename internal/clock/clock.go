// Package clock is the only reader of the machine's clocks.
//
// Decisions never hold a Clock: they get the time as an argument. Edges get a
// Clock in their constructor, and loops wait with Every, so that tests and the
// simulator can replace it. Server and agent have a Steady, which no step of the wall clock
// moves; Wall is for what people's own machines show them.
package clock

import (
	"context"
	"time"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
}

// Wall is the machine's clock, which may be set at any moment. Server and agent use Steady.
type Wall struct{}

// Now returns the current time in UTC, with its monotonic reading.
func (Wall) Now() time.Time { return time.Now().Add(step()).UTC() }

// Every calls fn at once and then every d until ctx ends.
func Every(ctx context.Context, clk Clock, d time.Duration, fn func(now time.Time)) {
	t := time.NewTicker(d)
	defer t.Stop()

	for {
		fn(clk.Now())

		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Sleep waits for d or until ctx ends, and reports whether d passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Outcome says how a wait ended.
type Outcome int

// How a wait ends.
const (
	Passed Outcome = iota // the time passed
	Woken                 // the channel gave something
	Ended                 // the context ended
)

// Wait waits until something comes on one of the channels, d has passed or ctx ends.
func Wait(ctx context.Context, d time.Duration, wake ...<-chan struct{}) Outcome {
	t := time.NewTimer(d)
	defer t.Stop()

	var c [4]<-chan struct{} // a channel that is nil gives nothing
	if len(wake) > len(c) {
		waiting, stop := context.WithCancel(ctx)
		defer stop()

		c[0] = firstOf(waiting, wake)
	} else {
		copy(c[:], wake)
	}

	select {
	case <-c[0]:
		return Woken
	case <-c[1]:
		return Woken
	case <-c[2]:
		return Woken
	case <-c[3]:
		return Woken
	case <-ctx.Done():
		return Ended
	case <-t.C:
		return Passed
	}
}

// firstOf returns a channel that gives something when one of the channels does, until ctx ends.
func firstOf(ctx context.Context, channels []<-chan struct{}) <-chan struct{} {
	woken := make(chan struct{}, 1)

	for _, c := range channels {
		go func() {
			select {
			case <-c:
				select {
				case woken <- struct{}{}:
				default:
				}
			case <-ctx.Done():
			}
		}()
	}

	return woken
}
