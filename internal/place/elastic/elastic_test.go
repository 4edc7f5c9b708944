package elastic_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/elastic"
	"trainyard/internal/place/placetest"
)

// elasticJob is a job of 1 to most GPUs with these rates.
func elasticJob(most int, work float64, rates ...float64) placetest.Job {
	return placetest.Job{Spec: placetest.UpTo(most), Speed: placetest.Curve(work, rates...)}
}

// TestCounts gives each rule a node of eight GPUs and jobs that all come at once,
// and looks at how many GPUs each gets.
func TestCounts(t *testing.T) {
	t.Parallel()
	linear := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	poor := []float64{1, 1.2, 1.3, 1.35, 1.4, 1.42, 1.44, 1.45}
	good, bad := elasticJob(8, 1000, linear...), elasticJob(8, 1000, poor...)
	long := elasticJob(8, 9000, linear...)
	rigid := func(n int) placetest.Job { return placetest.Job{Spec: placetest.GPUs(n), Lasts: time.Hour} }

	atLeast := func(n int) placetest.Job { // runs on n to 8 GPUs
		rates := make([]float64, 8)
		for i := n - 1; i < 8; i++ {
			rates[i] = float64(i + 1)
		}

		return elasticJob(8, 1000, rates...)
	}

	for name, tc := range map[string]struct {
		policy string
		jobs   []placetest.Job
		want   []int
	}{
		"elastic-fifo: in turns":                                {"elastic-fifo", []placetest.Job{good, good, good}, []int{3, 3, 2}},
		"elastic-fifo: who has no least gets nothing":           {"elastic-fifo", []placetest.Job{rigid(4), atLeast(6), good}, []int{4, 0, 4}},
		"elastic-fifo: no more than can be used":                {"elastic-fifo", []placetest.Job{elasticJob(8, 9, 1, 2), good}, []int{2, 6}},
		"elastic-fifo: one that does not fit is passed":         {"elastic-fifo", []placetest.Job{rigid(6), rigid(4), rigid(2)}, []int{6, 0, 2}},
		"elastic-srjf: the least to the shortest":               {"elastic-srjf", []placetest.Job{rigid(6), elasticJob(8, 900, 0, 0, 0, 0, 5), good}, []int{0, 5, 3}},
		"equal-share: the same for all":                         {"equal-share", []placetest.Job{good, bad, long}, []int{4, 2, 2}},
		"equal-share: when the share is just the least":         {"equal-share", []placetest.Job{atLeast(4), atLeast(4)}, []int{4, 4}},
		"equal-share: a least above the share":                  {"equal-share", []placetest.Job{good, atLeast(6), good}, []int{1, 6, 1}},
		"equal-share: who finds no least waits":                 {"equal-share", []placetest.Job{atLeast(6), atLeast(6), good}, []int{6, 0, 2}},
		"ffdl: where they bring most":                           {"ffdl", []placetest.Job{bad, good}, []int{1, 7}},
		"ffdl: everyone its least":                              {"ffdl", []placetest.Job{bad, atLeast(4), bad}, []int{1, 6, 1}},
		"afs-l: the shorter first, then where it shortens most": {"afs-l", []placetest.Job{bad, good}, []int{1, 7}},
		"afs-l: the first step is the least":                    {"afs-l", []placetest.Job{atLeast(6), rigid(8)}, []int{8, 0}},
		"edl: who starts leaves half of what is free":           {"edl", []placetest.Job{elasticJob(8, 9, 1, 2, 3, 4), good}, []int{4, 2}},
		"tiresias: what each wants":                             {"tiresias", []placetest.Job{bad, good}, []int{2, 0}}, // 1.2/2 is more than half, 1.3/3 is not
		"elastic-tiresias: what is left to who gains most":      {"elastic-tiresias", []placetest.Job{bad, good}, []int{2, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			c.Box("a", 8)
			w := placetest.NewWorld(c, placetest.Policy(tc.policy))

			for _, j := range tc.jobs {
				c.Add(j)
			}

			w.Round(t)

			if diff := cmp.Diff(tc.want, w.Counts()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestGrowingAndShrinking has one job that has everything, and another that comes.
func TestGrowingAndShrinking(t *testing.T) {
	t.Parallel()
	linear := []float64{1, 2, 3, 4}
	for _, name := range []string{"elastic-fifo", "elastic-srjf", "equal-share", "ffdl", "afs-l", "edl"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			c.Box("a", 4)
			w := placetest.NewWorld(c, placetest.Policy(name))
			c.Add(elasticJob(4, 7200, linear...))
			w.Round(t)

			for w.Step(t, placetest.Start.Add(10*time.Minute)) {
				continue
			}

			c.Add(elasticJob(4, 600, linear...))
			w.Round(t)

			if got := w.Counts(); got[0]+got[1] != 4 || got[1] == 0 || got[0] == 0 && name != "afs-l" {
				t.Errorf("when the second has come they have %v", got)
			}

			w.Live(t)

			if len(w.Ended) != 2 {
				t.Fatalf("%d jobs ended", len(w.Ended))
			}

			// Nothing is lost by growing and shrinking: 7,800 units at 4 a second take 1,950 s
			// if all four GPUs are busy all the time. Some are not for half a minute after
			// somebody came or something was changed.
			if took := w.Ended["j1"].Sub(placetest.Start); took < 1950*time.Second || took > 2010*time.Second {
				t.Errorf("the first ended after %v", took)
			}

			if w.Stops > 4 {
				t.Errorf("%d stops for two changes", w.Stops)
			}
		})
	}
}

// TestRunningJobsAreLeftAloneForAWhile submits a job every few seconds: running jobs are not
// changed for each of them, and new jobs start on free GPUs.
func TestRunningJobsAreLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 4)
	w := placetest.NewWorld(c, placetest.Policy("elastic-fifo"))
	linear := []float64{1, 2, 3, 4}
	c.Add(elasticJob(4, 1e6, linear...))
	w.Round(t)
	w.Step(t, c.Now.Add(time.Second))
	c.Add(elasticJob(4, 1e6, linear...))
	w.Round(t) // the first shrinks
	stops := w.Stops

	for range 3 {
		w.Step(t, c.Now.Add(5*time.Second))
		c.Add(elasticJob(4, 1e6, linear...))
		w.Round(t)
	}

	if w.Stops != stops {
		t.Errorf("%d more stops within 15 seconds", w.Stops-stops)
	}

	w.Step(t, c.Now.Add(15*time.Second))

	if got := w.Counts(); !slices.Equal(got, []int{1, 1, 1, 1, 0}) {
		t.Errorf("half a minute later they have %v", got)
	}
}

// TestEDLWithAPeriod changes running jobs at the half minute, as published.
func TestEDLWithAPeriod(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 4)
	w := placetest.NewWorld(c, elastic.EDLAsPublished(30*time.Second))
	linear := []float64{1, 2, 3, 4}
	c.Now = c.Now.Add(10 * time.Second)
	c.Add(elasticJob(4, 1e6, linear...))
	w.Round(t)

	if got := w.Counts(); !slices.Equal(got, []int{1}) {
		t.Errorf("between two looks it has %v, want its least", got)
	}

	w.Step(t, placetest.Start.Add(time.Hour))

	if got := w.Counts(); !slices.Equal(got, []int{4}) || !c.Now.Equal(placetest.Start.Add(30*time.Second)) {
		t.Errorf("at %s it has %v", c.Now.Sub(placetest.Start), got)
	}

	c.Now = c.Now.Add(time.Second)
	c.Add(elasticJob(4, 1e6, linear...))
	w.Round(t)

	if got := w.Counts(); !slices.Equal(got, []int{4, 0}) {
		t.Errorf("before the next look they have %v", got)
	}

	w.Step(t, placetest.Start.Add(time.Hour))

	if got := w.Counts(); !slices.Equal(got, []int{3, 1}) || !c.Now.Equal(placetest.Start.Add(time.Minute)) {
		t.Errorf("at %s they have %v", c.Now.Sub(placetest.Start), got)
	}
}

// TestEDLBringsJobsToTheSameFulfilment has two jobs at one run of the autoscaler.
func TestEDLBringsJobsToTheSameFulfilment(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 8)
	w := placetest.NewWorld(c, elastic.EDLAsPublished(30*time.Second))
	c.Add(elasticJob(8, 9, 1, 2, 3, 4))
	c.Add(elasticJob(8, 9, 1, 2, 3, 4, 5, 6, 7, 8))
	w.Round(t)

	if got := w.Counts(); !slices.Equal(got, []int{3, 5}) { // 2/3 and 4/7
		t.Errorf("they have %v", got)
	}
}

// TestEDLKeepsRoomForWhoKeepsComing submits a job every ten seconds: each starts at once, and when
// no more arrive all GPUs are used.
func TestEDLKeepsRoomForWhoKeepsComing(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	for _, n := range []string{"a", "b", "c", "d"} {
		c.Box(n, 8)
	}

	w := placetest.NewWorld(c, placetest.Policy("edl"))

	linear := make([]float64, 16)
	for i := range linear {
		linear[i] = float64(i + 1)
	}

	for i := range 10 {
		c.Add(elasticJob(8, 1e6, linear...))
		w.Round(t)

		if len(c.Runs) != i+1 {
			t.Fatalf("job %d waits: they have %v", i+1, w.Counts())
		}

		if kept := 32 - sum(w.Counts()); kept < min(i, 5) { // six come in a minute, one after the other
			t.Fatalf("when job %d has come %d GPUs are kept: they have %v", i+1, kept, w.Counts())
		}

		for until := c.Now.Add(10 * time.Second); w.Step(t, until); {
			continue
		}
	}

	for until := c.Now.Add(5 * time.Minute); w.Step(t, until); {
		continue
	}

	if got := w.Counts(); sum(got) < 31 {
		t.Errorf("of 32 GPUs they have %v", got)
	}

	if w.Stops > 20 {
		t.Errorf("%d stops for ten jobs", w.Stops)
	}
}

func sum(list []int) int {
	n := 0
	for _, k := range list {
		n += k
	}

	return n
}

func TestTiresiasPromotesWhoHasWaitedLong(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 1)
	w := placetest.NewWorld(c, placetest.Policy("tiresias"))
	c.Add(placetest.Lasting(100*time.Hour, 1))
	var turns []id.Job
	w.After = func(p place.Plan) {
		for _, s := range p.Starts {
			turns = append(turns, s.Item.Job)
		}
	}

	w.Round(t)

	// A new job of half an hour comes as often as one ends: the first has had its
	// hour and would wait for ever.
	for i := range 40 {
		c.Add(placetest.Lasting(30*time.Minute, 1))

		for until := placetest.Start.Add(time.Hour + time.Duration(i+1)*30*time.Minute); w.Step(t, until); {
			continue
		}
	}

	again := slices.Index(turns[1:], "j1")
	if again < 0 {
		t.Fatalf("the first job never had another turn: %v", turns)
	}

	// It is in the first queue again after eight hours of waiting, for one more hour.
	if again < 15 || again > 18 {
		t.Errorf("it had another turn after %d others", again)
	}
}

// TestFfDLIsOptimal compares the sum of the speed-ups with that of every other way
// to share out.
func TestFfDLIsOptimal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := placetest.NewCluster()
		total := rapid.IntRange(1, 8).Draw(t, "GPUs")
		c.Box("a", total)
		w := placetest.NewWorld(c, placetest.Policy("ffdl"))

		var rates [][]float64
		for range rapid.IntRange(1, min(3, total)).Draw(t, "jobs") {
			list := make([]float64, rapid.IntRange(1, 6).Draw(t, "most"))
			for i := range list {
				list[i] = rapid.Float64Range(0.1, 10).Draw(t, "rate")
			}

			rates = append(rates, list)
			c.Add(elasticJob(8, 100, list...))
		}

		w.Round(t)

		sum := 0.0
		for i, n := range w.Counts() {
			if n == 0 {
				t.Fatalf("job %d has nothing", i+1)
			}

			sum += rates[i][n-1] / rates[i][0]
		}

		if best := bestSum(rates, total); math.Abs(sum-best) > 1e-9*best {
			t.Fatalf("the speed-ups add up to %g, and could to %g", sum, best)
		}
	})
}

func bestSum(rates [][]float64, gpus int) float64 {
	if len(rates) == 0 {
		return 0
	}

	best := math.Inf(-1)
	for n := 1; n <= len(rates[0]) && n <= gpus-(len(rates)-1); n++ {
		best = max(best, rates[0][n-1]/rates[0][0]+bestSum(rates[1:], gpus-n))
	}

	return best
}

// TestKindsAreSharedOut has two kinds of node: jobs go to the less loaded kind, and a job measured
// on one kind goes there.
func TestKindsAreSharedOut(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 2)
	l4 := fleet.GPU{Model: "NVIDIA L4", Memory: 24 << 30}
	c.Node("b", fleet.Local, 64000, 1<<40, l4, l4)
	w := placetest.NewWorld(c, placetest.Policy("elastic-fifo"))
	only := job.NewSpeed(100, 0, 0, job.Rate{GPU: "L4", GPUs: 1, PerSecond: 1}, job.Rate{GPU: "L4", GPUs: 2, PerSecond: 2})
	c.Add(placetest.Job{Spec: placetest.UpTo(2), Speed: only})
	c.Add(placetest.Job{Spec: placetest.UpTo(2)})
	c.Add(placetest.Job{Spec: job.Resources{CPUs: 1000}}) // wants no GPU and is not in anybody's way

	p := w.Round(t)
	if diff := cmp.Diff([]id.Node{"b"}, placetest.Where(p, "j1")); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff([]id.Node{"a"}, placetest.Where(p, "j2")); diff != "" {
		t.Error(diff)
	}

	if got := w.Counts(); !slices.Equal(got, []int{2, 2, 0}) || len(placetest.Where(p, "j3")) != 1 {
		t.Errorf("they have %v", got)
	}
}

// TestAJobThatFindsNoNodeIsInNobodysWay has one GPU free on each of two nodes, and a job that needs
// two on one node.
func TestAJobThatFindsNoNodeIsInNobodysWay(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 2)
	c.Box("b", 2)
	w := placetest.NewWorld(c, placetest.Policy("elastic-fifo"))

	for _, n := range []id.Node{"a", "b"} {
		it := c.Add(placetest.Job{Spec: placetest.GPUs(1), Stuck: true})
		c.Book(place.Start{Item: it, Allocations: []place.Allocation{{Node: n, GPUs: 1}}})
	}

	c.Add(placetest.Job{Spec: placetest.GPUs(2)})
	c.Add(placetest.Job{Spec: placetest.GPUs(1)})

	if diff := cmp.Diff([]id.Job{"j4"}, placetest.Started(w.Round(t))); diff != "" {
		t.Error(diff)
	}
}

// TestBitsHereAndThereAreOfNoUse has one GPU free on each of two nodes, and a job that needs two on
// one node: running jobs shrink for it, although two GPUs are free.
func TestBitsHereAndThereAreOfNoUse(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 3)
	c.Box("b", 3)
	w := placetest.NewWorld(c, placetest.Policy("edl"))

	for _, n := range []id.Node{"a", "b"} {
		it := c.Add(elasticJob(2, 1e6, 1, 2))
		c.Book(place.Start{Item: it, Allocations: []place.Allocation{{Node: n, GPUs: 3}}})
	}

	c.Now = c.Now.Add(10 * time.Minute)
	c.Add(placetest.Job{Spec: placetest.GPUs(2)})

	if p := w.Round(t); !slices.Contains(placetest.Started(p), "j3") || len(p.Stops) == 0 {
		t.Errorf("it starts %v: they have %v", placetest.Started(p), w.Counts())
	}
}

func TestReasonsOfElasticPolicies(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	c.Box("a", 2)
	w := placetest.NewWorld(c, placetest.Policy("equal-share"))
	c.Add(elasticJob(2, 1000, 1, 2))
	first := w.Round(t)
	c.Now = c.Now.Add(time.Minute)
	c.Add(elasticJob(2, 1000, 1, 2))
	second := w.Round(t)
	got := []string{first.Starts[0].Reason, second.Stops[0].Reason, second.Starts[1].Reason}

	want := []string{
		"starts on 2 GPUs: every job gets the same number of GPUs",
		"resized from 2 to 1 GPU: every job gets the same number of GPUs; released GPUs go to j2",
		"starts on 1 GPU: every job gets the same number of GPUs",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
