// Package fidelity measures how far the simulator is from the real thing: the same streams of jobs on a real
// yard, whose server, agents and programs are processes of this machine, and in the simulator.
//
// Both sides have the same job files, nodes, prices, policies and arrival times. What the simulator is told
// beyond that comes from a probe before the streams: how long a start takes and how long a machine of the cloud takes
// to boot; and from one right before each stream of trainings: how fast a training is. The trainings compute, but their
// input bounds their speed: processors of a virtual machine may be half as fast a minute later, and the comparison
// would be one of the host's other guests. Nothing of a stream itself is used. In some streams no job writes
// checkpoints, so no policy moves one; in the others (moves.go) jobs do, and are preempted, moved and resized. How
// long that takes is part of the probe. The benchmark asserts nothing about the figures, but gives none if the
// machine was not quiet or did not keep its speed, or if nothing moved where it should.
package fidelity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"trainyard/internal/place/catalogue"
	"trainyard/test/bench/target"
	"trainyard/test/yardtest"
)

// policies are those that are compared. The values of time of rules are those of streams in which an hour stands
// for a day.
var policies = []string{"fifo", "rules:time=3000:balanced=120:cost=3", "andreas", "harvest"}

// limit bounds one stream under one policy; it is far longer than any takes.
const limit = 10 * time.Minute

// cell is one stream under one policy, on both sides.
type cell struct {
	stream          *stream
	policy          string // its name
	text            string // with its parameters
	probe           *probe // what the simulator is told
	live, simulated *outcome
	spread          spread
}

// Run measures the deviations and prints them. If other work took the machine's processors meanwhile, it returns an
// error instead of figures.
func Run(w io.Writer, o target.Options) (map[string]float64, error) {
	folder, err := yardtest.NewFolder("fidelity-")
	if err != nil {
		return nil, err
	}

	defer func() { _ = os.RemoveAll(folder) }()

	b := &bench{out: w, folder: folder, binary: filepath.Join(folder, "trainyard"), samples: probeSamples}
	if o.Quick {
		b.samples = 1
	}

	list, err := chosen(streams(o.Quick), o.Streams)
	if err != nil {
		return nil, err
	}

	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		return nil, err
	}

	ctx := context.Background()
	if err := b.atRest(ctx); err != nil {
		return nil, err
	}
	if err := b.measureProbe(ctx, list); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}

	cells, err := b.runStreams(ctx, list)
	if err != nil {
		return nil, err
	}

	if err := simulateAll(cells); err != nil {
		return nil, err
	}

	refused := errors.Join(refusal(b.disturbances, b.probe.slowdown, b.drifts), unmoved(cells))
	if refused != nil {
		if _, err := fmt.Fprintf(w, "%v\n\n", refused); err != nil {
			return nil, err
		}
	}

	figures, err := report(w, cells)
	if err != nil {
		return nil, err
	}
	if refused != nil && !o.Quick { // those of a quick run are never to be quoted
		return nil, refused
	}

	return figures, nil
}

// chosen returns the streams of these names, separated by commas; all if there are none.
func chosen(all []stream, names string) ([]stream, error) {
	if names == "" {
		return all, nil
	}

	var list []stream
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(all, func(s stream) bool { return s.name == name })
		if at < 0 {
			return nil, fmt.Errorf("stream %q not found", name)
		}

		list = append(list, all[at])
	}

	return list, nil
}

// unmoved says in which streams nothing was stopped or moved though it should have been, nil if there is none.
func unmoved(cells []cell) error {
	var errs []error
	for _, c := range cells {
		l, s := c.live, c.simulated
		if c.stream.saves && (l.stops == 0 || s.stops == 0 || l.seen() == 0 && s.seen() > 0) {
			errs = append(errs, fmt.Errorf(
				"figures refused: in %s under %s %d runs were stopped and %d jobs moved or resized, in the simulator %d and %d",
				c.stream.name, c.policy, l.stops, l.seen(), s.stops, s.seen()))
		}
	}

	return errors.Join(errs...)
}

// bench is a run of the benchmark.
type bench struct {
	out            io.Writer
	folder, binary string
	samples        int // of each figure of the probe
	probe          *probe
	disturbances   []disturbance
	drifts         []float64 // of the speed of a training, from before each stream of trainings to after it
}

// watch runs a stretch, and prints and keeps what others took meanwhile.
func (b *bench) watch(ctx context.Context, stretch string, run func() error) error {
	d, err := watched(ctx, b.folder, stretch, run)
	if err != nil {
		return err
	}

	b.disturbances = append(b.disturbances, d)
	_, err = fmt.Fprintln(b.out, d)

	return err
}

// atRest prints how busy the machine is before anything runs.
func (b *bench) atRest(ctx context.Context) error {
	load, err := loadAverage()
	if err != nil {
		return err
	}

	d, err := watched(ctx, b.folder, "at rest", func() error {
		time.Sleep(3 * time.Second)
		return nil
	})
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(b.out, "at the start: %d processors, load average %s, other work uses %.1f %%, steal %.1f %%\n",
		runtime.NumCPU(), load, 100*d.others, 100*d.steal)

	return err
}

// measureProbe measures what the simulator is told, and prints it.
func (b *bench) measureProbe(ctx context.Context, list []stream) error {
	trains := slices.ContainsFunc(list, func(s stream) bool { return s.trains })

	err := b.watch(ctx, "probe", func() (err error) {
		b.probe, err = measureProbe(ctx, b.binary, b.folder, b.samples, trains)
		return err
	})
	if err != nil {
		return err
	}

	p := b.probe
	if trains {
		if _, err := fmt.Fprintf(b.out,
			"probe: a training takes %.2f s more than another job to start and then does %.1f steps/s; %d trainings at once "+
				"take %+.1f %% longer than one alone\n",
			p.startup.Seconds(), p.stepsRate, trainers, 100*p.slowdown); err != nil {
			return err
		}
	}

	_, err = fmt.Fprintf(b.out,
		"probe: a job takes %.2f s beyond its work, and if it saves %.2f s more; it stops in %.2f s and takes %.2f s more "+
			"to continue elsewhere; a machine boots in %.1f s; programs can be suspended in place: %t\n\n",
		p.overhead.Seconds(), p.resume.Seconds(), p.save.Seconds(), p.restore.Seconds(), p.boot.Seconds(), p.suspends)

	return err
}

// runStreams runs the streams under their policies on real processes: those of programs that sleep several at once,
// those of programs that compute one after the other.
func (b *bench) runStreams(ctx context.Context, list []stream) ([]cell, error) {
	var sleeping, training []*cell

	count := 0
	for i := range list {
		count += len(list[i].policies)
	}

	cells := make([]cell, 0, count) // pointers to them are kept
	for i := range list {
		s := &list[i]
		if _, err := fmt.Fprintf(b.out, "%s: %s, %d jobs\n", s.name, s.about, len(s.tasks)); err != nil {
			return nil, err
		}

		for _, text := range s.policies {
			policy, err := catalogue.All(nil).Make(text)
			if err != nil {
				return nil, err
			}

			cells = append(cells, cell{stream: s, policy: policy().Name(), text: text, probe: b.probe})
			if c := &cells[len(cells)-1]; s.trains {
				training = append(training, c)
			} else {
				sleeping = append(sleeping, c)
			}
		}
	}

	err := b.watch(ctx, "streams that sleep", func() error {
		return b.runLive(ctx, sleeping, sleepingAtOnce)
	})
	if err != nil || len(training) == 0 {
		return cells, err
	}

	return cells, b.runTrainings(ctx, training)
}

// sleepingAtOnce is how many streams of jobs that sleep run at once: so many that the yards of all of them take
// little of two processors, and no job waits for one.
const sleepingAtOnce = 4

// maxTries is how often a stream of trainings is run until the machine keeps its speed meanwhile.
const maxTries = 6

// calm is the share of all processors that others may take during a stream of trainings before it is run again.
const calm = 0.1

// attempt is one run of a stream of trainings, and how quiet the machine was meanwhile.
type attempt struct {
	live        *outcome
	probe       *probe
	drift       float64 // of the speed of a training, from before to after
	disturbance disturbance
}

// kept reports whether the machine kept its speed.
func (a attempt) kept() bool { return math.Abs(a.drift) <= maxDrift }

// taken is the share of the processors that others took.
func (a attempt) taken() float64 { return a.disturbance.others + a.disturbance.steal }

// calmer orders attempts by how little the machine was disturbed. What they measured plays no part.
func calmer(a, b attempt) int {
	switch {
	case a.kept() && !b.kept():
		return -1
	case b.kept() && !a.kept():
		return 1
	}

	return cmp.Compare(a.taken(), b.taken())
}

// runTrainings runs cells one after the other, each with the speed that a training has right before it. One in which
// the speed changed, or others took much of the processors, is run again; the calmest attempt counts.
func (b *bench) runTrainings(ctx context.Context, cells []*cell) error {
	now, err := recalibrated(ctx, b.binary, b.folder, b.probe, b.samples)
	if err != nil {
		return err
	}

	for _, c := range cells {
		var attempts []attempt
		for len(attempts) < maxTries {
			c.probe = now
			d, err := watched(ctx, b.folder, c.stream.name+" under "+c.policy, func() error {
				return b.runLive(ctx, []*cell{c}, 1)
			})
			if err != nil {
				return err
			}

			now, err = recalibrated(ctx, b.binary, b.folder, b.probe, b.samples)
			if err != nil {
				return err
			}

			a := attempt{live: c.live, probe: c.probe, drift: now.stepsRate/c.probe.stepsRate - 1, disturbance: d}
			attempts = append(attempts, a)
			if _, err := fmt.Fprintf(b.out, "%s; try %d: %.1f steps/s before, %.1f after: %+.1f %%\n", d, len(attempts),
				c.probe.stepsRate, now.stepsRate, 100*a.drift); err != nil {
				return err
			}

			if a.kept() && a.taken() <= calm {
				break
			}
		}

		best := slices.MinFunc(attempts, calmer)
		c.live, c.probe = best.live, best.probe
		b.drifts = append(b.drifts, best.drift)
		b.disturbances = append(b.disturbances, best.disturbance)
	}

	return nil
}

// runLive runs cells on real processes, so many at once.
func (b *bench) runLive(ctx context.Context, cells []*cell, most int) error {
	errs := make([]error, len(cells))
	atOnce := make(chan struct{}, most)

	var all sync.WaitGroup
	for i, c := range cells {
		all.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()

			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()

			var err error
			c.live, err = runLive(limited, b.binary, b.folder, c.text, c.stream, c.probe)
			if err != nil {
				errs[i] = fmt.Errorf("%s under %s: %w", c.stream.name, c.policy, err)
			}
		})
	}

	all.Wait()

	return errors.Join(errs...)
}

// simulateAll simulates the cells, with what the probes measured.
func simulateAll(cells []cell) error {
	for i := range cells {
		c := &cells[i]

		policy, err := catalogue.All(nil).Make(c.text)
		if err != nil {
			return err
		}

		c.simulated, err = simulate(policy, c.stream, c.probe)
		if err == nil {
			c.spread, err = spreadOf(policy, c.stream, c.probe)
		}
		if err != nil {
			return fmt.Errorf("%s under %s, simulated: %w", c.stream.name, c.policy, err)
		}
	}

	return nil
}

// deviation is by how much the simulator is off, in percent of what really happened.
func deviation(live, simulated, least float64) float64 {
	if live == simulated {
		return 0
	}

	return 100 * (simulated - live) / max(live, least)
}

// minLateness is the lateness, as a share of the time that all jobs took, below which its deviation is counted
// as a share of that: of a stream in which almost nothing is late the ratio says nothing.
const minLateness = 0.05

// report prints the table and returns the figures.
func report(w io.Writer, cells []cell) (map[string]float64, error) {
	figures := map[string]float64{}

	if _, err := fmt.Fprintf(w, "%-9s %-8s %18s %8s %7s %18s %8s %16s %8s %7s %16s %8s %16s %8s %7s %7s %9s %7s %7s\n",
		"stream", "policy", "cost live/sim", "dev", "spread", "energy live/sim", "dev", "mean completion", "dev", "spread",
		"p95 completion", "dev", "lateness", "dev", "nodes", "stops", "suspended", "moves", "resizes"); err != nil {
		return nil, err
	}

	for i := range cells {
		if err := cells[i].report(w, figures); err != nil {
			return nil, err
		}
	}

	_, err := fmt.Fprintf(w,
		"\nworst: cost %.1f %%, energy %.1f %%, mean completion %.1f %%, p95 %.1f %%, lateness %.1f %%\n"+
			"worst with moves: cost %.1f %%, mean completion %.1f %%; %.0f moves and resizes\n",
		figures["worst_cost_dev_pct"], figures["worst_energy_dev_pct"], figures["worst_completion_dev_pct"],
		figures["worst_p95_dev_pct"], figures["worst_lateness_dev_pct"],
		figures["worst_moves_cost_dev_pct"], figures["worst_moves_completion_dev_pct"], figures["moves_seen"])

	return figures, err
}

// report prints the row of a cell and adds its figures. The worst of streams with moves are figures of their own.
func (c *cell) report(w io.Writer, figures map[string]float64) error {
	l, s := c.live, c.simulated
	cost := deviation(l.cost, s.cost, 0)
	energy := deviation(l.energyCost, s.energyCost, 0)
	mean := deviation(l.completion, s.completion, 0)
	p95 := deviation(l.p95, s.p95, 0)
	late := deviation(l.lateness, s.lateness, minLateness*l.completion*float64(len(c.stream.tasks)))

	name, group := c.stream.name+"_"+c.policy, "worst_"
	if c.stream.saves {
		group = "worst_moves_"
		figures["moves_seen"] += float64(l.seen())
		figures[name+"_moves"] = float64(l.seen())
		figures[name+"_stops"] = float64(l.stops)
		figures[name+"_suspended"] = float64(l.suspended)
	}

	for key, value := range map[string]float64{
		"cost_dev_pct": cost, "energy_dev_pct": energy, "completion_dev_pct": mean, "p95_dev_pct": p95,
		"lateness_dev_pct": late, "cost_spread_pct": c.spread.cost, "completion_spread_pct": c.spread.completion,
	} {
		figures[group+key] = math.Max(figures[group+key], math.Abs(value))
	}

	figures[name+"_cost_dev_pct"], figures[name+"_completion_dev_pct"] = cost, mean
	figures[name+"_lateness_dev_pct"] = late

	_, err := fmt.Fprintf(w,
		"%-9s %-8s %9.3f/%8.3f %7.1f%% %6.1f%% %9.3f/%8.3f %7.1f%% %7.2f/%7.2fs %7.1f%% %6.1f%% %7.2f/%7.2fs %7.1f%% "+
			"%7.1f/%7.1fs %7.1f%% %3d/%3d %3d/%3d %4d/%4d %3d/%3d %3d/%3d\n",
		c.stream.name, c.policy, l.cost, s.cost, cost, c.spread.cost, l.energyCost, s.energyCost, energy,
		l.completion, s.completion, mean, c.spread.completion, l.p95, s.p95, p95, l.lateness, s.lateness, late,
		l.nodes, s.nodes, l.stops, s.stops, l.suspended, s.suspended, l.moves, s.moves, l.resizes, s.resizes)

	return err
}
