// Command forecast measures how well the yard tells when a job will be done.
//
//	go run ./test/bench/forecast -out build/bench/bench-forecast.json
//	go run ./test/bench/forecast -curves my-curves
//	go run ./test/bench/forecast -scale -out build/bench/bench-forecast-scale.json
//
// It replays real training curves: at 20, 40, 60 and 80 % of the way to a goal only the points
// so far are shown, and every method says when the goal will be reached. History is
// always that of other organisations or families of runs. It prints tables, writes the figures as
// one flat JSON object and asserts nothing. `make bench-forecast` and `make bench-forecast-scale` call it;
// docs/explanation/benchmarks-forecast.md tells what the figures are and how the curves of a folder are written.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trainyard/internal/clock"
	"trainyard/test/bench/information"
	reportfile "trainyard/test/bench/report"
)

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
	flags := flag.NewFlagSet("forecast", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("out", "", "write the figures to `file`")
	curves := flags.String("curves", "", "score the curves of a `folder` instead of the public ones")
	half := flags.String("half", "", "score one half of the groups only: first, on which constants were chosen, or second")
	scale := flags.Bool("scale", false, "measure instead what forecasts of very many jobs cost")
	jobs := flags.Int("jobs", 10_000, "how many jobs that is")

	if err := flags.Parse(args); err != nil {
		return err
	}

	began := clock.Wall{}.Now()

	extent := "full"

	switch {
	case *scale:
		extent = fmt.Sprintf("full, %d jobs", *jobs)
	case *half != "":
		extent = *half + " half"
	}

	origin, err := reportfile.Begin(ctx, *out, extent, began)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "bench-forecast: %s\n\n", origin.Describe()); err != nil {
		return err
	}

	var figures map[string]float64

	switch {
	case *scale:
		figures, err = measureScale(stdout, *jobs)
	case *curves != "":
		figures, err = scoreFolder(stdout, *curves)
	default:
		figures, err = scorePublic(stdout, dataFolder(), *half)
	}

	if err != nil {
		return err
	}
	if !*scale {
		if err := information.Print(stdout, comparisons()); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(stdout, "\nmeasured in %s\n", clock.Wall{}.Now().Sub(began).Round(1e8)); err != nil {
		return err
	}

	if *out == "" {
		return nil
	}

	r := reportfile.Report{Origin: origin, Figures: figures}

	return r.Save(*out)
}

// scorePublic scores the public curves that are there.
func scorePublic(w io.Writer, dir, half string) (map[string]float64, error) {
	list, left, err := readAll(dir)
	if err != nil {
		return nil, err
	}
	if err := printLines(w, left); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return map[string]float64{}, nil
	}

	parts := makeFolds(list)
	if err := selectHalf(parts, half); err != nil {
		return nil, err
	}

	figures, err := report(w, score(parts), sources, mainSources)
	if err != nil {
		return nil, err
	}
	if err := reportGoalCases(w, goalCases(list), figures); err != nil {
		return nil, err
	}

	if err := reportMixed(w, list, half, figures); err != nil {
		return nil, err
	}
	if err := reportBefore(w, dir, figures); err != nil {
		return nil, err
	}

	return figures, reportDurations(w, dir, figures)
}

// scoreFolder scores the curves of a folder.
func scoreFolder(w io.Writer, dir string) (map[string]float64, error) {
	list, left, err := readFolder(dir)
	if err != nil {
		return nil, err
	}
	if err := printLines(w, left); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no curve in %s reaches its target", dir)
	}

	var names []string
	for i := range list {
		names = append(names, list[i].source)
	}

	slices.Sort(names)
	names = slices.Compact(names)
	figures, err := report(w, score(makeFolds(list)), names, names)
	if err != nil {
		return nil, err
	}

	for key, v := range figures {
		if method, ok := strings.CutPrefix(key, "all_"); ok {
			figures["curves_"+method] = v
		}
	}

	return figures, nil
}

func printLines(w io.Writer, lines []string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}

	return nil
}

// dataFolder returns where the public curves are.
func dataFolder() string {
	if dir := os.Getenv("TRAINYARD_DATA"); dir != "" {
		return dir
	}

	return filepath.Join("..", "shared", "data")
}
