package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// figure is one measured number. Its name is the key in the JSON file, and
// later runs are compared by it: a name keeps its meaning and its unit.
type figure struct {
	name  string
	value float64
	unit  string
	note  string // how it was measured, for the table only
}

// printTable writes the figures in the order in which they were measured.
func printTable(w io.Writer, figures []figure) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, f := range figures {
		if _, err := fmt.Fprintf(tw, "%s\t%s\t %s\t\n", f.name, readable(f.value), f.unit); err != nil {
			return fmt.Errorf("print figures: %w", err)
		}
	}

	if err := tw.Flush(); err != nil {
		return fmt.Errorf("print figures: %w", err)
	}

	for _, f := range figures {
		if f.note == "" {
			continue
		}
		if err := writeLine(w, f.name+": "+f.note); err != nil {
			return err
		}
	}

	return nil
}

// readable keeps three digits that matter; more would only be noise.
func readable(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// byName rounds the figures and names them for the file.
func byName(figures []figure) (map[string]float64, error) {
	numbers := make(map[string]float64, len(figures))

	for _, f := range figures {
		if _, twice := numbers[f.name]; twice {
			return nil, fmt.Errorf("two sections report the figure %s", f.name)
		}

		numbers[f.name] = math.Round(f.value*1000) / 1000
	}

	return numbers, nil
}

// factors states how far ahead of Slurm and HyperQueue we are, where both sides were measured:
// rates as ours/theirs, latencies as theirs/ours, so above 1 is better.
func factors(figures []figure) []figure {
	value := make(map[string]float64, len(figures))
	for _, f := range figures {
		value[f.name] = f.value
	}

	pairs := []struct{ name, over, under string }{
		{"ahead_submit_1", "submit_per_s_sqlite_1", "slurm_submit_per_s_1"},
		{"ahead_submit_64", "submit_per_s_sqlite_64", "slurm_submit_per_s_64"},
		{"ahead_start_p50", "slurm_start_ms_p50", "start_ms_p50"},
		{"ahead_start_p99", "slurm_start_ms_p99", "start_ms_p99"},
		{"ahead_short", "short_jobs_per_s", "hyperqueue_jobs_per_s"},
	}

	var out []figure
	for _, p := range pairs {
		if value[p.over] > 0 && value[p.under] > 0 {
			out = append(out, figure{p.name, value[p.over] / value[p.under], "times", p.over + " / " + p.under})
		}
	}

	return out
}

func writeLine(w io.Writer, line string) error {
	if _, err := fmt.Fprintln(w, line); err != nil {
		return fmt.Errorf("print: %w", err)
	}

	return nil
}
