package course_test

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
	"trainyard/internal/queue"
	"trainyard/internal/yardmaster/course"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }

// TestReportsThatAreNotFurtherChangeNothing walks all pairs of states.
func TestReportsThatAreNotFurtherChangeNothing(t *testing.T) {
	t.Parallel()
	states := []job.RunState{job.RunOrdered, job.RunPreparing, job.RunRunning, job.RunEnded}
	steps := []course.Step{course.Nothing, course.Prepares, course.Runs, course.Ended}
	for _, known := range job.RunStates() {
		if known == job.RunStopping {
			continue // a rank that was told to stop runs until it has ended
		}
		for _, told := range job.RunStates() {
			k := job.Rank{State: known}
			rep := course.Report{State: told, Started: at(1)}
			further := told
			if told == job.RunStopping {
				further = job.RunRunning
			}
			want := course.Nothing
			if far := slices.Index(states, further); far > slices.Index(states, known) {
				want = steps[far]
			}
			got := rep.Take(&k, at(2))
			if got != want {
				t.Errorf("a rank that is %s and told to be %s: step %d, want %d", known, told, got, want)
			}
			if got == course.Nothing && k.State != known {
				t.Errorf("a rank that is %s and told to be %s is %s", known, told, k.State)
			}
		}
	}
}

func TestWhatARankSaysOfItsStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		rank  job.Rank
		rep   course.Report
		step  course.Step
		after job.Rank
	}{
		{
			"further with its preparation", job.Rank{State: job.RunPreparing, Reason: "1 of 2"}, course.Report{State: job.RunPreparing, Reason: "2 of 2"},
			course.Prepares, job.Rank{State: job.RunPreparing, Reason: "2 of 2"},
		},
		{
			"started at a time", job.Rank{State: job.RunPreparing, Reason: "2 of 2"}, course.Report{State: job.RunRunning, Started: at(1)},
			course.Runs, job.Rank{State: job.RunRunning, Started: at(1)},
		},
		{
			"started at an unknown time", job.Rank{}, course.Report{State: job.RunRunning},
			course.Runs, job.Rank{State: job.RunRunning, Started: at(2)},
		},
		{
			"stops before it began", job.Rank{State: job.RunPreparing}, course.Report{State: job.RunStopping},
			course.Nothing, job.Rank{State: job.RunPreparing},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.rep.Take(&c.rank, at(2)); got != c.step {
				t.Errorf("step %d, want %d", got, c.step)
			}
			if diff := cmp.Diff(c.after, c.rank); diff != "" {
				t.Errorf("the rank:\n%s", diff)
			}
		})
	}
}

func TestTheCauseOfAnEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		rep       course.Report
		cause     job.Cause
		signalled bool
	}{
		{"by itself", course.Report{}, job.CauseNone, false},
		{"with an exit code", course.Report{ExitCode: 1}, job.CauseUserCode, false},
		{"by a signal", course.Report{Signal: "SIGSEGV"}, job.CauseUserCode, false},
		{"as told", course.Report{Cause: job.CauseCancelled, ExitCode: 143}, job.CauseNone, true},
		{"of a known cause", course.Report{Cause: job.CauseHostOOM, ExitCode: 137}, job.CauseHostOOM, false},
		{"of an unknown cause", course.Report{Cause: "gremlins", ExitCode: 1}, job.CauseUserCode, false},
		{"of an unknown cause, told to stop", course.Report{Cause: "gremlins", ExitCode: 1, Signalled: true}, job.CauseNone, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var k job.Rank
			c.rep.End(&k, at(3))
			if k.Cause != c.cause || k.Signalled != c.signalled || k.State != job.RunEnded || !k.Ended.Equal(at(3)) {
				t.Errorf("it ended as %+v", k)
			}
		})
	}
}

func TestARunBeginsWhenTheLastRankDoes(t *testing.T) {
	t.Parallel()
	run := &job.Run{State: job.RunOrdered, Ranks: make([]job.Rank, 2)}
	run.Ranks[0].Started = at(1)
	if course.Begin(run, at(1)) {
		t.Error("it began with one of two ranks")
	}
	run.Ranks[1].Started = at(2)
	if !course.Begin(run, at(2)) || run.State != job.RunRunning || !run.Started.Equal(at(2)) {
		t.Errorf("with both it is %s since %s", run.State, run.Started)
	}
	if course.Begin(run, at(3)) {
		t.Error("it began twice")
	}
	run.Ranks[0].State = job.RunEnded
	if course.Over(run) {
		t.Error("it is over with one of two ranks")
	}
	if run.Ranks[1].State = job.RunEnded; !course.Over(run) {
		t.Error("it is not over")
	}
}

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
		{"stopped and saved", job.Spec{Speed: speed, Checkpoint: every}, job.CausePreempted, at(20), 1200},
		{"preempted untold", job.Spec{Speed: speed, Checkpoint: every}, job.CausePreempted, time.Time{}, 1500},
		{"died after its second checkpoint", job.Spec{Speed: speed, Checkpoint: every}, job.CauseNodeLost, time.Time{}, 1200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := &job.Job{ID: "j1", Spec: &c.spec}
			o := course.Outlook(j)
			run := &job.Run{ID: "j1.1", Started: start}
			var list course.Running
			rn := list.Add(&queue.Item{Job: "j1", Number: 1, Outlook: o}, run, []place.Seat{{Node: "a", GPUs: 1}}, node)
			course.Settle(at(25), j, run, rn, c.cause, c.told)
			if math.Abs(j.Done-c.done) > 1 || o.Done != j.Done || j.Served != 25*60 {
				t.Errorf("it has done %g with %g GPU-seconds, and is expected to have done %g", j.Done, j.Served, o.Done)
			}
		})
	}
}

func node(name id.Node) *fleet.Node {
	return &fleet.Node{ID: name, Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Index: 0, Model: "A100"}}}}
}

func TestHowLongAJobLasts(t *testing.T) {
	t.Parallel()
	speed := job.NewSpeed(7200, 0, 0, job.Rate{GPUs: 1, PerSecond: 1})
	need := &fleet.Need{GPUs: 1, Nodes: 1}
	for _, c := range []struct {
		name string
		spec job.Spec
		want time.Duration
	}{
		{"nobody knows", job.Spec{}, 0},
		{"its owner expects", job.Spec{Expect: job.Duration(time.Hour), Speed: speed}, time.Hour},
		{"its owner allows", job.Spec{Expect: job.Duration(time.Hour), MaxDuration: job.Duration(3 * time.Hour)}, 3 * time.Hour},
		{"by its speed", job.Spec{Speed: speed}, 2 * time.Hour},
	} {
		if got := course.Lasts(&c.spec, course.Outlook(&job.Job{Spec: &c.spec}), need); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestRunningJobsAreInOrder adds and removes jobs by chance.
func TestRunningJobsAreInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var list course.Running
		runs := map[uint64]*place.Running{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			number := uint64(rapid.IntRange(1, 12).Draw(t, "number"))
			if rn, known := runs[number]; known {
				list.Remove(rn)
				delete(runs, number)
			} else {
				runs[number] = list.Add(&queue.Item{Number: number, Outlook: &job.Outlook{}}, &job.Run{}, nil, node)
			}
			if len(list) != len(runs) || !slices.IsSortedFunc(list, func(a, b *place.Running) int { return int(a.Number) - int(b.Number) }) {
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
