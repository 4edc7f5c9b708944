package andreas_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"trainyard/internal/place"
	policy "trainyard/internal/place/andreas"
	paper "trainyard/internal/place/andreas/published"
	"trainyard/internal/sim/trace"
	"trainyard/test/bench/andreas"
)

// TestQuick runs a few small cells: ours is cheaper than all others in each, and
// nothing is below the bound.
func TestQuick(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	figures, err := andreas.Run(&table, andreas.Options{Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	for _, suffix := range []string{"", "_restart_cost"} {
		for _, key := range []string{"worst_cell_vs_baselines_pct", "worst_cell_vs_published_pct"} {
			if got := figures[key+suffix]; !(got < 0) {
				t.Errorf("%s is %g, want less than 0", key+suffix, got)
			}
		}

		saving, most := figures["min_saving_vs_fifo_pct_load06_k10"+suffix], figures["bound_min_saving_vs_fifo_pct_load06_k10"+suffix]
		if !(saving > 0 && saving <= most) {
			t.Errorf("saves %g %%, of %g %% at most", saving, most)
		}
	}

	if text := table.String(); !strings.Contains(text, "Start 1m0s, save 30s") || !strings.Contains(text, "Seeds 1 to 2") {
		t.Errorf("the table does not say how it was made:\n%s", text)
	}

	if t.Failed() {
		t.Log(table.String())
	}
}

// TestEveryPolicyBringsEveryJobToItsEnd runs all of them, with every search.
func TestEveryPolicyBringsEveryJobToItsEnd(t *testing.T) {
	t.Parallel()
	policies := []place.Policy{
		paper.NewFirstPrinciple(paper.FIFO),
		paper.NewFirstPrinciple(paper.EDF),
		paper.NewFirstPrinciple(paper.Priority),
	}

	for _, s := range []policy.Search{policy.Greedy, policy.Local, policy.Random, policy.Relink} {
		o := policy.Defaults()
		o.Search = s
		policies = append(policies, policy.New(o))
	}

	early := policy.Defaults()
	early.Survival = []float64{0.9, 0.6, 0.3, 0.2}
	rg := paper.Defaults()
	rg.Rounds = 5
	policies = append(policies, policy.New(early), paper.New(rg))
	for _, p := range policies {
		jobs := trace.Andreas(4, andreas.Lambda(1.2), 10, 3)
		jobs.Start, jobs.Save = time.Minute, 30*time.Second
		in := andreas.Instance{Jobs: jobs, Nodes: trace.AndreasNodes(4), Tariff: trace.AndreasTariff()}
		cost, err := in.Run(p)
		if err != nil {
			t.Error(err)
			continue
		}

		if bound, err := in.Bound(); err != nil || cost.Total() < bound {
			t.Errorf("%s costs %g, below the bound of %g (%v)", p.Name(), cost.Total(), bound, err)
		}
	}
}

// TestPublishedInstances has figures of the public program on instances of the same
// law: what its greedy rule and fifo cost, mean of seeds at 10 nodes and a load of
// 0.63, in euros. Ours are other draws, so they agree only roughly.
func TestTheRulesCostWhatThePublicProgramDoes(t *testing.T) {
	t.Parallel()
	var greedy, fifo andreas.Cost

	const seeds = 6
	for seed := range uint64(seeds) {
		in := andreas.Instance{
			Jobs:   trace.Andreas(10, 5000*time.Second, 10, seed+1),
			Nodes:  trace.AndreasNodes(10),
			Tariff: trace.AndreasTariff(),
		}

		rg := paper.Defaults()
		rg.Rounds = -1
		for p, sum := range map[place.Policy]*andreas.Cost{paper.New(rg): &greedy,
			paper.NewFirstPrinciple(paper.FIFO): &fifo} {
			c, err := in.Run(p)
			if err != nil {
				t.Fatal(err)
			}

			sum.Energy += c.Energy / seeds
			sum.Late += c.Late / seeds
		}
	}

	for name, got := range map[string]struct{ got, want, within float64 }{
		"energy of the greedy rule":   {greedy.Energy, 17.6, 0.05},
		"energy of fifo":              {fifo.Energy, 19.7, 0.05},
		"lateness of fifo":            {fifo.Late, 37.4, 0.5},
		"lateness of the greedy rule": {greedy.Late + 1, 1, 0.5},
	} {
		if math.Abs(got.got/got.want-1) > got.within {
			t.Errorf("%s is %.2f, and was %.2f", name, got.got, got.want)
		}
	}
}

func TestMean(t *testing.T) {
	t.Parallel()
	mean, half := andreas.Mean([]float64{1, 2, 3, 4, 5})
	if mean != 3 || math.Abs(half-2.776*math.Sqrt(2.5/5)) > 1e-9 {
		t.Errorf("mean %g ± %g", mean, half)
	}

	if percent, sure := andreas.Versus([]float64{1, 2, 3}, []float64{2, 4, 6.1}); percent > -50 || percent < -51 || sure {
		t.Errorf("%g %%, sure: %v", percent, sure)
	}

	if _, sure := andreas.Versus([]float64{1, 2, 3}, []float64{2, 3, 4.01}); !sure {
		t.Error("a difference that is the same for every seed is sure")
	}
}
