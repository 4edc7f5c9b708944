// Package leadership says whether this server leads the yard, and who does otherwise.
//
// Leadership is a lease in the store. Term renews it and proves, on this machine's own clock, that it has not
// expired: whatever only a leader may say is said while Held returns nil. Members lists the servers of the
// yard. cmd/trainyard begins terms; the loop and the handlers ask Held before they answer.
package leadership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/store"
)

// Of a lease, so much is not used: clocks of two machines may differ in speed.
const marginPart = 10

// A lease is renewed so many times while it lasts.
const renewalsPerLease = 4

// Config is what a term works with.
type Config struct {
	Store     store.Store
	Candidate store.Candidate
	Clock     clock.Clock
	Log       *slog.Logger
}

// Term is the time during which this server leads.
type Term struct {
	Config
	lease time.Duration // 0 if the term lasts as long as the process

	mu    sync.Mutex
	asked time.Time // when the last renewal that was granted was asked for
	over  bool
	why   error // why the last renewal failed
}

// Begin waits until this server leads. Keep must be called then.
func Begin(ctx context.Context, c Config) (*Term, error) {
	lease, err := c.Store.Lead(ctx, c.Candidate)
	if err != nil {
		return nil, err
	}

	t := &Term{Config: c, lease: lease}
	if lease > 0 {
		t.renew(ctx) // whether that worked is what Held says
	}

	return t, nil
}

// Keep renews the lease until ctx ends, and returns store.ErrNotLeader when another server leads. A store that
// does not answer is asked again: nobody else may have taken the lead when it comes back.
func (t *Term) Keep(ctx context.Context) error {
	if t.lease == 0 {
		<-ctx.Done()
		return nil
	}

	for {
		wait := t.lease / renewalsPerLease
		if t.failing() {
			wait /= renewalsPerLease
		}

		if !clock.Sleep(ctx, wait) {
			return nil
		}

		t.renew(ctx)

		if t.ended() {
			return store.ErrNotLeader
		}
	}
}

func (t *Term) failing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.why != nil
}

// ended reports whether another server leads.
func (t *Term) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.over
}

// renew asks for another lease, which counts from before the question, and remembers the outcome.
func (t *Term) renew(ctx context.Context) {
	asked := t.Clock.Now()
	bounded, cancel := context.WithTimeout(ctx, t.lease/renewalsPerLease)
	defer cancel()

	err := t.Store.Renew(bounded)

	t.mu.Lock()
	defer t.mu.Unlock()

	if err != nil && t.why == nil && ctx.Err() == nil {
		t.Log.WarnContext(ctx, "the leader's lease was not renewed", "error", err, "cause", errors.Unwrap(err))
	}

	if err == nil && t.why != nil {
		t.Log.InfoContext(ctx, "the leader's lease is renewed again")
	}

	t.why = err

	switch {
	case err == nil:
		t.asked = asked
	case errors.Is(err, store.ErrNotLeader):
		t.over = true
	}
}

// Held returns nil while it is certain that no other server leads, and otherwise why that is not
// certain. A server that was stopped or suspended finds out here, before it has renewed anything. The wall
// clock counts too, because the monotonic one may stand still while a machine is suspended.
func (t *Term) Held() error {
	if t.lease == 0 {
		return nil
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	now := t.Clock.Now()
	since := max(now.Sub(t.asked), now.Round(0).Sub(t.asked.Round(0)))
	if !t.over && !t.asked.IsZero() && since < t.lease-t.lease/marginPart {
		return nil
	}
	if t.over {
		return store.ErrNotLeader
	}

	why := "it was not renewed in time"
	if t.why != nil {
		why = t.why.Error()
	}

	return fault.New(fault.Unavailable, store.ErrNotLeader.Code, "this server may no longer lead the yard: %s", why).
		WithRemedy("try again: it or another server will lead within seconds").WithCause(t.why)
}
