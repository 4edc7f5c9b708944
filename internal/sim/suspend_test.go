package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
)

// lender is a node with one GPU whose programs can be suspended in place.
func lender() fleet.Node {
	n := box("a", 1)
	n.Inventory.Suspends = true
	n.Inventory.Snapshots = &fleet.Snapshots{Suspend: fleet.Ability{OK: true}}

	return n
}

// srtf makes the policy that lets short jobs go first.
func srtf(t *testing.T) place.Policy {
	t.Helper()

	policy, err := catalogue.All(nil).Make("srtf")
	if err != nil {
		t.Fatal(err)
	}

	return policy()
}

// declared is a job on one GPU that says how long it lasts.
func declared(at, lasts time.Duration) *sim.Job {
	j := lasting(at, lasts, 1)
	j.Spec.Expect = job.Duration(lasts)

	return j
}

// TestASuspendedJobGoesOnWithItsWork lets a short job preempt a long one on a node that can suspend it, and on one
// that cannot. A suspended job has done what it had done, and is not charged for the GPU that it lends.
func TestASuspendedJobGoesOnWithItsWork(t *testing.T) {
	t.Parallel()

	type want struct {
		ends        []time.Duration
		gpuSeconds  float64
		runs        int
		suspensions int
	}

	for name, c := range map[string]struct {
		node       fleet.Node
		suspending time.Duration
		want       want
	}{
		"suspended": {lender(), 0, want{[]time.Duration{70 * time.Second, 310 * time.Second}, 310, 2, 1}},
		"suspended in 5 s": {
			lender(), 5 * time.Second,
			// It holds its GPU until it is suspended, and has it before it works again.
			want{[]time.Duration{75 * time.Second, 320 * time.Second}, 320, 2, 1},
		},
		"stopped": {box("a", 1), 0, want{[]time.Duration{70 * time.Second, 310 * time.Second}, 310, 3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var got want
			r := run(t, sim.Config{
				Policy: srtf(t), Nodes: []fleet.Node{c.node}, Suspending: c.suspending,
				Jobs:  &list{jobs: []*sim.Job{declared(0, 300*time.Second), declared(60*time.Second, 10*time.Second)}},
				OnEnd: func(o *sim.Outcome) { got.ends = append(got.ends, o.Ended) },
			})

			got.gpuSeconds, got.runs, got.suspensions = r.GPUSeconds, r.Runs, r.Suspensions
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("what is wanted (-) and what came (+):\n%s", diff)
			}
		})
	}
}

// TestASuspendedJobThatIsStoppedContinuesFromItsCheckpoint takes the node away while a job is suspended there: what it
// had done since its last checkpoint is lost, as nobody can save it.
func TestASuspendedJobThatIsStoppedContinuesFromItsCheckpoint(t *testing.T) {
	t.Parallel()

	long := declared(0, 300*time.Second)
	long.Spec.Checkpoint.Every = job.Duration(40 * time.Second)

	var ends []time.Duration
	r := run(t, sim.Config{
		Policy: srtf(t), Nodes: []fleet.Node{lender()},
		Jobs: &list{jobs: []*sim.Job{long, declared(60*time.Second, 30*time.Second)}},
		Changes: &happenings{list: []sim.Change{
			{At: 70 * time.Second, Kind: sim.NodeReclaimed, ID: "a"}, {At: 100 * time.Second, Kind: sim.NodeUncordoned, ID: "a"},
		}},
		OnEnd: func(o *sim.Outcome) { ends = append(ends, o.Ended) },
	})

	// The short one begins anew at 100 s. Of 60 s of the long one 40 s are saved.
	want := []time.Duration{130 * time.Second, 390 * time.Second}
	if diff := cmp.Diff(want, ends); diff != "" || r.Suspensions != 1 {
		t.Errorf("%d suspensions, want 1; ends that are wanted (-) and that came (+):\n%s", r.Suspensions, diff)
	}
}
