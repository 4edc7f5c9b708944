// Command policies measures the policies and the simulator.
//
//	go run ./test/bench/policies -target andreas -out build/bench/bench-andreas.json
//
// Each target is a package beside this one that prints its table and returns its
// figures; this command only chooses it, says what each side knows, and writes the
// figures with commit, machine and date. It asserts nothing. `make bench-…` calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"trainyard/internal/clock"
	"trainyard/test/bench/alloc"
	"trainyard/test/bench/andreas"
	"trainyard/test/bench/burst"
	"trainyard/test/bench/datacenter"
	"trainyard/test/bench/edl"
	"trainyard/test/bench/elastic"
	"trainyard/test/bench/fidelity"
	"trainyard/test/bench/harvest"
	"trainyard/test/bench/information"
	"trainyard/test/bench/place"
	"trainyard/test/bench/relocate"
	"trainyard/test/bench/report"
	"trainyard/test/bench/shareplace"
	"trainyard/test/bench/simulator"
	"trainyard/test/bench/swf"
	"trainyard/test/bench/target"
)

// benchmark is a target with what its comparisons tell each side.
type benchmark struct {
	measure     func(io.Writer, target.Options) (map[string]float64, error)
	comparisons func() []information.Comparison // nil if it compares nobody
	alone       string                          // why it compares nobody
	page        string                          // under docs/explanation, with its figures
}

const (
	policyPage = "benchmarks-policies.md"
	cloudPage  = "benchmarks-cloud.md"
)

// targets are the benchmarks by name.
var targets = map[string]benchmark{
	"alloc":      {measure: alloc.Run, comparisons: alloc.Comparisons, page: policyPage},
	"andreas":    {measure: andreas.Run, comparisons: andreas.Comparisons, page: policyPage},
	"burst":      {measure: burst.Run, comparisons: burst.Comparisons, page: cloudPage},
	"datacenter": {measure: datacenter.Run, comparisons: datacenter.Comparisons, page: policyPage},
	"edl":        {measure: edl.Run, comparisons: edl.Comparisons, page: policyPage},
	"elastic":    {measure: elastic.Run, comparisons: elastic.Comparisons, page: policyPage},
	"fidelity": {
		measure: fidelity.Run, page: policyPage,
		alone: "it holds the simulator against real processes; both have the same jobs, prices and policies",
	},
	"harvest": {measure: harvest.Run, comparisons: harvest.Comparisons, page: policyPage},
	"place": {
		measure: place.Run, page: cloudPage,
		alone: "it times two policies of ours on the same views; each takes from them what it needs",
	},
	"relocate":    {measure: relocate.Run, comparisons: relocate.Comparisons, page: cloudPage},
	"share-place": {measure: shareplace.Run, comparisons: shareplace.Comparisons, page: policyPage},
	"sim":         {measure: simulator.Run, comparisons: simulator.Comparisons, page: policyPage},
	"swf": {
		measure: swf.Run, page: policyPage,
		alone: "it holds the same rules against an independent computation of them; nobody is ahead",
	},
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}

		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("policies", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("target", "", "what to measure: "+strings.Join(names(), ", "))
	out := flags.String("out", "", "write the figures to `file`")

	skip := flags.Int(
		"skip-seeds",
		0,
		"leave out so many seeds from the first, where a target has several instances (andreas)",
	)

	streams := flags.String("streams", "", "run only these streams, separated by commas (fidelity)")
	quick := flags.Bool("quick", false, "a small version: to try the benchmark, not to quote its figures")

	if err := flags.Parse(args); err != nil {
		return err
	}

	bench, ok := targets[*name]
	if !ok {
		return fmt.Errorf("there is no target %q; there are %s", *name, strings.Join(names(), ", "))
	}

	o := target.Options{Data: dataFolder(), Quick: *quick, Parallel: runtime.GOMAXPROCS(0), Streams: *streams, Skip: *skip}

	began := clock.Wall{}.Now()

	origin, err := report.Begin(ctx, *out, extent(*quick, *skip, *streams), began)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "bench-%s: %s\n\n", *name, origin.Describe()); err != nil {
		return err
	}

	figures, err := bench.measure(stdout, o)
	if err != nil {
		return err
	}
	if bench.comparisons != nil {
		if err := information.Print(stdout, bench.comparisons()); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(stdout, "\nmeasured in %s\n", clock.Wall{}.Now().Sub(began).Round(1e8)); err != nil {
		return err
	}

	if *out == "" {
		return nil
	}

	r := report.Report{Origin: origin, Figures: figures}

	return r.Save(*out)
}

// extent says how much of a benchmark is run.
func extent(quick bool, skip int, streams string) string {
	text := "full"
	if quick {
		text = "quick"
	}

	if skip > 0 {
		text += fmt.Sprintf(", without the first %d seeds", skip)
	}

	if streams != "" {
		text += ", streams " + streams + " only"
	}

	return text
}

func names() []string {
	list := make([]string, 0, len(targets))
	for n := range targets {
		list = append(list, n)
	}

	slices.Sort(list)

	return list
}

// dataFolder returns where the public traces are.
func dataFolder() string {
	if dir := os.Getenv("TRAINYARD_DATA"); dir != "" {
		return dir
	}

	return filepath.Join("..", "shared", "data")
}
