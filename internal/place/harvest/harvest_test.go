package harvest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/lp"
	"trainyard/internal/queue"
	"trainyard/internal/scaling"
)

const work = 130e6

func TestIdleNodesAreSharedByWhatTheyBring(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		objective string
		want      map[id.Job]int
	}{
		// The seventh and eighth node together bring a job of ShuffleNet most.
		"alike":         {"speedup", map[id.Job]int{"j1": 8, "j2": 8}},
		"by throughput": {"throughput", map[id.Job]int{"j1": 8, "j2": 8}},
		"by a formula":  {"job == 1 ? throughput : n <= 2 ? 2 * throughput : 0", map[id.Job]int{"j1": 14, "j2": 2}},
		"all for one":   {"job == 1 ? throughput : 0", map[id.Job]int{"j1": 16}},
	} {
		y := newYard()
		y.nodes(0, 16)

		for range 2 {
			y.add(want{speed: speed(work, 18*time.Second, shuffle)})
		}

		y.obey(y.ask(t, policy(t, harvest.Params{Objective: tc.objective})))

		if got := y.counts(); !cmp.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestASlowModelIsNotStarvedBySpeedUp(t *testing.T) {
	t.Parallel()

	for objective, want16 := range map[string]int{"speedup": 20, "throughput": 3} {
		y := newYard()
		y.nodes(0, 20)
		y.add(want{speed: speed(work, 18*time.Second, vgg)})
		y.add(want{speed: speed(work, 18*time.Second, shuffle)})
		y.obey(y.ask(t, policy(t, harvest.Params{Objective: objective})))

		if got := y.counts()["j1"]; objective == "speedup" && got < 4 || objective == "throughput" && got > want16 {
			t.Errorf("%s: the slow model has %d of 20 nodes", objective, got)
		}
	}
}

func TestGrowsOnlyWhenThatPays(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		has, free int
		ahead     time.Duration
		want      int
	}{
		"twice as many":                    {8, 8, 0, 16},
		"one more for sixteen":             {16, 1, 0, 16},
		"one more for sixteen, in an hour": {16, 1, time.Hour, 17},
		"one more for two":                 {2, 1, 0, 3},
		"nothing to have":                  {8, 0, 0, 8},
	} {
		y := newYard()
		y.nodes(0, tc.has+tc.free)
		y.start(y.add(want{speed: speed(1e12, 18*time.Second, shuffle)}), on(0, tc.has)...)
		y.now = y.now.Add(time.Minute)
		p := y.ask(t, policy(t, harvest.Params{LookAhead: tc.ahead}))
		y.obey(p)

		if got := y.counts()["j1"]; got != tc.want {
			t.Errorf("%s: %d nodes, want %d", name, got, tc.want)
		}

		for _, s := range p.Stops {
			if tc.want > tc.has && !strings.Contains(s.Reason, fmt.Sprintf("resized from %d GPUs to %d GPUs", tc.has, tc.want)) {
				t.Errorf("%s: %q", name, s.Reason)
			}
		}
	}
}

func TestHysteresisKeepsThingsAsTheyAre(t *testing.T) {
	t.Parallel()

	for hysteresis, want32 := range map[float64]int{0: 6, 0.9: 4} {
		y := newYard()
		y.nodes(0, 6)
		y.start(y.add(want{speed: speed(1e12, 18*time.Second, shuffle)}), on(0, 4)...)
		y.now = y.now.Add(time.Minute)
		y.obey(y.ask(t, policy(t, harvest.Params{Hysteresis: hysteresis})))

		if got := y.counts()["j1"]; got != want32 {
			t.Errorf("hysteresis %g: %d nodes, want %d", hysteresis, got, want32)
		}
	}
}

func TestAStartIsPaidFor(t *testing.T) {
	t.Parallel()

	// Growing from five to six brings a sixth of the minute, ten seconds.
	for start, want := range map[int]int{8: 6, 12: 5} {
		y := newYard()
		y.nodes(0, 6)
		y.start(y.add(want2(speed(1e12, time.Duration(start)*time.Second, map[int]float64{1: 1, 64: 64}))), on(0, 5)...)
		y.now = y.now.Add(time.Hour)
		y.obey(y.ask(t, policy(t, harvest.Params{LookAhead: time.Minute})))

		if got := y.counts()["j1"]; got != want {
			t.Errorf("start of %d s: %d nodes, want %d", start, got, want)
		}
	}
}

func want2(s *job.Speed) want { return want{speed: s} }

func TestAJobThatTakesLongToStartIsStartedAllTheSame(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 2)
	y.add(want{speed: speed(1e12, time.Hour, shuffle)})
	y.obey(y.ask(t, harvest.Default()))

	if got := y.counts()["j1"]; got != 2 {
		t.Errorf("%d nodes, want 2", got)
	}
}

func TestAJobThatIsNearlyDoneIsNotGrown(t *testing.T) {
	t.Parallel()

	for left, want := range map[float64]int{1e12: 16, 9988 * 20: 4} {
		y := newYard()
		y.nodes(0, 16)
		y.start(y.add(want2(speed(left, time.Second, shuffle))), on(0, 4)...)
		y.obey(y.ask(t, harvest.Default()))

		if got := y.counts()["j1"]; got != want {
			t.Errorf("%g units left: %d nodes, want %d", left, got, want)
		}
	}
}

func TestWhatCannotBeResizedIsLeftAlone(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		want  want
		after func(*yard, *place.Running)
	}{
		"a job of one size":          {want: want{need: fleet.Need{Nodes: 4, MaxNodes: 4, GPUs: 1, MaxGPUs: 1}}},
		"one that cannot be stopped": {want: want{dies: true}},
		"one that is being stopped":  {after: func(_ *yard, r *place.Running) { r.Stopping = true }},
		"one on a node that is closed": {after: func(y *yard, r *place.Running) {
			room, _ := y.table.Get(r.Allocations[0].Node)
			n := *room.Node
			n.Cordoned = true
			y.table.Put(&n, 0)
		}},
	} {
		y := newYard()
		y.nodes(0, 8)
		tc.want.speed = speed(1e12, 18*time.Second, vgg)
		r := y.start(y.add(tc.want), on(0, 4)...)
		if tc.after != nil {
			tc.after(y, r)
		}

		y.add(want{speed: speed(work, 18*time.Second, shuffle), priority: 50})
		y.obey(y.ask(t, policy(t, harvest.Params{Objective: "throughput"})))

		if got, want := y.counts(), map[id.Job]int{"j1": 4, "j2": 4}; !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestAtMostSoManyShareAndWhoHasBegunGoesFirst(t *testing.T) {
	t.Parallel()
	s := speed(work, 18*time.Second, shuffle)
	y := newYard()
	y.nodes(0, 9)
	y.add(want{speed: s})
	y.add(want{speed: s, served: 100, ran: 2})
	y.add(want{speed: s, served: 100, ran: 2})
	y.add(want{speed: s, priority: 10})
	h := policy(t, harvest.Params{MaxParallel: 2})
	y.obey(y.ask(t, h))

	got := y.counts()
	if len(got) != 2 || got["j4"] == 0 || got["j2"] == 0 {
		t.Errorf("%v, want j4, which has priority, and j2, which had begun", got)
	}

	// One of higher priority than those that run takes the place of one of them.
	y.now = y.now.Add(time.Minute)
	y.add(want{speed: s, priority: 20})
	p := y.ask(t, h)
	y.obey(p)

	got = y.counts()
	if len(got) != 2 || got["j5"] == 0 || got["j4"] == 0 {
		t.Errorf("%v, want j4 and j5", got)
	}

	if !slices.ContainsFunc(p.Stops, func(s place.Stop) bool {
		return s.Running.Job == "j2" && strings.Contains(s.Reason, "at most 2 jobs share the idle nodes")
	}) {
		t.Errorf("stops %+v, want j2 with the reason", p.Stops)
	}
}

func TestAJobThatNothingCanBeHadForBlocksNobody(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 4)

	for range 3 {
		y.add(
			want{speed: speed(work, 18*time.Second, shuffle), need: fleet.Need{Nodes: 8, MaxNodes: 16, GPUs: 1, MaxGPUs: 1}},
		)
		y.add(want{need: fleet.Need{Nodes: 1, MaxNodes: 4, GPUs: 1, MaxGPUs: 1, Kinds: "H200"}})
	}

	it := y.add(want{speed: speed(work, 18*time.Second, shuffle)})
	y.obey(y.ask(t, policy(t, harvest.Params{MaxParallel: 2})))

	if got, want := y.counts(), map[id.Job]int{it.Job: 4}; !cmp.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPatienceEndsStarvation(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 4)
	h := policy(t, harvest.Params{Objective: "throughput", Patience: time.Hour})
	y.add(want{speed: speed(1e12, 18*time.Second, map[int]float64{1: 1, 64: 64})})
	y.add(want{speed: speed(1e12, 18*time.Second, shuffle)})
	p := y.ask(t, h)
	y.obey(p)

	if got := y.counts(); got["j2"] != 4 {
		t.Fatalf("%v, want all nodes for the fast job at first", got)
	}

	if want := y.now.Add(time.Hour); !p.WakeAt.Equal(want) {
		t.Errorf("wants to be asked again at %s, want %s", p.WakeAt, want)
	}

	y.now = p.WakeAt
	y.obey(y.ask(t, h))

	if got, want := y.counts(), map[id.Job]int{"j1": 1, "j2": 3}; !cmp.Equal(got, want) {
		t.Errorf("after an hour %v, want %v", got, want)
	}
}

func TestNodesThatOpenedTogetherGoTogether(t *testing.T) {
	t.Parallel()
	y := newYard()
	s := speed(1e12, 18*time.Second, map[int]float64{1: 10, 4: 36, 8: 52})
	old := y.now.Add(-5 * time.Hour)
	middle := y.now.Add(-time.Hour)

	young := y.now.Add(-2 * time.Minute)
	for i := range 12 { // by name they are all mixed up
		y.node(fmt.Sprintf("n%02d", i), "V100", 1, []time.Time{old, middle, young}[i%3])
	}

	for range 3 {
		y.add(want{speed: s})
	}

	y.obey(y.ask(t, harvest.Default()))

	for _, r := range y.running {
		opened := map[time.Time]bool{}
		for _, n := range y.where(r.Job) {
			room, _ := y.table.Get(n)
			opened[room.Node.Since] = true
		}

		if r.GPUs != 4 || len(opened) != 1 {
			t.Errorf("%s has %d nodes that opened at %d times: %v", r.Job, r.GPUs, len(opened), y.where(r.Job))
		}
	}
}

func TestTheYoungestNodesAreGivenUpFirst(t *testing.T) {
	t.Parallel()
	y := newYard()
	for i := range 8 {
		y.node(fmt.Sprintf("n%02d", i), "V100", 1, y.now.Add(-time.Duration(60-i)*time.Hour))
	}

	s := speed(1e12, time.Second, map[int]float64{1: 10, 2: 16, 4: 24, 8: 32})
	y.start(y.add(want{speed: s}), on(0, 8)...)
	y.now = y.now.Add(time.Hour)
	y.add(want{speed: s})
	y.obey(y.ask(t, harvest.Default()))

	first, second := y.where("j1"), y.where("j2")
	if len(first) == 0 || len(second) == 0 || slices.Max(first) >= slices.Min(second) {
		t.Errorf("j1 keeps %v and j2 gets %v, want that j1 keeps those that opened first", first, second)
	}
}

func TestRareCheckpointsAndNodesThatLeaveDoNotGoTogether(t *testing.T) {
	t.Parallel()
	sizes := map[time.Duration]int{}

	for _, every := range []time.Duration{0, time.Hour} {
		y := newYard()
		for i := range 32 { // each opened by itself, minutes ago
			y.node(fmt.Sprintf("n%02d", i), "V100", 1, y.now.Add(-20*time.Minute-time.Duration(i)*time.Second))
		}

		y.add(want{speed: speed(1e12, 18*time.Second, shuffle), every: every})
		y.obey(y.ask(t, harvest.Default()))
		sizes[every] = y.counts()["j1"]
	}

	if sizes[0] < 16 || sizes[time.Hour] > sizes[0]/4 {
		t.Errorf(
			"with a checkpoint now and then it takes %d nodes that may leave, with one every hour %d",
			sizes[0],
			sizes[time.Hour],
		)
	}
}

func TestAnUnknownSpeedIsTriedByDoubling(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 16)
	it := y.add(want{})
	h := harvest.Default()
	var sizes []int

	for range 4 {
		p := y.ask(t, h)
		if len(p.Starts) > 0 && !strings.Contains(p.Starts[0].Reason, "unknown and will be measured") {
			t.Errorf("%q", p.Starts[0].Reason)
		}

		y.obey(p)
		sizes = append(sizes, y.counts()[it.Job])
		y.now = y.now.Add(time.Hour)
	}

	if want := []int{1, 2, 4, 8}; !slices.Equal(sizes, want) {
		t.Errorf("sizes %v, want %v", sizes, want)
	}
}

// TestALearnedSpeedDecidesWhoGetsNodes: of two jobs without declared rates, the nodes go to the one that was observed
// to be faster with more of them.
func TestALearnedSpeedDecidesWhoGetsNodes(t *testing.T) {
	t.Parallel()

	learned := func(rates map[int]float64) *scaling.Model {
		var m *scaling.Model
		for _, n := range []int{1, 2, 4} {
			m = m.With(scaling.Observation{Kind: "V100", GPUs: n, Nodes: n, PerSecond: rates[n]})
		}

		return m
	}

	scales, stalls := map[int]float64{1: 10, 2: 20, 4: 40}, map[int]float64{1: 10, 2: 10.5, 4: 11}

	for name, models := range map[string][2]map[int]float64{"first": {scales, stalls}, "second": {stalls, scales}} {
		y := newYard()
		y.nodes(0, 8)

		var jobs [2]*queue.Item
		for i := range jobs {
			jobs[i] = y.add(want{speed: job.NewSpeed(1e9, 0, 0), ran: 4, served: 1})
			jobs[i].Outlook.Learned = learned(models[i])
		}

		y.obey(y.ask(t, harvest.Default()))

		fast, slow := jobs[0], jobs[1]
		if name == "second" {
			fast, slow = slow, fast
		}

		if got := y.counts(); got[fast.Job] != 7 || got[slow.Job] != 1 {
			t.Errorf("the %s job scales: it gets %d nodes and the other %d, want 7 and 1", name, got[fast.Job], got[slow.Job])
		}
	}
}

func TestASizeIsWatchedBeforeTheNextIsTried(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 16)
	it := y.add(want{ran: 1, served: 60})
	h := harvest.Default()
	p := y.ask(t, h)
	y.obey(p)

	if want := y.now.Add(5 * time.Minute); !p.WakeAt.Equal(want) || y.counts()[it.Job] != 2 {
		t.Errorf("%d nodes, asks again at %s; want 2, and to be asked at %s", y.counts()[it.Job], p.WakeAt, want)
	}

	y.now = y.now.Add(time.Minute)
	p = y.ask(t, h)
	if len(p.Stops) > 0 || !p.WakeAt.Equal(y.now.Add(4*time.Minute)) {
		t.Errorf("after a minute it wants %q", words(p))
	}

	y.now = p.WakeAt
	y.obey(y.ask(t, h))

	if got := y.counts()[it.Job]; got != 4 {
		t.Errorf("after five minutes %d nodes, want 4", got)
	}
}

func TestProbingGoesBeyondWhatWasMeasuredWhereThatIsWanted(t *testing.T) {
	t.Parallel()

	for probe, want := range map[bool]int{false: 2, true: 4} {
		y := newYard()
		y.nodes(0, 16)
		y.add(want2(speed(1e12, time.Second, map[int]float64{1: 10, 2: 19})))
		y.obey(y.ask(t, policy(t, harvest.Params{Probe: probe})))

		if got := y.counts()["j1"]; got != want {
			t.Errorf("probe %v: %d nodes, want %d", probe, got, want)
		}
	}
}

func TestSeveralKindsEachToWhomItBringsMost(t *testing.T) {
	t.Parallel()
	y := newYard()
	for i := range 4 {
		y.node(fmt.Sprintf("a%d", i), "A100", 1, y.now)
		y.node(fmt.Sprintf("v%d", i), "V100", 1, y.now)
	}

	gains := func(a, v float64) *job.Speed {
		return job.NewSpeed(
			1e9,
			0,
			0,
			job.Rate{GPU: "V100", GPUs: 1, PerSecond: v},
			job.Rate{GPU: "V100", GPUs: 4, PerSecond: 4 * v},
			job.Rate{GPU: "A100", GPUs: 1, PerSecond: a},
			job.Rate{GPU: "A100", GPUs: 4, PerSecond: 4 * a},
		)
	}

	y.add(want{speed: gains(3, 1)})
	y.add(want{speed: gains(1.1, 1)})
	y.obey(y.ask(t, harvest.Default()))

	if got := y.where("j1"); !slices.Equal(got, []id.Node{"a0", "a1", "a2", "a3"}) {
		t.Errorf("j1, which is three times as fast on an A100, runs on %v", got)
	}

	if got := y.where("j2"); !slices.Equal(got, []id.Node{"v0", "v1", "v2", "v3"}) {
		t.Errorf("j2 runs on %v", got)
	}
}

func TestNodesOfSeveralGPUsAreShared(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", "A100", 8, y.now)
	y.node("b", "A100", 8, y.now)

	s := job.NewSpeed(
		1e9,
		0,
		0,
		job.Rate{GPUs: 1, PerSecond: 1},
		job.Rate{GPUs: 2, PerSecond: 1.9},
		job.Rate{GPUs: 4, PerSecond: 3.6},
		job.Rate{GPUs: 8, PerSecond: 6},
	)

	for range 4 {
		y.add(want{speed: s, need: fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 8}})
	}

	y.obey(y.ask(t, harvest.Default()))

	if got, want := y.counts(), map[id.Job]int{"j1": 4, "j2": 4, "j3": 4, "j4": 4}; !cmp.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWholeNodesAreTheUnitWhereJobsTakeWholeNodes(t *testing.T) {
	t.Parallel()
	y := newYard()
	for i := range 6 {
		y.node(fmt.Sprintf("n%d", i), "A100", 4, y.now)
	}

	s := job.NewSpeed(1e9, 0, 0, job.Rate{GPUs: 4, PerSecond: 4}, job.Rate{GPUs: 32, PerSecond: 24})
	for range 2 {
		y.add(want{speed: s, need: fleet.Need{Nodes: 1, MaxNodes: 8, GPUs: 4, MaxGPUs: 4}})
	}

	y.obey(y.ask(t, harvest.Default()))

	got := y.counts()
	if got["j1"]+got["j2"] != 24 || got["j1"]%4 != 0 || got["j1"] == 0 || got["j2"] == 0 {
		t.Errorf("%v, want all 24 GPUs by whole nodes", got)
	}
}

func TestJobsWithoutGPUsStartWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 2)
	y.add(want{need: fleet.Need{Nodes: 1, MaxNodes: 1, CPUs: 1000}})
	y.add(want{speed: speed(work, 18*time.Second, shuffle)})
	y.obey(y.ask(t, harvest.Default()))

	if got := len(y.running); got != 2 {
		t.Errorf("%d jobs run, want 2", got)
	}
}

func TestWhatIsNoNumberIsWorthNothingAndSaid(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 4)
	y.add(want{speed: speed(work, 18*time.Second, shuffle)})

	p := y.ask(t, policy(t, harvest.Params{Objective: "throughput / (n < 4)"}))
	if len(p.Starts) != 1 || len(p.Starts[0].Allocations) != 3 ||
		!strings.Contains(p.Starts[0].Reason, "no value for 1 size of this job") {
		t.Errorf("%+v, want 3 nodes, and that one size has no worth", p.Starts)
	}
}

func TestParametersAreChecked(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		params harvest.Params
		want   string
	}{
		"look-ahead":         {harvest.Params{LookAhead: time.Millisecond}, "look_ahead: must be at least 1s, got 1ms"},
		"jobs":               {harvest.Params{MaxParallel: -1}, "max_parallel: must not be negative, got -1"},
		"hysteresis":         {harvest.Params{Hysteresis: 2}, "hysteresis: must be between 0 and 1, got 2"},
		"patience":           {harvest.Params{Patience: -1}, "patience"},
		"objective":          {harvest.Params{Objective: "thruput"}, "objective: line 1, column 1: unknown name"},
		"near objective":     {harvest.Params{Objective: "speedupp * 2"}, "did you mean speedup?"},
		"constraint":         {harvest.Params{Constraints: []harvest.Constraint{{PerGPU: "1"}}}, "need a solver, and none is installed"},
		"constraint formula": {harvest.Params{Solve: never, Constraints: []harvest.Constraint{{Name: "q", PerGPU: "n"}}}, `constraint "q", per_gpu: line 1`},
		"empty constraint":   {harvest.Params{Solve: never, Constraints: []harvest.Constraint{{Name: "q"}}}, "must count GPUs or jobs"},
	} {
		_, err := harvest.New(tc.params)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tc.want)
		}

		var f *fault.Error
		if !errors.As(err, &f) {
			t.Errorf("%s: %v is no fault", name, err)
		}
	}

	for _, o := range harvest.Objectives() {
		if _, err := harvest.New(harvest.Params{Objective: o.Name}); err != nil {
			t.Errorf("objective %s: %v", o.Name, err)
		}
	}

	if d := harvest.Default(); d.Name() != "harvest" || !d.Revises() || d.MaxParallel == 0 {
		t.Errorf("the usual policy is %+v", d)
	}
}

func never(*lp.Model) (*lp.Solution, error) { return nil, errors.New("not today") }

func TestAFailedSolverIsNotHidden(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 16)
	y.add(want{speed: speed(work, 18*time.Second, shuffle), user: "bob"})
	y.add(want{speed: speed(work, 18*time.Second, shuffle), user: "ada"})

	p := y.ask(
		t,
		policy(
			t,
			harvest.Params{
				Solve:       never,
				Constraints: []harvest.Constraint{{Name: "bob", Users: []id.User{"bob"}, PerGPU: "1", AtMost: 3}},
			},
		),
	)

	y.obey(p)

	if got := y.counts(); got["j1"] > 3 || got["j1"] == 0 || got["j2"] < 12 {
		t.Errorf("%v, want at most 3 for bob, and the rest for ada", got)
	}

	for _, s := range p.Starts {
		if !strings.Contains(s.Reason, "the solver failed (not today); the sizes were found by search instead") {
			t.Errorf("%s: %q", s.Item.Job, s.Reason)
		}
	}
}

func TestConditionsCountWhatIsLeftAlone(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 16)
	y.start(y.add(want{dies: true, user: "bob", speed: speed(1e12, 0, shuffle)}), on(0, 2)...)
	y.add(want{speed: speed(work, 18*time.Second, shuffle), user: "bob"})

	y.obey(
		y.ask(
			t,
			policy(
				t,
				harvest.Params{
					Solve:       never,
					Constraints: []harvest.Constraint{{Name: "bob", Users: []id.User{"bob"}, PerGPU: "1", AtMost: 3}},
				},
			),
		),
	)

	if got, want := y.counts(), map[id.Job]int{"j1": 2, "j2": 1}; !cmp.Equal(got, want) {
		t.Errorf("%v, want %v: bob has two of his three already", got, want)
	}
}

func TestPricesComeFromTheTariff(t *testing.T) {
	t.Parallel()

	for value, nodes := range map[string]int{"speedup - 0.5 * n * price": 0, "speedup - 0.01 * n * price": 8} {
		y := newYard()
		y.tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{0, 4}}}}
		y.nodes(0, 8)
		y.add(want{speed: speed(work, 18*time.Second, shuffle)})
		y.obey(y.ask(t, policy(t, harvest.Params{Objective: value})))

		if got := y.counts()["j1"]; got != nodes {
			t.Errorf("%s: %d nodes, want %d", value, got, nodes)
		}
	}
}

func TestFairnessLooksAtWhatAJobHasHad(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.nodes(0, 8)
	y.add(want{speed: speed(work, 18*time.Second, vgg), served: 100 * 3600, ran: 4})
	y.add(want{speed: speed(work, 18*time.Second, vgg)})
	y.obey(y.ask(t, policy(t, harvest.Params{Objective: "fair"})))

	if got := y.counts(); got["j2"] <= got["j1"] {
		t.Errorf("%v, want more for j2, which has had nothing yet", got)
	}
}
