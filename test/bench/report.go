package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
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

// writeJSON writes name -> number, sorted by name, and makes the folder.
func writeJSON(path string, figures []figure) error {
	numbers := make(map[string]float64, len(figures))
	for _, f := range figures {
		if _, twice := numbers[f.name]; twice {
			return fmt.Errorf("two sections report the figure %s", f.name)
		}
		if math.IsNaN(f.value) || math.IsInf(f.value, 0) {
			return fmt.Errorf("figure %s is not a number", f.name)
		}

		numbers[f.name] = math.Round(f.value*1000) / 1000
	}

	text, err := json.MarshalIndent(numbers, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make the folder for the figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}

	return nil
}

// factors states how far ahead of Slurm we are, where both were measured:
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
	}

	var out []figure
	for _, p := range pairs {
		if value[p.over] > 0 && value[p.under] > 0 {
			out = append(out, figure{p.name, value[p.over] / value[p.under], "times", p.over + " / " + p.under})
		}
	}

	return out
}

// describeMachine says in one line where and when the figures were taken.
func describeMachine(at time.Time) string {
	memory, kernel := "memory unknown", "kernel unknown"
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		bytes := info.Totalram * uint64(info.Unit)
		memory = fmt.Sprintf("%.0f GiB", float64(bytes)/(1<<30))
	}

	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = "kernel " + strings.TrimSpace(string(text))
	}

	return fmt.Sprintf("%d cores, %s, %s, %s, %s",
		runtime.NumCPU(), memory, kernel, runtime.Version(), at.Format("2006-01-02 15:04 MST"))
}

func writeLine(w io.Writer, line string) error {
	if _, err := fmt.Fprintln(w, line); err != nil {
		return fmt.Errorf("print: %w", err)
	}

	return nil
}
