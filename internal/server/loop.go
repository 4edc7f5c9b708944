package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/engine"
	"trainyard/internal/fault"
	"trainyard/internal/server/metrics"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Loop is the shell around the yardmaster: the one goroutine that feeds it.
// It takes all messages that have arrived, lets the yardmaster handle them,
// commits what changed in one transaction, and only then answers the callers,
// sends the orders and notifies the feed. While a commit is under way the
// next messages gather, so that many share one commit when many come.
type Loop struct {
	yard    *yardmaster.Yard
	store   store.Store
	engine  engine.Engine
	clock   clock.Clock
	log     *slog.Logger
	held    func() error              // nil while this server leads for certain
	after   []func(*yardmaster.Batch) // told of every committed batch, in order
	in      chan request
	kept    []request     // messages that came while commits failed and that the yard waits for
	over    chan struct{} // closed when the loop has ended
	stall   *stall
	newest  atomic.Pointer[snapshot] // from which questions are answered
	planned time.Time                // when the last round ended
	took    time.Duration            // how long it took
	planner sync.WaitGroup           // plans that are made beside the loop
	metrics *metrics.Loop
}

// maxCommitWait is the longest pause before a commit that failed is tried again.
const maxCommitWait = 2 * time.Second

// maxBatch bounds how many messages share a commit.
const maxBatch = 2048

type request struct {
	message yardmaster.Message
	query   func(*yardmaster.Yard)
	keep    bool // the yard waits for this message, so it is not refused while commits fail
	done    chan answer
}

type answer struct {
	reply any
	err   error
}

// LoopConfig is what a loop needs.
type LoopConfig struct {
	Yard   *yardmaster.Yard
	Store  store.Store
	Engine engine.Engine
	Clock  clock.Clock
	Log    *slog.Logger
	After  []func(*yardmaster.Batch)
	Held   func() error // returns nil while this server leads for certain; nil if it always does
}

// NewLoop returns a loop; Run starts it.
func NewLoop(c LoopConfig) *Loop {
	if c.Held == nil {
		c.Held = func() error { return nil }
	}

	l := &Loop{
		yard: c.Yard, store: c.Store, engine: c.Engine, clock: c.Clock, log: c.Log, after: c.After, held: c.Held,
		in: make(chan request, maxBatch), over: make(chan struct{}), stall: newStall(), metrics: metrics.NewLoop(),
	}

	if l.yard != nil {
		l.publish()
	}

	return l
}

// Tell lets fn hear of every committed batch, after those who do already. The loop must
// not run yet.
func (l *Loop) Tell(fn func(*yardmaster.Batch)) { l.after = append(l.after, fn) }

// tellFirst lets fn hear of every committed batch before all others. The loop must not
// run yet.
func (l *Loop) tellFirst(fn func(*yardmaster.Batch)) {
	l.after = append([]func(*yardmaster.Batch){fn}, l.after...)
}

// nodes returns the nodes of the yard. The loop must not run yet.
func (l *Loop) nodes() []yardmaster.NodeInfo {
	if l.yard == nil {
		return nil
	}

	return l.yard.Nodes("", math.MaxInt)
}

// incarnation returns the incarnation of the yard's history. The loop must not run yet.
func (l *Loop) incarnation() yardmaster.Incarnation {
	if l.yard == nil {
		return yardmaster.Incarnation{}
	}

	return l.yard.Incarnation()
}

// Do sends a message to the yard and returns the answer once its changes are stored.
func (l *Loop) Do(ctx context.Context, m yardmaster.Message) (any, error) {
	return l.ask(ctx, request{message: m}, nil)
}

// Query lets fn look at the yard between two messages. It must not keep what it sees. It fails
// at once while a commit hangs; fn may be called all the same, later. While commits fail, as on a full
// disk, it is answered between two tries.
func (l *Loop) Query(ctx context.Context, fn func(*yardmaster.Yard)) error {
	giveUp := l.stall.waiting()
	if l.stall.failing() != "" {
		patience, cancel := context.WithTimeout(ctx, maxCommitWait)
		defer cancel()

		giveUp = patience.Done()
	}

	_, err := l.ask(ctx, request{query: fn}, giveUp)

	return err
}

// Held returns nil while this server leads for certain, and otherwise why that is not certain.
func (l *Loop) Held() error { return l.held() }

// ask hands a request to the loop and returns its answer. Whatever the answer, it is given only while this server
// leads for certain: after that another may have decided otherwise.
func (l *Loop) ask(ctx context.Context, r request, giveUp <-chan struct{}) (any, error) {
	if err := l.held(); err != nil {
		return nil, err
	}

	reply, err := l.send(ctx, r, giveUp)
	if lost := l.held(); lost != nil {
		return nil, lostLead(lost)
	}

	return reply, err
}

func (l *Loop) send(ctx context.Context, r request, giveUp <-chan struct{}) (any, error) {
	if why := l.stall.failing(); why != "" && r.query == nil {
		return nil, storeDown(why)
	}

	select {
	case <-giveUp:
		return nil, storeDown("a commit hangs")
	default: // only then is there a choice between waiting and giving up
	}

	r.done = make(chan answer, 1)
	select {
	case l.in <- r:
	case <-l.over:
		return nil, ended()
	case <-giveUp:
		return nil, storeDown("a commit hangs")
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "busy", "server busy; try again").WithCause(ctx.Err())
	}

	select {
	case a := <-r.done:
		return a.reply, a.err
	case <-l.over:
		select {
		case a := <-r.done: // with its last batch
			return a.reply, a.err
		default:
			return nil, ended()
		}
	case <-giveUp:
		return nil, storeDown("a commit hangs")
	case <-ctx.Done():
		return nil, fault.New(fault.Unavailable, "no_answer", "server not responding; the request may or may not have "+
			"taken effect").
			WithRemedy("try again; submissions with the same idempotency key are accepted only once").
			WithCause(ctx.Err())
	}
}

// lostLead says that this server may not lead any more since it took a request.
func lostLead(err error) error {
	return fault.New(fault.Unavailable, api.CodeLostLead, "the server lost the lead; the request may or may not have "+
		"taken effect").
		WithRemedy("try again; submissions with the same idempotency key are accepted only once").WithCause(err)
}

func storeDown(why string) error {
	return fault.New(fault.Unavailable, "store_down", "the server cannot write to its store: %s", why).
		WithRemedy("try again later")
}

func ended() error {
	return fault.New(fault.Unavailable, "stopping", "the server is shutting down").
		WithRemedy("try again after it has restarted")
}

// Stuck returns why nothing is stored now, and "" if all is well.
func (l *Loop) Stuck() string { return l.stall.why(l.clock.Now()) }

// tickEvery is how often time passes for the yard when nothing else happens.
const tickEvery = 10 * time.Millisecond

// A round that takes longer than roundCheap is followed by a rest of roundRest times as long, in which
// messages are handled and answered but nothing is placed: with very many jobs in line, what
// is submitted in that time shares the next round. If a run has ended meanwhile, GPUs are idle until the next
// round, and the rest is freedRest times as long as the round.
const (
	roundCheap = 500 * time.Microsecond
	roundRest  = 4
	freedRest  = 1
	restMost   = 250 * time.Millisecond
)

// Run feeds the yardmaster until ctx ends or another server leads. It returns
// when a plan that is being made beside it has ended too: the policy is asked to stop.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.over)

	ctx, cancel := context.WithCancel(ctx)
	defer l.planner.Wait()
	defer cancel()

	go clock.Every(ctx, l.clock, stallCheck, func(now time.Time) {
		if hangs := l.stall.notice(now); hangs > 0 {
			l.log.ErrorContext(ctx, "commit hangs; agents are answered meanwhile, nothing else is", "for", hangs)
		}
	})

	ticks := make(chan struct{}, 1)
	tick := func() {
		select {
		case ticks <- struct{}{}:
		default:
		}
	}

	go clock.Every(ctx, l.clock, tickEvery, func(time.Time) { tick() })

	rested := clock.NewAlarm(tick)
	defer rested.Stop()

	batch := make([]request, 0, maxBatch)
	for {
		l.setAlarm(rested)

		batch = batch[:0]
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
			if due := l.yard.NextTimer(); due.IsZero() || due.After(l.clock.Now()) {
				if len(l.in) == 0 && len(l.kept) == 0 && !l.yard.Idle(l.clock.Now()) && !l.owes() {
					continue
				}
			}

			batch = append(batch, request{message: yardmaster.Tick{}})
		case r := <-l.in:
			batch = append(batch, r)
		}

		if err := l.handle(ctx, l.gather(batch)); err != nil {
			return err
		}
	}
}

// gather adds the messages that have arrived meanwhile.
func (l *Loop) gather(batch []request) []request {
	batch = append(batch, l.kept...)
	l.kept = nil

	for len(batch) < maxBatch {
		select {
		case r := <-l.in:
			batch = append(batch, r)
		default:
			return batch
		}
	}

	return batch
}

// handle lets the yardmaster handle a batch, commits, and answers.
func (l *Loop) handle(ctx context.Context, batch []request) error {
	began := l.clock.Now()
	answers := make([]answer, len(batch))

	if heard := l.stall.takeHeard(); len(heard.Nodes) > 0 {
		if _, err := l.yard.Step(began, heard); err != nil {
			return fmt.Errorf("note who was heard while nothing could be stored: %w", err)
		}
	}

	for i := range batch {
		if batch[i].query == nil {
			answers[i].reply, answers[i].err = l.yard.Step(l.clock.Now(), batch[i].message)
		}
	}

	l.round(ctx)

	for i := range batch {
		if batch[i].query != nil {
			answers[i].err = l.look(batch[i].query)
		}
	}

	b := l.yard.Take()
	if !b.Empty() {
		if err := l.commit(ctx, b); err != nil {
			for i := range batch {
				batch[i].answer(answer{err: lostLead(err)})
			}

			return err
		}

		l.engine.Carry(b.Orders, b.Closed)
	}

	l.publish()

	if !b.Empty() {
		for _, tell := range l.after {
			tell(b)
		}
	}

	for i := range batch {
		batch[i].answer(answers[i])
	}

	l.metrics.Batch(len(batch), l.clock.Now().Sub(began))

	return nil
}

// round lets the yardmaster place what can be placed, if something changed that may let a job start.
// A plan that takes long is only begun: the loop goes on, and the plan comes back as a message.
func (l *Loop) round(ctx context.Context) {
	began := l.clock.Now()
	if !l.yard.PlanDue() || !l.rested(began) {
		return
	}

	if l.yard.Slow() {
		l.plan(ctx, l.yard.Begin(began))
	} else {
		l.yard.Round(began)
		l.metrics.Round(l.clock.Now().Sub(began))
	}

	l.planned = l.clock.Now()
	l.took = l.planned.Sub(began)
}

// restsUntil returns when the rest after the last round is over.
func (l *Loop) restsUntil() time.Time {
	switch {
	case l.took <= roundCheap:
		return l.planned
	case l.yard.Freed():
		return l.planned.Add(min(freedRest*l.took, restMost))
	}

	return l.planned.Add(min(roundRest*l.took, restMost))
}

// plan lets a policy make a plan beside the loop and hands it to the yardmaster.
func (l *Loop) plan(ctx context.Context, p *yardmaster.Planning) {
	l.planner.Go(func() {
		plan := p.Plan(func() bool { return ctx.Err() != nil })
		took := l.clock.Now().Sub(p.Now)
		l.metrics.Round(took)

		a, delivered := l.deliver(ctx, yardmaster.PlanReady{Plan: plan})
		if !delivered || a.err != nil {
			return
		}

		applied, ok := a.reply.(yardmaster.PlanApplied)
		if ok && applied.Dropped > 0 {
			l.log.InfoContext(ctx, "parts of a plan were stale and were dropped",
				"dropped", applied.Dropped, "starts", len(plan.Starts), "stops", len(plan.Stops), "took", took)
		}
	})
}

// deliver sends a message that the yard waits for, also while commits fail, and
// returns its answer. It is false if the loop has ended before.
func (l *Loop) deliver(ctx context.Context, m yardmaster.Message) (answer, bool) {
	r := request{message: m, keep: true, done: make(chan answer, 1)}

	select {
	case l.in <- r:
	case <-ctx.Done():
		return answer{}, false
	}

	select {
	case a := <-r.done:
		return a, true
	case <-ctx.Done():
		return answer{}, false
	}
}

// setAlarm sets the alarm to the end of the rest if a round was put off until then: a node that became free
// meanwhile does not also wait for the next message or tick.
func (l *Loop) setAlarm(a *clock.Alarm) {
	if !l.yard.PlanDue() {
		return
	}

	if now := l.clock.Now(); !l.rested(now) {
		a.Set(l.restsUntil().Sub(now))
	}
}

// owes reports whether a round that was put off may be made up for.
func (l *Loop) owes() bool { return l.yard.PlanDue() && l.rested(l.clock.Now()) }

// rested reports whether it is time for a round. A clock that was set back does not put it off.
func (l *Loop) rested(now time.Time) bool {
	until := l.restsUntil()

	return !now.Before(until) || until.Sub(now) > time.Second
}

// look runs a query. One that panics has read wrongly and changed nothing, so
// it fails alone; a message that panics leaves a state that nobody knows, and
// the process must end and begin again from the store.
func (l *Loop) look(query func(*yardmaster.Yard)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("query panicked", "panic", p, "stack", stack())
			err = errInternal()
		}
	}()

	query(l.yard)

	return nil
}

func (r *request) answer(a answer) {
	if r.done != nil {
		r.done <- a
	}
}

// commit stores a batch. What the yardmaster has decided cannot be taken back,
// so a commit that fails is tried again until it goes through; meanwhile the
// server says that it is not ready and takes nothing new, but shows what it
// knows. Only when another server leads is there nothing left to try.
func (l *Loop) commit(ctx context.Context, b *yardmaster.Batch) error {
	l.stall.begin(l.clock.Now())

	for wait := 50 * time.Millisecond; ; wait = min(2*wait, maxCommitWait) {
		err := l.store.Commit(ctx, b)
		if err == nil {
			if stood := l.stall.end(l.clock.Now()); stood > 0 {
				l.log.InfoContext(ctx, "store works again", "after", stood)
			}

			return nil
		}

		if errors.Is(err, store.ErrNotLeader) {
			return fmt.Errorf("commit: %w", err)
		}

		l.stall.fail(err.Error())
		l.log.ErrorContext(ctx, "commit failed, trying again", "error", err, "cause", errors.Unwrap(err), "wait", wait)

		if !l.answerQueries(ctx, wait, storeDown(err.Error())) {
			return fmt.Errorf("commit: %w", err)
		}
	}
}

// answerQueries waits before the next try of a commit; it returns false if ctx ends first. Meanwhile it answers
// queries, which change nothing, and refuses the messages that had arrived before the store failed.
func (l *Loop) answerQueries(ctx context.Context, wait time.Duration, refusal error) bool {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	for {
		select {
		case <-limited.Done():
			return ctx.Err() == nil
		case r := <-l.in:
			switch {
			case r.query != nil:
				r.answer(answer{err: l.look(r.query)})
			case r.keep:
				l.kept = append(l.kept, r)
			default:
				r.answer(answer{err: refusal})
			}
		}
	}
}
