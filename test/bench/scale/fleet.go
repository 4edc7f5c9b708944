// Package scale keeps a large yard busy: agents that hold runs and end them, calls at a steady rate, and followers
// of feeds.
//
// The agents are simulated in this process, and each has what a real one has: a certificate and a TLS connection
// of its own, the stream of assignments open on it, and a report as often as the server asks for one and at every
// change. What is assigned to them runs at once and until it is told to end; no program is started. The sections
// of the benchmark call it.
package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/bench/yard"
)

// Machine is what an agent says about its machine when it joins.
type Machine struct {
	Name      string
	Inventory fleet.Inventory
}

// Fleet is many agents of one yard.
type Fleet struct {
	yard   *yard.Yard
	clock  clock.Clock
	group  sync.WaitGroup
	cancel context.CancelCauseFunc
	alive  context.Context //nolint:containedctx // it ends when Stop is called or an agent fails

	every    atomic.Int64 // nanoseconds between reports, as the server said last
	streams  atomic.Int64 // that have been opened
	reports  atomic.Int64 // answered
	failures atomic.Int64 // reports and streams that failed and were tried again
	starts   atomic.Int64 // ranks that were assigned

	mu     sync.Mutex
	chance *rand.Rand
	runs   map[id.Run]*held
	order  []id.Run // those in runs, to draw from
	waits  []time.Duration
}

// held is a run with the agents of its ranks.
type held struct {
	at    int // in order
	whole int // ranks that it has
	ranks map[int]*agent
}

// joiners is how many agents join at a time.
const joiners = 16

// Join lets so many machines join the yard, and returns when all of them have their assignments. The caller must call
// Stop, also after an error.
func Join(
	ctx context.Context, y *yard.Yard, clk clock.Clock, agents int, machine func(n int) Machine,
) (*Fleet, error) {
	f := &Fleet{yard: y, clock: clk, runs: map[id.Run]*held{}, chance: rand.New(rand.NewPCG(3, 5))}
	f.alive, f.cancel = context.WithCancelCause(ctx)

	token, err := y.JoinToken(ctx, agents)
	if err != nil {
		return f, err
	}

	numbers := make(chan int)

	var joining sync.WaitGroup
	for range joiners {
		joining.Go(func() {
			for n := range numbers {
				f.join(n, agents, token, machine(n))
			}
		})
	}

	for n := range agents {
		if f.alive.Err() != nil {
			break
		}

		numbers <- n
	}

	close(numbers)
	joining.Wait()

	for f.streams.Load() < int64(agents) && clock.Sleep(f.alive, 20*time.Millisecond) {
	}

	return f, f.Err()
}

// join lets one machine join and its agent work.
func (f *Fleet) join(n, agents int, token string, m Machine) {
	client, err := f.yard.Join(f.alive, token, api.JoinRequest{Name: m.Name, Inventory: m.Inventory})
	if err != nil {
		f.cancel(fmt.Errorf("agent %s: %w", m.Name, err))
		return
	}

	a := &agent{
		fleet: f, client: client, machine: m, wake: make(chan struct{}, 1), ranks: map[rank]*api.RankReport{},
		offset: float64(n) / float64(agents),
	}

	f.group.Go(a.follow)
	f.group.Go(a.report)
}

// Err returns why the agents have stopped, nil as long as they work.
func (f *Fleet) Err() error { return context.Cause(f.alive) }

// Stop ends the agents.
func (f *Fleet) Stop() {
	f.cancel(errors.New("stopped"))
	f.group.Wait()
}

// Interval returns how often the server wants reports.
func (f *Fleet) Interval() time.Duration { return time.Duration(f.every.Load()) }

// Reports returns how many reports have been answered.
func (f *Fleet) Reports() int64 { return f.reports.Load() }

// Failures returns how many reports and streams failed and were tried again.
func (f *Fleet) Failures() int64 { return f.failures.Load() }

// Running returns how many runs the agents hold.
func (f *Fleet) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return len(f.order)
}

// Settle returns when nothing has been started for so long.
func (f *Fleet) Settle(ctx context.Context, quiet time.Duration) error {
	last, since := f.starts.Load(), f.clock.Now()

	for f.clock.Now().Sub(since) < quiet {
		if !clock.Sleep(ctx, quiet/10) {
			return context.Cause(ctx)
		}
		if err := f.Err(); err != nil {
			return err
		}

		if now := f.starts.Load(); now != last {
			last, since = now, f.clock.Now()
		}
	}

	return nil
}

// EndOne lets one of the runs end, all of its ranks at once. It returns false if there is none.
func (f *Fleet) EndOne() bool {
	run, ranks := f.draw()
	for number, a := range ranks {
		a.end(rank{run, number}, len(ranks) == 1)
	}

	return len(ranks) > 0
}

// draw chooses a run of which all ranks run, and takes it off the list.
func (f *Fleet) draw() (id.Run, map[int]*agent) {
	f.mu.Lock()
	defer f.mu.Unlock()

	const tries = 100 // few runs are not whole

	for range min(tries, len(f.order)) {
		run := f.order[f.chance.IntN(len(f.order))]
		if h := f.runs[run]; len(h.ranks) == h.whole {
			f.remove(run)
			return run, h.ranks
		}
	}

	return "", nil
}

// remove takes a run off the list. The caller holds the lock.
func (f *Fleet) remove(run id.Run) {
	h, ok := f.runs[run]
	if !ok {
		return
	}

	last := f.order[len(f.order)-1]
	f.order[h.at] = last
	f.runs[last].at = h.at
	f.order = f.order[:len(f.order)-1]
	delete(f.runs, run)
}

// started notes that an agent has a rank, and how long its node had been free for it.
func (f *Fleet) started(a *agent, at *api.Assignment, waited time.Duration) {
	f.starts.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()

	h, ok := f.runs[at.Run]
	if !ok {
		h = &held{at: len(f.order), whole: max(1, len(at.Launch.Nodes)), ranks: map[int]*agent{}}
		f.runs[at.Run] = h
		f.order = append(f.order, at.Run)
	}

	h.ranks[at.Rank] = a

	if waited > 0 {
		f.waits = append(f.waits, waited)
	}
}

// gone notes that a run is not assigned any more.
func (f *Fleet) gone(run id.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.remove(run)
}

// Waits returns, for each node that a run of one rank has left since the last call, how long it took from that
// until the next run was assigned to the node.
func (f *Fleet) Waits() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()

	list := f.waits
	f.waits = nil

	return list
}

// Writer is a run with the agent of its first rank, to send output of it.
type Writer struct {
	Run    id.Run
	uid    id.UID
	client *api.Client
	offset int64
}

// Writer returns one of the runs. It is not ended by EndOne.
func (f *Fleet) Writer() (*Writer, error) {
	run, ranks := f.draw()
	a := ranks[0]
	if a == nil {
		return nil, errors.New("no run is there")
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	r := a.ranks[rank{run, 0}]
	if r == nil {
		return nil, fmt.Errorf("run %s is not there any more", run)
	}

	return &Writer{Run: run, uid: r.UID, client: a.client}, nil
}

// Write sends output, frames as package logs writes them.
func (w *Writer) Write(ctx context.Context, frames []byte) error {
	reply, err := w.client.UploadLog(ctx, w.Run, w.uid, 0, w.offset, frames, false)
	if err != nil {
		return err
	}

	w.offset += int64(len(frames))
	if reply.Offset != w.offset {
		return fmt.Errorf("the server has %d bytes of the output of %s, want %d", reply.Offset, w.Run, w.offset)
	}

	return nil
}

// rank is a rank of a run.
type rank struct {
	run    id.Run
	number int
}

// agent is one machine.
type agent struct {
	fleet   *Fleet
	client  *api.Client
	machine Machine
	wake    chan struct{} // something has changed that is to be reported
	offset  float64       // part of an interval by which its reports are later than those of the first agent

	mu    sync.Mutex
	ranks map[rank]*api.RankReport // that are assigned to it
	freed time.Time                // when the first run ended since one was assigned; zero if none
}

// follow keeps the stream of assignments open.
func (a *agent) follow() {
	ctx := a.fleet.alive
	first := true

	for ctx.Err() == nil {
		err := a.client.Assignments(ctx, func(list api.Assignments) error {
			if first {
				first = false
				a.fleet.streams.Add(1)
			}

			a.take(&list)

			return nil
		})

		a.failed(err)
	}
}

// maxFailures is how many reports and streams of all agents may fail before the measurement does.
const maxFailures = 10_000

// failed notes that a report or a stream failed, or that the server ended the stream, and waits a moment.
func (a *agent) failed(err error) {
	f := a.fleet
	if f.alive.Err() != nil {
		return
	}

	if f.failures.Add(1) > maxFailures {
		f.cancel(fmt.Errorf("agent %s: too many failures: %w", a.machine.Name, err))
	}

	clock.Sleep(f.alive, 200*time.Millisecond)
}

// take takes over what is assigned now.
func (a *agent) take(list *api.Assignments) {
	now := a.fleet.clock.Now()
	assigned := make(map[rank]bool, len(list.Runs))

	a.mu.Lock()
	defer a.mu.Unlock()

	for i := range list.Runs {
		at := &list.Runs[i]
		key := rank{at.Run, at.Rank}
		assigned[key] = true

		r, known := a.ranks[key]
		if !known {
			r = &api.RankReport{Run: at.Run, UID: at.Launch.UID, Rank: at.Rank, State: job.RunRunning, Started: now}
			a.ranks[key] = r
			a.fleet.started(a, at, a.waited(now))
			a.changed()
		}

		if at.Stop != "" && r.State != job.RunEnded {
			r.State, r.Ended, r.Signal, r.Signalled = job.RunEnded, now, "SIGTERM", true
			a.changed()
		}
	}

	for key := range a.ranks {
		if !assigned[key] {
			delete(a.ranks, key)
			a.fleet.gone(key.run)
		}
	}
}

// waited returns for how long the node has been free for the run that is assigned now, 0 if no run has ended on it
// since the last. The caller holds the lock.
func (a *agent) waited(now time.Time) time.Duration {
	freed := a.freed
	a.freed = time.Time{}

	if freed.IsZero() {
		return 0
	}

	return now.Sub(freed)
}

// end lets a rank end. With alone it is the only one of its run: the node is free as soon as that is reported.
func (a *agent) end(key rank, alone bool) {
	now := a.fleet.clock.Now()

	a.mu.Lock()
	defer a.mu.Unlock()

	r, ok := a.ranks[key]
	if !ok || r.State == job.RunEnded {
		return
	}

	r.State, r.Ended = job.RunEnded, now

	if alone && a.freed.IsZero() {
		a.freed = now
	}

	a.changed()
}

// changed lets the agent report at once.
func (a *agent) changed() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// report reports again and again. The first reports are spread over one
// interval, as those of machines that were started at different times are.
func (a *agent) report() {
	f := a.fleet
	defer a.client.Close()

	inventory := a.machine.Inventory
	r := api.Report{Capability: api.Capability, Boot: "bench", Inventory: &inventory}

	for f.alive.Err() == nil {
		r.Seq++
		r.Ranks = a.states()

		reply, err := a.client.Report(f.alive, r)
		if err != nil {
			a.failed(err)
			continue
		}

		r.Inventory = nil
		f.reports.Add(1)
		f.every.Store(int64(reply.Interval))

		wait := time.Duration(reply.Interval)
		if r.Seq == 1 {
			wait = time.Duration(float64(wait) * a.offset)
		}

		clock.Wait(f.alive, wait, a.wake)
	}
}

// states returns what the agent's ranks do.
func (a *agent) states() []api.RankReport {
	a.mu.Lock()
	defer a.mu.Unlock()

	list := make([]api.RankReport, 0, len(a.ranks))
	for _, r := range a.ranks {
		list = append(list, *r)
	}

	return list
}
