package pollux

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// folder writes the files of an application called toy.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, "toy", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	return root
}

const (
	steps = "placement,local_bsz,step_time,sync_time\n1,10,1,0\n1,40.0,4,0\n2,10,1.25,0.25\n2,40,4.25,0.25\n" +
		"11,10,2,1\n11,40,5,1\n13,10,9,1\n13,40,9,1\n22,10,2,1\n22,40,5,1\n4,10,1.5,0.5\n4,40,4.5,0.5\n"
	wide  = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,10,3,2\n2,8,40,6,2\n3,8,10,30,2\n3,8,40,60,2\n"
	base  = "progress,iteration,metric,grad_sqr,grad_var\n100,100,1,1,3\n200,200,2,1,0\n"
	large = "progress,iteration,metric,grad_sqr,grad_var\n101,30,1,3,1\n199,60,2,1,0\n300,90,2,1,0\n"
)

func toy(t testing.TB) *Profile {
	t.Helper()
	p, err := Read("toy", []string{folder(t, map[string]string{
		"placements-aws.csv": steps, "scalability-aws.csv": wide, "validation-20.csv": base, "validation-320.csv": large,
	})})
	if err != nil {
		t.Fatal(err)
	}

	return p
}

func TestProfilesAreRead(t *testing.T) {
	p := toy(t)
	if p.Epochs != 2 || p.Until(0) != 0 || p.Until(1) != 100 || p.Work() != 199 || p.PerNode(true) != 4 ||
		p.base() != 20 ||
		p.most() != 320 {
		t.Errorf("got %+v", p)
	}

	// Between 20 and 320, a batch of 170 lies in the middle: s = 2, v = 2, m = 8.5.
	if got, want := p.gain(170, 0), (2.0+2)/(2/8.5+2); math.Abs(got-want) > 1e-12 {
		t.Errorf("gain %g, want %g", got, want)
	}

	if got := p.gain(20, 0); got != 1 {
		t.Errorf("the base batch is worth %g of itself", got)
	}
}

func TestRatesAreThoseOfTheFewestNodesAndFullOnes(t *testing.T) {
	s := job.NewSpeed(1, 0, 0, toy(t).Rates(1, 80)...)
	c := s.On("T4", 0)
	for _, k := range []struct {
		gpus, nodes int
		seconds     float64 // of a step with 80 samples, without noise
	}{
		{1, 1, 8},               // two passes of 40
		{2, 1, 4.25},            // 40 each
		{2, 2, 5},               //
		{4, 1, 1.5 + 3.0*10/30}, // 20 each
		{4, 2, (3 + 9) / 2.0},   // "22" and "13" are averaged, for neither has full nodes
		{8, 2, 3},               // not the same GPUs on three nodes
	} {
		if got := c.Rate(k.gpus, k.nodes); math.Abs(got-1/k.seconds) > 1e-9 {
			t.Errorf("%d GPUs on %d nodes take %g s for a step, want %g", k.gpus, k.nodes, 1/got, k.seconds)
		}
	}

	// 30 samples would fit one GPU at once, but one pass shows no noise.
	if got := job.NewSpeed(1, 0, 0, toy(t).Rates(1, 30)...).On("T4", 0).Rate(1, 1); math.Abs(got-1/3.0) > 1e-9 {
		t.Errorf("one GPU takes %g s for 30 samples, want two passes of 1.5 s", 1/got)
	}

	exact := Exactly(toy(t).Rates(1, 80), 6)
	if len(exact) != 1 || !exact[0].Spread || exact[0].GPUs != 6 {
		t.Errorf("got %+v, want six GPUs on several nodes alone", exact)
	}

	if got := Exactly(toy(t).Rates(1, 80), 9); len(got) != 0 {
		t.Errorf("got %+v for more than was measured", got)
	}
}

func TestPackedPlacementsCount(t *testing.T) {
	p, err := Read("toy", []string{folder(t, map[string]string{
		"placements-rtx.csv": "placement,local_bsz,step_time,sync_time\n33,10,9,0\n24,10,2,0\n4,10,1,0\n",
		"validation-20.csv":  base,
	})})
	if err != nil {
		t.Fatal(err)
	}

	if got := p.kinds[0].at[shape{2, 6}]; len(got) != 1 || got[0].step != 2 {
		t.Errorf("got %v, want the row with a full node", got)
	}

	if p.kinds[0].kind != "RTX2080Ti" {
		t.Errorf("got %s", p.kinds[0].kind)
	}
}

func TestTheBestBatchIsAtLeastAsGoodAsAnyOther(t *testing.T) {
	p := toy(t)
	rapid.Check(t, func(r *rapid.T) {
		epoch := rapid.IntRange(0, 1).Draw(r, "epoch")
		k := p.kinds[0]
		sh := rapid.SampledFrom(k.shapes).Draw(r, "shape")
		low := max(p.base(), k.minLocal*float64(sh.gpus))
		i := rapid.IntRange(0, batches-1).Draw(r, "batch")
		batch := low * math.Pow(p.most()/low, float64(i)/(batches-1))
		if got, any := p.best(k, sh, epoch), p.fixed(k, sh, epoch, batch); got < any || got <= 0 {
			r.Fatalf("the best is %g, a batch of %g does %g", got, batch, any)
		}
	})
}

func TestFoldersAreSearchedInOrder(t *testing.T) {
	sia := folder(t, map[string]string{
		"placements-aws.csv":     steps,
		"placements-dgx.csv":     steps,
		"placements-dgx-ext.csv": strings.ReplaceAll(steps, ",40,", ",80,"),
	})

	pollux := folder(t, map[string]string{"placements.csv": steps, "validation-20.csv": base})
	for _, root := range []string{sia, pollux} {
		if err := os.Rename(filepath.Join(root, "toy"), filepath.Join(root, "bert")); err != nil {
			t.Fatal(err)
		}
	}

	p, err := Read("bert", []string{sia, pollux})
	if err != nil {
		t.Fatal(err)
	}

	if len(p.kinds) != 2 || p.kinds[0].kind != "T4" || p.kinds[1].kind != "A100" || p.kinds[1].maxLocal != 80 ||
		p.Restart != 2*time.Minute {
		t.Errorf("got %+v", p)
	}

	alone, err := Read("bert", []string{pollux})
	if err != nil || alone.Restart != polluxRestart {
		t.Errorf("got %+v, %v", alone, err)
	}
}

func TestMistakesInProfiles(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no trainings":        {"placements.csv": steps},
		"no steps":            {"validation-20.csv": base},
		"no batch":            {"placements.csv": steps, "validation-x.csv": base},
		"no epoch":            {"placements.csv": steps, "validation-20.csv": "progress,grad_sqr,grad_var\n"},
		"no progress":         {"placements.csv": steps, "validation-20.csv": base + "150,3,3,1,1\n"},
		"no gradient":         {"placements.csv": steps, "validation-20.csv": base + "300,3,3,0,0\n"},
		"placement":           {"placements.csv": steps + "1x,10,1,0\n", "validation-20.csv": base},
		"step that is not":    {"placements.csv": steps + "1,10,0,0\n", "validation-20.csv": base},
		"nodes without a GPU": {"placements.csv": steps, "scalability.csv": wide + "4,2,10,1,0\n", "validation-20.csv": base},
		"missing column":      {"placements.csv": "placement,step_time\n", "validation-20.csv": base},
	} {
		if _, err := Read("toy", []string{folder(t, files)}); err == nil || fault.KindOf(err) == fault.Internal {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
