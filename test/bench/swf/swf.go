// Package swf measures our batch policies beside an independent computation of
// the same rules: mean bounded slowdown over windows of public logs.
//
// `make bench-swf` runs it. Ours are the policies of place/baseline in the
// simulator, the others are computed by reference.py, which shares no code with
// them. It decides nothing and asserts nothing: where both differ, that is a figure.
package swf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/baseline"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/target"
)

// Options are those of every benchmark.
type Options = target.Options

// policy is one of ours and the rule of the reference that it is compared with.
type policy struct {
	key  string // of the figures
	rule string
	make func(origin time.Time) place.Policy // origin is the beginning of the log
}

// policies are those that are compared, each with and without backfill.
func policies() []policy {
	named := func(name string) func(time.Time) place.Policy {
		return func(time.Time) place.Policy {
			make, err := baseline.Policies().Make(name)
			if err != nil {
				panic(err)
			}

			return make()
		}
	}

	f1 := func(backfill bool) func(time.Time) place.Policy {
		return func(origin time.Time) place.Policy { return ordered.F1(origin, backfill) }
	}

	return []policy{
		{"fcfs", "fcfs", named("fifo-strict")}, {"fcfs_easy", "fcfs+easy", named("fifo")},
		{"sjf", "sjf", named("sjf")}, {"sjf_easy", "sjf+easy", named("sjf-easy")},
		{"saf", "saf", named("saf")}, {"saf_easy", "saf+easy", named("saf-easy")},
		{"wfp3", "wfp3", named("wfp3")}, {"wfp3_easy", "wfp3+easy", named("wfp3-easy")},
		{"unicep", "unicep", named("unicep")}, {"unicep_easy", "unicep+easy", named("unicep-easy")},
		{"f1", "f1", f1(false)}, {"f1_easy", "f1+easy", f1(true)},
	}
}

// log is a workload from which windows are taken.
type log struct {
	key, file string // below the data folder
	procs     int
}

func logs() []log {
	return []log{
		{"lublin1", "rlscheduler/lublin_256.swf.gz", 256},
		{"lublin2", "rlscheduler/lublin_256_new2.swf.gz", 256},
		{"kth", "swf/KTH-SP2-1996-2.swf.gz", 100},
		{"curie", "swf/CEA-Curie-sample.swf.gz", 93312},
	}
}

// seed draws the windows.
const seed = 20260115

// Run measures and prints, and returns the figures by key.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	windows, length := 30, 1024
	if o.Quick {
		windows, length = 2, 96
	}

	b := &bench{out: map[string]float64{}, opts: o}
	fmt.Fprintf(
		&b.text,
		"mean bounded slowdown (10 s), %d random windows of %d jobs of each log, seed %d, each on an empty machine\n",
		windows,
		length,
		seed,
	)

	fmt.Fprintf(
		&b.text,
		"waiting is the actual queueing time; no restarts, unweighted; ± is the 95 %% interval over the windows\n",
	)

	fmt.Fprintf(
		&b.text,
		"held: the reference as in the published table, where the first job in the queue is never overtaken again\n",
	)

	for _, l := range logs() {
		jobs, err := b.read(l)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(&b.text, "%s is not there and left out\n", l.file)
			continue
		case err != nil:
			return nil, err
		case o.Quick && len(b.logs) > 0:
			continue
		}

		b.logs = append(b.logs, draw(l, jobs, windows, length))
	}

	if len(b.logs) == 0 {
		fmt.Fprintf(&b.text, "instead: jobs of the model of Lublin and Feitelson, seed %d\n", seed)
		l := log{key: "generated", procs: 256}
		jobs, err := trace.Collect(trace.Lublin(trace.LublinOptions{Jobs: 4 * length, Procs: l.procs, Seed: seed}))
		if err != nil {
			return nil, err
		}

		b.logs = append(b.logs, draw(l, jobs, windows, length))
	}

	if err := b.measure(); err != nil {
		return nil, err
	}
	if err := b.report(); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}

	_, err := io.WriteString(w, b.text.String())

	return b.out, err
}

// read reads the jobs of a log that its machine can run.
func (b *bench) read(l log) ([]*sim.Job, error) {
	r, err := trace.Open(filepath.Join(b.opts.Data, filepath.FromSlash(l.file)), "swf", trace.Options{})
	if err != nil {
		return nil, err
	}

	return trace.Collect(r)
}

// row is a job as both sides see it. Times are in seconds, submit since the
// beginning of the log.
type row struct {
	Submit, Run, Requested float64
	Procs                  int
}

// window is a stretch of a log.
type window struct {
	procs int
	jobs  []row
}

// drawn is a log and its windows.
type drawn struct {
	log
	windows []window
}

// draw takes windows from anywhere in a log.
func draw(l log, jobs []*sim.Job, n, length int) drawn {
	rows := make([]row, 0, len(jobs))
	for _, j := range jobs {
		r := row{
			Submit:    j.At.Seconds(),
			Run:       j.Duration.Seconds(),
			Requested: time.Duration(j.Spec.Expect).Seconds(),
			Procs:     procs(j),
		}

		if r.Requested <= 0 {
			r.Requested = r.Run
		}

		if r.Procs <= l.procs {
			rows = append(rows, r)
		}
	}

	rng := rand.New(rand.NewPCG(seed, uint64(len(rows))))
	d := drawn{log: l}

	length = min(length, len(rows))
	for range n {
		at := rng.IntN(len(rows) - length + 1)
		d.windows = append(d.windows, window{l.procs, rows[at : at+length]})
	}

	return d
}

func procs(j *sim.Job) int {
	r := &j.Spec.Resources
	return max(r.Nodes.Min, 1) * int(r.CPUs) / 1000
}

// interval is the mean and half of its 95 % interval.
func interval(list []float64) (mean, half float64) {
	for _, v := range list {
		mean += v / float64(len(list))
	}

	sum := 0.0
	for _, v := range list {
		sum += (v - mean) * (v - mean)
	}

	if n := float64(len(list)); n > 1 {
		half = 1.96 * math.Sqrt(sum/(n-1)/n)
	}

	return mean, half
}
