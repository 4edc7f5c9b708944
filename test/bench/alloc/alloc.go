// Package alloc measures one allocation decision of the harvest policy, beside
// the solvers that are installed, on the same instances in the same run.
//
// `make bench-alloc` runs it. It decides nothing and asserts nothing: the exact
// allocator and every solver must come to the same optimum, and where they do not
// that is a figure.
package alloc

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"trainyard/internal/place/harvest"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
	"trainyard/internal/quantile"
	"trainyard/internal/sim/trace"
	"trainyard/internal/solver"
	"trainyard/test/bench/target"
)

// Options are those of every benchmark.
type Options = target.Options

// scale is one size of decision.
type scale struct{ jobs, nodes int }

func (s scale) key() string { return fmt.Sprintf("%d_%d", s.jobs, s.nodes) }

// lookAhead is over how many seconds a change must pay.
const lookAhead = 120

// limit is how long a solver may take.
const limit = time.Minute

// Run measures and prints, and returns the figures by key.
func Run(w io.Writer, o Options) (map[string]float64, error) {
	instances, solved, repeat := 40, 8, 5
	if o.Quick {
		instances, solved, repeat = 4, 2, 1
	}

	programs := solver.All()
	b := &bench{out: map[string]float64{"optimum_mismatches": 0}, programs: programs}
	b.printf(
		"allocation decisions: look-ahead %d s, growing 18 s and shrinking 12 s of the present speed, as published\n",
		lookAhead,
	)

	b.printf(
		"instances: even seeds the seven FreeTrain models (1 to 64 nodes), odd seeds concave curves (1 to 64..512 nodes);\n",
	)

	b.printf(
		"  jobs hold a random share of the nodes; seeds 0 to %d; each decision is timed %d times\n",
		instances-1,
		repeat,
	)

	b.printf(
		"solvers: %s, relative gap %g, from writing the model to reading the answer, seeds 0 to %d\n\n",
		names(programs),
		solver.Gap,
		solved-1,
	)

	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	b.table(
		tw,
		"jobs",
		"nodes",
		"allocator p50 ms",
		"p99 ms",
		"mean ms ± 95 %",
		"variables",
		"rows",
		"solver",
		"p50 ms",
		"most ms",
		"other optimum",
		"unproven",
	)

	for _, s := range []scale{{10, 200}, {30, 1000}, {50, 4000}} {
		if err := b.measure(tw, s, instances, solved, repeat); err != nil {
			return nil, err
		}
	}

	text := b.text
	if _, err := io.WriteString(w, text); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	if err := tw.Flush(); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}

	b.text = ""
	if err := b.published(o.Quick); err != nil {
		return nil, err
	}

	if len(programs) == 0 {
		b.printf("\nno solver is installed (highs, cbc, glpsol): nothing to compare with\n")
		delete(b.out, "optimum_mismatches")
	}

	_, err := io.WriteString(w, b.text)

	return b.out, err
}

type bench struct {
	text     string
	out      map[string]float64
	programs []solver.Program
}

func (b *bench) printf(format string, args ...any) { b.text += fmt.Sprintf(format, args...) }

// table writes one row.
func (b *bench) table(tw io.Writer, cells ...any) {
	for _, c := range cells {
		if f, ok := c.(float64); ok {
			c = fmt.Sprintf("%.3g", f)
		}

		_, _ = fmt.Fprint(tw, c, "\t") // Flush returns the error
	}

	_, _ = fmt.Fprintln(tw)
}

func names(programs []solver.Program) string {
	if len(programs) == 0 {
		return "none"
	}

	list := ""
	for i, p := range programs {
		if i > 0 {
			list += ", "
		}

		list += p.Name
	}

	return list
}

// measure times the allocator on all instances of a size, and the solvers on some.
func (b *bench) measure(tw io.Writer, s scale, instances, solved, repeat int) error {
	var ms []float64
	best := make([]float64, instances)
	for seed := range instances {
		in := draw(s, uint64(seed)).Counts()

		for range repeat {
			start := time.Now()
			d, ok := in.Decide(knapsack.Effort{})
			ms = append(ms, time.Since(start).Seconds()*1000)

			if !ok {
				return fmt.Errorf("seed %d: the allocator found nothing", seed)
			}

			best[seed] = d.Value
		}
	}

	mean, ci := meanCI(ms)
	slices.Sort(ms)
	b.out["p50_ms_"+s.key()], b.out["p99_ms_"+s.key()] = quantile.NearestRank(ms, 0.5), quantile.NearestRank(ms, 0.99)
	b.table(
		tw,
		s.jobs,
		s.nodes,
		quantile.NearestRank(ms, 0.5),
		quantile.NearestRank(ms, 0.99),
		fmt.Sprintf("%.3g ± %.2g", mean, ci),
	)

	for _, p := range b.programs {
		if err := b.solve(tw, p, s, best[:solved]); err != nil {
			return err
		}
	}

	return nil
}

// solve times a solver on the first instances of a size and compares the optimum.
func (b *bench) solve(tw io.Writer, p solver.Program, s scale, best []float64) error {
	var ms []float64
	wrong, unproven := 0, 0
	var m *lp.Model

	for seed, want := range best {
		in := draw(s, uint64(seed)).Counts()
		m = in.Model()
		start := time.Now()
		answer, err := p.Solve(context.Background(), m, limit)
		ms = append(ms, time.Since(start).Seconds()*1000)

		if err != nil {
			return fmt.Errorf("%d jobs, %d nodes, seed %d: %w", s.jobs, s.nodes, seed, err)
		}

		got := in.Read(answer).Value
		switch off := (want - got) / math.Abs(want); {
		case off < -1e-9:
			wrong++ // it found something better than the best
		case off > 2*solver.Gap && answer.Proven:
			wrong++
		case !answer.Proven:
			unproven++
		}
	}

	b.out["optimum_mismatches"] += float64(wrong)
	key := "solver_ms_" + s.key()
	slices.Sort(ms)
	mid := quantile.NearestRank(ms, 0.5)
	b.out[p.Name+"_ms_"+s.key()] = mid
	if fastest, known := b.out[key]; !known || mid < fastest {
		b.out[key] = mid
	}

	b.table(tw, "", "", "", "", "", len(m.Vars), len(m.Rows), p.Name, mid, slices.Max(ms), wrong, unproven)

	return nil
}

// published solves the programme as it was published, node by node, once, and
// shows what its too small constant costs.
func (b *bench) published(quick bool) error {
	s := scale{5, 20}
	if quick {
		s = scale{2, 8}
	}

	in := draw(s, 1)
	exact, ok := in.Counts().Decide(knapsack.Effort{})
	if !ok {
		return fmt.Errorf("the allocator found nothing for %d jobs on %d nodes", s.jobs, s.nodes)
	}

	for _, p := range b.programs {
		for _, big := range []float64{0, float64(s.nodes + 1)} {
			in.BigM = big
			m := in.Model()
			start := time.Now()
			answer, err := p.Solve(context.Background(), m, limit)
			took := time.Since(start)

			if err != nil {
				return fmt.Errorf("the published programme: %w", err)
			}

			what := "the right constant"
			if big > 0 {
				what = "the published constant"
			}

			b.printf(
				"\nnode by node, %d jobs on %d nodes, %d variables, %d rows, %s with %s: %.0f ms, %.4f of the allocator's "+
					"optimum, proven: %v",
				s.jobs,
				s.nodes,
				len(m.Vars),
				len(m.Rows),
				p.Name,
				what,
				took.Seconds()*1000,
				m.Gain(answer.Values)/exact.Value,
				answer.Proven,
			)

			if big == 0 && answer.Proven && math.Abs(m.Gain(answer.Values)/exact.Value-1) > 2*solver.Gap {
				b.out["optimum_mismatches"]++
			}
		}
	}

	b.printf("\n")

	return nil
}

// draw makes an instance from its seed.
func draw(s scale, seed uint64) *harvest.NodeInstance {
	r := rand.New(rand.NewPCG(seed, uint64(s.nodes)))
	models := trace.FreeTrainModels()
	in := &harvest.NodeInstance{Nodes: s.nodes, LookAhead: lookAhead}
	free := r.Perm(s.nodes)

	for i := range s.jobs {
		j := harvest.NodeJob{
			Holds:  make([]bool, s.nodes),
			Least:  1 + r.IntN(4),
			Up:     17 + 2*r.Float64(),
			Down:   11 + 2*r.Float64(),
			Points: []knapsack.Choice{{}},
		}

		if seed%2 == 0 {
			m := &models[i%len(models)]
			for k, n := range m.Nodes {
				j.Points = append(j.Points, knapsack.Choice{Count: n, Value: m.Samples[k]})
			}
		} else {
			j.Points = append(j.Points, concave(r)...)
		}

		j.Most = j.Points[len(j.Points)-1].Count
		for range min(r.IntN(2*s.nodes/s.jobs+1), len(free), j.Most) {
			j.Holds[free[0]] = true
			free = free[1:]
		}

		in.Jobs = append(in.Jobs, j)
	}

	return in
}

// concave draws a curve by Amdahl's law, measured at powers of two.
func concave(r *rand.Rand) []knapsack.Choice {
	single, serial := 1000+9000*r.Float64(), 0.0005+0.01*r.Float64()
	most := 64 << r.IntN(4)

	var points []knapsack.Choice
	for n := 1; n <= most; n *= 2 {
		points = append(points, knapsack.Choice{Count: n, Value: single * float64(n) / (1 + serial*float64(n-1))})
	}

	return points
}

// meanCI returns the mean and half of its 95 % confidence interval.
func meanCI(list []float64) (mean, half float64) {
	for _, v := range list {
		mean += v / float64(len(list))
	}

	sum := 0.0
	for _, v := range list {
		sum += (v - mean) * (v - mean)
	}

	n := float64(len(list))

	return mean, 1.96 * math.Sqrt(sum/math.Max(1, n-1)/n)
}
