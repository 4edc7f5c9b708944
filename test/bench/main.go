// Command bench measures Trainyard's core and its opponents on this machine.
//
//	go run ./test/bench -out build/bench/bench-core.json
//	go run ./test/bench -suite scale -out build/bench/bench-scale.json
//
// Each section starts what it needs in a folder and on ports of its own, measures,
// and stops it again, also when interrupted. All sections, the opponent's too, run
// with one build and in one run: if one breaks off, the figures of the others are
// printed, the command fails, and no file is written or left from an earlier run.
//
// It decides nothing and asserts nothing; `make bench-core` and `make bench-scale` call it, and
// people compare the figures with the aims.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"

	"trainyard/internal/clock"
	"trainyard/test/bench/information"
	"trainyard/test/bench/report"
	"trainyard/test/bench/yard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()

	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings is what every section is built with.
type settings struct {
	clock clock.Clock
	build *build
	large *largeYards // of the suite scale
	quick bool        // shorter runs, for trying the benchmark itself
	notes io.Writer   // progress, for people
	// compared is what the sides of the suite know.
	compared []information.Comparison
	// hyperqueue is a Python that has HyperQueue, "" if it is not installed.
	hyperqueue string
}

// section is one group of measurements that share what they start.
type section interface {
	// Name is the word that -only takes.
	Name() string
	// Run measures. The figures it returns are printed even beside an error.
	Run(ctx context.Context) ([]figure, error)
}

// suites are the groups of sections that are measured in one run and written to one file, each in the order in which
// its sections run.
func suites(s settings) map[string][]section {
	return map[string][]section{
		"core": {
			submitSection{s},
			startSection{s},
			shortSection{s},
			messagesSection{s},
			memorySection{s},
			roundsSection{s},
			restartSection{s},
			agentsSection{s},
			slurmSection{s},
		},
		"scale": scaleSections(s),
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	suite := flags.String("suite", "core", "what to measure: core or scale")
	out := flags.String("out", "", "write the figures to `file`; without it build/bench/bench-SUITE.json")
	only := flags.String("only", "", "run only these `sections`, separated by commas")
	quick := flags.Bool("quick", false, "short runs: to try the benchmark, not to quote its figures")
	binary := flags.String("binary", "", "measure this `file`, a built trainyard, instead of building one")
	hyperqueue := flags.String("hyperqueue", "", "a `program`, Python that has HyperQueue; without it that is left out")
	table := flags.String("table", "", "measure nothing; print the figures in `file` as a table in Markdown")

	profile := flags.String(
		"cpuprofile",
		"",
		"write a processor profile of this process to `file`: what runs in it are the core and the clients",
	)

	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *table != "" {
		return printMarkdown(stdout, *table)
	}

	s := settings{
		clock: clock.Wall{}, build: &build{given: *binary}, large: &largeYards{}, quick: *quick, notes: stderr,
		hyperqueue: *hyperqueue, compared: comparisons()[*suite],
	}

	all, ok := suites(s)[*suite]
	if !ok {
		return fmt.Errorf("suite must be core or scale, got %q", *suite)
	}

	chosen, err := choose(all, *only)
	if err != nil {
		return err
	}

	if *out == "" {
		*out = filepath.Join("build", "bench", "bench-"+*suite+".json")
	}

	stopProfile, err := startProfile(*profile)
	if err != nil {
		return err
	}

	err = record(ctx, s, chosen, *out, extent(*quick, *only), stdout)

	return errors.Join(err, stopProfile(), s.large.stop(), s.build.remove())
}

// record runs the sections, prints their figures, and writes them to a file if all were measured.
func record(ctx context.Context, s settings, chosen []section, path, extent string, stdout io.Writer) error {
	origin, err := report.Begin(ctx, path, extent, s.clock.Now())
	if err != nil {
		return err
	}
	if err := writeLine(stdout, origin.Describe()); err != nil {
		return err
	}

	figures, failures := measure(ctx, s, chosen)

	ratios := factors(figures)
	figures = append(figures, ratios...)

	if err := printTable(stdout, figures); err != nil {
		return errors.Join(failures, err)
	}
	if len(ratios) > 0 { // both sides were measured
		if err := information.Print(stdout, s.compared); err != nil {
			return errors.Join(failures, err)
		}
	}
	if failures != nil {
		return fmt.Errorf("no figures were written, because not all of them could be measured: %w", failures)
	}

	numbers, err := byName(figures)
	if err != nil {
		return err
	}

	r := report.Report{Origin: origin, Figures: numbers}

	return r.Save(path)
}

// extent says how much of the benchmark is run.
func extent(quick bool, only string) string {
	text := "full"
	if quick {
		text = "quick"
	}

	if only != "" {
		text += ", " + only
	}

	return text
}

// build is the binary that all sections measure.
type build struct {
	given string // somebody built it already
	once  sync.Once
	dir   string
	path  string
	err   error
}

// binary builds the binary of this checkout when it is asked for the first time.
func (b *build) binary(ctx context.Context) (string, error) {
	if b.given != "" {
		return filepath.Abs(b.given)
	}

	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "trainyard-bench-build-"); b.err == nil {
			b.path, b.err = yard.Build(ctx, b.dir)
		}
	})

	return b.path, b.err
}

// remove removes the binary.
func (b *build) remove() error { return os.RemoveAll(b.dir) }

// startProfile begins to profile this process, if a file is named, and returns how to stop.
func startProfile(path string) (func() error, error) {
	if path == "" {
		return func() error { return nil }, nil
	}

	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("make the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("start the profile: %w", err), file.Close())
	}

	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// measure runs the sections one after the other. One that fails does not keep
// the others from being measured; an interrupt does.
func measure(ctx context.Context, s settings, chosen []section) ([]figure, error) {
	var figures []figure
	var failures error
	for _, sec := range chosen {
		if ctx.Err() != nil {
			return figures, errors.Join(failures, errors.New("interrupted"))
		}

		_, _ = fmt.Fprintf(s.notes, "== %s\n", sec.Name())
		got, err := sec.Run(ctx)
		figures = append(figures, got...)

		if err != nil {
			failures = errors.Join(failures, fmt.Errorf("section %s: %w", sec.Name(), err))
		}
	}

	return figures, failures
}

// choose returns the sections that only names, or all if it names none.
func choose(all []section, only string) ([]section, error) {
	if only == "" {
		return all, nil
	}

	names := make([]string, 0, len(all))
	for _, sec := range all {
		names = append(names, sec.Name())
	}

	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("no section %q; there are: %s", name, strings.Join(names, ", "))
		}
	}

	return slices.DeleteFunc(slices.Clone(all), func(sec section) bool {
		return !slices.Contains(wanted, sec.Name())
	}), nil
}
