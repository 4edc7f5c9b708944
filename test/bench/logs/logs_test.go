// Package logs_test measures how fast the output of a job is read, searched and followed with the command line, in
// a real yard with one node on this machine.
//
// make bench-logs runs it with 1 GB; without -size it is a test with little output that every line is there once.
package logs_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/quantile"
	"trainyard/test/bench/report"
	"trainyard/test/yardtest"
)

var (
	sizeFlag = flag.String("size", "", "size of the output, 1GB for the measurement; 4MB if left out")
	outFlag  = flag.String("out", "", "write the figures to `file`")
)

// line is one of the output: what a training prints. Its number makes all lines differ.
const line = "epoch 1 step %010.0f loss=0.123456 acc=0.987654 lr=0.000300 samples/s=1234.5"

// lineLength is that of a line with its end.
const lineLength = 80

// world is a yard with one node, and a person who is logged in.
type world struct {
	yard   *yardtest.Yard
	client *api.Client
	person yardtest.Person
}

func newWorld(t *testing.T) *world {
	t.Helper()

	folder, err := yardtest.NewFolder("trainyard-bench-logs-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := yardtest.KillAll(folder); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})

	if err := yardtest.Build(folder, "trainyard/cmd/trainyard"); err != nil {
		t.Fatal(err)
	}

	w := &world{yard: &yardtest.Yard{
		Binary: filepath.Join(folder, "trainyard"), Folder: filepath.Join(folder, "yard"),
		Flags: []string{"--log-limit", "100GB"},
	}}

	err = os.Mkdir(w.yard.Folder, 0o700)
	if err == nil {
		err = w.yard.Open(t.Context())
	}
	if err == nil {
		err = w.yard.LogIn(t.Context())
	}
	if err == nil {
		w.client, err = w.yard.Client(w.yard.Admin())
	}
	if err == nil {
		w.person, err = yardtest.NewPerson(w.yard.Binary, w.yard.Folder, "ada")
	}
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(w.client.Close)
	bootstrap, err := auth.Parse(w.yard.Bootstrap())
	if err != nil {
		t.Fatal(err)
	}

	w.timed(t, io.Discard, "login", w.yard.URL(), "--token", w.yard.Admin(), "--ca-hash", bootstrap.CAHash)

	token, err := w.yard.JoinToken(t.Context(), 1)
	if err == nil {
		_, err = w.yard.StartAgent("node", token)
	}
	if err == nil {
		err = w.yard.AwaitAgent(t.Context(), "node")
	}
	if err != nil {
		t.Fatal(err)
	}

	return w
}

// submit submits a job.
func (w *world) submit(t *testing.T, command string) id.Job {
	t.Helper()

	reply, err := w.client.Submit(t.Context(), api.SubmitRequest{
		File: "run: |\n  " + command + "\nresources: {cpus: 0.1}\n",
	}, "")
	if err != nil {
		t.Fatal(err)
	}

	return reply.Jobs[0].ID
}

// awaitEnd waits until a job has succeeded.
func (w *world) awaitEnd(t *testing.T, j id.Job) {
	t.Helper()

	for t.Context().Err() == nil {
		d, err := w.client.Job(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		if d.State == job.Succeeded {
			return
		}
		if d.State.Final() {
			t.Fatalf("job %s: %s", j, d.Reason)
		}

		time.Sleep(100 * time.Millisecond)
	}

	t.Fatal(t.Context().Err())
}

// awaitLine waits until the server has a line of a job's output: the last ones may arrive after its end.
func (w *world) awaitLine(t *testing.T, j id.Job, number int64) {
	t.Helper()

	for {
		var found counter
		w.timed(t, &found, "logs", string(j), "--tail", "1", "--grep", fmt.Sprintf("step 0*%d loss", number))
		if found.lines == 1 {
			return
		}

		time.Sleep(100 * time.Millisecond)
	}
}

// counter counts bytes and lines.
type counter struct{ bytes, lines int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	c.lines += int64(bytes.Count(p, []byte("\n")))

	return len(p), nil
}

// timed runs a command that prints into a pipe, and returns how long it took.
func (w *world) timed(t *testing.T, out io.Writer, args ...string) time.Duration {
	t.Helper()

	cmd := w.person.Command(t.Context(), args...)

	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr

	begun := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("trainyard %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}

	return time.Since(begun)
}

// follow prints a line at a time and returns how late they arrive at a person who follows, in
// milliseconds and sorted.
func (w *world) follow(t *testing.T, lines int) []float64 {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	j := w.submit(t, fmt.Sprintf("sleep 2; for i in $(seq %d); do date +%%s%%N; sleep 0.02; done", lines))
	cmd := w.person.Command(ctx, "logs", "-f", string(j))

	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}

	var late []float64
	for s := bufio.NewScanner(out); s.Scan(); {
		arrived := time.Now()
		if at, err := strconv.ParseInt(s.Text(), 10, 64); err == nil {
			late = append(late, float64(arrived.Sub(time.Unix(0, at)).Microseconds())/1000)
		}
	}

	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(late) != lines {
		t.Fatalf("%d lines arrived of %d", len(late), lines)
	}

	slices.Sort(late)

	return late
}

func TestLogs(t *testing.T) {
	size, err := job.ParseBytes(cmp.Or(*sizeFlag, "4MB"))
	if err != nil {
		t.Fatal(err)
	}

	origin, err := report.Begin(t.Context(), *outFlag, "output of "+size.Short(), time.Now())
	if err != nil {
		t.Fatal(err)
	}

	w := newWorld(t)
	lines := int64(size) / lineLength
	j := w.submit(t, fmt.Sprintf("seq -f '%s' %d", line, lines))
	w.awaitEnd(t, j)
	w.awaitLine(t, j, lines)

	var all, found counter
	read := w.timed(t, &all, "logs", string(j))
	searched := w.timed(t, &found, "logs", string(j), "--grep", fmt.Sprintf("step 0*%d loss", lines-7))

	if all.lines != lines || all.bytes != lines*lineLength || found.lines != 1 {
		t.Errorf("read %d lines and %d bytes of %d and %d; the search found %d lines of 1",
			all.lines, all.bytes, lines, lines*lineLength, found.lines)
	}

	late := w.follow(t, followed(size))
	rate := func(took time.Duration) float64 { return float64(all.bytes) / 1e6 / took.Seconds() }
	figures := map[string]float64{
		"size_bytes": float64(all.bytes), "read_mb_s": rate(read), "grep_mb_s": rate(searched),
		"follow_ms_p50": quantile.NearestRank(late, 0.5), "follow_ms_p99": quantile.NearestRank(late, 0.99),
	}

	t.Log("\n" + table(figures))

	if *outFlag != "" && !t.Failed() {
		if err := (&report.Report{Origin: origin, Figures: figures}).Save(*outFlag); err != nil {
			t.Fatal(err)
		}
	}
}

// followed is how many lines are followed: enough for the 99th percentile in a measurement.
func followed(size job.Bytes) int {
	if size < 100<<20 {
		return 20
	}

	return 1000
}

func table(figures map[string]float64) string {
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "WHAT\tFIGURE") // a strings.Builder does not fail
	_, _ = fmt.Fprintf(tw, "read all of it\t%.0f MB/s\n", figures["read_mb_s"])
	_, _ = fmt.Fprintf(tw, "search it\t%.0f MB/s\n", figures["grep_mb_s"])
	_, _ = fmt.Fprintf(tw, "follow: a line arrives after, median\t%.0f ms\n", figures["follow_ms_p50"])
	_, _ = fmt.Fprintf(tw, "follow: a line arrives after, 99th percentile\t%.0f ms\n", figures["follow_ms_p99"])
	_ = tw.Flush()

	return text.String()
}
