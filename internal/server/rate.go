package server

import (
	"sync"

	"golang.org/x/time/rate"

	"trainyard/internal/clock"
)

// rateLimiter bounds how often each key may make a request. It is safe for concurrent use.
type rateLimiter struct {
	rate  rate.Limit
	burst int
	clock clock.Clock

	mu   sync.Mutex
	keys map[string]*rate.Limiter
}

// newRateLimiter returns a limiter with this rate in requests per second and this burst.
// A rate of 0 lets all through.
func newRateLimiter(perSecond float64, burst int, clk clock.Clock) *rateLimiter {
	return &rateLimiter{
		rate:  rate.Limit(perSecond),
		burst: max(burst, 1),
		clock: clk,
		keys:  map[string]*rate.Limiter{},
	}
}

// allow takes one from the key's bucket, and reports whether there was one.
func (l *rateLimiter) allow(key string) bool {
	if l.rate <= 0 {
		return true
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	bucket, ok := l.keys[key]
	if !ok {
		bucket = rate.NewLimiter(l.rate, l.burst)
		l.keys[key] = bucket
	}

	return bucket.AllowN(l.clock.Now(), 1)
}

// sweep forgets buckets that are full again: a new one is the same.
func (l *rateLimiter) sweep() {
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()

	for key, bucket := range l.keys {
		if bucket.TokensAt(now) >= float64(l.burst) {
			delete(l.keys, key)
		}
	}
}
