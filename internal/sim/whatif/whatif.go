// Package whatif runs many simulations at once: workloads by policies by loads by
// seeds.
//
// The simulations are independent of each other and go on side by side on as many
// cores as are allowed; the results come in the order of the matrix whatever that
// number is. Results of several seeds are summed up as a mean with a confidence
// interval. The package knows nothing of files and terminals: trainyard simulate
// and the benchmarks give it sources and get its progress.
package whatif

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/place"
	"trainyard/internal/sim"
)

// Source is something to simulate: a scenario, or a trace on a cluster.
type Source struct {
	Name string
	Jobs int    // how many, 0 if unknown
	Seed uint64 // the first; others follow it
	// Config makes all of a simulation but the policy. Each call makes a workload
	// of its own.
	Config func(load float64, seed uint64) (sim.Config, error)
	// Run simulates; nil means sim.Run.
	Run func(sim.Config) (*sim.Result, error)
}

// Policy is a policy to compare. New makes one for each simulation.
type Policy struct {
	Name string
	New  func() place.Policy
}

// Matrix is what to simulate: every source with every policy at every load with
// so many seeds.
type Matrix struct {
	Sources  []Source
	Policies []Policy
	Loads    []float64 // 1 is as written; empty for 1 alone
	Seeds    int       // how many, at least one
	Parallel int       // simulations at once, at least one
	Keep     int       // points of series and spans to keep of each simulation with the first seed
	// Log opens what gets the decisions of a simulation; it may be nil.
	Log func(Cell) (io.WriteCloser, error)
	// Progress is called now and then, never concurrently; it may be nil. Clock is read
	// for it.
	Progress func(Progress)
	Clock    clock.Clock
}

// Cell is one simulation of a matrix and what it came to.
type Cell struct {
	Source string      `json:"source"`
	Policy string      `json:"policy"`
	Load   float64     `json:"load"`
	Seed   uint64      `json:"seed"`
	Result *sim.Result `json:"-"`
}

// String names the cell.
func (c Cell) String() string {
	return fmt.Sprintf("%s with %s at load %g, seed %d", c.Source, c.Policy, c.Load, c.Seed)
}

// task is a cell with what makes it.
type task struct {
	Cell
	source *Source
	policy *Policy
	keep   int
}

// Run simulates the matrix. It returns the cells by source, load, policy and seed,
// and the first failure in that order. When ctx ends it returns at once;
// simulations that are under way end by themselves soon after.
func Run(ctx context.Context, m Matrix) ([]Cell, error) {
	tasks := m.tasks()
	if len(tasks) == 0 {
		return nil, nil
	}

	inner, cancel := context.WithCancel(ctx)
	defer cancel()

	p := newProgress(&m, tasks)
	next := make(chan int)
	errs := make([]error, len(tasks))
	results := make([]*sim.Result, len(tasks))

	var all sync.WaitGroup
	for range min(max(m.Parallel, 1), len(tasks)) {
		all.Go(func() {
			for i := range next {
				results[i], errs[i] = tasks[i].run(inner, &m, p)
				if errs[i] != nil {
					cancel() // the others would be thrown away
				}
			}
		})
	}

	for i := range tasks {
		select {
		case next <- i:
			continue
		case <-inner.Done():
		}

		break
	}

	close(next)
	all.Wait()

	if err := firstFailure(errs); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	p.end()

	cells := make([]Cell, len(tasks))
	for i := range tasks {
		cells[i] = tasks[i].Cell
		cells[i].Result = results[i]
	}

	return cells, nil
}

// firstFailure returns the failure of the first cell that failed by itself.
func firstFailure(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}

	return nil
}

// tasks lists the cells in order.
func (m *Matrix) tasks() []task {
	loads := m.Loads
	if len(loads) == 0 {
		loads = []float64{1}
	}

	var tasks []task
	for i := range m.Sources {
		for _, load := range loads {
			for j := range m.Policies {
				for k := range max(m.Seeds, 1) {
					t := task{source: &m.Sources[i], policy: &m.Policies[j]}
					t.Cell = Cell{Source: t.source.Name, Policy: t.policy.Name, Load: load, Seed: t.source.Seed + uint64(k)}
					if k == 0 {
						t.keep = m.Keep
					}

					tasks = append(tasks, t)
				}
			}
		}
	}

	return tasks
}

// run simulates one cell.
func (t *task) run(ctx context.Context, m *Matrix, p *progress) (*sim.Result, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	cfg, err := t.source.Config(t.Load, t.Seed)
	if err != nil {
		return nil, err
	}

	cfg.Policy, cfg.Keep = t.policy.New(), t.keep
	cfg.Stop = func() bool { return ctx.Err() != nil }
	count, rest := p.counter()
	cfg.OnStep = count
	defer rest()

	simulate := t.source.Run
	if simulate == nil {
		simulate = sim.Run
	}

	if m.Log == nil {
		return t.named(simulate(cfg))
	}

	log, err := m.Log(t.Cell)
	if err != nil {
		return nil, err
	}

	cfg.Log = log
	r, err := t.named(simulate(cfg))
	if closing := log.Close(); err == nil && closing != nil {
		err = fmt.Errorf("write the log of decisions: %w", closing)
	}

	return r, err
}

// named adds to a failure whose it is.
func (t *task) named(r *sim.Result, err error) (*sim.Result, error) {
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", t.Cell, err)
	}

	return r, nil
}

// Progress says how far the simulations have come.
type Progress struct {
	Done, Jobs   int // jobs that have ended, of so many; 0 if unknown
	Cells, Total int // simulations that have ended, of all
	Elapsed      time.Duration
	Rate         float64       // jobs a second
	Remaining    time.Duration // estimated; 0 if unknown
}
