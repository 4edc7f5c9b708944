package forecaster

import (
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// A job is stopped, waits for an hour, and goes on where it is thrice as fast: what is left is
// reckoned anew by where it runs, before and after the server starts anew.
func TestRemainingTimeFollowsAJobToOtherGPUs(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir(), &handClock{})
	place := func() {
		for name, model := range map[id.Node]string{"slow": "A100", "fast": "H100"} {
			b.Follow(
				&yardmaster.Batch{
					Nodes: []fleet.Node{
						{ID: name, State: fleet.Ready, Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Index: 0, Model: model}}}},
					},
				},
			)
		}
	}

	place()

	j := job.Job{
		ID:        "j1",
		Seq:       1,
		Owner:     "ann",
		State:     job.Running,
		Epoch:     1,
		Submitted: noon,
		Started:   noon,
		Spec: &job.Spec{
			Run:       "x",
			Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}},
		},
	}

	run := job.Run{
		ID:      "j1.1",
		Job:     "j1",
		Epoch:   1,
		Seq:     1,
		State:   job.RunRunning,
		Ordered: noon,
		Started: noon,
		Ranks:   []job.Rank{{Node: "slow", GPUs: []int{0}}},
	}

	b.change([]job.Job{j}, run)
	total := 1000.0
	steps := func(epoch int, from, until int, began time.Time, each time.Duration) {
		var list []api.MetricPoint
		for i := from; i < until; i++ {
			list = append(list, at(float64(i+1), seconds(began.Add(time.Duration(i+1-from)*each)), 3))
		}

		done := float64(until)
		b.must(
			b.Take(
				t.Context(),
				&api.MetricsReport{
					Runs: []api.RunMetrics{
						{
							Run:    id.NewRun("j1", epoch),
							Done:   &done,
							Total:  &total,
							Series: []api.SeriesPoints{{Name: "loss", Points: list}},
						},
					},
				},
			),
		)
	}

	remains := func(when string, low, high float64) {
		t.Helper()
		b.clock.move(minInterval)
		b.pass(t.Context())
		b.mu.Lock()
		f := b.jobs["j1"].forecast
		b.mu.Unlock()

		if f == nil || f.Remaining.Mid < low || f.Remaining.Mid > high {
			t.Errorf("%s the forecast is %+v, want %g to %g s", when, f, low, high)
		}
	}

	b.clock.move(100 * time.Second)
	steps(1, 0, 100, noon, time.Second)
	remains("on the slow one", 850, 950)
	run.State, run.Seq, run.Ended = job.RunEnded, 2, b.clock.Now()
	j.State, j.Seq = job.Recovering, 2
	b.change([]job.Job{j}, run)
	b.clock.move(time.Hour)
	remains("while it waits", 200, 950) // where it will run is not known
	began := b.clock.Now()
	j.State, j.Seq, j.Epoch = job.Running, 3, 2
	b.change(
		[]job.Job{j},
		job.Run{
			ID:      "j1.2",
			Job:     "j1",
			Epoch:   2,
			Seq:     1,
			State:   job.RunRunning,
			Ordered: began,
			Started: began,
			Ranks:   []job.Rank{{Node: "fast", GPUs: []int{0}}},
		},
	)

	remains("before the first step on the fast one", 200, 600)
	b.clock.move(15 * time.Second)
	steps(2, 100, 160, began, time.Second/3)
	remains("on the fast one", 230, 320)
	b = b.again(false)
	place()
	steps(2, 100, 160, began, time.Second/3) // the agent tells all again
	remains("after a restart", 230, 320)

	if n := b.kept("j1")["loss"]; n != 160 {
		t.Errorf("%d points are kept, want 160", n)
	}
}
