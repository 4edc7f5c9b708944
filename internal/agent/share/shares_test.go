package share_test

import (
	"fmt"
	"testing"
	"time"

	"trainyard/internal/agent/share"
)

func normal(weight float64) share.Terms { return share.Terms{Weight: weight, Class: share.Normal} }

// soon makes an open GPU close soon if it does not serve.
func soon(t *share.Tuning) { t.Dwell = 300 * time.Millisecond }

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
			"kernels": {"sync=10"},
			"graphs":  {"graph=1", "sync=10"},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()

				g := newGPU(t, 32<<30, soon)
				programs := map[string]*program{}

				for job, w := range weights {
					g.add(job, normal(w), 0)
					programs[job] = g.run(job, args...)
				}

				eventually(t, "the token is needed", func() bool { return g.broker.Mode() == share.Token })
				wantShares(t, g.shares(12, programs), weights)
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

func TestALimitHoldsWithoutNeighbours(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", share.Terms{Weight: 0.3, Limit: 0.3, Class: share.Normal}, 0)
	p := g.run("a", "sync=10")

	eventually(t, "its limit has stopped it", func() bool { return g.uses()["a"].Grants > 3 })

	began, before, busy := time.Now(), g.uses()["a"], g.busy()[p.cmd.Process.Pid]
	eventually(t, "turns", func() bool { return g.uses()["a"].Grants >= before.Grants+20 })

	passed := time.Since(began).Seconds()
	held := (g.uses()["a"].Held - before.Held).Seconds() / passed
	worked := (g.busy()[p.cmd.Process.Pid] - busy).Seconds() / passed

	// A slow machine keeps it below its limit, never above.
	if held > 0.33 || worked > 0.33 || worked < 0.15 {
		t.Errorf("it had the GPU for %.3f of the time and used it for %.3f, want 0.3", held, worked)
	}
}

func TestOpportunisticJobsGetWhatOthersLeave(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("low", share.Terms{Weight: 0.5, Class: share.Opportunistic}, 0)
	g.add("high", share.Terms{Weight: 0.5, Class: share.Guaranteed}, 0)

	low := g.run("low", "sync=10")
	g.processes("low", 1)

	high := g.run("high", "sync=10")
	eventually(t, "the guaranteed job runs", func() bool { return g.uses()["high"].Held > 300*time.Millisecond })

	before := g.busy()
	eventually(t, "the guaranteed job works", func() bool {
		return g.busy()[high.cmd.Process.Pid]-before[high.cmd.Process.Pid] > time.Second
	})

	if got := g.busy()[low.cmd.Process.Pid] - before[low.cmd.Process.Pid]; got > 50*time.Millisecond {
		t.Errorf("the opportunistic job got %s beside a guaranteed one that is never idle", got)
	}

	high.kill()

	before = g.busy()
	eventually(t, "the opportunistic job has the GPU again", func() bool {
		return g.busy()[low.cmd.Process.Pid]-before[low.cmd.Process.Pid] > 500*time.Millisecond
	})
}

func TestABurstyJobLeavesTheRest(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("burst", share.Terms{Weight: 0.7, Class: share.Guaranteed}, 0)
	g.add("steady", normal(0.3), 0)

	// 12 ms of work, 60 ms of rest. What the other has in flight is short.
	burst := g.run("burst", "launches=100", "pause=60000")
	steady := g.run("steady", "kernel=20", "sync=10")
	programs := map[string]*program{"burst": burst, "steady": steady}

	parts := g.shares(25, programs)
	use := g.uses()["burst"]

	if parts["steady"] < 0.6 {
		t.Errorf("the steady job got %.2f beside one that rests for three quarters of the time", parts["steady"])
	}

	if waited := use.Demanded - use.Held; waited > 2*use.Held {
		t.Errorf("the bursts took %s and waited %s", use.Held, waited)
	}
}

func TestHostBoundJobsShareAnOpenGPU(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, soon)
	g.add("big", normal(0.6), 0)
	g.add("small", normal(0.4), 0)

	// The small job waits for itself most of the time: 0.1 ms of work in more than 2 ms.
	big := g.run("big", "sync=10")
	small := g.run("small", "launches=1", "kernel=100", "pause=2000")

	eventually(t, "both connect", func() bool { return g.uses()["big"].Grants > 0 && g.uses()["small"].Grants > 0 })
	eventually(t, "the GPU is open", func() bool { return g.broker.Mode() == share.Open })

	before := g.busy()
	eventually(t, "both work", func() bool {
		now := g.busy()

		return now[big.cmd.Process.Pid]-before[big.cmd.Process.Pid] > 500*time.Millisecond &&
			now[small.cmd.Process.Pid]-before[small.cmd.Process.Pid] > 10*time.Millisecond
	})
}

func TestProcessesOfAJobShareItsTurns(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30)
	g.add("a", normal(0.6), 0)
	g.add("b", normal(0.4), 0)

	first, second := g.run("a", "sync=10"), g.run("a", "sync=10")
	other := g.run("b", "sync=10")

	g.processes("a", 2)

	parts := g.shares(12, map[string]*program{"a": first, "b": other})
	if together := parts["a"] / (parts["a"] + parts["b"]); together > 0.48 || together < 0.38 {
		t.Errorf("one of two processes of a got %.3f against b, want 0.3 against 0.4", together)
	}

	second.kill()
	g.processes("a", 1)
	wantShares(t, g.shares(12, map[string]*program{"a": first, "b": other}), map[string]float64{"a": 0.6, "b": 0.4})
}

func TestAThousandSwitches(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 16<<30, func(t *share.Tuning) {
		t.Quantum = 3 * time.Millisecond
		t.Short = time.Millisecond
	})
	g.add("a", share.Terms{Weight: 0.6, Limit: 0.99, Class: share.Normal}, 0) // a limit always needs the token
	g.add("b", normal(0.4), 0)
	g.run("a", "kernel=50")
	g.run("b", "kernel=50", "mode=threads")

	eventually(t, "1000 switches", func() bool {
		uses := g.uses()
		return uses["a"].Grants+uses["b"].Grants > 1000
	})

	if len(g.lost) > 0 {
		t.Errorf("unresponsive: %v", g.lost)
	}
}

func TestManyJobsOnAGPU(t *testing.T) {
	t.Parallel()

	g := newGPU(t, 64<<30, func(t *share.Tuning) { t.Quantum = 20 * time.Millisecond })
	programs := map[string]*program{}

	for i := range 32 {
		job := fmt.Sprintf("j%d", i)
		g.add(job, normal(0.02*float64(1+i%2)), 0)
		programs[job] = g.run(job, "sync=10")
	}

	// The light half gets a third.
	light := 0.0
	for job, part := range g.shares(3, programs) {
		var i int
		_, _ = fmt.Sscanf(job, "j%d", &i)

		if i%2 == 0 {
			light += part
		}
	}

	if light < 0.28 || light > 0.39 {
		t.Errorf("16 jobs of weight 1 beside 16 of weight 2 got %.3f", light)
	}
}
