package sim_test

import (
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/sim"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func TestAYardInTheMidstOfItsWorkGoesOn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	node := box("a", 2)
	node.State = fleet.Ready
	spec := lasting(0, 0, 2).Spec
	ends := map[id.Job]sim.Outcome{}
	run(t, sim.Config{
		Policy: ordered.FIFO{},
		Begin: &sim.Beginning{
			Now: now,
			State: yardmaster.State{
				Nodes:   []fleet.Node{node},
				Users:   []tenant.User{{ID: "ada", Role: tenant.Researcher, Created: now}},
				LastJob: 2,
				Jobs: []job.Job{
					{
						ID:        "j1",
						Owner:     "ada",
						Spec:      spec,
						State:     job.Running,
						Epoch:     1,
						Submitted: now.Add(-200 * time.Second),
						Started:   now.Add(-100 * time.Second),
						Reason:    "runs",
					},
					{ID: "j2", Owner: "ada", Spec: spec, State: job.Pending, Submitted: now.Add(-50 * time.Second), Reason: "waits"},
				},
				Runs: []job.Run{
					{
						ID:      "j1.1",
						Job:     "j1",
						Epoch:   1,
						State:   job.RunRunning,
						Ordered: now.Add(-100 * time.Second),
						Started: now.Add(-100 * time.Second),
						Ranks:   []job.Rank{{Node: "a", GPUs: []int{0, 1}, State: job.RunRunning, Started: now.Add(-100 * time.Second)}},
					},
				},
			},
			Truth: func(j job.Job) *sim.Job {
				return &sim.Job{
					Name:     string(j.ID),
					At:       j.Submitted.Sub(now),
					Owner:    j.Owner,
					Spec:     j.Spec,
					Duration: 300 * time.Second,
				}
			},
		},
		OnEnd: func(o *sim.Outcome) { ends[o.ID] = *o },
	})

	if o := ends["j1"]; o.Ended != 200*time.Second || o.Started != -100*time.Second {
		t.Errorf("the running job ended at %v, started %v; want 200 s and 100 s before the beginning", o.Ended, o.Started)
	}

	if o := ends["j2"]; o.Started != 200*time.Second || o.Ended != 500*time.Second || o.Wait() != 250*time.Second {
		t.Errorf(
			"the waiting job started at %v, ended at %v, waited %v; want 200 s, 500 s, 250 s",
			o.Started,
			o.Ended,
			o.Wait(),
		)
	}
}

// TestASuspendedRunOfTheBeginningContinues: j1 worked for 100 s and was suspended 20 s ago for j2, which takes another
// 30 s.
func TestASuspendedRunOfTheBeginningContinues(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	node := lender()
	node.State = fleet.Ready
	spec := declared(0, 0).Spec
	lasts := map[id.Job]time.Duration{"j1": 300 * time.Second, "j2": 50 * time.Second}
	ends := map[id.Job]sim.Outcome{}

	r := run(t, sim.Config{
		Policy: ordered.FIFO{},
		Begin: &sim.Beginning{
			Now: now,
			State: yardmaster.State{
				Nodes: []fleet.Node{node}, Users: []tenant.User{{ID: "ada", Role: tenant.Researcher, Created: now}}, LastJob: 2,
				Jobs: []job.Job{
					{
						ID: "j1", Owner: "ada", Spec: spec, State: job.Running, Epoch: 1, Submitted: ago(120), Started: ago(120),
						Reason: "runs", Suspended: ago(20),
					},
					{
						ID: "j2", Owner: "ada", Spec: spec, State: job.Running, Epoch: 1, Submitted: ago(20), Started: ago(20),
						Reason: "runs",
					},
				},
				Runs: []job.Run{
					{
						ID: "j1.1", Job: "j1", Epoch: 1, State: job.RunRunning, Ordered: ago(120), Started: ago(120), Ranks: []job.Rank{{
							Node: "a", GPUs: []int{0}, State: job.RunRunning, Started: ago(120), Suspended: ago(20),
							Suspension: job.Suspension{Number: 1, On: true},
						}},
					},
					{
						ID: "j2.1", Job: "j2", Epoch: 1, State: job.RunRunning, Ordered: ago(20), Started: ago(20), Ranks: []job.Rank{{
							Node: "a", GPUs: []int{0}, State: job.RunRunning, Started: ago(20),
						}},
					},
				},
			},
			Truth: func(j job.Job) *sim.Job {
				return &sim.Job{
					Name: string(j.ID), At: j.Submitted.Sub(now), Owner: j.Owner, Spec: j.Spec, Duration: lasts[j.ID],
				}
			},
		},
		OnEnd: func(o *sim.Outcome) { ends[o.ID] = *o },
	})

	if ends["j2"].Ended != 30*time.Second || ends["j1"].Ended != 230*time.Second {
		t.Errorf("j2 ended at %v and j1 at %v, want 30 s and, with 200 s that were left, 230 s", ends["j2"].Ended,
			ends["j1"].Ended)
	}

	if r.GPUSeconds != 350 { // without the 50 s for which the GPU was lent
		t.Errorf("%g GPU-seconds were used, want 350", r.GPUSeconds)
	}
}
