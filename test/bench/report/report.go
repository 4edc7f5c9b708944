// Package report keeps the figures of a benchmark in a file, with where they are from.
//
// A file is one flat JSON object: numbers by name, which later runs are compared by, and four words about the run.
// All figures of a file are from one run of one build: a run removes the file of an earlier one when it begins and
// writes its own only when all of it has been measured, so that old figures never stand beside new ones.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Origin says where figures are from.
type Origin struct {
	Commit   string // of the sources, with "-dirty" if they were changed since
	Measured string // date and time
	Machine  string
	Run      string // full, quick, or which part
}

// keys are the names that Origin has in the file.
func (o *Origin) keys() map[string]*string {
	return map[string]*string{"commit": &o.Commit, "measured": &o.Measured, "machine": &o.Machine, "run": &o.Run}
}

// Describe says in one line where and when figures were taken.
func (o *Origin) Describe() string {
	hash, changed, _ := strings.Cut(o.Commit, "-")
	if len(hash) > 12 {
		hash = hash[:12]
	}

	if changed != "" { // the sources are not those of the commit
		hash += "-" + changed
	}

	return fmt.Sprintf("%s, %s, commit %s, run: %s", o.Machine, o.Measured, hash, o.Run)
}

// Report is the figures of one run.
type Report struct {
	Origin

	Figures map[string]float64
}

// Begin removes the file of an earlier run and notes where this one takes place. What is measured is to be built by
// then, or at once.
func Begin(ctx context.Context, path, run string, now time.Time) (Origin, error) {
	if path != "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Origin{}, fmt.Errorf("remove the figures of an earlier run: %w", err)
		}
	}

	return Origin{
		Commit: commit(ctx), Measured: now.UTC().Format("2006-01-02 15:04 UTC"), Machine: machine(), Run: run,
	}, nil
}

// commitVar is the variable with the commit that the programs were built from: make bench-all sets it, because the
// working directory may change while it runs.
const commitVar = "TRAINYARD_BENCH_COMMIT"

// commit names the sources of this program: those it was built from if that was noted, else those of the working
// directory, as under go run.
func commit(ctx context.Context) string {
	if built := os.Getenv(commitVar); built != "" {
		return built
	}

	git := func(args ...string) string {
		text, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}

		return strings.TrimSpace(string(text))
	}

	head := git("rev-parse", "HEAD")

	switch {
	case head == "":
		return "unknown"
	case git("status", "--porcelain") != "":
		return head + "-dirty"
	default:
		return head
	}
}

// machine says what this machine is.
func machine() string {
	memory, kernel := "memory unknown", "kernel unknown"

	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err == nil {
		bytes := info.Totalram * uint64(info.Unit)
		memory = fmt.Sprintf("%.0f GiB", float64(bytes)/(1<<30))
	}

	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = "kernel " + strings.TrimSpace(string(text))
	}

	return fmt.Sprintf("%d cores, %s, %s, %s", runtime.NumCPU(), memory, kernel, runtime.Version())
}

// Save writes a report, and makes the folder.
func (r *Report) Save(path string) error {
	all := make(map[string]any, len(r.Figures)+4)

	for name, v := range r.Figures {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("figure %s is not a number", name)
		}

		all[name] = v
	}

	for name, text := range r.keys() {
		if _, taken := all[name]; taken {
			return fmt.Errorf("no figure may be called %s", name)
		}
		if *text != "" {
			all[name] = *text
		}
	}

	text, err := json.MarshalIndent(all, "", "  ")
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

// Read reads a report.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}

	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read figures of %s: %w", path, err)
	}

	r := &Report{Figures: make(map[string]float64, len(all))}
	words := r.keys()

	for name, v := range all {
		word, known := words[name]

		switch v := v.(type) {
		case float64:
			r.Figures[name] = v
		case string:
			if !known {
				return nil, fmt.Errorf("read figures of %s: %s must be a number, got %q", path, name, v)
			}

			*word = v
		default:
			return nil, fmt.Errorf("read figures of %s: %s must be a number", path, name)
		}
	}

	return r, nil
}
