// Package elastic measures the elastic and the preemptive policies on public
// workloads, beside what the simulators of their authors came to on the same
// input, and on generated ones.
//
// It prints one table for each workload and returns the figures by name. What
// needs the public traces is left out, and said to be, where they are absent. It
// asserts nothing; `make bench-elastic` calls it.
package elastic

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
	"trainyard/test/bench/information"
	"trainyard/test/bench/target"
	"trainyard/test/bench/together"
)

// Options are those of every benchmark.
type Options = target.Options

// section is one table.
type section struct {
	title string
	notes []string // what is assumed
	rows  []*row
	// knowledge says what each row knows: it has a side of each row's name (row.side).
	knowledge []information.Comparison
	// figures takes what the table came to; nil for none.
	figures func(rows []*row, out map[string]float64)
}

// row is one simulation, or what somebody else published.
type row struct {
	input  string
	policy string // name in the catalogue
	note   string // how the run differs from the others of the table
	config func() (sim.Config, error)
	result *sim.Result // nil for a published figure

	mean, p99, makespan float64 // seconds; 0 if not published
}

// side is what the row is called where it is said what it knows.
func (r *row) side() string {
	policy := r.policy
	if slices.Contains(otherRules(), policy) {
		policy = otherElastic
	}

	if r.note == "" || r.note == theirSimulator {
		return policy
	}

	return policy + ", " + r.note
}

// Run simulates, prints the tables and returns the figures.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	sections, missing := public(o)
	sections = append(sections, generated(o))

	var rows []*row
	for _, s := range sections {
		rows = append(rows, s.rows...)
	}

	if err := simulate(rows, max(o.Parallel, 1)); err != nil {
		return nil, err
	}

	out := map[string]float64{}
	for _, s := range sections {
		if err := s.print(w); err != nil {
			return nil, err
		}

		if s.figures != nil {
			s.figures(s.rows, out)
		}
	}

	for _, m := range missing {
		if _, err := fmt.Fprintf(w, "left out: %s\n", m); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// simulate runs the simulations, so many at once.
func simulate(rows []*row, parallel int) error {
	return together.Each(len(rows), parallel, func(i int) error {
		if rows[i].config == nil {
			return nil
		}

		if err := rows[i].run(); err != nil {
			return fmt.Errorf("%s under %s: %w", rows[i].input, rows[i].policy, err)
		}

		return nil
	})
}

func (r *row) run() error {
	policy, err := catalogue.All(nil).Make(r.policy)
	if err != nil {
		return err
	}

	cfg, err := r.config()
	if err != nil {
		return err
	}

	cfg.Policy = policy()
	r.result, err = sim.Run(cfg)
	if err != nil {
		return err
	}
	if r.result.Unfinished > 0 {
		return fmt.Errorf("%d jobs never finished", r.result.Unfinished)
	}

	r.mean, r.p99, r.makespan = r.result.Completion.Mean, r.result.Completion.P99, r.result.Makespan.Seconds()

	return nil
}

// print writes the table.
func (s *section) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n", s.title); err != nil {
		return err
	}

	t := tabwriter.NewWriter(w, 2, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(t, format, args...) } //nolint:errcheck // Flush reports it
	line("  input\tpolicy\tmean completion s\tp99 s\tlast end h\tfairness\tGPUs used\tstops\t\n")

	for _, r := range s.rows {
		line(
			"  %s\t%s\t%s\t%s\t%s\t",
			r.input,
			r.policy,
			orNone("%.0f", r.mean),
			orNone("%.0f", r.p99),
			orNone("%.2f", r.makespan/3600),
		)

		if r.result == nil {
			line("\t\t\t%s\n", r.note)
			continue
		}

		line("%.3f\t%.3f\t%d\t%s\n", r.result.Fairness, r.result.Utilisation, r.result.Stops, r.note)
	}

	if err := t.Flush(); err != nil {
		return err
	}

	for _, n := range s.notes {
		if _, err := fmt.Fprintf(w, "  %s\n", n); err != nil {
			return err
		}
	}

	_, err := fmt.Fprintln(w)

	return err
}

// orNone writes a figure, and a dash where there is none.
func orNone(format string, v float64) string {
	if v == 0 {
		return "-"
	}

	return fmt.Sprintf(format, v)
}

const theirSimulator = "their simulator"

// theirs is a row of published figures, in seconds; 0 for one that was not published.
func theirs(input, policy string, mean, p99, makespan float64) *row {
	return &row{input: input, policy: policy, note: theirSimulator, mean: mean, p99: p99, makespan: makespan}
}

// find returns the row of ours with a policy and a note.
func find(rows []*row, policy, note string) *row {
	for _, r := range rows {
		if r.result != nil && r.policy == policy && r.note == note {
			return r
		}
	}

	return nil
}
