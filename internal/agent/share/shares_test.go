package share_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"trainyard/internal/agent/share"
)

func normal(weight float64) share.Terms { return share.Terms{Weight: weight, Class: share.Normal} }

// gated is a share that needs the token, however little a busy machine lets programs do with the GPU.
func gated(weight float64) share.Terms {
	return share.Terms{Weight: weight, Limit: 0.99, Class: share.Normal}
}

// deep are the arguments of a program that always has work in its queue, even if it is not scheduled for a while: one
// that has none gives up its turn, and gets less than its share.
var deep = []string{"kernel=600", "sync=1000000"}

func TestJobsGetTheirShares(t *testing.T) {
	t.Parallel()

	cases := map[string]map[string]float64{
		"50/50":    {"a": 0.5, "b": 0.5},
		"70/30":    {"a": 0.7, "b": 0.3},
		"90/10":    {"a": 0.9, "b": 0.1},
		"50/30/20": {"a": 0.5, "b": 0.3, "c": 0.2},
	}

	for name, weights := range cases {
		for kind, args := range map[string][]string{
			"kernels": deep,
			"graphs":  {"graph=1", "launches=100", "sync=50"}, // a queue of graphs alone would take half a minute
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()

				g := newGPU(t, 32<<30)
				programs := map[string][]*program{}

				for job, w := range weights {
					g.add(job, gated(w), 0)
					programs[job] = []*program{g.run(job, args...)}
				}

				g.wantShares(programs, weights)
			})
		}
	}
}

func TestAJobAloneIsLeftAlone(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.3), 0)
	g.run("a", "steps=50").end()

	if use := g.uses()["a"]; use.Grants != 0 || g.broker.Mode() != share.Whole {
		t.Errorf("it was granted the GPU %d times, in mode %s", use.Grants, g.broker.Mode())
	}
}

// TestJobsThatAlwaysHaveWorkTakeTurns is about two jobs whose terms do not need the token.
func TestJobsThatAlwaysHaveWorkTakeTurns(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	weights := map[string]float64{"a": 0.7, "b": 0.3}
	programs := map[string][]*program{}

	for job, w := range weights {
		g.add(job, normal(w), 0)
		programs[job] = []*program{g.run(job, deep...)}
	}

	g.wantShares(programs, weights)

	if mode := g.broker.Mode(); mode != share.Token {
		t.Errorf("the mode is %s", mode)
	}
}

func TestALimitHoldsWithoutNeighbours(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", share.Terms{Weight: 0.3, Limit: 0.3, Class: share.Normal}, 0)
	p := g.run("a", "sync=20")

	eventually(t, "its limit has stopped it", func() bool { return g.uses()["a"].Grants > 3 })

	began, before, busy := time.Now(), g.uses()["a"], g.Busy()[p.cmd.Process.Pid]
	held, worked := 0.0, 0.0

	// As with shares, the ends of a measurement matter less the longer it is.
	for grants := 20; grants <= 160; grants *= 2 {
		eventually(t, "turns", func() bool { return g.uses()["a"].Grants >= before.Grants+grants })

		use, work, passed := g.uses()["a"], g.Busy()[p.cmd.Process.Pid], time.Since(began).Seconds()
		held = (use.Held - before.Held).Seconds() / passed
		worked = (work - busy).Seconds() / passed

		if held > 0.27 && held < 0.33 && worked < 0.33 {
			return
		}
	}

	t.Errorf("it had the GPU for %.3f of the time and used it for %.3f, want 0.3", held, worked)
}

func TestOpportunisticJobsGetWhatOthersLeave(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("low", share.Terms{Weight: 0.5, Class: share.Opportunistic}, 0)
	g.add("high", share.Terms{Weight: 0.5, Class: share.Guaranteed}, 0)

	low := g.run("low", deep...)
	g.processes("low", 1)

	high := g.run("high", deep...)
	eventually(t, "the guaranteed job runs", func() bool { return g.uses()["high"].Held > 300*time.Millisecond })

	before := g.Busy()
	eventually(t, "the guaranteed job works", func() bool {
		return g.Busy()[high.cmd.Process.Pid]-before[high.cmd.Process.Pid] > 2*time.Second
	})

	// Of equal class it would have had as much.
	if got := g.Busy()[low.cmd.Process.Pid] - before[low.cmd.Process.Pid]; got > 400*time.Millisecond {
		t.Errorf("the opportunistic job got %s beside 2 s of a guaranteed one that is never idle", got)
	}

	high.kill()

	before = g.Busy()
	eventually(t, "the opportunistic job has the GPU again", func() bool {
		return g.Busy()[low.cmd.Process.Pid]-before[low.cmd.Process.Pid] > 500*time.Millisecond
	})
}

func TestABurstyJobLeavesTheRest(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) { t.Quantum = time.Second })
	g.add("burst", share.Terms{Weight: 0.7, Class: share.Guaranteed}, 0)
	g.add("steady", normal(0.3), 0)

	// 12 ms of work, 60 ms of rest. What the other has in flight takes about as long.
	burst := g.run("burst", "launches=100", "pause=60000")
	steady := g.run("steady", "sync=1000000")
	programs := map[string][]*program{"burst": {burst}, "steady": {steady}}

	parts := g.shares(10, programs, func(parts map[string]float64) bool { return parts["steady"] >= 0.6 })
	if parts["steady"] < 0.6 {
		t.Errorf("the steady job got %.2f beside one that rests for three quarters of the time", parts["steady"])
	}

	// Without its class it would wait for a turn of a second each time.
	use := g.uses()["burst"]
	if waited := (use.Demanded - use.Held) / time.Duration(use.Grants); waited > 400*time.Millisecond {
		t.Errorf("a burst waited %s", waited)
	}
}

func TestHostBoundJobsShareAnOpenGPU(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) { t.Retry, t.Trust = time.Hour, time.Hour })
	g.add("big", normal(0.6), 0)
	g.add("small", normal(0.4), 0)

	// The small job waits for itself most of the time: 0.1 ms of work in more than 2 ms.
	big := g.run("big", deep...)
	small := g.run("small", "launches=1", "kernel=100", "pause=2000")

	g.processes("big", 1)
	g.processes("small", 1)
	eventually(t, "the GPU is open", func() bool { return g.broker.Mode() == share.Open })

	// It stays open: what the small job has in its queue waits for the other, and does not mean that it is short of
	// anything.
	before := g.Busy()
	grants := g.uses()["big"].Grants
	eventually(t, "both work", func() bool {
		now := g.Busy()

		return now[big.cmd.Process.Pid]-before[big.cmd.Process.Pid] > 4*time.Second &&
			now[small.cmd.Process.Pid]-before[small.cmd.Process.Pid] > 10*time.Millisecond
	})

	if mode, more := g.broker.Mode(), g.uses()["big"].Grants-grants; mode != share.Open || more > 0 {
		t.Errorf("the mode is %s after %d more turns", mode, more)
	}
}

func TestProcessesOfAJobShareItsTurns(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", gated(0.6), 0)
	g.add("b", gated(0.4), 0)

	first, second := g.run("a", deep...), g.run("a", deep...)
	other := g.run("b", deep...)
	want := map[string]float64{"a": 0.6, "b": 0.4}

	g.processes("a", 2)
	before := g.Busy()[first.cmd.Process.Pid]
	beside := g.Busy()[second.cmd.Process.Pid]
	g.wantShares(map[string][]*program{"a": {first, second}, "b": {other}}, want)

	clocks := g.Busy()
	one := (clocks[first.cmd.Process.Pid] - before).Seconds()
	two := (clocks[second.cmd.Process.Pid] - beside).Seconds()

	if one < two/4 || two < one/4 {
		t.Errorf("two processes of a job had the GPU for %.2f s and %.2f s", one, two)
	}

	second.kill()
	g.processes("a", 1)
	g.wantShares(map[string][]*program{"a": {first}, "b": {other}}, want)
}

func TestAThousandSwitches(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) {
		t.Quantum = 3 * time.Millisecond
		t.Short = time.Millisecond
	})
	g.add("a", gated(0.6), 0)
	g.add("b", normal(0.4), 0)
	g.run("a", "kernel=50")
	g.run("b", "kernel=50", "mode=threads")

	eventually(t, "1000 switches", func() bool {
		uses := g.uses()
		return uses["a"].Grants+uses["b"].Grants > 1000
	})

	if lost := g.reports(); len(lost) > 0 {
		t.Errorf("unresponsive: %v", lost)
	}
}

func TestManyJobsOnAGPU(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 64<<30, func(t *share.Tuning) { t.Quantum = 20 * time.Millisecond })
	programs := map[string][]*program{}

	for i := range 32 {
		job := fmt.Sprintf("j%d", i)
		g.add(job, gated(0.02*float64(1+i%2)), 0)
		programs[job] = []*program{g.run(job, "sync=1000000")}
	}

	// The light half gets a third.
	light := func(parts map[string]float64) float64 {
		sum := 0.0
		for i := 0; i < 32; i += 2 {
			sum += parts[fmt.Sprintf("j%d", i)]
		}

		return sum
	}

	good := func(parts map[string]float64) bool { return math.Abs(light(parts)-1.0/3) < 0.05 }
	if parts := g.shares(3, programs, good); !good(parts) {
		t.Errorf("16 jobs of weight 1 beside 16 of weight 2 got %.3f", light(parts))
	}
}
