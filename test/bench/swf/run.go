package swf

import (
	"bytes"
	"context"
	_ "embed" // the reference
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

//go:embed reference.py
var reference string

// bench is one run of the benchmark.
type bench struct {
	opts   Options
	logs   []drawn
	ours   [][][]float64 // by log, policy and window
	theirs [][][]float64
	held   [][][]float64 // theirs, if the first is waited for
	absent string        // why there is no reference
	out    map[string]float64
	text   strings.Builder
}

// task is one window under one policy, or all of them in the reference.
type task func() error

// measure simulates every window under every policy, on both sides.
func (b *bench) measure() error {
	all := policies()
	python, err := exec.LookPath("python3")
	if err != nil {
		b.absent = "python3 is not installed: there is nothing to compare with"
	}

	var tasks []task
	for i, l := range b.logs {
		for _, table := range []*[][][]float64{&b.ours, &b.theirs, &b.held} {
			rows := make([][]float64, len(all))
			for k := range rows {
				rows[k] = make([]float64, len(l.windows))
			}

			*table = append(*table, rows)
		}

		for n := range l.windows {
			if b.absent == "" {
				tasks = append(tasks, func() error { return b.compute(python, i, n) })
			}

			for k := range all {
				tasks = append(tasks, func() error {
					var err error
					b.ours[i][k][n], err = simulate(&l.windows[n], &all[k])
					return err
				})
			}
		}
	}

	return together(tasks, b.opts.Parallel)
}

// together does tasks, some at once.
func together(tasks []task, parallel int) error {
	errs := make([]error, len(tasks))
	next := make(chan int)

	var all sync.WaitGroup
	for range max(parallel, 1) {
		all.Go(func() {
			for i := range next {
				errs[i] = tasks[i]()
			}
		})
	}

	for i := range tasks {
		next <- i
	}

	close(next)
	all.Wait()

	return errors.Join(errs...)
}

// simulate runs a window under one of our policies: one node that has as many CPUs
// as the machine had processors.
func simulate(w *window, p *policy) (float64, error) {
	first := seconds(w.jobs[0].Submit)
	jobs := make([]*sim.Job, len(w.jobs))
	for i, r := range w.jobs {
		jobs[i] = &sim.Job{
			Name: fmt.Sprintf("w%d", i), At: seconds(r.Submit) - first, Duration: seconds(r.Run),
			Spec: &job.Spec{
				Run: "simulated", Place: job.PlaceAny, Objective: job.ObjectiveTime, Expect: job.Duration(seconds(r.Requested)),
				Resources: job.Resources{CPUs: job.CPUs(r.Procs) * 1000},
			},
		}
	}

	sum := 0.0

	result, err := sim.Run(sim.Config{
		Policy: p.make(sim.Epoch().Add(-first)),
		Nodes: []fleet.Node{
			{ID: "machine", Class: fleet.Local, Inventory: fleet.Inventory{CPUs: job.CPUs(w.procs) * 1000, Memory: 1 << 50}},
		},
		Jobs: trace.List(jobs),
		OnEnd: func(o *sim.Outcome) {
			run := o.Job.Duration.Seconds()
			sum += math.Max(1, (o.Wait().Seconds()+run)/math.Max(run, 10))
		},
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.key, err)
	}
	if result.Succeeded != len(jobs) {
		return 0, fmt.Errorf("%s: %d of %d jobs succeeded", p.key, result.Succeeded, len(jobs))
	}

	return sum / float64(len(jobs)), nil
}

func seconds(s float64) time.Duration { return job.Seconds(s) }

// longest is how long the reference may take for one window.
const longest = 10 * time.Minute

// compute lets the reference go through a window.
func (b *bench) compute(python string, log, n int) error {
	w := &b.logs[log].windows[n]
	rows := make([][4]float64, len(w.jobs))
	for i, r := range w.jobs {
		rows[i] = [4]float64{r.Submit, r.Run, r.Requested, float64(r.Procs)}
	}

	var rules []string
	for _, p := range policies() {
		rules = append(rules, p.rule, p.rule+"+held")
	}

	input, err := json.Marshal(
		map[string]any{"policies": rules, "windows": []any{map[string]any{"procs": w.procs, "jobs": rows}}},
	)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()

	cmd := exec.CommandContext(ctx, python, "-c", reference)
	cmd.Stdin = bytes.NewReader(input)
	var said bytes.Buffer
	cmd.Stderr = &said
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("reference.py: %w: %s", err, said.String())
	}

	var got []map[string]float64
	if err := json.Unmarshal(output, &got); err != nil || len(got) != 1 {
		return fmt.Errorf("reference.py answered %.100q: %w", output, err)
	}

	for k, p := range policies() {
		b.theirs[log][k][n], b.held[log][k][n] = got[0][p.rule], got[0][p.rule+"+held"]
	}

	return nil
}

// report prints the table and fills in the figures.
func (b *bench) report() error {
	var rows strings.Builder
	rows.WriteString("log\tpolicy\tours\t±\treference\t±\tdifference\tworst window\theld\t\n")

	worst := 0.0
	for i, l := range b.logs {
		for k, p := range policies() {
			ours, half := interval(b.ours[i][k])
			b.out[p.key+"_"+l.key+"_bsld"] = ours

			fmt.Fprintf(&rows, "%s\t%s\t%.1f\t%.1f\t", l.key, p.key, ours, half)
			if b.absent != "" {
				rows.WriteString("\t\t\t\t\t\n")
				continue
			}

			theirs, theirHalf := interval(b.theirs[i][k])
			diff, most := 100*(ours-theirs)/theirs, 0.0
			for n := range b.ours[i][k] {
				most = math.Max(most, 100*math.Abs(b.ours[i][k][n]-b.theirs[i][k][n])/b.theirs[i][k][n])
			}

			b.out[p.key+"_"+l.key+"_diff_pct"] = diff
			worst = math.Max(worst, math.Abs(diff))
			held, _ := interval(b.held[i][k])
			fmt.Fprintf(&rows, "%.1f\t%.1f\t%+.2f %%\t%.2f %%\t%.1f\t\n", theirs, theirHalf, diff, most, held)
		}
	}

	table := tabwriter.NewWriter(&b.text, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(table, "\n"+rows.String()); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}

	if b.absent != "" {
		b.text.WriteString(b.absent + "\n")
		return nil
	}

	b.out["worst_diff_pct"] = worst
	fmt.Fprintf(&b.text, "greatest difference %.2f %%\n", worst)

	return nil
}
