// Package limit bounds how often someone may do something.
//
// server asks it before it answers a token's request. It decides by the clock
// it is given and keeps nothing but counts.
package limit

import (
	"sync"
	"time"

	"trainyard/internal/clock"
)

// Limiter is a token bucket for each key. It is safe for concurrent use.
type Limiter struct {
	rate  float64
	burst float64
	clock clock.Clock
	mu    sync.Mutex
	keys  map[string]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// New returns a limiter of so many a second, with so many at once; a rate of 0 lets all through.
func New(rate float64, burst int, clk clock.Clock) *Limiter {
	return &Limiter{rate: rate, burst: float64(max(burst, 1)), clock: clk, keys: map[string]*bucket{}}
}

// Allow takes one from the key's bucket, and reports whether there was one.
func (l *Limiter) Allow(key string) bool {
	if l.rate <= 0 {
		return true
	}
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.keys[key]
	if !ok {
		b = &bucket{left: l.burst, at: now}
		l.keys[key] = b
	}
	b.left = min(l.burst, b.left+l.rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// Sweep forgets buckets that are full again.
func (l *Limiter) Sweep() {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, b := range l.keys {
		if b.left+l.rate*now.Sub(b.at).Seconds() >= l.burst {
			delete(l.keys, k)
		}
	}
}
