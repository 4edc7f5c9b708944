// Command portal measures the portal in Chromium, against a server of this checkout whose store has 100,000 jobs and
// whose node has run a job with a million lines of output.
//
//	go run ./test/bench/portal -binary build/trainyard -out build/bench/bench-portal.json
//
// It starts what is measured; web/bench/portal.mjs drives the browser. It asserts nothing: `make bench-portal` calls
// it, and people compare the figures with the aims.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/bench/history"
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
		_, _ = fmt.Fprintln(os.Stderr, "bench-portal:", err)
		os.Exit(1)
	}
}

// What is waited for at most: until all lines of a job are with the server, and for the browser.
const (
	printPatience  = 5 * time.Minute
	browsePatience = 20 * time.Minute
)

// settings is what is measured, and how much of it.
type settings struct {
	binary   string
	chromium string
	jobs     int // in the store
	lines    int // of output
	quick    bool
	notes    io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("portal", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s := settings{jobs: 100_000, lines: 1_000_000, notes: stderr}
	out := flags.String("out", "build/bench/bench-portal.json", "write the figures to `file`")
	flags.StringVar(&s.binary, "binary", "build/trainyard", "measure this `file`, a trainyard built with the pages")
	flags.StringVar(&s.chromium, "chromium", "chromium-headless-shell", "the `program` that shows them")
	flags.BoolVar(&s.quick, "quick", false, "a small yard and short runs: to try the benchmark, not to quote its figures")

	if err := flags.Parse(args); err != nil {
		return err
	}

	extent := "full"
	if s.quick {
		extent, s.jobs, s.lines = "quick", 2_000, 20_000
	}

	path, err := exec.LookPath(s.chromium)
	if err != nil {
		return fmt.Errorf("find Chromium: %w", err)
	}

	s.chromium = path

	origin, err := report.Begin(ctx, *out, extent, clock.Wall{}.Now())
	if err != nil {
		return err
	}

	figures, err := measure(ctx, s)
	if err != nil {
		return err
	}

	if err := printTable(stdout, &origin, figures); err != nil {
		return err
	}

	r := report.Report{Origin: origin, Figures: figures}

	return r.Save(*out)
}

// measure starts a yard and lets the browser look at it.
func measure(ctx context.Context, s settings) (figures map[string]float64, err error) {
	dir, err := history.DefaultDir()
	if err != nil {
		return nil, err
	}

	cache := history.Cache{Dir: dir, Clock: clock.Wall{}, Notes: s.notes}

	stored, err := cache.Store(ctx, history.Size{Finished: s.jobs})
	if err != nil {
		return nil, err
	}

	y, err := yard.Start(ctx, yard.Options{Binary: s.binary, From: stored.Path})
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, y.Stop()) }()

	if err := y.RunAgent(ctx, "none"); err != nil {
		return nil, err
	}

	printed, err := printLines(ctx, y, s)
	if err != nil {
		return nil, fmt.Errorf("run a job with %d lines of output: %w", s.lines, err)
	}

	return browse(ctx, y, s, printed)
}

// printLines runs a job that prints many lines, and returns when the server has all of them.
func printLines(ctx context.Context, y *yard.Yard, s settings) (id.Job, error) {
	client, err := y.Client()
	if err != nil {
		return "", err
	}

	defer client.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, printPatience,
		fmt.Errorf("the server does not have all of them after %s", printPatience))
	defer cancel()

	text := fmt.Sprintf("step %%.0f of %d: loss 0.1234, 812 images/s", s.lines)
	file := fmt.Sprintf("name: many-lines\nrun: |\n  seq -f '%s' %d\n", text, s.lines)

	reply, err := client.Submit(ctx, api.SubmitRequest{File: file}, "")
	if err != nil {
		return "", err
	}

	_, _ = fmt.Fprintf(s.notes, "   a job prints %d lines\n", s.lines)
	name := reply.Jobs[0].ID
	last := fmt.Sprintf("step %d of", s.lines)

	for ctx.Err() == nil {
		d, err := client.Job(ctx, name)
		if err != nil {
			return "", err
		}
		if d.State.Final() && d.State != job.Succeeded {
			return "", fmt.Errorf("it %s: %s", d.State, d.Reason)
		}

		page, err := client.Logs(ctx, name, api.LogFilter{Tail: 1})
		if err != nil {
			return "", err
		}
		if n := len(page.Lines); n > 0 && strings.HasPrefix(page.Lines[n-1].Text, last) {
			return name, nil
		}

		clock.Sleep(ctx, 200*time.Millisecond)
	}

	return "", context.Cause(ctx)
}

// browse runs the part in the browser, which prints its figures as JSON.
func browse(ctx context.Context, y *yard.Yard, s settings, printed id.Job) (map[string]float64, error) {
	node, err := onlyNode(ctx, y)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, browsePatience,
		fmt.Errorf("the browser is not done after %s", browsePatience))
	defer cancel()

	cmd := exec.CommandContext(ctx, "node", "bench/portal.mjs")
	cmd.Dir = "web"
	cmd.Env = append(y.Environment(), "NODE_TLS_REJECT_UNAUTHORIZED=0", "NODE_NO_WARNINGS=1",
		"PORTAL_CHROMIUM="+s.chromium, "PORTAL_LOG="+string(printed), "PORTAL_NODE="+node)
	cmd.Stderr = s.notes

	if s.quick {
		cmd.Env = append(cmd.Env, "PORTAL_QUICK=1")
	}

	var out bytes.Buffer

	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("measure in the browser: %w", errors.Join(err, context.Cause(ctx)))
	}

	figures := map[string]float64{}
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil {
		return nil, fmt.Errorf("read the figures of the browser: %w: %.200s", err, out.Bytes())
	}

	return figures, nil
}

// onlyNode returns the name of the yard's node.
func onlyNode(ctx context.Context, y *yard.Yard) (string, error) {
	client, err := y.Client()
	if err != nil {
		return "", err
	}

	defer client.Close()

	page, err := client.Nodes(ctx, api.Page{})
	if err != nil {
		return "", err
	}
	if len(page.Nodes) != 1 {
		return "", fmt.Errorf("the yard has %d nodes instead of one", len(page.Nodes))
	}

	return string(page.Nodes[0].ID), nil
}

// row says in words what a figure is, and what it should be.
type row struct{ name, words, unit, aim string }

// rows are the figures in the order in which they are printed.
func rows() []row {
	return []row{
		{"first_paint_ms", "first contentful paint, nothing cached", "ms", ""},
		{"interactive_ms", "Home with its figures, nothing cached", "ms", "< 1,000"},
		{"first_screen_kb", "files of the first screen, gzipped", "kB", "< 300"},
		{"frame_ms_p95_1k_updates", "frame while 1,000 updates a second arrive, p95", "ms", "< 20"},
		{"frame_ms_p99_1k_updates", "the same, p99", "ms", ""},
		{"filter_ms_100k", "part of a name typed until its jobs are shown", "ms", "< 200"},
		{"filter_state_ms_100k", "state chosen until its jobs are shown", "ms", "< 200"},
		{"sort_ms_100k", "order by name chosen until it is shown", "ms", "< 200"},
		{"log_open_ms_1m", "log opened until its last lines are shown", "ms", ""},
		{"log_dropped_pct_1m", "frames dropped while the log is scrolled", "%", "< 5"},
		{"log_empty_pct_1m", "frames then of which most lines are not loaded yet", "%", ""},
	}
}

func printTable(w io.Writer, origin *report.Origin, figures map[string]float64) error {
	_, _ = fmt.Fprintln(w, origin.Describe())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "FIGURE\tVALUE\tUNIT\tAIM\tWHAT")

	for _, r := range rows() {
		v, ok := figures[r.name]
		if !ok {
			return fmt.Errorf("figure %s was not measured", r.name)
		}

		_, _ = fmt.Fprintf(table, "%s\t%.1f\t%s\t%s\t%s\n", r.name, v, r.unit, r.aim, r.words)
	}

	for name := range figures {
		if !slices.ContainsFunc(rows(), func(r row) bool { return r.name == name }) {
			return fmt.Errorf("figure %s has no words", name)
		}
	}

	if err := table.Flush(); err != nil {
		return fmt.Errorf("print figures: %w", err)
	}

	return nil
}
