package scale

import (
	"context"
	"sync"
	"time"

	"trainyard/internal/clock"
)

// Pace calls fn so many times a second until ctx ends or fn fails. A call that takes longer than its share is made
// up for, so that the rate is kept as long as the calls are fast enough on average.
func Pace(ctx context.Context, clk clock.Clock, perSecond float64, fn func(context.Context) error) error {
	step := time.Duration(float64(time.Second) / perSecond)

	for next := clk.Now(); ctx.Err() == nil; {
		next = next.Add(step)

		if err := fn(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the call was cut off by the end of the measurement
			}

			return err
		}

		clock.Sleep(ctx, next.Sub(clk.Now()))
	}

	return nil
}

// Latencies collects how long calls took. It is safe for concurrent use.
type Latencies struct {
	clock clock.Clock
	mu    sync.Mutex
	list  []time.Duration
}

// NewLatencies returns an empty collection.
func NewLatencies(clk clock.Clock) *Latencies { return &Latencies{clock: clk} }

// Of makes a call and notes how long it took. Calls that fail are not noted.
func (l *Latencies) Of(ctx context.Context, call func(context.Context) error) error {
	began := l.clock.Now()
	if err := call(ctx); err != nil {
		return err
	}

	l.Add(l.clock.Now().Sub(began))

	return nil
}

// Add notes a latency.
func (l *Latencies) Add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.list = append(l.list, d)
}

// All returns what has been noted.
func (l *Latencies) All() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()

	return append([]time.Duration(nil), l.list...)
}
