// Command gpushare runs programs on one GPU with shares, and prints what each of them had of it.
//
//	go run ./test/bench/gpushare -library libtrainyard-gpu.so -uuid GPU-… \
//	  -job a:weight=0.7,cap=60 -job b:weight=0.3,cap=30 -- python3 train.py --name {job}
//
// The program is started once for each job, with {job} replaced by its name, and with the library and the job's folder
// in its environment. A job may have weight, limit, class, cap (GiB) and interactive. It measures the broker and the
// library alone, without an agent or a yard, on a real GPU or the fake one; it decides nothing and asserts nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"trainyard/internal/agent/share"
	"trainyard/internal/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()

	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "gpushare:", err)
		os.Exit(1)
	}
}

// result is what is printed of a job.
type result struct {
	Job      string  `json:"job"`
	Held     float64 `json:"held_s"`
	Demanded float64 `json:"demanded_s"`
	Entitled float64 `json:"entitled_s"`
	Grants   int     `json:"grants"`
	Denials  int     `json:"denials"`
	Seconds  float64 `json:"seconds"` // that the program ran
	Error    string  `json:"error,omitempty"`
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var jobs []share.Job

	flags := flag.NewFlagSet("gpushare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	library := flags.String("library", "", "the preload library, made by native/gpushare/build.sh")
	uuid := flags.String("uuid", "", "UUID of the GPU, for its memory as NVML shows it")
	quantum := flags.Duration("quantum", share.DefaultTuning().Quantum, "length of a turn")
	flags.Func("job", "name:weight=0.5,limit=0.8,class=normal,cap=10,interactive", func(text string) error {
		job, err := parse(text)
		jobs = append(jobs, job)

		return err
	})

	if err := flags.Parse(args); err != nil {
		return err
	}

	path, err := filepath.Abs(*library)
	if err != nil || *library == "" || len(jobs) == 0 || flags.NArg() == 0 {
		return errors.Join(errors.New("give -library, a -job or more, and a command"), err)
	}

	folder, err := os.MkdirTemp("", "share")
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(folder) }()

	tuning := share.DefaultTuning()
	tuning.Quantum = *quantum
	clk := clock.NewSteady()
	broker := share.New(share.Options{Clock: clk, Log: slog.New(slog.NewTextHandler(stderr, nil)), Tuning: tuning})

	defer func() { _ = broker.Close() }()

	for i := range jobs {
		jobs[i].Folder = filepath.Join(folder, jobs[i].ID)
		jobs[i].UUID = *uuid

		if err := broker.Add(jobs[i]); err != nil {
			return err
		}
	}

	results := make([]result, len(jobs))

	var running sync.WaitGroup
	for i := range jobs {
		running.Go(func() { results[i] = start(ctx, clk, jobs[i], path, flags.Args(), stderr) })
	}

	running.Wait()

	return show(stdout, broker, results)
}

// start runs the program of a job until it ends.
func start(
	ctx context.Context, clk clock.Clock, job share.Job, library string, command []string, stderr io.Writer,
) result {
	args := make([]string, len(command))
	for i, a := range command {
		args[i] = strings.ReplaceAll(a, "{job}", job.ID)
	}

	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, share.Variable+"="+job.Folder)
	cmd.Stdout = stderr
	cmd.Stderr = stderr

	began := clk.Now()
	r := result{Job: job.ID}

	if err := cmd.Run(); err != nil {
		r.Error = err.Error()
	}

	r.Seconds = clk.Now().Sub(began).Seconds()

	return r
}

// show prints a line of JSON for each job.
func show(stdout io.Writer, broker *share.Broker, results []result) error {
	uses, err := broker.Uses()
	if err != nil {
		return err
	}

	out := json.NewEncoder(stdout)

	for _, r := range results {
		use := uses[r.Job]
		r.Held, r.Demanded, r.Entitled = use.Held.Seconds(), use.Demanded.Seconds(), use.Entitled.Seconds()
		r.Grants, r.Denials = use.Grants, use.Denials

		if err := out.Encode(r); err != nil {
			return err
		}
	}

	return nil
}

// parse reads a job of the form name:key=value,…
func parse(text string) (share.Job, error) {
	name, terms, _ := strings.Cut(text, ":")
	job := share.Job{ID: name, UID: -1, GID: -1, Terms: share.Terms{Weight: 1, Class: share.Normal}}

	for part := range strings.SplitSeq(terms, ",") {
		key, value, _ := strings.Cut(part, "=")
		number, err := strconv.ParseFloat(value, 64)

		switch key {
		case "weight":
			job.Terms.Weight = number
		case "limit":
			job.Terms.Limit = number
		case "cap":
			job.Cap = uint64(number * (1 << 30))
		case "interactive":
			job.Terms.Interactive, err = true, nil
		case "class":
			job.Terms.Class, err = class(value)
		default:
			err = fmt.Errorf("unknown key %q", key)
		}

		if err != nil {
			return job, fmt.Errorf("job %s: %w", text, err)
		}
	}

	return job, nil
}

func class(name string) (share.Class, error) {
	for _, c := range []share.Class{share.Opportunistic, share.Normal, share.Guaranteed} {
		if c.String() == name {
			return c, nil
		}
	}

	return 0, fmt.Errorf("unknown class %q", name)
}
