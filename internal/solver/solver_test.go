package solver_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/executable"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/knapsack"
	"trainyard/internal/place/lp"
	"trainyard/internal/solver"
)

// each runs a test with every solver that is installed. CBC and GLPK are there in CI.
func each(t *testing.T, test func(t *testing.T, p solver.Program)) {
	t.Helper()

	for _, name := range solver.Names() {
		p, err := solver.Find(name)
		if err != nil && name == "highs" { // Debian has none: it is tried where somebody installed it
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatal(err)
				}

				t.Skipf("%s is not installed: %v", name, err)
			}

			test(t, p)
		})
	}
}

// smallModel is a model with a fraction, whole numbers and rows of every kind. The
// best is a = 3, b = 1, c = 2.5 with a gain of 3*4 + 1*3 - 2.5.
func smallModel() *lp.Model {
	return &lp.Model{
		Vars: []lp.Var{
			{Name: "a", High: 10, Whole: true, Gain: 4},
			{Name: "b", High: 10, Whole: true, Gain: 3},
			{Name: "c", Low: 1, High: 9, Gain: -1},
			{Name: "idle", High: 1, Whole: true},
		},
		Rows: []lp.Row{
			{Name: "room", Terms: []lp.Term{{Var: 0, Factor: 2}, {Var: 1, Factor: 3}}, Op: lp.AtMost, Limit: 10.5},
			{Name: "few", Terms: []lp.Term{{Var: 0, Factor: 1}}, Op: lp.AtMost, Limit: 3.9},
			{Name: "enough", Terms: []lp.Term{{Var: 2, Factor: 2}, {Var: 3, Factor: 1}}, Op: lp.AtLeast, Limit: 5},
			{Name: "off", Terms: []lp.Term{{Var: 3, Factor: 1}}, Op: lp.Exactly},
		},
	}
}

func TestSolvesToTheBest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()
		m := smallModel()
		s, err := p.Solve(t.Context(), m, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}

		if got := m.Gain(s.Values); math.Abs(got-12.5) > 1e-6 || !s.Proven {
			t.Errorf("gain %g with %v, proven %v; want 12.5", got, s.Values, s.Proven)
		}
	})
}

func TestSaysThatNothingIsPossible(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()
		m := smallModel()
		m.Rows[2].Limit = 100
		if s, err := p.Solve(t.Context(), m, 10*time.Second); err == nil {
			t.Errorf("solved: %+v", s)
		}
	})
}

func TestSolvesAModelWithoutVariables(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()

		if s, err := p.Solve(t.Context(), &lp.Model{}, time.Second); err != nil || len(s.Values) > 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// summit is how fast ShuffleNet is on so many nodes.
func summit() []knapsack.Choice {
	points := []knapsack.Choice{{}}
	for i, rate := range []float64{2831, 5259, 9988, 20379.2, 38895.3, 74125.1, 145081.5} {
		points = append(points, knapsack.Choice{Count: 1 << i, Value: rate})
	}

	return points
}

// nodes draws a decision of the published kind.
func nodes(seed uint64, jobs, count int) *harvest.NodeInstance {
	r := rand.New(rand.NewPCG(seed, 3))
	in := &harvest.NodeInstance{Nodes: count, LookAhead: 120}

	free := r.Perm(count)
	for range jobs {
		j := harvest.NodeJob{
			Holds:  make([]bool, count),
			Least:  1 + r.IntN(2),
			Most:   8 + r.IntN(57),
			Points: summit(),
			Up:     18,
			Down:   12,
		}

		for range min(r.IntN(2*count/jobs), len(free), j.Most) {
			j.Holds[free[0]] = true
			free = free[1:]
		}

		in.Jobs = append(in.Jobs, j)
	}

	return in
}

func TestCountsAndNodesAndTheAllocatorAgree(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()

		for seed := range uint64(2) {
			in := nodes(seed, 3, 10)
			counts := in.Counts()
			exact, ok := counts.Decide(knapsack.Effort{})
			if !ok {
				t.Fatal("the allocator found nothing")
			}

			s, err := p.Solve(t.Context(), counts.Model(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}

			if d := counts.Read(s); math.Abs(d.Value-exact.Value) > 1e-5*exact.Value {
				t.Errorf(
					"seed %d: over counts %g with %v, the allocator has %g with %v",
					seed,
					d.Value,
					d.Count,
					exact.Value,
					exact.Count,
				)
			}

			m := in.Model()
			s, err = p.Solve(t.Context(), m, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}

			if got := m.Gain(s.Values); s.Proven && math.Abs(got-exact.Value) > 1e-5*exact.Value {
				t.Errorf("seed %d: over nodes %g, the allocator has %g", seed, got, exact.Value)
			}
		}
	})
}

func TestThePublishedConstantForbidsLargeChanges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()

		// One job has nothing, and twenty nodes are free: it should get all of them.
		in := &harvest.NodeInstance{
			Nodes:     20,
			LookAhead: 120,
			Jobs:      []harvest.NodeJob{{Holds: make([]bool, 20), Least: 1, Most: 64, Points: summit(), Up: 18, Down: 12}},
		}

		gain := func() float64 {
			m := in.Model()
			s, err := p.Solve(t.Context(), m, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}

			return m.Gain(s.Values)
		}

		right := gain()
		in.BigM = 21

		if wrong := gain(); wrong > 0.6*right {
			t.Errorf("with the published constant %g, with the right one %g", wrong, right)
		}
	})
}

func TestSeveralKindsAndConditionsAcrossJobs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()
		choices := func(most int, each float64) (list []knapsack.Choice) {
			for n := 1; n <= most; n++ {
				list = append(list, knapsack.Choice{Count: n, Value: each * float64(n)})
			}

			return list
		}

		in := &harvest.Instance{
			Nodes: []int{4, 3},
			Jobs: []harvest.Sizes{
				{Kinds: [][]knapsack.Choice{choices(4, 2), choices(3, 3)}},
				{Kinds: [][]knapsack.Choice{choices(4, 1), choices(3, 5)}},
				{Kinds: [][]knapsack.Choice{choices(4, 1.5), nil}, None: 0.5},
			},
			// The first and the third have at most four nodes between them.
			Rows: []harvest.SideRow{{PerNode: [][]float64{{1, 1}, {0, 0}, {1, 1}}, PerJob: make([]float64, 3), AtMost: 4}},
		}

		s, err := p.Solve(t.Context(), in.Model(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}

		d := in.Read(s)
		if want := []int{4, 3, 0}; !slices.Equal(d.Count, want) || !slices.Equal(d.Kind, []int{0, 1, -1}) || d.Value != 23.5 {
			t.Errorf("%+v, want %v on kinds 0, 1 and none, worth 23.5", d, want)
		}

		found, ok := in.Decide(knapsack.Effort{})
		if !ok || math.Abs(found.Value-d.Value) > 1e-9 {
			t.Errorf("the search found %+v", found)
		}
	})
}

func TestStopsWhenCancelled(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		if _, err := p.Solve(ctx, nodes(1, 5, 60).Model(), time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that it was cancelled", err)
		}
	})
}

func TestNoSolverIsAClearError(t *testing.T) {
	t.Setenv("PATH", t.TempDir())

	for _, name := range []string{"", "cbc"} {
		_, err := solver.Find(name)
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "install one") {
			t.Errorf("%q: %v", name, err)
		}
	}

	if got := solver.All(); len(got) > 0 {
		t.Errorf("found %v on an empty path", got)
	}
}

// pretend makes a program that leaves this answer, whatever it is asked.
func pretend(t *testing.T, name, answer string) solver.Program {
	t.Helper()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "canned"), filepath.Join(dir, name)
	script := "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -solution|-w|--solution_file) out=$2;; esac; shift; done\ncp '" + file + "' \"$out\"\n"

	if err := os.WriteFile(file, []byte(answer), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := executable.Write(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	return solver.Program{Name: name, Path: path}
}

// Programs that were just written are run one after the other: one that another
// test forks meanwhile would hold the file open, and it could not be run.
func TestReadsWhatTheProgramsWrite(t *testing.T) {
	const best = "  0 x0 3 0\n  1 x1 1 0\n  2 x2 2.5 0\n"
	for name, tc := range map[string]struct {
		program, answer string
		proven          bool
		err             string
	}{
		"cbc, the best":           {program: "cbc", answer: "Optimal - objective value -12.5\n" + best, proven: true},
		"cbc, out of time":        {program: "cbc", answer: "Stopped on time - objective value -12.5\n" + best},
		"cbc, nothing in time":    {program: "cbc", answer: "Stopped on time (no integer solution - continuous used) - objective value 1\n" + best, err: "no solution found within the time limit"},
		"cbc, impossible":         {program: "cbc", answer: "Integer infeasible - objective value 1\n", err: "no solution exists"},
		"cbc, something else":     {program: "cbc", answer: "Unbounded - objective value 1\n", err: `unexpected status "Unbounded`},
		"cbc, a strange line":     {program: "cbc", answer: "Optimal\n what\n", err: "cannot read the solution line"},
		"cbc, empty":              {program: "cbc", err: "no solution found within the time limit"},
		"cbc, against the model":  {program: "cbc", answer: "Optimal\n 0 x0 9 0\n 2 x2 2.5 0\n", err: "violates the model"},
		"cbc, halves":             {program: "cbc", answer: "Optimal\n 0 x0 2.5 0\n 2 x2 2.5 0\n", err: "must be an integer, got 2.5"},
		"cbc, below its bound":    {program: "cbc", answer: "Optimal\n 0 x0 1 0\n", err: "between 1 and 9, got 0"},
		"cbc, another model":      {program: "cbc", answer: "Optimal\n 0 y7 9 0\n", err: `unknown variable "y7"`},
		"cbc, no number":          {program: "cbc", answer: "Optimal\n 0 x0 many 0\n", err: "the value of x0"},
		"glpsol, the best":        {program: "glpsol", answer: "c text\ns mip 4 4 o -12.5\nj 1 3\nj 2 1\nj 3 2.5\nj 4 0\ne o f\n", proven: true},
		"glpsol, out of time":     {program: "glpsol", answer: "s mip 4 4 f -12.5\nj 1 3\nj 2 1\nj 3 2.5\n"},
		"glpsol, impossible":      {program: "glpsol", answer: "s mip 4 4 n 0\n", err: "no solution exists"},
		"glpsol, nothing in time": {program: "glpsol", answer: "s mip 4 4 u 0\n", err: "no solution found within the time limit"},
		"glpsol, empty":           {program: "glpsol", err: "no solution found within the time limit"},
		"glpsol, a strange line":  {program: "glpsol", answer: "s mip 4 4 o 1\nj one 3\n", err: "cannot read the solution line"},
		"highs, the best":         {program: "highs", answer: "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective -12.5\n# Columns 4\nx0 3\nx1 1\nx2 2.5\nx3 0\n# Rows 1\nc0 9\n", proven: true},
		"highs, out of time":      {program: "highs", answer: "Model status\nTime limit reached\n\n# Primal solution values\nFeasible\nObjective -12.5\n# Columns 4\nx0 3\nx1 1\nx2 2.5\nx3 0\n"},
		"highs, impossible":       {program: "highs", answer: "Model status\nInfeasible\n", err: "no solution exists"},
		"highs, nothing in time":  {program: "highs", answer: "Model status\nTime limit reached\n", err: "no solution found within the time limit"},
		"a program nobody knows":  {program: "lp_solve", err: "unknown solver"},
	} {
		t.Run(name, func(t *testing.T) {
			m := smallModel()
			s, err := pretend(t, tc.program, tc.answer).Solve(t.Context(), m, time.Second)
			switch {
			case tc.err == "" && err != nil:
				t.Error(err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%v, want %q in it", err, tc.err)
			case tc.err == "" && (s.Proven != tc.proven || m.Gain(s.Values) != 12.5):
				t.Errorf("%+v, want a gain of 12.5, proven %v", s, tc.proven)
			}
		})
	}
}

func TestAProgramThatFailsIsQuoted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cbc")
	if err := executable.Write(path, []byte("#!/bin/sh\necho licence expired\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	_, err := solver.Program{Name: "cbc", Path: path}.Solve(t.Context(), smallModel(), time.Second)
	if err == nil || !strings.Contains(err.Error(), "licence expired") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}

func TestTheSearchIsNearTheBestAndItsBoundHolds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()

		for seed := range uint64(3) {
			in := kinds(seed)
			found, ok := in.Decide(knapsack.Effort{})
			if !ok {
				t.Fatal("the search found nothing")
			}

			s, err := p.Solve(t.Context(), in.Model(), 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}

			best := in.Read(s).Value
			if found.Bound < best*(1-1e-5) {
				t.Errorf("seed %d: bound %g, but %g can be reached", seed, found.Bound, best)
			}

			if s.Proven && (found.Value < 0.99*best || found.Value > best*(1+1e-5)) {
				t.Errorf("seed %d: found %g, the best is %g", seed, found.Value, best)
			}
		}
	})
}

// kinds draws a decision over three kinds of nodes under a budget.
func kinds(seed uint64) *harvest.Instance {
	r := rand.New(rand.NewPCG(seed, 5))
	in := &harvest.Instance{Nodes: []int{24, 16, 12}}
	price := []float64{1, 1.8, 3}
	row := harvest.SideRow{Name: "budget", AtMost: 60}

	for range 8 {
		s := harvest.Sizes{Kinds: make([][]knapsack.Choice, 3)}
		points := summit()
		for k := range s.Kinds {
			speed := price[k] * (0.7 + 0.6*r.Float64())
			rate := job.NewSpeed(1, 0, 0, rates(points, speed)...).On("", 0)
			for n := 1; n <= 16; n++ {
				s.Kinds[k] = append(s.Kinds[k], knapsack.Choice{Count: n, Value: rate.Rate(n, n)})
			}
		}

		in.Jobs = append(in.Jobs, s)
		row.PerNode, row.PerJob = append(row.PerNode, price), append(row.PerJob, 0)
	}

	in.Rows = []harvest.SideRow{row}

	return in
}

func rates(points []knapsack.Choice, factor float64) []job.Rate {
	var list []job.Rate
	for _, p := range points[1:] {
		list = append(list, job.Rate{GPUs: p.Count, PerSecond: p.Value * factor})
	}

	return list
}
