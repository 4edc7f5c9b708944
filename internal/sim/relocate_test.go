package sim_test

import (
	"math"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
	"trainyard/internal/yardmaster"
)

// homeward is a yard whose only node is in use for two hours, and a job of ten hours for which another is provisioned.
// It has a checkpoint of 12 GiB.
func homeward(t *testing.T, policy string) (ended map[id.Job]time.Duration, moves []ledger.Saving, r *sim.Result) {
	t.Helper()

	make, err := catalogue.All(nil).Make(policy)
	if err != nil {
		t.Fatal(err)
	}

	first, away := lasting(0, 2*time.Hour, 1), lasting(time.Minute, 10*time.Hour, 1)
	away.Spec.Expect, away.Spec.Objective = job.Duration(10*time.Hour), job.ObjectiveTime
	away.Spec.Checkpoint, away.CheckpointSize = &job.Checkpoint{}, 12<<30
	first.Spec.Expect = job.Duration(2 * time.Hour)

	offer := fleet.Offer{
		Name: "c/v100", Provider: "c", Type: "v100", GPU: "V100", GPUs: 1, GPUMemory: 16 << 30, CPUs: 64000,
		Memory: 1 << 40, Hourly: 3e6,
	}
	ended = map[id.Job]time.Duration{}

	r = run(t, sim.Config{
		Policy: make(), Nodes: []fleet.Node{box("own", 1)}, Jobs: &list{jobs: []*sim.Job{first, away}},
		Cloud:   &sim.Cloud{Offers: []fleet.Offer{offer}},
		Network: &sim.Network{Inside: 1 << 30, Across: 120 << 20, Price: 0.09, Disk: 1 << 30},
		Yard:    func(c *yardmaster.Config) { c.Unmetered = false },
		OnEnd:   func(o *sim.Outcome) { ended[o.ID] = o.Ended },
		OnLedger: func(c *ledger.Changes) {
			for _, s := range c.Savings {
				if s.Kind == string(place.Move) {
					moves = append(moves, s)
				}
			}
		},
	})

	return ended, moves, r
}

// TestAMoveCostsWhatItCosts: the job that comes home stands still while its checkpoint is written, brought to the store
// and from there to its new node, and read, and what goes across is paid for; the ledger books what the move saved.
func TestAMoveCostsWhatItCosts(t *testing.T) {
	t.Parallel()

	stays, none, without := homeward(t, "fifo:relocate=no")
	moves, saved, with := homeward(t, "fifo")

	// 12 s to write and to read 12 GiB, 102.4 s to the store, 12 s from there.
	const pause = 138_400 * time.Millisecond
	if delay := moves["j2"] - stays["j2"]; delay != pause {
		t.Errorf("the job is %v later, want %v", delay, pause)
	}

	if len(none) != 0 || len(saved) != 1 || saved[0].Time.Duration() != -pause {
		t.Fatalf("booked %+v and %+v, want one move that took %v", none, saved, pause)
	}

	// It leaves its node after two hours and 114.4 s instead of ten hours and a minute. The node is released when it has
	// been idle for five minutes; without the move the simulation ends with the job.
	want := 3 * (8*time.Hour + time.Minute - 114_400*time.Millisecond - 5*time.Minute).Hours()
	if got := float64(saved[0].Money) / 1e9; math.Abs(got-want) > 0.001 {
		t.Errorf("the ledger says that $%.3f were saved, want $%.3f", got, want)
	}

	if got := without.ByClass[fleet.OnDemand] - with.ByClass[fleet.OnDemand]; math.Abs(got-want) > 0.001 {
		t.Errorf("$%.3f less were paid for nodes, want $%.3f", got, want)
	}

	if want := 0.09 * float64(12<<30) / 1e9; math.Abs(with.TransferMoney-want) > 1e-9 || without.TransferMoney != 0 {
		t.Errorf("transfers cost $%.3f and $%.3f, want $%.3f and nothing", with.TransferMoney, without.TransferMoney, want)
	}
}

// TestJobsComeHomeUnderEveryPolicy: every policy of the catalogue provisions for a job and brings it home, once.
func TestJobsComeHomeUnderEveryPolicy(t *testing.T) {
	t.Parallel()

	for _, name := range catalogue.All(nil).Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			stays, _, _ := homeward(t, name+":relocate=no")
			moves, saved, r := homeward(t, name)

			if stays["j2"] > 10*time.Hour+10*time.Minute {
				t.Fatalf("the policy does not provision for the job: it ends after %v", stays["j2"])
			}

			if r.Moves != 1 || len(saved) != 1 || saved[0].Money <= 0 || moves["j2"]-stays["j2"] > 3*time.Minute {
				t.Errorf("%d moves, booked %+v, ends after %v instead of %v", r.Moves, saved, moves["j2"], stays["j2"])
			}
		})
	}
}

// fragmented is a yard of two nodes with two GPUs. On each two jobs start that are expected to take ten hours, of which
// one ends after an hour. Then a job comes that needs two GPUs on one node. It returns when that starts.
func fragmented(t *testing.T, policy string) (wide time.Duration, r *sim.Result) {
	t.Helper()

	make, err := catalogue.All(nil).Make(policy)
	if err != nil {
		t.Fatal(err)
	}

	var jobs []*sim.Job
	for _, hours := range []time.Duration{1, 10, 1, 10} {
		j := lasting(0, hours*time.Hour, 1)
		j.Spec.Expect, j.Spec.Checkpoint, j.CheckpointSize = job.Duration(10*time.Hour), &job.Checkpoint{}, 12<<30
		jobs = append(jobs, j)
	}

	last := lasting(90*time.Minute, 2*time.Hour, 2)
	last.Spec.Expect = job.Duration(2 * time.Hour)
	jobs = append(jobs, last)

	r = run(t, sim.Config{
		Policy: make(), Nodes: []fleet.Node{box("a", 2), box("b", 2)}, Jobs: &list{jobs: jobs},
		Network: &sim.Network{Inside: 1 << 30, Across: 120 << 20, Disk: 1 << 30},
		OnEnd: func(o *sim.Outcome) {
			if o.ID == "j5" {
				wide = o.Ended - 2*time.Hour
			}
		},
	})

	return wide, r
}

// TestRoomIsMadeForAWideJob: one of the jobs that are in the way moves to the other's node, and the wide job
// starts when its checkpoint is stored.
func TestRoomIsMadeForAWideJob(t *testing.T) {
	t.Parallel()

	for _, policy := range []string{"fifo", "rules"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()

			if wide, r := fragmented(t, policy+":relocate=no"); wide < 9*time.Hour || r.Moves != 0 {
				t.Fatalf("without moves it starts after %v, %d moves", wide, r.Moves)
			}

			// 12 s to write 12 GiB, 12 s to the store.
			if wide, r := fragmented(t, policy); wide != 90*time.Minute+24*time.Second || r.Moves != 1 {
				t.Errorf("it starts after %v, %d moves", wide, r.Moves)
			}
		})
	}
}
