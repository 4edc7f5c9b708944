package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/baseline"
	"trainyard/internal/yardmaster"
	"trainyard/test/bench/scene"
)

// coreSection measures the yardmaster alone, in this process: no store, no network.
type coreSection struct{ settings }

func (coreSection) Name() string { return "core" }

// Run measures messages, memory and rounds.
func (s coreSection) Run(ctx context.Context) ([]figure, error) {
	out, err := s.messages(ctx)
	if err != nil {
		return out, err
	}
	memory, err := s.memory()
	if err != nil {
		return out, err
	}
	out = append(out, memory)
	sizes := []struct {
		name        string
		nodes, jobs int
	}{{"1k_10k", 1_000, 10_000}, {"1k_100k", 1_000, 100_000}, {"10k_10k", 10_000, 10_000}, {"10k_100k", 10_000, 100_000}}
	for _, size := range sizes {
		if s.quick {
			size.nodes, size.jobs = size.nodes/100, size.jobs/100
		}
		figures, err := s.roundsOf(ctx, size.name, size.nodes, size.jobs)
		out = append(out, figures...)
		if err != nil {
			return out, fmt.Errorf("rounds at %s: %w", size.name, err)
		}
	}
	return out, nil
}

// theYard is a yard with what the measurements need to know about it.
type theYard struct {
	*yardmaster.Yard
	scene *scene.Scene
	now   time.Time
	jobs  int
	ready []yardmaster.Order // orders whose ranks have not been reported as running
	runs  []yardmaster.Order // those that run
}

func newYard(start time.Time, nodes int, keep time.Duration) *theYard {
	y := &theYard{scene: scene.New(start), now: start}
	cfg := yardmaster.Defaults(baseline.FIFO{})
	cfg.MaxJobs, cfg.KeepFinal = 10_000_000, keep
	y.Yard = yardmaster.New(cfg)
	y.Load(y.now, yardmaster.State{Users: y.scene.People(), Nodes: y.scene.Nodes(nodes)})
	return y
}

// submission makes up a message that hands in one job.
func (y *theYard) submission(make func(n int) (*job.Spec, error)) (yardmaster.Message, error) {
	y.jobs++
	sp, err := make(y.jobs)
	if err != nil {
		return nil, err
	}
	return yardmaster.Submit{Owner: y.scene.Owner(), Jobs: []yardmaster.NewJob{{Spec: sp}}}, nil
}

// fill hands in so many jobs; nothing is started.
func (y *theYard) fill(jobs int) error {
	for range jobs {
		m, err := y.submission(y.scene.Spec)
		if err != nil {
			return err
		}
		if _, err := y.Step(y.now, m); err != nil {
			return err
		}
	}
	y.Take()
	return nil
}

// report makes up what an agent says about the rank of an order.
func (y *theYard) report(o *yardmaster.Order, state job.RunState) yardmaster.Message {
	r := yardmaster.RankReport{Run: o.Run, Rank: o.Rank, State: state, Started: y.now}
	if state == job.RunEnded {
		r.Ended = y.now
	}
	return yardmaster.NodeReport{Node: o.Node, Ranks: []yardmaster.RankReport{r}}
}

func (y *theYard) heartbeat(nodes int) yardmaster.Message {
	return yardmaster.NodeReport{Node: id.Node(fmt.Sprintf("node-%05d", y.scene.Draw(nodes)))}
}

// batchSize is how many messages share a commit in the measurement of messages.
// The server takes as many as have come, up to 2,048.
const batchSize = 64

// messages measures a steady flow: a quarter each of submissions, reports that
// a rank runs, reports that a rank has ended, and heartbeats, in batches. After
// each batch comes the round, and what changed is taken out, as the server does.
// Making up the messages is not counted.
func (s coreSection) messages(ctx context.Context) ([]figure, error) {
	const nodes = 100
	batches := 20_000
	if s.quick {
		batches = 200
	}
	y := newYard(s.clock.Now(), nodes, time.Second)
	var busy time.Duration
	count := 0
	for n := range batches + batches/10 {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		batch, err := y.mixed(nodes)
		if err != nil {
			return nil, err
		}
		if n%200 == 0 { // the server's tick; ended jobs are forgotten by it
			batch = append(batch, yardmaster.Tick{})
		}
		y.now = y.now.Add(200 * time.Microsecond)
		began := s.clock.Now()
		for _, m := range batch {
			if _, err := y.Step(y.now, m); err != nil {
				return nil, err
			}
		}
		if y.Wanted() {
			y.Round(y.now)
		}
		out := y.Take()
		if n >= batches/10 { // a tenth to warm up
			busy += s.clock.Now().Sub(began)
			count += len(batch)
		}
		y.ready = append(y.ready, out.Orders...)
	}
	note := fmt.Sprintf("a quarter each submit, runs, ended, heartbeat; %d messages, %d to a batch with its round; %d nodes, %d jobs", count, batchSize, nodes, y.jobs)
	return []figure{{"messages_per_s", float64(count) / busy.Seconds(), "messages/s", note}}, nil
}

// mixed makes up the next batch. Where there is nothing to report yet, a heartbeat comes instead.
func (y *theYard) mixed(nodes int) ([]yardmaster.Message, error) {
	batch := make([]yardmaster.Message, 0, batchSize+1)
	starting, running := min(len(y.ready), batchSize/4), min(len(y.runs), batchSize/4)
	for i := range batchSize / 4 {
		m, err := y.submission(y.scene.SmallSpec)
		if err != nil {
			return nil, err
		}
		batch = append(batch, m, y.heartbeat(nodes))
		if i < starting {
			m = y.report(&y.ready[i], job.RunRunning)
		} else {
			m = y.heartbeat(nodes)
		}
		batch = append(batch, m)
		if i < running {
			m = y.report(&y.runs[i], job.RunEnded)
		} else {
			m = y.heartbeat(nodes)
		}
		batch = append(batch, m)
	}
	y.runs = append(y.runs[running:], y.ready[:starting]...)
	y.ready = y.ready[starting:]
	return batch, nil
}

// memory measures what a queued job takes: the heap with so many of them, less
// the heap without, both after the collector ran.
func (s coreSection) memory() (figure, error) {
	jobs := 100_000
	if s.quick {
		jobs = 2_000
	}
	y := newYard(s.clock.Now(), 100, time.Minute)
	before := heap()
	if err := y.fill(jobs); err != nil {
		return figure{}, err
	}
	after := heap()
	runtime.KeepAlive(y)
	return figure{"bytes_per_queued_job", float64(after-before) / float64(jobs), "bytes",
		fmt.Sprintf("heap after collection with %d queued jobs less without, each with its own job file of about 450 bytes", jobs)}, nil
}

func heap() int64 {
	var m runtime.MemStats
	for range 2 { // finalisers of the first collection are freed by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// roundsOf measures rounds on one size of yard: on empty nodes, on full ones, and after one change.
func (s coreSection) roundsOf(ctx context.Context, name string, nodes, jobs int) ([]figure, error) {
	var full time.Duration
	var y *theYard
	starts := 0
	for range s.rounds() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		y = newYard(s.clock.Now(), nodes, time.Minute)
		if err := y.fill(jobs); err != nil {
			return nil, err
		}
		runtime.GC() // what filling left behind is not the round's
		began := s.clock.Now()
		y.Round(y.now)
		if took := s.clock.Now().Sub(began); full == 0 || took < full {
			full = took
		}
		y.ready = y.Take().Orders
		starts = y.started()
	}
	// As many jobs wait again as before, and the nodes are full.
	if err := y.fill(starts); err != nil {
		return nil, err
	}
	out := []figure{{"round_full_ms_" + name, milliseconds(full), "ms",
		fmt.Sprintf("%d empty nodes, %d queued jobs, %d of them started; planned, checked and carried out; best of %d", nodes, jobs, starts, s.rounds())}}
	changes, err := s.changes(ctx, y, name)
	return append(out, changes...), err
}

// started counts the jobs that the open orders are of.
func (y *theYard) started() int {
	jobs := map[id.Job]bool{}
	for i := range y.ready {
		jobs[y.ready[i].Job] = true
	}
	return len(jobs)
}

// changes measures rounds on a yard whose nodes are full and whose queue is
// long: with nothing changed, with one job more, and with one node that has become free.
func (s coreSection) changes(ctx context.Context, y *theYard, name string) ([]figure, error) {
	times := 101
	if s.quick {
		times = 5
	}
	var still, added, freed []time.Duration
	for i := range times {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		y.now = y.now.Add(time.Second)
		took, err := s.timed(y)
		if err != nil {
			return nil, err
		}
		still = append(still, took)
		m, err := y.submission(y.scene.Spec)
		if err != nil {
			return nil, err
		}
		if took, err = s.timed(y, m); err != nil {
			return nil, err
		}
		added = append(added, took)
		if took, err = s.timed(y, y.endOf(i)...); err != nil {
			return nil, err
		}
		freed = append(freed, took)
	}
	jobMS, nodeMS := milliseconds(percentile(added, 50)), milliseconds(percentile(freed, 50))
	return []figure{
		{"round_saturated_ms_" + name, milliseconds(percentile(still, 50)), "ms", ""},
		{"round_job_added_ms_" + name, jobMS, "ms", ""},
		{"round_node_freed_ms_" + name, nodeMS, "ms", ""},
		{"round_incremental_ms_" + name, max(jobMS, nodeMS), "ms", fmt.Sprintf("the slower of one job added and one node freed; medians of %d, each with its message", times)},
	}, nil
}

// timed hands in the messages and plans; the time is that of both.
func (s coreSection) timed(y *theYard, messages ...yardmaster.Message) (time.Duration, error) {
	began := s.clock.Now()
	for _, m := range messages {
		if _, err := y.Step(y.now, m); err != nil {
			return 0, err
		}
	}
	y.Round(y.now)
	took := s.clock.Now().Sub(began)
	y.ready = append(y.ready, y.Take().Orders...)
	return took, nil
}

// endOf reports the end of the i-th run that has one rank.
func (y *theYard) endOf(i int) []yardmaster.Message {
	for at := i; at < len(y.ready); at++ {
		o := &y.ready[at]
		if len(o.Launch.Nodes) == 1 && len(fleet.Indices(fleet.Mask(o.Launch.GPUs))) > 0 {
			m := y.report(o, job.RunEnded)
			y.ready = append(y.ready[:at:at], y.ready[at+1:]...)
			return []yardmaster.Message{m}
		}
	}
	return nil
}
