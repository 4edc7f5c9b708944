package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/yardmaster"
)

// Live models the nodes, clouds and jobs of a yard that a server runs, in real time: it carries out the orders that the
// server's yard gives, and reports as agents do.
type Live struct {
	mu      sync.Mutex
	batches []*yardmaster.Batch
	wake    chan struct{} // has room for one
}

// NewLive returns a model that has not begun. It must follow the yard from the state on with which it begins.
func NewLive() *Live { return &Live{wake: make(chan struct{}, 1)} }

// Follow takes in a committed batch. The loop of the server waits for it, so it only keeps it.
func (l *Live) Follow(b *yardmaster.Batch) {
	l.mu.Lock()
	l.batches = append(l.batches, b)
	l.mu.Unlock()

	select {
	case l.wake <- struct{}{}:
	default: // it will look
	}
}

// take returns what has come since it was last called.
func (l *Live) take() []*yardmaster.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()

	all := l.batches
	l.batches = nil

	return all
}

// Line is how a model reaches the yard of a server.
type Line struct {
	Do          func(context.Context, yardmaster.Message) (any, error)
	Clock       clock.Clock
	ReportEvery time.Duration // each node says so often that it is there
}

// Run models what cfg says, from cfg.Begin on, until ctx ends. Policy and limits of the yard are the server's.
func (l *Live) Run(ctx context.Context, cfg Config, line Line) error {
	s := newEmpty(cfg)
	s.yard = &remote{ctx: ctx, live: l, do: line.Do}

	state := yardmaster.State{}
	s.loadState(cfg.Begin, &state)
	s.loadLeases(cfg.Begin.State.Leases)
	s.resumeRuns(&state)

	if err := s.nextJob(); err != nil {
		return err
	}

	if cfg.Begun != nil {
		cfg.Begun(Hand{s})
	}

	s.reportAll(line.ReportEvery)

	for ctx.Err() == nil {
		s.now = max(line.Clock.Now().Sub(s.epoch), s.now)
		if err := s.happen(); err != nil {
			return err
		}

		s.carry()

		if next, more := s.next(); s.due() || more && s.epoch.Add(next).Before(line.Clock.Now()) {
			continue
		} else if !more || next-s.now > line.ReportEvery {
			clock.Wait(ctx, line.ReportEvery, l.wake)
		} else {
			clock.Wait(ctx, next-s.now, l.wake)
		}
	}

	return s.failed
}

// reportAll lets all nodes say that they are there, now and at intervals.
func (s *simulation) reportAll(every time.Duration) {
	names := make([]id.Node, 0, len(s.hosts))
	for n, h := range s.hosts {
		if !h.dead && (h.node.Lease == "" || s.machines[h.node.Lease] == h) {
			names = append(names, n)
		}
	}

	slices.SortFunc(names, func(a, b id.Node) int { return strings.Compare(string(a), string(b)) })

	for _, n := range names {
		s.step(s.hosts[n].report(nil))
	}

	s.at(s.now+every, func(s *simulation) { s.reportAll(every) })
}

// loadLeases takes up what the provider was doing.
func (s *simulation) loadLeases(leases []fleet.Lease) {
	for i := range leases {
		l := &leases[i]
		h := s.hosts[l.Node]

		switch {
		case l.State.Final() || s.cfg.Cloud == nil:
		case l.State == fleet.LeaseRequested:
			s.provisionAll(leases[i : i+1])
		case l.State == fleet.LeaseBooting:
			s.requested[l.ID] = true
			s.boot(*l)
		case h != nil:
			s.requested[l.ID] = true
			s.machines[l.ID] = h

			if l.State == fleet.LeaseReleasing {
				s.release(l)
			}
		}
	}
}

// remote is the yard of a server.
type remote struct {
	ctx  context.Context //nolint:containedctx // of Run, which all that it does belongs to
	live *Live
	do   func(context.Context, yardmaster.Message) (any, error)
}

// Step sends a message. The server's clock says when it came.
func (r *remote) Step(_ time.Time, m yardmaster.Message) (any, error) { return r.do(r.ctx, m) }

// TakeInto takes what the yard has decided meanwhile.
func (r *remote) TakeInto(b *yardmaster.Batch) {
	*b = yardmaster.Batch{}
	for _, next := range r.live.take() {
		b.Jobs = append(b.Jobs, next.Jobs...)
		b.Orders = append(b.Orders, next.Orders...)
		b.Leases = append(b.Leases, next.Leases...)
		b.Events = append(b.Events, next.Events...)
	}
}

// NextTimer, PlanDue, PlanAgain and Round have nothing to do: the server minds its own timers and plans.
func (*remote) NextTimer() time.Time { return time.Time{} }

// PlanDue is false: the server plans.
func (*remote) PlanDue() bool { return false }

// PlanAgain is false: the server plans.
func (*remote) PlanAgain() bool { return false }

// Round does nothing: the server plans.
func (*remote) Round(time.Time) {}

// Lease returns nil: the model of the provider knows its machines.
func (*remote) Lease(id.Lease) *fleet.Lease { return nil }
