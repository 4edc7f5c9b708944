package simcli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/cli/console"
	"trainyard/internal/cli/exit"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/sim/report"
	"trainyard/internal/sim/whatif"
)

// simulation is a call of the command simulate: what its flags say.
type simulation struct {
	*console.Console
	registry place.Registry
	policies string
	loads    []float64
	seeds    int
	until    lasting
	parallel int
	skipBad  bool
	list     bool
	prices   map[string]string
	// Files to write.
	json, csv, html, log string
	trace                traceFlags
	nodeLog              nodeLogFlags
	yard                 yardFlags
}

// lasting is the value of a flag: a length of time as in a job file.
type lasting time.Duration

// String writes it as in a job file, "" for none.
func (d *lasting) String() string {
	if *d == 0 {
		return ""
	}

	return job.Duration(*d).String()
}

// Type names the flag's value in help.
func (d *lasting) Type() string { return "duration" }

// Set reads it.
func (d *lasting) Set(s string) error {
	v, err := job.ParseDuration(s)
	*d = lasting(v)
	return err
}

// simulateCommand is `trainyard simulate`.
func simulateCommand(env cli.Env, registry place.Registry) *cobra.Command {
	s := &simulation{Console: console.New(env), registry: registry}
	cmd := &cobra.Command{
		Use:     "simulate [SCENARIO...]",
		Short:   "Simulate other policies, loads or machines",
		GroupID: cli.GroupYard,
		Long: `Simulate a yard: the server's own code and policies in virtual time, with models of machines and jobs.

Simulate a scenario file, a recorded workload (--trace on --cluster), or the yard as it is now
(--from-yard). Several policies, loads and seeds are compared side by side.`,
		Example: "  trainyard simulate scenarios/backfill-easy.yard\n" +
			"  trainyard simulate day.yard --policy fifo,srtf,goodput --load 0.8,1,1.2 --seeds 5 --html report.html\n" +
			"  trainyard simulate --trace jobs.swf --cluster 16xV100x8 --policy fifo,conservative\n" +
			"  trainyard simulate --trace jobs.swf --node-log spot.json --log-nodes 16xV100:16GBx1 --policy harvest\n" +
			"  trainyard simulate --from-yard --add-nodes 2xA100:80GBx8 --assume 2h",
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },
	}

	f := cmd.Flags()
	f.StringVar(
		&s.policies,
		"policy",
		"",
		"policies to compare, e.g. fifo,andreas:margin=0.2 (default: the policy of the scenario, or fifo)",
	)

	f.Float64SliceVar(
		&s.loads,
		"load",
		nil,
		"arrival rates to simulate, relative to the workload, e.g. 0.8,1,1.2 (default 1)",
	)

	f.IntVar(&s.seeds, "seeds", 1, "number of random seeds per case; more than one gives a confidence interval")
	f.Var(&s.until, "until", "stop at this simulated time, even if jobs remain, e.g. 7d")
	f.IntVar(&s.parallel, "parallel", 0, "number of parallel simulations; 0 for one per core; does not change the results")
	f.StringToStringVar(&s.prices, "price", nil, "hourly price of one GPU by type, e.g. A100=2.40,V100=1.10")
	f.BoolVar(&s.list, "list-policies", false, "list the policies and exit")
	f.StringVar(&s.json, "out-json", "", "write all results as JSON to this file")
	f.StringVar(&s.csv, "csv", "", "write one CSV row per simulation to this file")
	f.StringVar(&s.html, "html", "", "write an HTML report with plots to this file; it works offline")
	f.StringVar(&s.log, "log", "", "write every decision to this file, - for standard output; one file per simulation")

	f.BoolVar(&s.skipBad, "skip-bad", false, "skip invalid rows of a trace and report how many")
	s.trace.register(f)
	s.nodeLog.register(f)
	s.yard.register(f)
	s.OutputFlag(cmd)

	return cmd
}

func (s *simulation) run(cmd *cobra.Command, args []string) error {
	switch {
	case s.list:
		return s.listPolicies()
	case s.yard.on && (len(args) > 0 || s.trace.file != "" || s.nodeLog.file != ""):
		return exit.Usagef(cmd, "--from-yard takes neither scenarios nor a trace nor a node log")
	case s.yard.on:
		return s.fromYard(cmd)
	case s.yard.given():
		return exit.Usagef(cmd, "--add-nodes and --assume go with --from-yard")
	case len(args) == 0 && s.trace.file == "":
		return exit.Usagef(cmd, "nothing to simulate: give a scenario file, --trace FILE or --from-yard")
	}

	sources, standard, err := s.sources(cmd, args)
	if err != nil {
		return err
	}

	policies, err := s.chosen(standard)
	if err != nil {
		return err
	}

	for _, load := range s.loads {
		if load <= 0 {
			return exit.Usagef(cmd, "--load must be greater than 0, got %g", load)
		}
	}

	if s.seeds < 1 || s.parallel < 0 {
		return exit.Usagef(cmd, "--seeds must be at least 1, and --parallel not less than 0")
	}

	if s.parallel == 0 {
		s.parallel = runtime.GOMAXPROCS(0)
	}

	bar := s.newBar()
	m := whatif.Matrix{
		Sources:  sources,
		Policies: policies,
		Loads:    s.loads,
		Seeds:    s.seeds,
		Parallel: s.parallel,
		Keep:     keepPoints,
		Clock:    s.Clock,
		Progress: bar.show,
	}

	single := len(sources)*len(policies)*max(len(s.loads), 1)*s.seeds == 1
	if s.log != "" {
		if s.log == "-" && !single {
			return exit.Usagef(cmd, "--log - is for one simulation; name a file for several")
		}

		m.Log = func(c whatif.Cell) (io.WriteCloser, error) { return s.openLog(c, single) }
	}

	cells, err := whatif.Run(cmd.Context(), m)
	bar.end()

	if err != nil {
		return err
	}

	s.trace.tell(s.Console)
	s.nodeLog.tell(s.Console)

	return s.show(cells, commandLine(cmd, args))
}

// keepPoints is how many points of series and spans are kept for plots.
const keepPoints = 1000

// chosen returns the policies that were asked for, or the standard one.
func (s *simulation) chosen(standard string) ([]whatif.Policy, error) {
	texts := s.policies
	if texts == "" {
		texts = standard
	}

	names, makers, err := s.registry.List(texts)
	if err != nil {
		return nil, err
	}

	var list []whatif.Policy
	for i, name := range names {
		if !slices.ContainsFunc(list, func(p whatif.Policy) bool { return p.Name == name }) {
			list = append(list, whatif.Policy{Name: name, New: makers[i]})
		}
	}

	return list, nil
}

// PolicyText is a policy as it is listed.
type PolicyText struct {
	Name   string        `json:"name"`
	Rule   string        `json:"rule"`
	Params []place.Param `json:"params,omitempty"`
}

// listPolicies shows the policies by name, with what each does.
func (s *simulation) listPolicies() error {
	all := s.registry
	var list []PolicyText

	for _, name := range all.Names() {
		e, err := all.Find(name)
		if err != nil {
			return err
		}

		params, err := all.Params(name)
		if err != nil {
			return err
		}

		list = append(list, PolicyText{name, e.Rule, params})
	}

	return s.Show(list, all.Names, func() error {
		common := map[string]place.Param{}
		t := s.NewTable("POLICY", "RULE", "PARAMETERS")
		for _, p := range list {
			var params []string
			for _, o := range p.Params {
				if o.Common {
					common[o.Name] = o
				} else {
					params = append(params, o.Name+"="+o.Standard)
				}
			}

			t.Row(p.Name, p.Rule, strings.Join(params, " "))
		}

		if err := t.Write(s.Stdout); err != nil {
			return err
		}

		return s.listCommon(common)
	})
}

// listCommon shows the parameters that all policies have in common.
func (s *simulation) listCommon(params map[string]place.Param) error {
	_, err := fmt.Fprintln(s.Stdout,
		"\nWhere nodes can be provisioned, every policy also has (rules only those about moves):")
	if err != nil {
		return err
	}

	t := s.NewTable("PARAMETER", "MEANING")

	for _, name := range slices.Sorted(maps.Keys(params)) {
		t.Row(name+"="+params[name].Standard, params[name].Help)
	}

	return t.Write(s.Stdout)
}

// show writes the results: to the files that were named, and for people.
func (s *simulation) show(cells []whatif.Cell, command string) error {
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{s.json, func(w io.Writer) error { return report.JSON(w, cells) }},
		{s.csv, func(w io.Writer) error { return report.CSV(w, cells) }},
		{s.html, func(w io.Writer) error { return report.HTML(w, report.Title(cells), command, cells) }},
	} {
		if f.path == "" {
			continue
		}
		if err := writeFile(f.path, f.write); err != nil {
			return err
		}
	}

	err := s.Show(report.DocumentOf(cells), func() []string { return nil }, func() error {
		style := report.Style{Color: s.Color(s.Stdout)}
		if s.OnTerminal(s.Stdout) && s.Width != nil {
			style.Width = s.Width()
		}

		return report.Table(s.Stdout, cells, style)
	})

	if err == nil && s.html != "" {
		s.Note("Wrote the report to %s.", s.html)
	}

	return err
}

// writeFile writes a file as a whole, or says why it could not.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fault.New(fault.Invalid, "not_writable", "%s cannot be written: %v", path, err).WithCause(err)
	}

	err = write(f)
	if closing := f.Close(); err == nil && closing != nil {
		err = fmt.Errorf("write %s: %w", path, closing)
	}

	return err
}

// openLog opens the log of one simulation: the file that was named, or beside it one
// that tells which simulation it is.
func (s *simulation) openLog(c whatif.Cell, single bool) (io.WriteCloser, error) {
	if s.log == "-" {
		return keepOpen{s.Stdout}, nil
	}

	path := s.log

	if !single {
		ext := filepath.Ext(path)
		name := fmt.Sprintf("-%s-%s-%g-%d", c.Source, c.Policy, c.Load, c.Seed)
		name = strings.Map(func(r rune) rune {
			if strings.ContainsRune(`/\:*?"<>| `, r) {
				return '_'
			}

			return r
		}, name)

		path = strings.TrimSuffix(path, ext) + name + ext
	}

	f, err := os.Create(path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "not_writable", "%s cannot be written: %v", path, err).WithCause(err)
	}

	return f, nil
}

// keepOpen is a writer that is not the command's to close.
type keepOpen struct{ io.Writer }

// Close leaves it open.
func (keepOpen) Close() error { return nil }

// commandLine is what someone types to get the same page.
func commandLine(cmd *cobra.Command, args []string) string {
	parts := append([]string{cmd.CommandPath()}, args...)

	for _, name := range []string{"trace", "format", "tables", "cluster", "queue", "first", "node-log",
		"node-log-format", "log-nodes", "node-log-from", "policy", "load", "seeds", "until", "price"} {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}

		value := strings.Trim(f.Value.String(), "[]")

		if loads, err := cmd.Flags().GetFloat64Slice(name); err == nil {
			words := make([]string, len(loads))
			for i, l := range loads {
				words[i] = strconv.FormatFloat(l, 'g', -1, 64)
			}

			value = strings.Join(words, ",")
		}

		parts = append(parts, "--"+name, value)
	}

	return strings.Join(parts, " ")
}
