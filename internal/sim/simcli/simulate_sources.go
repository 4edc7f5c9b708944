package simcli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/internal/sim/trace"
	"trainyard/internal/sim/whatif"
)

// traceFlags say which recorded workload to simulate, on what.
type traceFlags struct {
	file, format, cluster, tables, queue string
	first, gpus                          int
	sort                                 bool
	start, save                          lasting

	mu      sync.Mutex // readers of several simulations count at once
	skipped int
	leftOut int
}

func (t *traceFlags) register(f *pflag.FlagSet) {
	var names []string
	for _, o := range trace.Formats() {
		names = append(names, o.Name)
	}

	f.StringVar(&t.file, "trace", "", "simulate the jobs of this trace file; .gz is decompressed")
	f.StringVar(&t.format, "format", "", "trace format: "+strings.Join(names, ", ")+" (default: detected)")
	f.StringVar(&t.cluster, "cluster", "", "nodes for the trace, as COUNTxGPUxGPUS, e.g. 16xV100:32GBx8,4xA100:80GBx8")

	f.StringVar(
		&t.tables,
		"tables",
		"",
		"second file or directory required by the format: throughputs, profiles or a column mapping",
	)

	f.StringVar(&t.queue, "queue", "", "only jobs of this virtual cluster, queue or partition")
	f.IntVar(&t.first, "first", 0, "only this many jobs, from the first")
	f.IntVar(&t.gpus, "default-gpus", 0, "number of GPUs of jobs for which the trace has none")
	f.BoolVar(&t.sort, "sort", false, "sort the trace by submission time (in memory)")
	f.Var(&t.start, "start", "time each job of the trace takes to start or restore, e.g. 30s")
	f.Var(&t.save, "save", "time each job of the trace takes to save a checkpoint when it is stopped, e.g. 30s")
}

// sources returns what is to be simulated, and the policy for it if none is chosen.
func (s *simulation) sources(cmd *cobra.Command, files []string) ([]whatif.Source, string, error) {
	var all []whatif.Source
	standard := ""

	if err := s.nodeLog.check(cmd, s.skipBad); err != nil {
		return nil, "", err
	}

	for _, name := range files {
		src, policy, err := s.scenario(name)
		if err != nil {
			return nil, "", err
		}

		if standard != "" && policy != standard && s.policies == "" {
			return nil, "", exit.Usagef(
				cmd,
				"the scenarios name different policies, %s and %s: choose with --policy",
				standard,
				policy,
			)
		}

		standard = policy
		all = append(all, src)
	}

	if s.trace.file != "" {
		src, err := s.recorded(cmd)
		if err != nil {
			return nil, "", err
		}

		all = append(all, src)
	} else if s.trace.cluster != "" || s.trace.format != "" {
		return nil, "", exit.Usagef(cmd, "--cluster and --format go with --trace")
	}

	if standard == "" {
		standard = "fifo"
	}

	return all, standard, nil
}

// scenario reads a scenario file.
func (s *simulation) scenario(name string) (whatif.Source, string, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return whatif.Source{}, "", fault.New(fault.NotFound, "scenario_not_found", "there is no file %s", name).
			WithCause(err)
	}

	if err != nil {
		return whatif.Source{}, "", fmt.Errorf("read the scenario: %w", err)
	}

	sc, err := scenario.Parse(name, text)
	if err != nil {
		return whatif.Source{}, "", err
	}

	prices, err := s.tariff()
	if err != nil {
		return whatif.Source{}, "", err
	}

	return whatif.Source{
		Name: sc.Name, Jobs: sc.Total(), Seed: sc.Seed, Run: sc.Simulate,
		Config: func(load float64, seed uint64) (sim.Config, error) {
			cfg, err := sc.Config(load, seed)
			if err != nil {
				return cfg, err
			}

			if s.until > 0 {
				cfg.Until = time.Duration(s.until)
			}

			cfg.Tariff = priced(cfg.Tariff, prices)

			return cfg, s.nodeLog.addTo(&cfg, s.skipBad)
		},
	}, sc.Policy, nil
}

// recorded is the trace on the cluster.
func (s *simulation) recorded(cmd *cobra.Command) (whatif.Source, error) {
	t := &s.trace
	if t.cluster == "" && s.nodeLog.file == "" {
		return whatif.Source{}, exit.Usagef(cmd, "--trace requires --cluster, e.g. --cluster 16xV100x8, or --node-log")
	}

	var nodes []fleet.Node
	if t.cluster != "" {
		var err error
		nodes, err = scenario.Cluster(t.cluster, "", fleet.Local)
		if err != nil {
			return whatif.Source{}, err
		}
	}

	prices, err := s.tariff()
	if err != nil {
		return whatif.Source{}, err
	}

	perNode := len(s.nodeLog.sample.Inventory.GPUs)
	for i := range nodes {
		perNode = max(perNode, len(nodes[i].Inventory.GPUs))
	}

	opts := trace.Options{
		SkipBad: s.skipBad, Sort: t.sort, Cluster: t.queue, PerNode: perNode, GPUs: true, Default: t.gpus, Tables: t.tables,
		Start: time.Duration(t.start), Save: time.Duration(t.save),
	}

	// A file that cannot be read is told before anything is simulated.
	probe, err := trace.Open(t.file, t.format, opts)
	if err != nil {
		return whatif.Source{}, err
	}
	if err := probe.Close(); err != nil {
		return whatif.Source{}, fmt.Errorf("close the trace: %w", err)
	}

	return whatif.Source{
		Name: filepath.Base(t.file), Jobs: t.first, Seed: 1,
		Config: func(load float64, _ uint64) (sim.Config, error) {
			jobs, err := t.open(opts)
			if err != nil {
				return sim.Config{}, err
			}

			cfg := sim.Config{
				Nodes:     slices.Clone(nodes),
				Jobs:      scenario.Scaled(jobs, load),
				Tariff:    prices,
				FairShare: true,
				Until:     time.Duration(s.until),
				Detect:    time.Minute,
			}

			return cfg, s.nodeLog.addTo(&cfg, s.skipBad)
		},
	}, nil
}

// open opens the trace for one simulation.
func (t *traceFlags) open(opts trace.Options) (sim.Jobs, error) {
	r, err := trace.Open(t.file, t.format, opts)
	if err != nil {
		return nil, err
	}

	jobs := sim.Jobs(&counted{r, t})
	if t.first > 0 {
		jobs = trace.First(jobs, t.first)
	}

	return jobs, nil
}

// counted is a reader that tells what it left out when it has come to its end.
type counted struct {
	*trace.Reader
	flags *traceFlags
}

// Next returns the next job.
func (c *counted) Next() (*sim.Job, error) {
	j, err := c.Reader.Next()
	if errors.Is(err, io.EOF) {
		c.flags.mu.Lock()
		defer c.flags.mu.Unlock()

		c.flags.skipped, c.flags.leftOut = c.Skipped(), c.LeftOut() // the same each time
	}

	return j, err
}

// tell says what of the trace was not simulated.
func (t *traceFlags) tell(c *console.Console) {
	if t.skipped > 0 {
		c.Note("%s: %d rows could not be read and were skipped.", t.file, t.skipped)
	}

	if t.leftOut > 0 {
		c.Note("%s: %d rows hold nothing to simulate: jobs that never ran, or that want no GPU.", t.file, t.leftOut)
	}
}

// tariff makes a tariff of the prices that were given, nil if there are none.
func (s *simulation) tariff() (*fleet.Tariff, error) {
	if len(s.prices) == 0 {
		return nil, nil
	}

	t := &fleet.Tariff{}

	for _, kind := range slices.Sorted(maps.Keys(s.prices)) {
		each, err := job.ParseMoney(s.prices[kind])
		if err != nil || kind == "" {
			return nil, fault.New(fault.Invalid, "bad_price", "invalid price %q of %s", s.prices[kind], kind).WithField("price").
				WithRemedy("use GPU=DOLLARS per hour, e.g. A100=2.40")
		}

		p := fleet.NodePrice{GPU: kind, Off: true}

		for n := range fleet.MaxGPUs + 1 {
			p.Hourly = append(p.Hourly, each.PerHour().Times(float64(n)))
		}

		t.Nodes = append(t.Nodes, p)
	}

	return t, nil
}

// priced puts prices in front of a tariff.
func priced(old, prices *fleet.Tariff) *fleet.Tariff {
	switch {
	case prices == nil:
		return old
	case old == nil:
		return prices
	}

	both := *old
	both.Nodes = append(slices.Clone(prices.Nodes), old.Nodes...)

	return &both
}
