// Package place measures how long the default policy rules takes to decide, with FIFO beside it: for a whole yard
// at once, and for the small changes of which a day is made.
//
// `make bench-place` runs it, on one core, and counts processor time. The yard is generated: three classes of
// nodes, six kinds of GPU, jobs of all shapes, objectives and lengths, and offers of
// several providers. The policies are the production ones and are given views as the
// yardmaster makes them. It decides nothing and asserts nothing.
package place

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/rules"
	"trainyard/test/bench/target"
)

// Options are those of every benchmark.
type Options = target.Options

// row is one measurement.
type row struct {
	policy      string // the name that it has for itself
	nodes, jobs int
	what        string
	ms          []float64
	plan        size
	queued      int // jobs that still wait, nodes on their way for some of them
}

// size is how large a plan is.
type size struct{ starts, stops, provisions int }

func sizeOf(p *place.Plan) size { return size{len(p.Starts), len(p.Stops), len(p.Provisions)} }

// Run measures, prints the table and returns the figures.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	defer debug.SetGCPercent(debug.SetGCPercent(300)) // as the program itself sets it

	out := map[string]float64{}

	var rows []row

	for _, c := range cases(o.Quick) {
		for _, p := range policies() {
			list := measure(&c, p.make)
			rows = append(rows, list...)
			figures(out, c.key+p.suffix, list)
		}
	}

	return out, table(w, rows)
}

// contender is a policy that is measured.
type contender struct {
	suffix string // of its figures
	make   func() place.Policy
}

// policies are the default one, whose figures have the plain names, and FIFO with backfill.
func policies() []contender {
	return []contender{
		{"", func() place.Policy { return rules.New(rules.Defaults()) }},
		{"_fifo", func() place.Policy { return ordered.FIFO{} }},
	}
}

// scale is how large a yard to measure on.
type scale struct {
	key                 string
	nodes, jobs, offers int
	steps, times        int
}

func cases(quick bool) []scale {
	if quick {
		return []scale{{"1k", 50, 200, 20, 10, 1}, {"10k_100k", 50, 2_000, 20, 10, 1}}
	}

	return []scale{
		{"1k", 1_000, 10_000, 500, 200, 5}, {"10k", 10_000, 10_000, 500, 200, 5},
		{"1k_100k", 1_000, 100_000, 500, 200, 5}, {"10k_100k", 10_000, 100_000, 500, 200, 5},
	}
}

// measure returns the rows of one policy on one scale.
func measure(c *scale, newPolicy func() place.Policy) []row {
	idle := full(c, newPolicy, "full, from an idle yard", 0)
	busy := full(c, newPolicy, "full, from a busy yard", 1)

	// The steps go on from the busy yard, after its plan was carried out.
	y := newYard(c, 1)
	policy := newPolicy()
	steps := row{policy: policy.Name(), nodes: c.nodes, jobs: c.jobs, what: "one job ends, one comes"}
	plan := policy.Plan(y.view())
	y.do(&plan)

	for range c.steps {
		y.step()
		v := y.view()
		began := processor()
		plan := policy.Plan(v)
		steps.ms = append(steps.ms, millis(processor()-began))
		s := sizeOf(&plan)
		steps.plan.starts += s.starts
		steps.plan.stops += s.stops
		steps.plan.provisions += s.provisions
		y.do(&plan)
	}

	steps.queued = y.line.Len()

	return []row{idle, busy, steps}
}

// full measures a first round, several times: with a policy that knows nothing, and
// nothing changes in between.
func full(c *scale, newPolicy func() place.Policy, what string, load float64) row {
	y := newYard(c, load)
	r := row{nodes: c.nodes, jobs: c.jobs, what: what}

	for range c.times {
		v := y.view()
		policy := newPolicy()
		r.policy = policy.Name()
		runtime.GC()
		began := processor()
		plan := policy.Plan(v)
		r.ms = append(r.ms, millis(processor()-began))
		r.plan = sizeOf(&plan)
		r.queued = c.jobs - r.plan.starts
	}

	return r
}

// processor returns the processor time of this process: on one core what a decision
// takes, whatever else the machine does.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// at returns the value below which a share of the measurements lie.
func at(list []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
}

// figures enters the rows of one scale. A full round is the slower of the two.
func figures(out map[string]float64, key string, rows []row) {
	idle, busy, steps := &rows[0], &rows[1], &rows[2]
	out["full_ms_"+key] = max(at(idle.ms, 0.5), at(busy.ms, 0.5))
	out["full_idle_ms_"+key] = at(idle.ms, 0.5)
	out["full_busy_ms_"+key] = at(busy.ms, 0.5)
	out["full_idle_starts_"+key] = float64(idle.plan.starts)
	out["full_busy_starts_"+key] = float64(busy.plan.starts)
	out["full_busy_provisions_"+key] = float64(busy.plan.provisions)
	out["incremental_ms_"+key] = at(steps.ms, 0.5)
	out["incremental_p99_ms_"+key] = at(steps.ms, 0.99)
	out["incremental_starts_"+key] = float64(steps.plan.starts)
	out["incremental_waiting_"+key] = float64(steps.queued)
}

func table(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "policy\tnodes\tjobs\twhat\trounds\tmedian ms\tp99 ms\tstarts\tstops\tprovisions\tqueued\t")

	for i := range rows {
		r := &rows[i]
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t\n", r.policy, r.nodes, r.jobs, r.what,
			len(r.ms), at(r.ms, 0.5), at(r.ms, 0.99), r.plan.starts, r.plan.stops, r.plan.provisions, r.queued)
	}

	return t.Flush()
}
