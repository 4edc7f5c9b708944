package job_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }

// TestReportsThatAreNotFurtherChangeNothing walks all pairs of states.
func TestReportsThatAreNotFurtherChangeNothing(t *testing.T) {
	t.Parallel()
	states := []job.RunState{job.RunOrdered, job.RunPreparing, job.RunRunning, job.RunEnded}

	steps := []job.RankStep{job.RankUnchanged, job.RankPreparing, job.RankRunning, job.RankEnded}
	for _, known := range job.RunStates() {
		if known == job.RunStopping {
			continue // a rank that was told to stop runs until it has ended
		}

		for _, told := range job.RunStates() {
			k := job.Rank{State: known}
			rep := job.RankReport{State: told, Started: at(1)}

			further := told
			if told == job.RunStopping {
				further = job.RunRunning
			}

			want := job.RankUnchanged
			if far := slices.Index(states, further); far > slices.Index(states, known) {
				want = steps[far]
			}

			got := rep.Take(&k, at(2))
			if got != want {
				t.Errorf("a rank that is %s and told to be %s: step %d, want %d", known, told, got, want)
			}

			if got == job.RankUnchanged && k.State != known {
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
		rep   job.RankReport
		step  job.RankStep
		after job.Rank
	}{
		{
			"further with its preparation", job.Rank{State: job.RunPreparing, Reason: "1 of 2"}, job.RankReport{State: job.RunPreparing, Reason: "2 of 2"},
			job.RankPreparing, job.Rank{State: job.RunPreparing, Reason: "2 of 2"},
		},
		{
			"started at a time", job.Rank{State: job.RunPreparing, Reason: "2 of 2"}, job.RankReport{State: job.RunRunning, Started: at(1)},
			job.RankRunning, job.Rank{State: job.RunRunning, Started: at(1)},
		},
		{
			"further with the upload of a checkpoint", job.Rank{State: job.RunRunning, Started: at(1), Reason: "1 of 2"}, job.RankReport{State: job.RunRunning, Started: at(1), Reason: "2 of 2"},
			job.RankRunning, job.Rank{State: job.RunRunning, Started: at(1), Reason: "2 of 2"},
		},
		{
			"done with the upload of a checkpoint", job.Rank{State: job.RunRunning, Started: at(1), Reason: "2 of 2"}, job.RankReport{State: job.RunRunning, Started: at(1)},
			job.RankRunning, job.Rank{State: job.RunRunning, Started: at(1)},
		},
		{
			"started at an unknown time", job.Rank{}, job.RankReport{State: job.RunRunning},
			job.RankRunning, job.Rank{State: job.RunRunning, Started: at(2)},
		},
		{
			"stops before it began", job.Rank{State: job.RunPreparing}, job.RankReport{State: job.RunStopping},
			job.RankUnchanged, job.Rank{State: job.RunPreparing},
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
		rep       job.RankReport
		cause     job.Cause
		signalled bool
	}{
		{"by itself", job.RankReport{}, job.CauseNone, false},
		{"with an exit code", job.RankReport{ExitCode: 1}, job.CauseUserCode, false},
		{"by a signal", job.RankReport{Signal: "SIGSEGV"}, job.CauseUserCode, false},
		{"as told", job.RankReport{Cause: job.CauseCancelled, ExitCode: 143}, job.CauseNone, true},
		{"of a known cause", job.RankReport{Cause: job.CauseHostOOM, ExitCode: 137}, job.CauseHostOOM, false},
		{"of an unknown cause", job.RankReport{Cause: "gremlins", ExitCode: 1}, job.CauseUserCode, false},
		{"of an unknown cause, told to stop", job.RankReport{Cause: "gremlins", ExitCode: 1, Signalled: true}, job.CauseNone, true},
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
	if run.Begin(at(1)) {
		t.Error("it began with one of two ranks")
	}

	run.Ranks[1].Started = at(2)
	if !run.Begin(at(2)) || run.State != job.RunRunning || !run.Started.Equal(at(2)) {
		t.Errorf("with both it is %s since %s", run.State, run.Started)
	}

	if run.Begin(at(3)) {
		t.Error("it began twice")
	}

	run.Ranks[0].State = job.RunEnded
	if run.Over() {
		t.Error("it is over with one of two ranks")
	}

	run.Ranks[1].State = job.RunEnded
	if !run.Over() {
		t.Error("it is not over")
	}
}
