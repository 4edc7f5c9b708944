// Package runtime_test measures how jobs are run and entered, in real yards on this machine, one for each section: how
// long a job takes to start as a process and in a container, beside podman, Docker and Slurm's srun; how long a gang
// takes; a forwarded port; a copy beside scp over loopback; and an array that is submitted in one request.
//
// make bench-runtime runs it with -full; without that it is a test with small amounts that all of it works. It needs
// root, for nodes that isolate their jobs, and podman. Where there is no Docker, Slurm or sshd, their lines say so.
// Nothing is written if any section fails.
package runtime_test

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
	"testing"
	"text/tabwriter"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/executable"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/test/bench/report"
	"trainyard/test/podman"
	"trainyard/test/yardtest"
)

var (
	fullFlag = flag.Bool("full", false, "measure enough to quote it")
	onlyFlag = flag.String("only", "", "measure these sections, with commas between them")
	outFlag  = flag.String("out", "", "write the figures to `file`")
)

// TestMain lets this program be the server of the measurements, too, which runs as a job.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveCommand {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		return
	}

	os.Exit(m.Run())
}

// section is a part that can be measured alone, in a yard of its own.
type section struct {
	name    string
	open    func(context.Context, *bench) error // starts the nodes
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
		{"start", openContainers, measureStart, []row{
			{"submit to first line: process", "process_ms_p50", "ms", ""},
			{"submit to first line: warm container", "container_warm_ms_p50", "ms", ""},
			{"podman run, warm", "podman_run_ms_p50", "ms", ""},
			{"warm container: longer than podman run by", "container_over_podman_ms", "ms", "at most 150"},
			{"docker run, warm", "docker_run_ms_p50", "ms", ""},
			{"srun, as a process", "srun_ms_p50", "ms", ""},
			{"submit to first line: cold container", "container_cold_ms_p50", "ms", ""},
			{"podman run, cold", "podman_run_cold_ms_p50", "ms", ""},
			{"docker run, cold", "docker_run_cold_ms_p50", "ms", ""},
		}},
		{"gang", openGang, measureGang, []row{
			{"submit to first line of the last rank: 2 ranks", "gang2_s", "s", ""},
			{"submit to first line of the last rank: 8 ranks", "gang8_s", "s", ""},
			{"submit to first line of the last rank: 32 ranks", "gang32_s", "s", "under 2"},
		}},
		{"forward", openNode, measureForward, []row{
			{"forwarded port: from the job", "forward_mb_s", "MB/s", "at least 300"},
			{"forwarded port: to the job", "forward_up_mb_s", "MB/s", ""},
			{"the same port directly: from the job", "direct_mb_s", "MB/s", ""},
			{"the same port directly: to the job", "direct_up_mb_s", "MB/s", ""},
			{"forwarded port: there and back, median", "forward_rtt_ms_p50", "ms", ""},
			{"forwarded port: there and back, 99th percentile", "forward_rtt_ms_p99", "ms", ""},
			{"forwarded port: a new connection, median", "forward_connect_ms_p50", "ms", ""},
		}},
		{"copy", openNode, measureCopy, []row{
			{"trainyard cp, to and from a job", "cp_mb_s", "MB/s", ""},
			{"scp over loopback, to and fro", "scp_mb_s", "MB/s", ""},
			{"trainyard cp beside scp", "cp_vs_scp_pct", "%", ""},
		}},
		{"array", openNode, measureArray, []row{
			{"submit an array of 10,000 jobs in one request", "array_10k_submit_s", "s", "under 1"},
		}},
	}
}

// bench is the yard of a section, a person who is logged in there, and what was measured so far.
type bench struct {
	t       *testing.T
	folder  string
	quick   bool
	figures map[string]float64

	yard   *yardtest.Yard
	client *api.Client
	person yardtest.Person
	engine *podman.Engine // of the section that needs it
}

func TestRuntime(t *testing.T) {
	needRoot(t)

	chosen, err := choose(*onlyFlag)
	must(t, err)

	run := "full"
	if !*fullFlag {
		run = "quick"
	}

	if *onlyFlag != "" {
		run += ", only " + *onlyFlag
	}

	origin, err := report.Begin(t.Context(), *outFlag, run, time.Now())
	must(t, err)

	folder, err := yardtest.NewFolder("trainyard-bench-runtime-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	must(t, yardtest.Build(folder, "trainyard/cmd/trainyard"))

	figures := map[string]float64{}

	for _, s := range chosen {
		t.Run(s.name, func(t *testing.T) {
			b := &bench{t: t, folder: filepath.Join(folder, s.name), quick: !*fullFlag, figures: figures}
			b.open(t.Context(), filepath.Join(folder, "trainyard"))
			must(t, s.open(t.Context(), b))
			must(t, s.measure(t.Context(), b))
		})
	}

	if t.Failed() {
		return
	}

	must(t, table(os.Stdout, chosen, figures, origin.Describe()))

	if *outFlag != "" {
		must(t, (&report.Report{Origin: origin, Figures: figures}).Save(*outFlag))
	}
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

// needRoot skips without root, and fails in CI.
func needRoot(t *testing.T) {
	t.Helper()

	const why = "needs root: the nodes isolate their jobs"

	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
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

// jobUIDs are the user ids of jobs on nodes that isolate them.
const jobUIDs = "313000-313099"

// open starts a server, which ends with the section with all that belongs to it, and logs the person in.
func (b *bench) open(ctx context.Context, binary string) {
	b.t.Helper()

	b.yard = &yardtest.Yard{Binary: binary, Folder: b.folder, Flags: []string{"--rate", "0"}}

	must(b.t, os.Mkdir(b.folder, 0o700))
	b.t.Cleanup(func() {
		err := yardtest.KillAll(b.folder)
		yardtest.Unblock(jobUIDs)
		must(b.t, errors.Join(err, os.RemoveAll(b.folder)))
	})

	must(b.t, b.yard.Open(ctx))
	must(b.t, b.yard.LogIn(ctx))

	var err error
	b.client, err = b.yard.Client(b.yard.Admin())
	must(b.t, err)
	b.t.Cleanup(b.client.Close)

	b.person, err = yardtest.NewPerson(b.yard.Binary, b.folder, "ada")
	must(b.t, err)

	bootstrap, err := auth.Parse(b.yard.Bootstrap())
	must(b.t, err)

	_, err = b.types(ctx, "login", b.yard.URL(), "--token", b.yard.Admin(), "--ca-hash", bootstrap.CAHash)
	must(b.t, err)
}

// join starts so many agents, and waits until all of them work.
func (b *bench) join(ctx context.Context, nodes int, flags ...string) error {
	token, err := b.yard.JoinToken(ctx, nodes)
	if err != nil {
		return err
	}

	var names []string
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		names = append(names, name)

		if _, err := b.yard.StartAgent(name, token, flags...); err != nil {
			return err
		}
	}

	for _, name := range names {
		if err := b.yard.AwaitAgent(ctx, name); err != nil {
			return err
		}
	}

	return nil
}

// openNode starts a node that isolates its jobs and runs no containers.
func openNode(ctx context.Context, b *bench) error {
	return b.join(ctx, 1, "--isolation", "users", "--job-uids", jobUIDs, "--container-socket", "none")
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

	_, err := b.await(ctx, j)

	return err
}

// measureArray submits an array several times and takes the median. Nothing is started meanwhile, so that nothing but
// the submission happens.
func measureArray(ctx context.Context, b *bench) (err error) {
	const elements = 10_000
	var took []float64

	if _, err := b.types(ctx, "cordon", "n1"); err != nil {
		return err
	}

	defer func() {
		_, failed := b.types(ctx, "uncordon", "n1")
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
func table(out io.Writer, chosen []section, figures map[string]float64, origin string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "WHAT\tFIGURE\tAIM\n") // a failure is returned by Flush

	for _, s := range chosen {
		for _, r := range s.rows {
			figure := "not there"
			if value, ok := figures[r.key]; ok {
				figure = fmt.Sprintf("%.4g %s", value, r.unit)
			}

			_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\n", r.what, figure, r.aim)
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

	return executable.Write(to, text, 0o700)
}
