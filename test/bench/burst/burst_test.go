package burst

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/place/rules"
)

// fortnight returns the window of the reference runs, or skips.
func fortnight(t *testing.T) *window {
	t.Helper()
	dir := os.Getenv("TRAINYARD_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}

	list, err := load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the public traces are not here: %v", err)
	}

	if err != nil {
		t.Fatal(err)
	}

	w := newStudy(false).window
	if err := w.cut(list); err != nil {
		t.Fatal(err)
	}

	return w
}

func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()

	if math.Abs(got-want) > share*want {
		t.Errorf("%s is %.5g, want %.5g", what, got, want)
	}
}

// The rows that Starburst's own simulator came to on this input.
func TestPublishedRowsComeOut(t *testing.T) {
	w := fortnight(t)
	if len(w.tasks) != 17_279 {
		t.Fatalf("the window has %d jobs", len(w.tasks))
	}

	for _, c := range []struct {
		trial                  *trial
		cloud, mean, wait, p99 float64
	}{
		{theirs(w, never, false, -1), 0, 73.87, 71.08, 0},
		{theirs(w, zero, false, -1), 56_621, 2.792, 0, 37.58},
		{theirs(w, constant(1), false, -1), 50_833, 3.388, 0.596, 0},
		{theirs(w, byCost(0.076), true, 30), 31_172, 2.958, 0.166, 42.7},
	} {
		if err := c.trial.run(); err != nil {
			t.Fatal(err)
		}

		near(t, c.trial.rule+": cloud", c.trial.cloud, c.cloud, 2e-5)
		near(t, c.trial.rule+": mean", c.trial.mean, c.mean, 2e-4)
		near(t, c.trial.rule+": wait", c.trial.wait, c.wait, 2e-3)

		if c.p99 > 0 {
			near(t, c.trial.rule+": p99", c.trial.p99, c.p99, 2e-3)
		}
	}
}

// crowd draws a small window with more work than its nodes can do.
func crowd(t *rapid.T, sizes ...int) *window {
	w := &window{name: "drawn", nodes: rapid.IntRange(2, 3).Draw(t, "nodes")}
	chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))

	now := time.Duration(0)
	for i := range rapid.IntRange(20, 120).Draw(t, "tasks") {
		now += time.Duration(chance.ExpFloat64()*900) * time.Second
		lasts := time.Duration(60+math.Exp(chance.NormFloat64()*1.5)*7200) * time.Second
		w.tasks = append(w.tasks, newTask(i, now, lasts, sizes[chance.IntN(len(sizes))], "someone"))
	}

	return w
}

func TestNoScheduleIsBelowTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := crowd(t, 1, 2, 3, 4, 6, 8, 12, 16) // some leave room on the nodes that are provisioned for them
		worth := rapid.SampledFrom([]float64{0.5, 2, 8}).Draw(t, "worth")
		ours, seats, err := yardRun{worth: worth, bare: true}.run(w)
		if err != nil {
			t.Fatal(err)
		}

		seer, err := clairvoyant(w, seats, worth, 30)
		if err != nil {
			t.Fatal(err)
		}

		list := map[string]outcome{
			"ours":        ours,
			"clairvoyant": seer,
			"theirs":      published{byCost(0.1).hours, true, 30}.run(w),
			"burst":       published{zero.hours, false, -1}.run(w),
		}

		b := bounds(w, []float64{8, 2, 0.5}, 40)
		for name, o := range list {
			if least := b.at(o.mean); o.cloud < least-1e-6*work(w.tasks) {
				t.Errorf("%s needs %.3f GPU-h at %.3f h, and nothing can need less than %.3f", name, o.cloud, o.mean, least)
			}
		}
	})
}

// The cloud cost of the simulator is the cost of the jobs that ran there.
func TestCloudIsPaidForAsLongAsItWorks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := crowd(t, 1, 2, 4, 8, 16)
		o, seats, err := yardRun{worth: 4, bare: true}.run(w)
		if err != nil {
			t.Fatal(err)
		}

		cloud := work(w.tasks)
		for _, s := range seats {
			cloud -= float64(s.gpus) * w.tasks[s.task].run
		}

		// A node may be idle before and after its job, and one whose job found a local node at the same moment is kept for
		// the minute in which the job is expected there.
		spare := float64(len(w.tasks)) * perNode * (2*idle + time.Minute).Hours()
		if o.cloud < cloud-1e-6 || o.cloud > cloud+spare+1e-6 {
			t.Errorf("the cloud costs %.6f for work of %.6f GPU-h", o.cloud, cloud)
		}
	})
}

func TestFrontierHasOnlyWhatNothingBeats(t *testing.T) {
	f := frontier([]point{{3, 10}, {1, 30}, {2, 40}, {2, 20}, {4, 10}})
	for _, c := range []struct{ x, want float64 }{{1, 30}, {1.5, 25}, {2, 20}, {2.5, 15}, {3, 10}, {9, 10}} {
		if got := at(f, c.x); got != c.want {
			t.Errorf("at %v: %v, want %v", c.x, got, c.want)
		}
	}

	if got := at(f, 0.5); !math.IsNaN(got) {
		t.Errorf("left of all points: %v", got)
	}
}

func TestProfileBooksAndGivesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := profile{{0, perNode}}
		type taken struct {
			start, run time.Duration
			gpus       int
		}

		var list []taken

		for range rapid.IntRange(1, 30).Draw(t, "bookings") {
			k := taken{run: time.Duration(rapid.IntRange(1, 9).Draw(t, "run")), gpus: rapid.IntRange(1, perNode).Draw(t, "gpus")}
			k.start = p.earliest(k.gpus, k.run, time.Duration(rapid.IntRange(0, 20).Draw(t, "from")), endless)
			p = p.book(k.start, k.gpus, k.run)
			list = append(list, k)

			for _, s := range p {
				if s.free < 0 {
					t.Fatalf("booked twice: %v", p)
				}
			}
		}

		for _, k := range list {
			p = p.book(k.start, -k.gpus, k.run).tidy()
		}

		if len(p) != 1 || p[0].free != perNode {
			t.Fatalf("not all was given back: %v", p)
		}
	})
}

func TestWithoutTheTraceItIsLeftOut(t *testing.T) {
	var text strings.Builder
	figures, err := Run(&text, Options{Data: t.TempDir()})
	if err != nil || len(figures) != 0 || !strings.HasPrefix(text.String(), "left out: ") {
		t.Errorf("%v, %v, %q", figures, err, text.String())
	}
}

// smallTrace writes a small trace in the form of the public one, with a crowd in both windows of the quick study and
// one before them, and returns its folder.
func smallTrace(t *testing.T) string {
	t.Helper()

	var text strings.Builder
	text.WriteString("timestamp,duration,num_gpus,cluster\n")

	chance := rand.New(rand.NewPCG(7, 0))
	for _, day := range []string{"2017-10-01", "2017-10-09", "2017-11-06"} {
		begin, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}

		for range 150 {
			at := begin.Add(time.Duration(chance.Float64() * float64(40*time.Hour)))
			gpus := []int{1, 2, 4, 8, 16}[chance.IntN(5)]
			lasts := (0.1 + float64(gpus)) * 3600 * math.Exp(chance.NormFloat64()/2) // so that history tells something
			fmt.Fprintf(&text, "%s,%.0f,%d,someone\n", at.Format(calendar), lasts, gpus)
		}
	}

	dir := t.TempDir()
	path := filepath.Join(dir, phillyFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}

	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	packed := gzip.NewWriter(file)
	if _, err := packed.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(packed.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}

	return dir
}

func TestEveryWayIsMeasuredAndLabelled(t *testing.T) {
	var text strings.Builder
	figures, err := Run(&text, Options{Data: smallTrace(t), Quick: true, Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{
		"never_jct_h", "never_jct_h_default", "burst_cloud_gpu_h", "burst_cloud_gpu_h_default",
		"theirs_cost_rule_cloud_gpu_h",
	} {
		if figures[key] <= 0 {
			t.Errorf("%s is %g in\n%v", key, figures[key], figures)
		}
	}

	for _, label := range []string{
		"rules with the product's defaults",
		"forecast: the same defaults; run times as the yard knows them from the 150 jobs",
		"untold: the same defaults", "patience and ageing off, nodes released at once, run times declared",
	} {
		if !strings.Contains(text.String(), label) {
			t.Errorf("no table is labelled %q:\n%s", label, text.String())
		}
	}
}

// The figures are at a point that a small window does not reach; here the frontiers are made up.
func TestTheKeysAreThoseOfTheirTables(t *testing.T) {
	made := func(cloud float64) []*trial {
		return []*trial{
			{rule: "nobody waits", outcome: outcome{cloud: cloud, mean: 2.9, p99: 30}},
			{rule: "nothing to provision", outcome: outcome{cloud: 0, mean: 6, p99: 90}},
		}
	}

	their := &trial{rule: pointRule, outcome: outcome{cloud: 200, mean: pointMean, p99: 40}}
	s := &study{
		main: made(100), standard: made(120), forecast: made(140), untold: made(160), blind: made(150),
		theirs: []*trial{their, {rule: never.name}, {rule: zero.name}}, bound: &bound{},
	}

	got := s.figures()
	for key, cloud := range map[string]float64{"": 100, "_default": 120, "_forecast": 140, "_untold": 160} {
		want := cloud * (6 - pointMean) / (6 - 2.9)
		near(t, "cloud"+key, got["cloud_gpu_h_at_jct_2_96h"+key], want, 1e-9)
		near(t, "saving"+key, got["saving_pct_at_jct_2_96h"+key], 100*(1-want/200), 1e-9)
	}
}

// A yard that is told nothing plans as if it had never seen a job; one with a history plans by it, and needs less.
func TestAHistoryIsUsedAndItsLackIsTrue(t *testing.T) {
	list, err := load(smallTrace(t))
	if err != nil {
		t.Fatal(err)
	}

	w := &window{name: "small", from: "2017-10-09", to: "2017-10-11", nodes: 4}
	if err := w.cut(list); err != nil {
		t.Fatal(err)
	}

	if len(w.before) != 150 || len(w.tasks) != 150 {
		t.Fatalf("%d jobs before and %d in the window", len(w.before), len(w.tasks))
	}

	past := map[runTimes]int{}

	for _, knows := range []runTimes{forecast, unknown} {
		policy, err := remembering(rules.New(rules.Defaults()), w, knows)
		if err != nil {
			t.Fatal(err)
		}

		_, past[knows] = policy.past.MeanDuration("someone", 8)
	}

	if past[forecast] < 20 || past[unknown] != 0 {
		t.Errorf("runs like a job with 8 GPUs: %v", past)
	}

	cloud := map[runTimes]float64{}

	for _, knows := range []runTimes{declared, forecast, unknown} {
		o, _, err := yardRun{worth: 4, knows: knows}.run(w)
		if err != nil {
			t.Fatal(err)
		}

		cloud[knows] = o.cloud
	}

	if cloud[forecast] == cloud[unknown] || cloud[forecast] == cloud[declared] {
		t.Errorf("cloud GPU-h with run times declared, forecast and unknown: %v; want three figures", cloud)
	}
}

// By default nothing but the value of waiting is set.
func TestTheDefaultIsTheProducts(t *testing.T) {
	if got := (yardRun{worth: 4}).policy(); got != "rules:balanced=4" {
		t.Errorf("the policy is %s", got)
	}
}
