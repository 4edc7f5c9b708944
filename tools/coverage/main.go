// Command coverage reads a coverage profile of go test, prints the covered share of each package and of all,
// and compares it with a stored baseline.
//
//	go run ./tools/coverage -profile build/cover.out -baseline docs/baseline/coverage.json
//
// A package, or the whole, that lost more than the tolerance ends the command with status 1. Packages of
// the baseline that are not in the profile are named and do not count, so that a few packages can be
// looked at alone. With -store it writes the baseline instead. `make cover` calls it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// errLost is the end of a comparison in which coverage was lost.
var errLost = errors.New("coverage fell by more than the tolerance")

// share is how much of something is covered, in statements.
type share struct{ covered, all int }

func (s share) percent() float64 {
	if s.all == 0 {
		return 0
	}

	return math.Round(1000*float64(s.covered)/float64(s.all)) / 10
}

// baseline is the stored coverage in percent.
type baseline struct {
	Total    float64            `json:"total"`
	Packages map[string]float64 `json:"packages"`
}

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		_, _ = fmt.Fprintln(os.Stderr, "coverage:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("coverage", flag.ContinueOnError)
	flags.SetOutput(stderr)
	profile := flags.String("profile", "build/cover.out", "profile written by go test -coverprofile")
	stored := flags.String("baseline", "docs/baseline/coverage.json", "stored coverage")
	tolerance := flags.Float64("tolerance", 2, "percentage points that a package may lose")
	store := flags.Bool("store", false, "store the coverage instead of comparing it")

	if err := flags.Parse(args); err != nil {
		return err
	}

	f, err := os.Open(*profile)
	if err != nil {
		return fmt.Errorf("read the profile: %w", err)
	}

	defer func() { _ = f.Close() }()

	packages, err := parse(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", *profile, err)
	}

	if *store {
		return write(*stored, packages)
	}

	before, err := read(*stored)
	if err != nil {
		return err
	}

	return report(stdout, packages, before, *tolerance)
}

// parse reads a profile. A block that several test binaries report is covered if one of them covers it.
func parse(r io.Reader) (map[string]share, error) {
	type block struct {
		statements int
		covered    bool
	}

	blocks := map[string]block{}

	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(line, "mode:") || line == "" {
			continue
		}

		// trainyard/internal/job/job.go:12.30,14.2 3 1
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: %q is not a block of a profile", n, line)
		}

		statements, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}

		count, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}

		blocks[fields[0]] = block{statements, count > 0 || blocks[fields[0]].covered}
	}

	if err := lines.Err(); err != nil {
		return nil, err
	}

	packages := map[string]share{}

	for at, b := range blocks {
		file, _, _ := strings.Cut(at, ":")
		name := strings.TrimPrefix(path.Dir(file), "trainyard/")

		s := packages[name]
		s.all += b.statements
		if b.covered {
			s.covered += b.statements
		}

		packages[name] = s
	}

	if len(packages) == 0 {
		return nil, errors.New("the profile is empty")
	}

	return packages, nil
}

// total is the share of all packages.
func total(packages map[string]share) share {
	var sum share
	for _, s := range packages {
		sum.covered += s.covered
		sum.all += s.all
	}

	return sum
}

// report prints the table and fails if something lost more than the tolerance. The totals are compared only
// if both are about the same packages.
func report(w io.Writer, packages map[string]share, before *baseline, tolerance float64) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "package\tstatements\tcovered\tbaseline\tdelta\t\t") // Flush returns its errors

	lost := false
	line := func(name string, s share, old float64, known bool) {
		if !known {
			_, _ = fmt.Fprintf(table, "%s\t%d\t%.1f %%\t-\t-\t\t\n", name, s.all, s.percent())
			return
		}

		mark := ""

		delta := s.percent() - old
		if delta < -tolerance {
			lost = true
			mark = "LOST"
		}

		_, _ = fmt.Fprintf(table, "%s\t%d\t%.1f %%\t%.1f %%\t%+.1f\t%s\t\n", name, s.all, s.percent(), old, delta, mark)
	}

	for _, name := range slices.Sorted(maps.Keys(packages)) {
		old, known := before.Packages[name]
		line(name, packages[name], old, known)
	}

	var missing []string
	for _, name := range slices.Sorted(maps.Keys(before.Packages)) {
		if _, here := packages[name]; !here {
			missing = append(missing, name)
		}
	}

	line("total", total(packages), before.Total, len(missing) == 0 && len(before.Packages) == len(packages))

	if err := table.Flush(); err != nil {
		return err
	}

	if len(missing) > 0 {
		if _, err := fmt.Fprintf(w, "not in the profile: %s\n", strings.Join(missing, ", ")); err != nil {
			return err
		}
	}

	if lost {
		return errLost
	}

	return nil
}

// read reads the baseline; a missing one is empty.
func read(name string) (*baseline, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return &baseline{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the baseline: %w", err)
	}

	var b baseline
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("read the baseline %s: %w", name, err)
	}

	return &b, nil
}

// write stores the coverage as the baseline.
func write(name string, packages map[string]share) error {
	b := baseline{Total: total(packages).percent(), Packages: map[string]float64{}}
	for pkg, s := range packages {
		b.Packages[pkg] = s.percent()
	}

	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the baseline: %w", err)
	}

	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // part of the sources
		return fmt.Errorf("store the baseline: %w", err)
	}

	return os.WriteFile(name, append(text, '\n'), 0o644) //nolint:gosec // part of the sources
}
