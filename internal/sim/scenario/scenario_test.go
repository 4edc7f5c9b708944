package scenario_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
	"trainyard/internal/sim/scenario"
	"trainyard/test/fuzzing"
)

func parse(t *testing.T, text string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yard", []byte(text))
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func TestAMistakeIsToldWithItsPlaceAndItsRemedy(t *testing.T) {
	t.Parallel()
	const good = "node a 2x V100\njob j gpus 1 lasts 1h\n"
	for name, c := range map[string]struct {
		text         string
		line, column int
		says         string
	}{
		"a line that means nothing":        {good + "nodes b 2x V100", 3, 1, "did you mean node?"},
		"an unknown key":                   {good + "job k gpus 1 lasst 1h", 3, 14, "did you mean lasts?"},
		"a key that comes twice":           {good + "job k gpus 1 gpus 2 lasts 1h", 3, 14, `"gpus" is given twice`},
		"a key without a value":            {good + "job k gpus 1 lasts", 3, 14, `a value is missing after "lasts"`},
		"no length of time":                {good + "job k gpus 1 lasts long", 3, 20, `value must be a duration, got "long"`},
		"a job that lasts for nothing":     {good + "job k gpus 1 lasts 0s", 3, 20, "must be greater than 0"},
		"a job without a length":           {good + "job k gpus 1", 3, 5, "neither lasts nor work and speed"},
		"a job of two lengths":             {good + "job k gpus 1 lasts 1h work 5 speed 1:1", 3, 5, "both lasts and work"},
		"a start of a job that only lasts": {good + "job k gpus 1 lasts 1h start 5s", 3, 5, "lasts together with keys that need work"},
		"a job that requests no resources": {good + "job k lasts 1h", 3, 5, "requests no resources"},
		"a late cost without a deadline":   {good + "job k gpus 1 lasts 1h late_cost $5", 3, 5, "no deadline"},
		"two jobs of one name":             {good + "job j gpus 1 lasts 1h", 3, 5, "job j is defined twice"},
		"a bad name":                       {good + "job Big gpus 1 lasts 1h", 3, 5, "invalid job name"},
		"no speed":                         {good + "job k gpus 1 work 5 speed fast", 3, 27, "invalid speed"},
		"no failure":                       {good + "job k gpus 1 lasts 1h fails 0.5:boredom", 3, 29, "invalid failure"},
		"a phase out of order":             {good + "job k gpus 1 work 9 speed 1:1 phase 5/1:2 phase 3/1:1", 3, 49, "invalid phase"},
		"two nodes of one name":            {good + "node a 1x V100", 3, 1, "node a is defined twice"},
		"too many GPUs":                    {good + "node b 99x V100", 3, 8, "1 to 64 GPUs"},
		"no kind of GPU":                   {good + "node b 4x", 3, 8, "GPU model is missing"},
		"two prices of one kind":           {good + "node b 2x V100 hourly 3", 3, 1, "the price differs from line 1"},
		"boot of what is never off":        {good + "node b 2x A100 boot 3m", 3, 1, "boot applies only to nodes"},
		"a range of names that goes back":  {good + "node b[4..2] 2x V100", 3, 6, "invalid range of names"},
		"something unknown happens":        {good + "at 5m explode a", 3, 7, `"explode" is none of`},
		"it happens to nobody":             {good + "at 5m fail", 3, 7, "missing after"},
		"chance without a rate":            {good + "random fail on a", 3, 8, "every and for are required"},
		"a workload without a rate":        {good + "workload poisson jobs 5", 3, 10, "every is required"},
		"shares that do not fit sizes":     {good + "workload poisson every 5m gpus 1,2 shares 1", 3, 10, "1 shares for 2 sizes"},
		"an open quotation mark":           {good + `node "b 2x V100`, 3, 6, "quotation mark"},
		"a parameter without a value":      {"policy fifo fast\n" + good, 1, 13, "invalid policy parameter"},
		"a mistake in a line that goes on": {good + "job k gpus 1\n    lasts long", 4, 11, `value must be a duration, got "long"`},
		"no such node":                     {good + "at 5m fail b", 0, 0, "no node is called b"},
		"no node at all":                   {"job j gpus 1 lasts 1h", 0, 0, "has no node"},
		"no job at all":                    {"node a 2x V100", 0, 0, "has no job"},
		"stillness after the end":          {good + "until 1h\nstill 1h", 0, 0, "ends before the check for further decisions"},
	} {
		_, err := scenario.Parse("bad.yard", []byte(c.text))
		var list fault.List
		if !errors.As(err, &list) || len(list) != 1 {
			t.Errorf("%s: got %v, want one mistake", name, err)
			continue
		}

		if e := list[0]; e.Line != c.line || e.Column != c.column || !strings.Contains(e.Error(), c.says) ||
			!strings.Contains(e.Message, "bad.yard") {
			t.Errorf(
				"%s: got %q at %d:%d, want %q at %d:%d in bad.yard",
				name,
				e.Error(),
				e.Line,
				e.Column,
				c.says,
				c.line,
				c.column,
			)
		}
	}
}

func TestAllMistakesOfAFileAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := scenario.Parse("bad.yard", []byte("node a 2x\njob j gpus x lasts 1h\nfoo\n"))

	var list fault.List
	if !errors.As(err, &list) || len(list) != 3 {
		t.Fatalf("got %v, want three mistakes", err)
	}
}

func TestWhatIsBelowExpectIsNotRead(t *testing.T) {
	t.Parallel()
	s := parse(
		t,
		"# Shows\n# something.\npolicy fifo\nnode a 2x V100\njob j gpus 1 lasts 1h\n\nexpect:\n  nonsense   \n\n\n",
	)

	if s.About != "Shows something." || s.Expect != "  nonsense\n" || !s.HasExpect {
		t.Errorf("about %q, expected %q", s.About, s.Expect)
	}

	if got := s.With("   0s  x\n"); !strings.HasSuffix(got, "lasts 1h\n\nexpect:\n   0s  x\n") {
		t.Errorf("with other decisions: %q", got)
	}

	if parse(t, "node a 2x V100\njob j gpus 1 lasts 1h").HasExpect {
		t.Error("a scenario without an expected part requests no resources")
	}
}

func TestNodesAreWrittenInShort(t *testing.T) {
	t.Parallel()
	s := parse(t, "node n[08..10],x reserved 2x A100:80GB cpus 8 memory 64GB\njob j gpus 1 lasts 1h")
	cfg, err := s.Config(1, 1)
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, n := range cfg.Nodes {
		names = append(names, string(n.ID))

		if n.Class != fleet.Reserved || len(n.Inventory.GPUs) != 2 || n.GPUSize() != 80<<30 || n.Inventory.CPUs != 8000 ||
			n.Inventory.Memory != 64<<30 {
			t.Errorf("%s: %+v", n.ID, n)
		}
	}

	if want := []string{"n08", "n09", "n10", "x"}; !slices.Equal(names, want) {
		t.Errorf("nodes %v, want %v", names, want)
	}
}

func TestAClusterIsWrittenInOneWord(t *testing.T) {
	t.Parallel()
	nodes, err := scenario.Cluster("2xA100:80GBx8,1xRTX6000x4,1xA100:80GBx8", "added-", fleet.Local)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, n := range nodes {
		got = append(got, fmt.Sprintf("%s %d %s %s", n.ID, len(n.Inventory.GPUs), n.Inventory.GPUs[0].Model, n.GPUSize()))
	}

	want := []string{
		"added-a100-1 8 A100 80GB",
		"added-a100-2 8 A100 80GB",
		"added-rtx6000-1 4 RTX6000 16GB",
		"added-a100-3 8 A100 80GB",
	}

	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	for _, bad := range []string{"", "8", "2xA100", "0xA100x8", "2xA100x0", "2xA100x99", "-1xA100x8", "2x:80GBx8,", "999999999xA100x8"} {
		if _, err := scenario.Cluster(bad, "", fleet.Local); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: got %v, want it refused", bad, err)
		}
	}
}

// jobsOf reads the workload of a scenario.
func jobsOf(t *testing.T, s *scenario.Scenario, load float64, seed uint64) []*sim.Job {
	t.Helper()
	cfg, err := s.Config(load, seed)
	if err != nil {
		t.Fatal(err)
	}

	var jobs []*sim.Job
	for {
		j, err := cfg.Jobs.Next()
		if errors.Is(err, io.EOF) {
			return jobs
		}

		if err != nil {
			t.Fatal(err)
		}

		jobs = append(jobs, j)
	}
}

func TestLoadBringsJobsSoonerAndKeepsTheirDeadlinesAsFar(t *testing.T) {
	t.Parallel()
	s := parse(
		t,
		"node a 2x V100\njob j at 2h gpus 1 work 5 speed 1:1 deadline 3h late_cost $5\njob k at 4h gpus 1 lasts 1h",
	)

	jobs := jobsOf(t, s, 2, 1)
	if jobs[0].At != time.Hour || jobs[1].At != 2*time.Hour {
		t.Errorf("jobs come at %s and %s, want 1h and 2h", jobs[0].At, jobs[1].At)
	}

	if due := jobs[0].Spec.Deadline.Sub(sim.Epoch()); due != 4*time.Hour {
		t.Errorf("due at %s, want three hours after its submission", due)
	}

	if again := jobsOf(t, s, 1, 1); again[0].At != 2*time.Hour || again[0].Spec.Deadline.Sub(sim.Epoch()) != 5*time.Hour {
		t.Error("the scenario itself was changed")
	}
}

func TestWorkloadsAreMixedByTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := "node a 8x V100\n"
		n := rapid.IntRange(0, 5).Draw(rt, "explicit")
		for i := range n {
			text += fmt.Sprintf("job j%d gpus 1 lasts 1m at %dm\n", i, rapid.IntRange(0, 300).Draw(rt, "at"))
		}

		loads := rapid.IntRange(1, 3).Draw(rt, "workloads")
		for range loads {
			text += fmt.Sprintf("workload poisson jobs 20 every %dm\n", rapid.IntRange(1, 30).Draw(rt, "every"))
		}

		s, err := scenario.Parse("mixed.yard", []byte(text))
		if err != nil {
			rt.Fatal(err)
		}

		jobs := jobsOf(t, s, 1, rapid.Uint64().Draw(rt, "seed"))
		if len(jobs) != n+20*loads || s.Total() != len(jobs) {
			rt.Fatalf("%d jobs, total says %d, want %d", len(jobs), s.Total(), n+20*loads)
		}

		if !slices.IsSortedFunc(jobs, func(a, b *sim.Job) int { return int(a.At - b.At) }) {
			rt.Fatal("jobs are not in order of submission")
		}
	})
}

func TestChanceComesFromTheSeed(t *testing.T) {
	t.Parallel()
	s := parse(
		t,
		"until 200h\nnode n[1..3] 2x V100\nnode late 2x V100 joins 50h\nrandom fail every 20h for 1h on n[1..3],late\njob j gpus 1 lasts 1h",
	)

	read := func(seed uint64) []sim.Change {
		cfg, err := s.Config(1, seed)
		if err != nil {
			t.Fatal(err)
		}

		var all []sim.Change

		for {
			c, err := cfg.Changes.Next()
			if errors.Is(err, io.EOF) {
				return all
			}

			if err != nil {
				t.Fatal(err)
			}

			c.Node = nil
			all = append(all, c)
		}
	}

	first := read(1)
	if !slices.Equal(first, read(1)) || slices.Equal(first, read(2)) {
		t.Error("the same seed must give the same changes, and another one others")
	}

	if !slices.IsSortedFunc(first, func(a, b sim.Change) int { return int(a.At - b.At) }) {
		t.Error("the changes are not in order of time")
	}

	down := map[string]time.Duration{}
	for _, c := range first {
		if c.ID == "late" && c.Kind != sim.NodeJoins && c.At < 50*time.Hour {
			t.Errorf("something happened to %s before it joined: %+v", c.ID, c)
		}

		switch c.Kind {
		case sim.NodeFails:
			down[string(c.ID)] = c.At
		case sim.NodeHeals:
			if c.At-down[string(c.ID)] != time.Hour {
				t.Errorf("%s was away for %s, want 1h", c.ID, c.At-down[string(c.ID)])
			}
		case sim.NodeJoins, sim.NodeReclaimed, sim.NodeUncordoned, sim.NodeCordoned:
		}
	}

	// Four nodes for 200 or 150 hours, each 21 hours a time: about 35 failures.
	if n := len(first) / 2; n < 20 || n > 55 {
		t.Errorf("%d failures in 200 hours of nodes that fail every 21 hours", n)
	}
}

func TestProvisionedNodesArePaidForWholeStretches(t *testing.T) {
	t.Parallel()
	const world = "cloud c 2x A100:40GB hourly 10,10,20 boot 5m %s\njob one gpus 1 lasts 70m\njob two at 30m gpus 1 lasts 10m\njob three at 5h gpus 2 lasts 20m\n"
	cost := func(billed string) float64 {
		s := parse(t, fmt.Sprintf(world, billed))
		r, _, err := s.Run(ordered.FIFO{})
		if err != nil {
			t.Fatal(err)
		}

		if math.Abs(r.Money-r.ByClass[fleet.OnDemand]) > 1e-9 {
			t.Errorf("%v in all, %v of the provisioned nodes", r.Money, r.ByClass[fleet.OnDemand])
		}

		return r.Money
	}

	// One GPU for 65 minutes and two for 10, with booting; then two for 25 minutes.
	used := (65*10 + 10*20 + 25*20) / 60.0
	if got := cost(""); math.Abs(got-used) > 1e-9 {
		t.Errorf("billed by the time of use it costs %v, want %v", got, used)
	}

	// 75 minutes count as two hours and 25 as one: 45 and 35 minutes more, at the least rent.
	if got, want := cost("billed 1h"), used+(45+35)*10/60.0; math.Abs(got-want) > 1e-9 {
		t.Errorf("billed by the hour it costs %v, want %v", got, want)
	}
}

// fickle moves its jobs between two nodes whenever it is asked.
type fickle struct{ ordered.FIFO }

func (fickle) Revises() bool { return true }

func (f fickle) Plan(v *place.View) place.Plan {
	plan := f.FIFO.Plan(v)

	for _, r := range v.Running {
		if r.Stopping || r.Began.Equal(v.Now) {
			continue
		}

		to := v.Rooms[0].Node.ID
		if r.Allocations[0].Node == to {
			to = v.Rooms[1].Node.ID
		}

		plan.Stops = append(plan.Stops, place.Stop{Running: r, Reason: "because"})
		plan.Starts = append(
			plan.Starts,
			place.Start{Item: r.Item, Reason: "because", Allocations: []place.Allocation{{Node: to, GPUs: 1}}},
		)
	}

	return plan
}

func TestAPolicyThatKeepsDecidingIsFound(t *testing.T) {
	t.Parallel()
	s := parse(t, "node a,b 1x V100\njob j gpus 1 work 3600 speed 1:1\nstill 10m")
	moved, err := s.StillWater(func() place.Policy { return fickle{} })
	if err != nil {
		t.Fatal(err)
	}

	if len(moved) < 10 {
		t.Errorf("asked five times more a policy that always moves its job decided %v", moved)
	}

	if moved, err := s.StillWater(func() place.Policy { return ordered.FIFO{} }); err != nil || len(moved) > 0 {
		t.Errorf("fifo decided %v (%v)", moved, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("node a 2x V100\njob j gpus 1 lasts 1h\nexpect:\nx")
	f.Add("cloud c[1..3] 8x A100:40GB hourly 1,2 lost_every 1h\nworkload andreas jobs 3 law mixed\nat 1h fail c1")

	f.Add(fuzzing.Long("node a 2x V100\n"))
	f.Add(fuzzing.Long("job j gpus "))

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		s, err := scenario.Parse("fuzz.yard", []byte(text))
		if err != nil {
			var list fault.List
			if !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("an error of another kind: %v", err)
			}

			return
		}

		if again, err := scenario.Parse("fuzz.yard", []byte(s.With(s.Expect))); err != nil || again.Expect != s.Expect ||
			again.Policy != s.Policy {
			t.Fatalf("written and read again it is another one: %v", err)
		}
	})
}
