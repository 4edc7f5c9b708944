package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/clock"
	"trainyard/test/bench/report"
)

// bench is a run of the benchmark.
type bench struct {
	out     io.Writer
	library string
	python  string
	windows int
	window  time.Duration

	clk   clock.Clock
	uuid  string
	empty uint64 // bytes of the GPU's memory in use without programs
}

// run plays the scenes, prints what came of them and writes the figures.
func (b *bench) run(ctx context.Context, wanted *regexp.Regexp, path string) error {
	library, err := filepath.Abs(b.library)
	if err != nil || b.library == "" {
		return errors.Join(errors.New("give -library"), err)
	}

	b.library, b.clk = library, clock.Wall{}

	origin, err := report.Begin(ctx, path, fmt.Sprintf("%d windows of %s", b.windows, b.window), b.clk.Now())
	if err != nil {
		return err
	}

	if err := b.look(ctx, &origin); err != nil {
		return err
	}

	fmt.Fprintln(b.out, origin.Describe()) //nolint:errcheck // the figures are also in the file

	outcomes := map[string]outcome{}

	for _, act := range acts() {
		if !slices.ContainsFunc(act, func(s scene) bool { return wanted.MatchString(s.name) }) {
			continue
		}

		got, err := b.play(ctx, act)
		if ctx.Err() != nil {
			origin.Run += ", interrupted"
			break
		}

		for i, s := range act {
			if err != nil {
				fmt.Fprintf(b.out, "%-24s not measured: %v\n", s.name, err) //nolint:errcheck // as above
				continue
			}

			b.print(&s, &got[i])
			outcomes[s.name] = got[i]
		}
	}

	figures := figuresOf(outcomes)
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		fmt.Fprintf(b.out, "%32s  %8.2f\n", name, figures[name]) //nolint:errcheck // as above
	}

	if path != "" {
		err = (&report.Report{Origin: origin, Figures: figures}).Save(path)
	}

	return errors.Join(err, ctx.Err())
}

// look finds out which GPU it is, and that nobody is on it.
func (b *bench) look(ctx context.Context, origin *report.Origin) error {
	name, err := query(ctx, "name")
	if err != nil {
		return err
	}

	driver, err := query(ctx, "driver_version")
	if err != nil {
		return err
	}

	if b.uuid, err = query(ctx, "uuid"); err != nil {
		return err
	}

	used, err := query(ctx, "memory.used")
	if err != nil {
		return err
	}

	mib, err := strconv.ParseUint(used, 10, 64)
	if err != nil {
		return err
	}

	b.empty = mib << 20
	origin.Machine += ", " + name + ", driver " + driver

	return nil
}

// print prints what each program of a scene got done.
func (b *bench) print(s *scene, o *outcome) {
	fmt.Fprintf(b.out, "%-24s", s.name) //nolint:errcheck // the figures are also in the file

	for _, p := range s.programs {
		fmt.Fprintf(b.out, "  %s:", p.name) //nolint:errcheck // as above

		for _, r := range o.rates[p.name] {
			fmt.Fprintf(b.out, " %.1f", r) //nolint:errcheck // as above
		}

		if full := o.full[p.name]; full > 0 {
			fmt.Fprintf(b.out, " %.3f GiB", float64(full)/(1<<30)) //nolint:errcheck // as above
		}

		if code := o.codes[p.name]; code != 0 {
			fmt.Fprintf(b.out, " exit code %d", code) //nolint:errcheck // as above
		}
	}

	fmt.Fprintln(b.out) //nolint:errcheck // as above
}

// division is a scene in which programs of one kind have shares.
type division struct {
	scene  string
	shares map[string]float64
}

var divisions = map[string][]division{
	"share_error_points": {
		{"gpu_50_50", map[string]float64{"a": 0.5, "b": 0.5}},
		{"gpu_70_30", map[string]float64{"a": 0.7, "b": 0.3}},
		{"gpu_90_10", map[string]float64{"a": 0.9, "b": 0.1}},
		{"gpu_50_30_20", map[string]float64{"a": 0.5, "b": 0.3, "c": 0.2}},
	},
	"graph_share_error_points":   {{"graph_70_30", map[string]float64{"a": 0.7, "b": 0.3}}},
	"compile_share_error_points": {{"compile_70_30", map[string]float64{"a": 0.7, "b": 0.3}}},
	"plain_share_error_points":   {{"plain_70_30", map[string]float64{"a": 0.7, "b": 0.3}}},
}

// ratio is a figure that compares how much is done in two scenes, in percent.
type ratio struct{ scene, to string }

var ratios = map[string]ratio{
	"sum_50_50_pct":              {"gpu_50_50", "gpu_alone"},
	"sum_70_30_pct":              {"gpu_70_30", "gpu_alone"},
	"sum_90_10_pct":              {"gpu_90_10", "gpu_alone"},
	"sum_50_30_20_pct":           {"gpu_50_30_20", "gpu_alone"},
	"timeslice_sum_pct":          {"gpu_sliced", "gpu_alone"},
	"mps_sum_pct":                {"gpu_mps", "gpu_alone"},
	"library_alone_pct":          {"gpu_alone_library", "gpu_alone"},
	"hostbound_vs_timeslice_pct": {"host_50_50", "host_sliced"},
	"limit_30_pct":               {"limit_30", "gpu_alone"},
	"graph_sum_70_30_pct":        {"graph_70_30", "graph_alone"},
	"compile_sum_70_30_pct":      {"compile_70_30", "compile_alone"},
	"plain_sum_70_30_pct":        {"plain_70_30", "plain_alone"},
	"guaranteed_sum_pct":         {"guaranteed", "gpu_alone"},
}

// figuresOf computes the figures of the scenes that there are.
func figuresOf(outcomes map[string]outcome) map[string]float64 {
	figures := map[string]float64{}

	for name, r := range ratios {
		one, ok := outcomes[r.scene]
		other, also := outcomes[r.to]
		if ok && also {
			figures[name] = 100 * one.sum() / other.sum()
		}
	}

	if v, ok := figures["library_alone_pct"]; ok {
		figures["overhead_alone_pct"] = 100 - v
	}

	for name, list := range divisions {
		for _, d := range list {
			if o, ok := outcomes[d.scene]; ok {
				figures[name] = max(figures[name], o.shareError(d.shares))
			}
		}
	}

	if o, ok := outcomes["guaranteed"]; ok {
		figures["guaranteed_share_pct"] = 100 * mean(o.rates["a"]) / o.sum()
	}

	for _, allocator := range []string{"native", "expandable", "async"} {
		if o, ok := outcomes["cap_"+allocator]; ok {
			off := 100 * math.Abs(float64(o.full["a"])/(capped<<30)-1)
			figures["cap_error_pct"] = max(figures["cap_error_pct"], off)
		}
	}

	mixed(outcomes, figures)
	faults(outcomes, figures)

	return figures
}

// mixed compares a host-bound program beside a GPU-bound one: how much of what they do alone they get done in sum.
func mixed(outcomes map[string]outcome, figures map[string]float64) {
	host, gpu := outcomes["host_alone"], outcomes["gpu_alone"]

	for name, scene := range map[string]string{
		"host_beside_gpu_sliced_pct": "host_beside_gpu_sliced", "host_beside_gpu_shared_pct": "host_beside_gpu_50_50",
	} {
		if o, ok := outcomes[scene]; ok && host.rates != nil && gpu.rates != nil {
			figures[name] = 100 * (mean(o.rates["a"])/host.sum() + mean(o.rates["b"])/gpu.sum())
		}
	}
}

// faults says how programs did whose neighbour or broker was lost.
func faults(outcomes map[string]outcome, figures map[string]float64) {
	gpu := outcomes["gpu_alone"]

	// The neighbour failed in the first window; afterwards the GPU is all the program's.
	if o, ok := outcomes["fault"]; ok && gpu.rates != nil && len(o.rates["a"]) > 1 {
		figures["after_fault_pct"] = 100 * mean(o.rates["a"][1:]) / gpu.sum()
	}

	// The broker was killed in the first window and was back in the middle of the second.
	if o, ok := outcomes["broker_killed"]; ok && len(o.rates["a"]) > 2 && len(o.rates["b"]) > 2 {
		a, b := mean(o.rates["a"][2:]), mean(o.rates["b"][2:])
		figures["after_broker_kill_error_points"] = 100 * math.Abs(a/(a+b)-0.7)
	}
}

// sum is how many steps a second all programs together did.
func (o *outcome) sum() float64 {
	total := 0.0
	for _, rates := range o.rates {
		total += mean(rates)
	}

	return total
}

// shareError is by how many points the share of a program was off at most, in the mean of the windows.
func (o *outcome) shareError(shares map[string]float64) float64 {
	worst := 0.0
	for name, want := range shares {
		worst = max(worst, 100*math.Abs(mean(o.rates[name])/o.sum()-want))
	}

	return worst
}

func mean(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}

	return total / float64(max(len(values), 1))
}
