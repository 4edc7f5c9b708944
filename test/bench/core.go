package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/yardmaster"
	"trainyard/test/bench/scene"
)

// collectAsServer sets the collector as cmd/trainyard sets it for a server, and
// returns how to set it back.
func collectAsServer() func() {
	before := debug.SetGCPercent(300)
	return func() { debug.SetGCPercent(before) }
}

// theYard is a yard with what the measurements need to know about it.
type theYard struct {
	*yardmaster.Yard
	policy string // the name that its policy has for itself
	scene  *scene.Scene
	now    time.Time
	jobs   int
	ready  []yardmaster.Order // orders whose ranks have not been reported as running
	runs   []yardmaster.Order // those that run
}

// contender is a policy whose rounds are measured.
type contender struct {
	name   string // in the catalogue
	suffix string // of its figures
}

// contenders are the default policy of the server, whose figures have the plain names, and FIFO with backfill beside
// it: what a round costs if nothing is weighed.
func contenders() []contender { return []contender{{defaultPolicy, ""}, {"fifo", "_fifo"}} }

// defaultPolicy is what a server runs that is told nothing.
const defaultPolicy = "rules"

func newYard(start time.Time, nodes int, keep time.Duration, policy string) (*theYard, error) {
	newPolicy, err := catalogue.All(nil).Make(policy)
	if err != nil {
		return nil, err
	}

	p := newPolicy()
	y := &theYard{policy: p.Name(), scene: scene.New(start), now: start}
	cfg := yardmaster.Defaults(p)
	cfg.MaxJobs, cfg.KeepFinal = 10_000_000, keep
	cfg.MaxJobText, cfg.MaxAllJobText = 0, 0
	y.Yard = yardmaster.New(cfg)
	y.Load(y.now, yardmaster.State{Users: y.scene.People(), Nodes: y.scene.Nodes(nodes)})

	return y, nil
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
func (y *theYard) fill(jobs int, make func(n int) (*job.Spec, error)) error {
	for range jobs {
		m, err := y.submission(make)
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

// memorySection measures what a queued job takes in the yardmaster's memory.
type memorySection struct{ settings }

func (memorySection) Name() string { return "memory" }

// Run measures the heap with so many queued jobs, less the heap without, both
// after the collector ran.
func (s memorySection) Run(context.Context) ([]figure, error) {
	jobs := 100_000
	if s.quick {
		jobs = 2_000
	}

	y, err := newYard(s.clock.Now(), 100, time.Minute, defaultPolicy)
	if err != nil {
		return nil, err
	}

	before := heap()

	if err := y.fill(jobs, y.scene.Spec); err != nil {
		return nil, err
	}

	after := heap()
	runtime.KeepAlive(y)

	return []figure{
		{
			"bytes_per_queued_job",
			float64(after-before) / float64(jobs),
			"bytes",
			fmt.Sprintf(
				"heap after collection with %d queued jobs less without, each with its own job file of about 450 bytes",
				jobs,
			),
		},
	}, nil
}

func heap() int64 {
	var m runtime.MemStats

	for range 2 { // finalisers of the first collection are freed by the second
		runtime.GC()
	}

	runtime.ReadMemStats(&m)

	return int64(m.HeapAlloc)
}
