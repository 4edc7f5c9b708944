// Command runtime measures how jobs are run and entered, in a real yard with one node on this machine that isolates its
// jobs: a forwarded port, a copy beside scp over loopback, and an array that is submitted in one request.
//
// It needs root, for the node, and sshd. A section that fails fails the run, and nothing is written then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/bench/report"
	"trainyard/test/yardtest"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveCommand {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := measure(ctx, os.Stdout)
	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-runtime:", err)
		os.Exit(1)
	}
}

// section is a part that can be measured alone.
type section struct {
	name    string
	measure func(context.Context, *bench) error
	rows    []row
}

// row is a line of the table.
type row struct {
	what, key, unit string
	aim             string // "" if there is none
}

func sections() []section {
	return []section{
		{"forward", measureForward, []row{
			{"forwarded port: from the job", "forward_mb_s", "MB/s", "at least 300"},
			{"forwarded port: to the job", "forward_up_mb_s", "MB/s", ""},
			{"the same port directly: from the job", "direct_mb_s", "MB/s", ""},
			{"the same port directly: to the job", "direct_up_mb_s", "MB/s", ""},
			{"forwarded port: there and back, median", "forward_rtt_ms_p50", "ms", ""},
			{"forwarded port: there and back, 99th percentile", "forward_rtt_ms_p99", "ms", ""},
			{"forwarded port: a new connection, median", "forward_connect_ms_p50", "ms", ""},
		}},
		{"copy", measureCopy, []row{
			{"trainyard cp, to and from a job", "cp_mb_s", "MB/s", ""},
			{"scp over loopback, to and fro", "scp_mb_s", "MB/s", ""},
			{"trainyard cp beside scp", "cp_vs_scp_pct", "%", ""},
		}},
		{"array", measureArray, []row{
			{"submit an array of 10,000 jobs in one request", "array_10k_submit_s", "s", "under 1"},
		}},
	}
}

// bench is a yard with one node, and a person who is logged in.
type bench struct {
	folder  string
	yard    *yardtest.Yard
	client  *api.Client
	person  yardtest.Person
	quick   bool
	figures map[string]float64
}

func measure(ctx context.Context, out io.Writer) (err error) {
	quick := flag.Bool("quick", false, "small amounts, to try it")
	only := flag.String("only", "", "measure these sections, with commas between them")
	path := flag.String("out", "", "file for the figures")
	flag.Parse()

	chosen, err := choose(*only)
	if err != nil {
		return err
	}

	if os.Geteuid() != 0 {
		return errors.New("the node needs root to isolate its jobs")
	}

	run := "full"
	if *quick {
		run = "quick"
	}

	if *only != "" {
		run += ", only " + *only
	}

	origin, err := report.Begin(ctx, *path, run, time.Now())
	if err != nil {
		return err
	}

	folder, err := yardtest.NewFolder("trainyard-bench-runtime-")
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, yardtest.KillAll(folder), os.RemoveAll(folder)) }()

	b := &bench{folder: folder, quick: *quick, figures: map[string]float64{}}
	if err := b.open(ctx); err != nil {
		return err
	}

	defer b.client.Close()

	for _, s := range chosen {
		if err := s.measure(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}

	if err := b.table(out, chosen, origin.Describe()); err != nil || *path == "" {
		return err
	}

	return (&report.Report{Origin: origin, Figures: b.figures}).Save(*path)
}

// choose returns the sections of a list, all of them for none.
func choose(only string) ([]section, error) {
	all := sections()
	if only == "" {
		return all, nil
	}

	var chosen []section
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("section %q not found", name)
		}

		chosen = append(chosen, all[i])
	}

	return chosen, nil
}

// open starts the yard and its node.
func (b *bench) open(ctx context.Context) error {
	if err := yardtest.Build(b.folder, "trainyard/cmd/trainyard"); err != nil {
		return err
	}

	b.yard = &yardtest.Yard{Binary: filepath.Join(b.folder, "trainyard"), Folder: filepath.Join(b.folder, "yard")}

	err := os.Mkdir(b.yard.Folder, 0o700)
	if err == nil {
		err = b.yard.Open(ctx)
	}
	if err == nil {
		err = b.yard.LogIn(ctx)
	}
	if err == nil {
		b.client, err = b.yard.Client(b.yard.Admin())
	}
	if err == nil {
		b.person, err = yardtest.NewPerson(b.yard.Binary, b.yard.Folder, "ada")
	}
	if err != nil {
		return err
	}

	bootstrap, err := auth.Parse(b.yard.Bootstrap())
	if err != nil {
		return err
	}

	_, err = b.types(ctx, "login", b.yard.URL(), "--token", b.yard.Admin(), "--ca-hash", bootstrap.CAHash)

	token := ""
	if err == nil {
		token, err = b.yard.JoinToken(ctx, 1)
	}
	if err == nil {
		_, err = b.yard.StartAgent("node", token, "--isolation", "users")
	}
	if err == nil {
		err = b.yard.AwaitAgent(ctx, "node")
	}

	return err
}

// types runs a command of the person, and returns how long it took.
func (b *bench) types(ctx context.Context, args ...string) (time.Duration, error) {
	cmd := b.person.Command(ctx, args...)
	begun := time.Now()

	if text, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("trainyard %s: %w: %s", strings.Join(args, " "), err, text)
	}

	return time.Since(begun), nil
}

// running submits the server of the measurements as a job, and waits until it listens on a port, which it returns.
func (b *bench) running(ctx context.Context) (id.Job, int, error) {
	const name = "work"
	work := filepath.Join(b.person.Home, name)

	program, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(work, 0o700)
	}
	if err == nil {
		err = copyFile(program, filepath.Join(work, "server"))
	}
	if err != nil {
		return "", 0, err
	}

	cmd := b.person.Command(ctx, "run", "-q", "-y", "--workdir", name, "--", "./server", serveCommand)

	text, err := cmd.Output()
	if err != nil {
		return "", 0, fmt.Errorf("submit the server: %w", err)
	}

	j := id.Job(strings.TrimSpace(string(text)))

	for ctx.Err() == nil {
		page, err := b.client.Logs(ctx, j, api.LogFilter{Page: api.Page{Limit: 1}})
		if err == nil && len(page.Lines) > 0 {
			port := 0
			_, err := fmt.Sscanf(page.Lines[0].Text, "port %d", &port)

			return j, port, err
		}

		if d, err := b.client.Job(ctx, j); err == nil && d.State.Final() {
			return "", 0, fmt.Errorf("the server has ended: %s", d.Reason)
		}

		time.Sleep(50 * time.Millisecond)
	}

	return "", 0, ctx.Err()
}

// end cancels a job and waits until it has ended.
func (b *bench) end(ctx context.Context, j id.Job) error {
	if _, err := b.client.KillJob(ctx, j); err != nil {
		return err
	}

	for ctx.Err() == nil {
		d, err := b.client.Job(ctx, j)
		if err != nil || d.State.Final() {
			return err
		}

		time.Sleep(50 * time.Millisecond)
	}

	return ctx.Err()
}

// measureArray submits an array several times and takes the median. Nothing is started meanwhile, so that nothing but
// the submission happens.
func measureArray(ctx context.Context, b *bench) (err error) {
	const elements = 10_000
	var took []float64

	if _, err := b.types(ctx, "cordon", "node"); err != nil {
		return err
	}

	defer func() {
		_, failed := b.types(ctx, "uncordon", "node")
		err = errors.Join(err, failed)
	}()

	for range 5 {
		begun := time.Now()

		reply, err := b.client.Submit(ctx, api.SubmitRequest{
			File: fmt.Sprintf("run: train --seed $TRAINYARD_ARRAY_INDEX\nresources: {cpus: 1}\narray: 0..%d\n", elements-1),
		}, "")
		if err != nil {
			return err
		}

		took = append(took, time.Since(begun).Seconds())

		if len(reply.Arrays) != 1 || reply.Arrays[0].Size != elements {
			return fmt.Errorf("the answer has %d arrays", len(reply.Arrays))
		}

		if _, err := b.types(ctx, "cancel", "-y", string(reply.Arrays[0].ID)); err != nil {
			return err
		}
	}

	slices.Sort(took)
	b.figures["array_10k_submit_s"] = took[len(took)/2]

	return nil
}

// table writes the figures for people.
func (b *bench) table(out io.Writer, chosen []section, origin string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "WHAT\tFIGURE\tAIM\n") // a failure is returned by Flush

	for _, s := range chosen {
		for _, r := range s.rows {
			if value, ok := b.figures[r.key]; ok {
				_, _ = fmt.Fprintf(tw, "%s\t%.4g %s\t%s\n", r.what, value, r.unit, r.aim)
			}
		}
	}

	if err := tw.Flush(); err != nil {
		return err
	}

	_, err := fmt.Fprintln(out, origin)

	return err
}

// size is how much is sent: enough to take seconds in a full run.
func (b *bench) size(full job.Bytes) int64 {
	if b.quick {
		full /= 64
	}

	return int64(full)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(filepath.Clean(from))
	if err != nil {
		return err
	}

	return os.WriteFile(to, text, 0o700) //nolint:gosec // it is a program
}
