// Command policies measures the policies and the simulator.
//
//	go run ./test/bench/policies -target andreas -out build/bench/bench-andreas.json
//
// Each target is a package beside this one that prints its table and returns its
// figures; this command only chooses it, names the machine, and writes the figures
// as one flat JSON object. It asserts nothing. `make bench-…` calls it.
package main

import (
	"bytes"
	"encoding/json"
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
	"trainyard/test/bench/place"
	"trainyard/test/bench/simulator"
	"trainyard/test/bench/swf"
	"trainyard/test/bench/target"
)

// targets are the benchmarks by name.
var targets = map[string]func(io.Writer, target.Options) (map[string]float64, error){
	"alloc": alloc.Run, "andreas": andreas.Run, "burst": burst.Run, "datacenter": datacenter.Run, "edl": edl.Run,
	"elastic": elastic.Run, "fidelity": fidelity.Run, "harvest": harvest.Run, "place": place.Run, "sim": simulator.Run, "swf": swf.Run,
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}

		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("policies", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("target", "", "what to measure: "+strings.Join(names(), ", "))
	out := flags.String("out", "", "write the figures to `file`")

	skip := flags.Int(
		"skip-seeds",
		0,
		"leave out so many seeds from the first, where a target has several instances (andreas)",
	)

	quick := flags.Bool("quick", false, "a small version: to try the benchmark, not to quote its figures")

	if err := flags.Parse(args); err != nil {
		return err
	}

	measure, ok := targets[*name]
	if !ok {
		return fmt.Errorf("there is no target %q; there are %s", *name, strings.Join(names(), ", "))
	}

	o := target.Options{Data: dataFolder(), Quick: *quick, Parallel: runtime.GOMAXPROCS(0), Skip: *skip}

	began := clock.Wall{}.Now()
	if _, err := fmt.Fprintf(
		stdout,
		"bench-%s: %d cores, %s, %s\n\n",
		*name,
		runtime.NumCPU(),
		runtime.Version(),
		began.UTC().Format("2006-01-02 15:04 UTC"),
	); err != nil {
		return err
	}

	figures, err := measure(stdout, o)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "\nmeasured in %s\n", clock.Wall{}.Now().Sub(began).Round(1e8)); err != nil {
		return err
	}

	return write(*out, figures)
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

// write writes the figures, by name.
func write(path string, figures map[string]float64) error {
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}

	return os.WriteFile(path, append(bytes.TrimSpace(text), '\n'), 0o600)
}
