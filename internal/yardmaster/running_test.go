package yardmaster

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

var begin = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func TestWhatAnEndedRunLeavesBehind(t *testing.T) {
	t.Parallel()
	speed := job.NewSpeed(6000, 0, 0, job.Rate{GPUs: 1, PerSecond: 1})

	every := &job.Checkpoint{Every: job.Duration(10 * time.Minute)}
	for _, c := range []struct {
		name  string
		spec  job.Spec
		cause job.Cause
		told  time.Time
		done  float64
	}{
		{"succeeded", job.Spec{Speed: speed}, job.CauseNone, time.Time{}, 6000},
		{"failed without a checkpoint", job.Spec{Speed: speed}, job.CauseUserCode, time.Time{}, 0},
		{"stopped and saved", job.Spec{Speed: speed, Checkpoint: every}, job.CausePreempted, begin.Add(20 * time.Minute), 1200},
		{"preempted untold", job.Spec{Speed: speed, Checkpoint: every}, job.CausePreempted, time.Time{}, 1500},
		{"died after its second checkpoint", job.Spec{Speed: speed, Checkpoint: every}, job.CauseNodeLost, time.Time{}, 1200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := &job.Job{ID: "j1", Spec: &c.spec}
			o := job.NewOutlook(j)
			run := &job.Run{ID: "j1.1", Started: begin}
			var list runningJobs
			rn := list.add(
				&queue.Item{Job: "j1", Number: 1, Outlook: o},
				run,
				[]place.Allocation{{Node: "a", GPUs: 1}},
				someNode,
			)

			recordWork(begin.Add(25*time.Minute), j, run, rn, c.cause, c.told, false)

			if math.Abs(j.Done-c.done) > 1 || o.Done != j.Done || j.Served != 25*60 {
				t.Errorf("it has done %g with %g GPU-seconds, and is expected to have done %g", j.Done, j.Served, o.Done)
			}
		})
	}
}

func someNode(name id.Node) *fleet.Node {
	return &fleet.Node{ID: name, Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Index: 0, Model: "A100"}}}}
}

// TestRunningJobsAreInOrder adds and removes jobs by chance.
func TestRunningJobsAreInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var list runningJobs
		runs := map[uint64]*place.Running{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			number := uint64(rapid.IntRange(1, 12).Draw(t, "number"))
			if rn, known := runs[number]; known {
				list.remove(rn)
				delete(runs, number)
			} else {
				runs[number] = list.add(&queue.Item{Number: number, Outlook: &job.Outlook{}}, &job.Run{}, nil, someNode)
			}

			if len(list) != len(runs) ||
				!slices.IsSortedFunc(list, func(a, b *place.Running) int { return int(a.Number) - int(b.Number) }) {
				t.Fatalf("%d of %d run, in order %v", len(list), len(runs), list)
			}

			for _, rn := range list {
				if runs[rn.Number] != rn {
					t.Fatalf("%d is among them and should not be", rn.Number)
				}
			}
		}
	})
}
