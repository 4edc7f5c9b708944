package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/cloud"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/yardmaster"
)

// Runner makes the calls that the leases require, and sends the responses to the yardmaster.
type Runner struct {
	Providers []cloud.Provider
	Timing    Timing
	Timeouts  Timeouts
	// Deliver sends a message to the yardmaster and returns when its effects are stored.
	Deliver func(context.Context, yardmaster.Message) error
	// Prepare returns the request for a lease, with what lets its machine join. It must
	// return the same request for the same lease, so that a retry is the same call.
	Prepare func(context.Context, *fleet.Lease) (cloud.Request, error)
	Clock   clock.Clock
	Log     *slog.Logger
	Watch   Watcher      // nil if nobody watches
	Held    func() error // returns nil while this server leads for certain; nil if it always does

	once    sync.Once
	mu      sync.Mutex
	inbox   []fleet.Lease
	planner *Planner
	byName  map[string]cloud.Provider
	wake    chan struct{}
	calls   sync.WaitGroup
}

// Watcher is told of every call: what was asked of whom, how long that took, and how it
// ended. It must not block.
type Watcher interface {
	Called(provider, call string, took time.Duration, err error)
}

// heldPoll is how often a runner looks whether its server leads for certain again.
const heldPoll = 100 * time.Millisecond

// Timeouts bound the calls.
type Timeouts struct{ List, Create, Terminate time.Duration }

// DefaultTimeouts bound the calls where nothing is set.
func DefaultTimeouts() Timeouts {
	return Timeouts{List: time.Minute, Create: 2 * time.Minute, Terminate: time.Minute}
}

func (r *Runner) init() {
	r.once.Do(func() {
		names := make([]string, len(r.Providers))
		r.byName = map[string]cloud.Provider{}
		for i, p := range r.Providers {
			names[i] = p.Name()
			r.byName[p.Name()] = p
		}

		r.planner = NewPlanner(r.Timing, names...)
		r.wake = make(chan struct{}, 1)
	})
}

// Take adds leases that are new or have changed and are stored. It does not block.
func (r *Runner) Take(leases []fleet.Lease) {
	if len(leases) == 0 {
		return
	}

	r.init()
	r.mu.Lock()
	r.inbox = append(r.inbox, leases...)
	r.mu.Unlock()
	r.nudge()
}

func (r *Runner) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run makes calls until ctx ends, and then waits for those that are under way.
func (r *Runner) Run(ctx context.Context) {
	r.init()
	defer r.calls.Wait()

	for {
		calls, next := r.due()
		for _, c := range calls {
			r.calls.Go(func() { r.call(ctx, c) })
		}

		if clock.Wait(ctx, max(next.Sub(r.Clock.Now()), time.Millisecond), r.wake) == clock.Ended {
			return
		}
	}
}

func (r *Runner) due() ([]Call, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	now := r.Clock.Now()
	r.planner.Take(now, r.inbox)
	r.inbox = nil

	return r.planner.Due(now)
}

// call makes one call and tells the answer. Only a leader may: another server may hold leases that this one
// does not know.
func (r *Runner) call(ctx context.Context, c Call) {
	for r.Held != nil && r.Held() != nil {
		if !clock.Sleep(ctx, heldPoll) {
			return
		}
	}

	messages := r.make(ctx, c)

	if ctx.Err() != nil {
		return // the next server repeats the call
	}

	for _, m := range messages {
		if err := r.Deliver(ctx, m); err != nil {
			// Nothing is lost: leases are compared with the next list of instances.
			r.Log.WarnContext(
				ctx,
				"the scheduler did not accept a provider's response",
				"provider",
				c.Provider,
				"call",
				c.Kind,
				"lease",
				c.Lease.ID,
				"error",
				err,
			)
		}
	}

	r.nudge()
}

func (r *Runner) make(ctx context.Context, c Call) []yardmaster.Message {
	p := r.byName[c.Provider]
	log := r.Log.With("provider", c.Provider, "call", c.Kind, "lease", c.Lease.ID)
	began := r.Clock.Now()
	answer := func(take func(now time.Time) []yardmaster.Message, err error) []yardmaster.Message {
		if unknown(c, err) {
			log.InfoContext(ctx, "the provider does not know the instance to terminate", "machine", c.Lease.Instance)
			err = nil
		}

		if r.Watch != nil {
			r.Watch.Called(c.Provider, string(c.Kind), r.Clock.Now().Sub(began), err)
		}

		if err != nil {
			log.WarnContext(ctx, "call to a provider failed", "error", err)
		}

		r.mu.Lock()
		defer r.mu.Unlock()

		return take(r.Clock.Now())
	}

	switch c.Kind {
	case CallList:
		bounded, cancel := context.WithTimeout(ctx, r.Timeouts.List)
		defer cancel()

		machines, err := p.List(bounded)

		return answer(func(now time.Time) []yardmaster.Message { return r.planner.Listed(now, c, machines, err) }, err)
	case CallCreate:
		bounded, cancel := context.WithTimeout(ctx, r.Timeouts.Create)
		defer cancel()

		m, err := r.create(bounded, p, &c.Lease)
		if err == nil {
			log.InfoContext(ctx, "provisioned", "machine", m.ID, "offer", c.Lease.Offer.Name)
		}

		return answer(func(now time.Time) []yardmaster.Message { return r.planner.Created(now, c, m, err) }, err)
	case CallTerminate:
		bounded, cancel := context.WithTimeout(ctx, r.Timeouts.Terminate)
		defer cancel()

		err := p.Terminate(bounded, c.Lease.Offer.Region, c.Lease.Instance)

		return answer(func(now time.Time) []yardmaster.Message { return r.planner.Terminated(now, c, err) }, err)
	}

	return nil
}

func (r *Runner) create(ctx context.Context, p cloud.Provider, l *fleet.Lease) (fleet.Instance, error) {
	request, err := r.Prepare(ctx, l)
	if err != nil {
		return fleet.Instance{}, fault.New(fault.Unavailable, "not_prepared", "cannot prepare the boot of the node: %v", err).
			WithCause(err)
	}

	m, err := p.Create(ctx, request)
	if err != nil {
		return fleet.Instance{}, fmt.Errorf("provision lease %s: %w", l.ID, err)
	}

	return m, nil
}
