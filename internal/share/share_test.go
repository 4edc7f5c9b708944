package share_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/share"
)

const gib = job.Bytes(1) << 30

func drawCut(rt *rapid.T, n int) share.Cut {
	c := share.Cut{
		Job:   id.NewJob(uint64(n + 1)),
		Owner: id.User(rapid.SampledFrom([]string{"ada", "bob"}).Draw(rt, "owner")),
		Class: rapid.SampledFrom([]job.ShareClass{"", job.ShareNormal, job.ShareGuaranteed, job.ShareOpportunistic}).Draw(rt, "class"),
		Share: float64(rapid.IntRange(1, 99).Draw(rt, "percent")) / 100,
		MPS:   rapid.IntRange(0, 5).Draw(rt, "mps") == 0,
	}

	if rapid.Bool().Draw(rt, "limited") {
		c.Limit = min(c.Share+float64(rapid.IntRange(0, 30).Draw(rt, "more"))/100, 1)
	}

	if rapid.Bool().Draw(rt, "capped") {
		c.Cap = job.Bytes(rapid.IntRange(1, 60).Draw(rt, "cap")) * gib
	}

	return c
}

// TestWhatIsPromisedIsThere lets jobs come and go on a GPU as Fits allows, and checks that the promises to all of them
// can be kept at any time.
func TestWhatIsPromisedIsThere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g := share.GPU{Memory: job.Bytes(rapid.SampledFrom([]int{8, 24, 80}).Draw(rt, "memory")) * gib}

		for n := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if len(g.Cuts) > 0 && rapid.IntRange(0, 3).Draw(rt, "leaves") == 0 {
				at := rapid.IntRange(0, len(g.Cuts)-1).Draw(rt, "who")
				g.Cuts = append(g.Cuts[:at:at], g.Cuts[at+1:]...)
				continue
			}

			c := drawCut(rt, n)
			if why := g.Explain(&c); (why == "") != (g.Fits(&c) == share.NoObstacle) {
				rt.Fatalf("%+v: explained by %q", c, why)
			}
			if g.Fits(&c) == share.NoObstacle {
				g.Cuts = append(g.Cuts, c)
			}

			keepsPromises(rt, &g)
		}
	})
}

func keepsPromises(rt *rapid.T, g *share.GPU) {
	caps, time := share.Reserve, 1.0
	owners, mps := map[id.User]bool{}, 0

	// The broker serves classes in order: who is served first takes up to its limit of what is left.
	normal := 0.0
	for i := range g.Cuts {
		c := &g.Cuts[i]
		caps += c.CapOn(g.Memory)
		owners[c.Owner] = true

		if c.MPS {
			mps++
		}

		switch {
		case c.Class == job.ShareGuaranteed && c.Limit > 0:
			time -= c.Limit
		case c.Class == job.ShareGuaranteed:
			time = 0
		case c.Class != job.ShareOpportunistic:
			normal += c.Share
		}
	}

	if normal > 0 && normal > max(time, 0)+1e-5 {
		rt.Fatalf("normal jobs are promised %g and %g is left for them: %+v", normal, time, g.Cuts)
	}
	if g.Held() > 1+1e-5 || len(g.Cuts) > 0 && caps > g.Memory {
		rt.Fatalf("%g of the time and %s of %s are given away: %+v", g.Held(), caps, g.Memory, g.Cuts)
	}
	if mps > 0 && (mps != len(g.Cuts) || len(owners) > 1) {
		rt.Fatalf("the fault of one ends jobs of another: %+v", g.Cuts)
	}
}

func TestWhoMayStandBesideWhom(t *testing.T) {
	t.Parallel()
	half := func(change func(*share.Cut)) share.Cut {
		c := share.Cut{Job: "j1", Owner: "ada", Share: 0.5}
		if change != nil {
			change(&c)
		}

		return c
	}

	for name, tc := range map[string]struct {
		on   share.Cut
		asks share.Cut
		want share.Obstacle
		says string
	}{
		"two halves":      {half(nil), half(nil), share.NoObstacle, ""},
		"another owner":   {half(nil), half(func(c *share.Cut) { c.Owner = "bob" }), share.NoObstacle, ""},
		"too much time":   {half(nil), half(func(c *share.Cut) { c.Share = 0.6 }), share.NoTime, "60% needed, 50% left beside j1 (ada, 50%)"},
		"too much memory": {half(nil), half(func(c *share.Cut) { c.Cap = 45 * gib }), share.NoMemory, "left beside j1"},
		"just the memory": {
			half(func(c *share.Cut) { c.Cap = 60 * gib }), half(func(c *share.Cut) { c.Cap = 19 * gib }), share.NoObstacle, "",
		},
		"without the reserve": {
			half(func(c *share.Cut) { c.Cap = 60 * gib }), half(func(c *share.Cut) { c.Cap = 20 * gib }), share.NoMemory, "memory",
		},
		"MPS of one owner": {
			half(func(c *share.Cut) { c.MPS = true }), half(func(c *share.Cut) { c.MPS = true }), share.NoObstacle, "",
		},
		"MPS of two owners": {
			half(func(c *share.Cut) { c.MPS = true }), half(func(c *share.Cut) { c.MPS, c.Owner = true, "bob" }),
			share.Faults, "fault",
		},
		"MPS beside none": {half(nil), half(func(c *share.Cut) { c.MPS = true }), share.Faults, "fault"},
		"guaranteed without a limit": {
			half(nil), half(func(c *share.Cut) { c.Class = job.ShareGuaranteed }), share.Starves, "limit",
		},
		"guaranteed with a limit": {
			half(nil), half(func(c *share.Cut) { c.Class, c.Limit = job.ShareGuaranteed, 0.5 }), share.NoObstacle, "",
		},
		"guaranteed beside opportunistic": {
			half(func(c *share.Cut) { c.Class = job.ShareOpportunistic }),
			half(func(c *share.Cut) { c.Class = job.ShareGuaranteed }),
			share.NoObstacle, "",
		},
		"a whole GPU":             {half(nil), half(func(c *share.Cut) { c.Share = 1 }), share.BadShare, "cannot be cut"},
		"less than its share":     {half(nil), half(func(c *share.Cut) { c.Limit = 0.3 }), share.BadShare, "cannot be cut"},
		"neither more nor less":   {half(nil), half(func(c *share.Cut) { c.Share = math.NaN() }), share.BadShare, ""},
		"a limit at its share":    {half(nil), half(func(c *share.Cut) { c.Limit = 0.5 }), share.NoObstacle, ""},
		"a small opportunist":     {half(nil), half(func(c *share.Cut) { c.Class, c.Share = job.ShareOpportunistic, 0.1 }), 0, ""},
		"no share beyond a whole": {half(nil), half(func(c *share.Cut) { c.Class, c.Share = job.ShareOpportunistic, 0.7 }), share.NoTime, "left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := share.GPU{Memory: 80 * gib, Cuts: []share.Cut{tc.on}}
			if got := g.Fits(&tc.asks); got != tc.want {
				t.Errorf("obstacle %d, want %d", got, tc.want)
			}
			if says := g.Explain(&tc.asks); !strings.Contains(says, tc.says) || (says == "") != (tc.want == share.NoObstacle) {
				t.Errorf("explained by %q, want %q", says, tc.says)
			}
		})
	}
}

func TestAsManyJobsAsCanShare(t *testing.T) {
	t.Parallel()
	g := share.GPU{Memory: 80 * gib}
	for n := range share.MaxCuts {
		g.Cuts = append(g.Cuts, share.Cut{Job: id.NewJob(uint64(n + 1)), Owner: "ada", Share: 0.01})
	}

	one := share.Cut{Share: 0.01}
	if g.Fits(&one) != share.Crowded || !strings.Contains(g.Explain(&one), "32 jobs") {
		t.Errorf("one more is explained by %q", g.Explain(&one))
	}
	if names := share.Names(g.Cuts); !strings.Contains(names, "29 more") {
		t.Errorf("they are called %q", names)
	}

	// A job that does not say how much memory it needs gets enough for a context, however small its share is.
	if got := one.CapOn(16 * gib); got != gib {
		t.Errorf("one hundredth of 16 GiB is capped at %s", got)
	}
}

func TestFragments(t *testing.T) {
	t.Parallel()
	w := share.NewWorkload(map[share.Demand]int{
		{GPUs: 0.5, CPUs: 1000}: 2, {GPUs: 1, CPUs: 1000}: 1, {GPUs: 2, CPUs: 1000}: 1, {CPUs: 1000}: 100,
	})

	for name, tc := range map[string]struct {
		host share.Host
		want float64
	}{
		"empty":                 {share.Host{Left: []float64{1, 1}, CPUs: 4000}, 0},
		"half of one":           {share.Host{Left: []float64{0.5, 1}, CPUs: 4000}, (0.5 + 1.5) / 4},
		"too little for all":    {share.Host{Left: []float64{0.3, 0.3}, CPUs: 4000}, 0.6},
		"no CPUs left":          {share.Host{Left: []float64{1, 1}, CPUs: 500}, 2},
		"nothing left":          {share.Host{Left: []float64{0, 0}, CPUs: 4000}, 0},
		"one of the two is out": {share.Host{Left: []float64{1, 0}, CPUs: 4000}, 1. / 4},
	} {
		if got := w.Fragments(&tc.host); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", name, got, tc.want)
		}
	}

	if got := share.NewWorkload(nil).Fragments(&share.Host{Left: []float64{1}}); got != 0 {
		t.Errorf("without jobs there are %g fragments", got)
	}
}

// TestFragmentsAreAPartOfWhatIsLeft: no more than all that is left can be of no use, and what one could use
// is still of use when somebody leaves.
func TestFragmentsAreAPartOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		jobs := map[share.Demand]int{}
		for range rapid.IntRange(1, 60).Draw(rt, "demands") {
			gpus := float64(rapid.IntRange(1, 8).Draw(rt, "gpus"))
			if rapid.Bool().Draw(rt, "shares") {
				gpus = float64(rapid.IntRange(1, 99).Draw(rt, "percent")) / 100
			}

			jobs[share.Demand{GPUs: gpus, CPUs: job.CPUs(rapid.IntRange(0, 8).Draw(rt, "cpus") * 1000)}]++
		}

		w := share.NewWorkload(jobs)
		h := share.Host{CPUs: job.CPUs(rapid.IntRange(0, 16).Draw(rt, "host cpus") * 1000)}
		left := 0.0
		for range rapid.IntRange(1, 8).Draw(rt, "host gpus") {
			part := float64(rapid.IntRange(0, 100).Draw(rt, "left")) / 100
			h.Left = append(h.Left, part)
			left += part
		}

		before := w.Fragments(&h)
		if before < -1e-9 || before > left+1e-9 {
			rt.Fatalf("%g of %g are fragments", before, left)
		}

		if more := (share.Host{Left: h.Left, CPUs: h.CPUs + 64000, Memory: h.Memory}); w.Fragments(&more) > before+1e-9 {
			rt.Fatalf("more CPUs make more fragments: %g, %g", before, w.Fragments(&more))
		}

		at := rapid.IntRange(0, len(h.Left)-1).Draw(rt, "gpu")
		d := share.Demand{GPUs: h.Left[at] * rapid.Float64Range(0, 1).Draw(rt, "part")}
		text := fmt.Sprint(h)
		cost := w.Cost(&h, before, at, &d)

		if fmt.Sprint(h) != text {
			rt.Fatalf("the host was %s and is %v", text, h)
		}
		if empty := float64(h.Free()); cost.Waste > left+empty+1e-9 || cost.Waste < -left-1e-9 {
			rt.Fatalf("a cut of %g wastes %g", d.GPUs, cost.Waste)
		}
		if cost.Compare(cost) != 0 {
			rt.Fatalf("%+v is not itself", cost)
		}
	})
}

func TestACutGoesWhereItLeavesTheLeastUseless(t *testing.T) {
	t.Parallel()
	w := share.NewWorkload(map[share.Demand]int{{GPUs: 0.5}: 1, {GPUs: 1}: 1})
	half := share.Demand{GPUs: 0.5}

	h := share.Host{Left: []float64{1, 0.5, 0.7}}
	before := w.Fragments(&h)
	whole, tight, loose := w.Cost(&h, before, 0, &half), w.Cost(&h, before, 1, &half), w.Cost(&h, before, 2, &half)

	if tight.Compare(whole) >= 0 || tight.Compare(loose) >= 0 {
		t.Errorf("the half that is left costs %+v, a free GPU %+v, another that is shared %+v", tight, whole, loose)
	}

	hungry, frugal := tight, tight
	hungry.Watts = 300
	if frugal.Compare(hungry) >= 0 || tight.Compare(share.Cost{Waste: tight.Waste + 0.1}) >= 0 {
		t.Error("waste counts first, and then energy")
	}
}

func TestWholeGPUsAreTakenWhereTheyLeaveTheLeastUseless(t *testing.T) {
	t.Parallel()
	w := share.NewWorkload(map[share.Demand]int{{GPUs: 0.5, CPUs: 8000}: 1})

	cost := func(w *share.Workload, cpus job.CPUs, left ...float64) float64 {
		return w.Whole(&share.Host{Left: left, CPUs: cpus}, 1, 4000, 0)
	}

	if used, empty := cost(w, 16000, 0, 1), cost(w, 16000, 1, 1); used >= empty {
		t.Errorf("the last GPU of a node costs %g, the first %g", used, empty)
	}
	if tight, loose := cost(w, 8000, 0.5, 1), cost(w, 16000, 1, 1); tight <= loose {
		t.Errorf("half a GPU without CPUs costs %g, a GPU of an empty node %g", tight, loose)
	}

	nothing := share.NewWorkload(nil)
	if tight, loose := cost(nothing, 8000, 0.5, 1), cost(nothing, 16000, 1, 1); tight >= loose {
		t.Errorf("where nobody wants anything, half a GPU without CPUs costs %g, a GPU of an empty node %g", tight, loose)
	}
}

var day = time.Unix(1_800_000_000, 0)

func TestInterferenceIsLearned(t *testing.T) {
	t.Parallel()
	var none *share.Interference
	neighbour := []share.Cut{{Kind: "llm"}}
	if got := none.Speed(day, "resnet", neighbour); got < 0.9 || got > 1 || none.Parted(day, "a", "b") {
		t.Errorf("with nothing known a job is expected at %g", got)
	}

	x := share.NewInterference()
	before := x.Speed(day, "resnet", neighbour)
	x.Observe(day, "resnet", "llm", 0.5)
	once := x.Speed(day, "resnet", neighbour)

	for range 50 {
		x.Observe(day, "resnet", "llm", 0.5)
	}

	often := x.Speed(day, "resnet", neighbour)
	if !(before > once && once > often) || math.Abs(often-0.5) > 0.05 {
		t.Errorf("expected at %g, after one observation of 0.5 at %g, after many at %g", before, once, often)
	}

	// What is known of a job beside one neighbour says something about it beside another, and nothing about others.
	if other := x.Speed(day, "resnet", []share.Cut{{Kind: "gnn"}}); other >= before || other < often {
		t.Errorf("beside another neighbour it is expected at %g", other)
	}
	if got := x.Speed(day, "llm", []share.Cut{{Kind: "resnet"}}); got != before {
		t.Errorf("the neighbour is expected at %g, want %g", got, before)
	}
	if two := x.Speed(day, "resnet", append(neighbour, neighbour...)); two >= often {
		t.Errorf("beside two it is expected at %g, beside one at %g", two, often)
	}
}

// A job that got more than its share beside one, because that one was idle, is not expected to get more beside others,
// and is parted from who slows it down all the same.
func TestWhatOthersLeaveIsNotExpected(t *testing.T) {
	t.Parallel()
	x := share.NewInterference()

	for range 100 {
		x.Observe(day, "resnet", "idle", 2)
	}

	idle := share.Cut{Kind: "idle"}
	if got := x.Speed(day, "resnet", []share.Cut{idle, idle, idle}); got > 1 {
		t.Errorf("beside three idle jobs it is expected at %g", got)
	}

	for range 10 {
		x.Observe(day, "resnet", "llm", 0.4)
	}

	if !x.Parted(day, "resnet", "llm") {
		t.Error("what it got beside others hides that it does badly")
	}
}

// As many pairs are kept as there may be: who comes new takes the place of those that faded, or else of the one of
// which the least counts.
func TestForgottenPairsMakeRoom(t *testing.T) {
	t.Parallel()
	x := share.NewInterference()
	add := func(now time.Time, from, to int) (forgotten []string) {
		for n := from; n < to; n++ {
			forgotten = append(forgotten, x.Observe(now, fmt.Sprint("k", n), "llm", 0.9)...)
		}

		return forgotten
	}

	if gone := add(day, 0, 4096); len(gone) > 0 {
		t.Fatalf("%q are forgotten although there is room", gone)
	}

	// Of all but the first two are seen again, so the oldest and of these the first goes: with what is known of its kind.
	later := day.Add(24 * time.Hour)
	add(later, 2, 4096)

	if gone := add(later, 4096, 4097); !slices.Equal(gone, []string{"k0\n", "k0\nllm"}) {
		t.Errorf("%q are forgotten", gone)
	}

	if text, err := json.Marshal(x); err != nil || strings.Contains(string(text), `"k0"`) || !strings.Contains(string(text), `"k4096"`) {
		t.Errorf("the first is kept, or the last is not: %v", err)
	}

	if gone := add(day.Add(365*24*time.Hour), 5000, 5001); len(gone) != 2*4096 {
		t.Errorf("after a year %d records are forgotten, want all", len(gone))
	}
}

func TestBadPairsArePartedAndTriedAgain(t *testing.T) {
	t.Parallel()
	x := share.NewInterference()

	x.Observe(day, "resnet", "llm", 0.1)
	if x.Parted(day, "resnet", "llm") {
		t.Error("parted after one observation")
	}

	for range 10 {
		x.Observe(day, "resnet", "llm", 0.3)
	}

	cuts := []share.Cut{{Job: "j1", Kind: "llm", Share: 0.5}, {Job: "j2", Kind: "gnn"}, {Job: "j3", Kind: "resnet", Share: 0.3}}
	if !x.Parted(day, "llm", "resnet") || x.PartedFrom(day, "resnet", cuts) != &cuts[0] || x.Leaving(day, cuts) != 2 {
		t.Errorf("parted %t, from %v, leaving %d", x.Parted(day, "llm", "resnet"), x.PartedFrom(day, "resnet", cuts), x.Leaving(day, cuts))
	}

	cuts[2].Class = job.ShareGuaranteed
	if x.Leaving(day, cuts) != 0 {
		t.Error("a guaranteed job leaves for a normal one")
	}

	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}

	read := share.NewInterference()
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(read); string(again) != string(text) || !read.Parted(day, "llm", "resnet") {
		t.Errorf("read back as %s, was %s", again, text)
	}

	// A little better is not enough to stand together again, and a little worse was not enough to be parted.
	for x.Speed(day, "resnet", cuts[:1]) < 0.75 {
		x.Observe(day, "resnet", "llm", 0.9)
	}

	if !x.Parted(day, "resnet", "llm") {
		t.Error("they go back and forth")
	}

	later := day.Add(90 * 24 * time.Hour)
	if x.Parted(later, "resnet", "llm") || x.Leaving(later, cuts) >= 0 {
		t.Error("what was seen three months ago still parts them")
	}
}

// TestExpectedSpeedIsBetweenWhatWasSeenAndWhatIsUsual for every order of observations.
func TestExpectedSpeedIsBetweenWhatWasSeenAndWhatIsUsual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		x := share.NewInterference()
		low, high := 0.97, 0.97
		now := day

		for range rapid.IntRange(1, 50).Draw(rt, "observations") {
			now = now.Add(time.Duration(rapid.IntRange(-10, 100).Draw(rt, "hours")) * time.Hour)
			speed := rapid.Float64Range(-0.5, 3).Draw(rt, "speed")
			a, b := rapid.SampledFrom([]string{"a", "b", ""}).Draw(rt, "job"), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "beside")
			x.Observe(now, a, b, speed)

			if speed > 0 && a != "" {
				low, high = min(low, max(speed, 0.01)), max(high, min(speed, 1))
			}

			if got := x.Speed(now, a, []share.Cut{{Kind: b}}); got < low-1e-9 || got > high+1e-9 {
				rt.Fatalf("expected at %g, seen between %g and %g", got, low, high)
			}
			if x.Parted(now, a, b) != x.Parted(now, b, a) {
				rt.Fatal("one is parted from the other, and the other not from the one")
			}
		}
	})
}
