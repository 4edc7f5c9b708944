// Command compare compares the figures of benchmarks with stored ones and says which got worse.
//
//	go run ./test/bench/compare -old docs/baseline/bench -new build/bench -tolerances docs/baseline/tolerances.json
//
// Both folders hold one flat JSON object per benchmark: names of figures and numbers, and where they are from. How far
// a figure may move, and in which direction it is better, is looked up by its name in the file of tolerances. A figure
// that moved too far in the wrong direction, or that is gone, ends the command with status 1.
// With -store it copies the new figures over the stored ones instead.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"trainyard/test/bench/report"
)

// errRegressed is the end of a comparison in which a figure got worse.
var errRegressed = errors.New("figures got worse than their tolerance allows")

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		_, _ = fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	oldFolder := flags.String("old", "docs/baseline/bench", "folder of the stored figures")
	newFolder := flags.String("new", "build/bench", "folder of the measured figures")
	rules := flags.String("tolerances", "docs/baseline/tolerances.json", "file that says how far figures may move")
	store := flags.Bool("store", false, "store the measured figures instead of comparing them")

	if err := flags.Parse(args); err != nil {
		return err
	}

	if *store {
		return storeFigures(*oldFolder, *newFolder, stdout)
	}

	list, err := readTolerances(*rules)
	if err != nil {
		return err
	}

	return compareFolders(*oldFolder, *newFolder, list, stdout)
}

// compareFolders compares every stored benchmark that was measured again. One that was not is named: nobody
// runs all of them every time.
func compareFolders(oldFolder, newFolder string, list []tolerance, stdout io.Writer) error {
	names, err := filepath.Glob(filepath.Join(oldFolder, "*.json"))
	if err != nil {
		return err
	}

	slices.Sort(names)

	compared, regressed := 0, false

	for _, path := range names {
		stored, err := report.Read(path)
		if err != nil {
			return err
		}

		name := filepath.Base(path)
		measured, err := report.Read(filepath.Join(newFolder, name))
		if errors.Is(err, os.ErrNotExist) {
			if _, err := fmt.Fprintf(stdout, "%s: not measured\n\n", name); err != nil {
				return err
			}

			continue
		}

		if err != nil {
			return err
		}

		rows := compare(stored.Figures, measured.Figures, list)
		if err := printRows(stdout, name, rows); err != nil {
			return err
		}

		compared++
		regressed = regressed || slices.ContainsFunc(rows, func(r row) bool { return r.verdict.bad() })
	}

	switch {
	case compared == 0:
		return fmt.Errorf("nothing to compare: no file of %s is in %s", oldFolder, newFolder)
	case regressed:
		return errRegressed
	default:
		return nil
	}
}

// storeFigures copies the measured figures over the stored ones.
func storeFigures(oldFolder, newFolder string, stdout io.Writer) error {
	names, err := filepath.Glob(filepath.Join(newFolder, "*.json"))
	if err != nil {
		return err
	}

	if len(names) == 0 {
		return fmt.Errorf("nothing to store: no figures in %s", newFolder)
	}

	if err := os.MkdirAll(oldFolder, 0o755); err != nil { //nolint:gosec // part of the sources
		return fmt.Errorf("make the folder of stored figures: %w", err)
	}

	for _, path := range names {
		measured, err := report.Read(path)
		if err != nil {
			return err
		}

		stored := filepath.Join(oldFolder, filepath.Base(path))
		if err := measured.Save(stored); err != nil {
			return fmt.Errorf("store figures: %w", err)
		}
		if err := os.Chmod(stored, 0o644); err != nil { //nolint:gosec // part of the sources
			return fmt.Errorf("store figures: %w", err)
		}

		if _, err := fmt.Fprintf(stdout, "stored %s: %d figures\n", stored, len(measured.Figures)); err != nil {
			return err
		}
	}

	return nil
}
