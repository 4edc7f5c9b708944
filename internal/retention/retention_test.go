package retention_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/checkpoint"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/retention"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func saved(j id.Job, number int, ended time.Duration, size job.Bytes) retention.Saved {
	return retention.Saved{
		Owner: "ada", Ended: now.Add(-ended),
		Checkpoint: checkpoint.Checkpoint{
			ID: id.NewCheckpoint(j, number), Job: j, Epoch: 1, Number: number, State: checkpoint.Stored, Size: size,
			Parts: []checkpoint.Part{{Manifest: "m"}},
		},
	}
}

func TestWhichCheckpointsOfEndedJobsAreRemoved(t *testing.T) {
	t.Parallel()
	all := []retention.Saved{
		saved("j1", 1, 4*time.Hour, 10), saved("j1", 2, 4*time.Hour, 10), saved("j2", 1, 2*time.Hour, 10),
		saved("j3", 1, 5*time.Hour, 10), saved("j4", 1, 5*time.Hour, 10), saved("j5", 1, 5*time.Hour, 10),
	}
	all[3].Pinned = true
	all[4].Parts[0].Shared = "nfs"
	all[5].State = checkpoint.Partial

	tests := map[string]struct {
		limits retention.Limits
		want   []id.Checkpoint
	}{
		"none without limits": {retention.Limits{}, nil},
		"incomplete ones":     {retention.Limits{Unused: time.Hour}, []id.Checkpoint{"j5.c1"}},
		"after a time": {
			retention.Limits{Checkpoints: 3 * time.Hour}, []id.Checkpoint{"j1.c1", "j1.c2", "j4.c1", "j5.c1"},
		},
		"the earliest of the oldest jobs": {retention.Limits{Bytes: 35}, []id.Checkpoint{"j5.c1", "j1.c1"}},
		"the pinned one counts":           {retention.Limits{Bytes: 5}, []id.Checkpoint{"j5.c1", "j1.c1", "j1.c2", "j2.c1"}},
	}

	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []id.Checkpoint
			for _, r := range tt.limits.Surplus(now, all) {
				got = append(got, r.Checkpoint)
			}

			if !slices.Equal(got, tt.want) {
				t.Errorf("removed = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWhatAJobThatHasNotEndedNeedsIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := retention.Limits{
			Workdirs: time.Duration(rapid.IntRange(0, 3).Draw(t, "workdirs")) * time.Hour,
			Output:   time.Duration(rapid.IntRange(0, 3).Draw(t, "output")) * time.Hour,
			Files:    time.Duration(rapid.IntRange(0, 3).Draw(t, "files")) * time.Hour,
			Jobs:     time.Duration(rapid.IntRange(0, 3).Draw(t, "jobs")) * time.Hour,
		}
		ended := time.Duration(rapid.IntRange(0, 4).Draw(t, "ended")) * time.Hour
		states := []job.State{job.Pending, job.Running, job.Paused, job.Succeeded, job.Failed}
		state := rapid.SampledFrom(states).Draw(t, "state")
		j := &job.Job{State: state, Ended: now.Add(-ended)}

		// Nothing of a job outlives the job.
		within := func(limit time.Duration) bool {
			return !state.Final() || (limit == 0 || ended <= limit) && (l.Jobs == 0 || ended <= l.Jobs)
		}

		if got, want := l.KeepsWorkdir(now, j), within(l.Workdirs); got != want {
			t.Errorf("keeps the working directory: %v, want %v", got, want)
		}
		if got, want := l.KeepsOutput(now, j), within(l.Output); got != want {
			t.Errorf("keeps the output: %v, want %v", got, want)
		}
		if got, want := l.KeepsFiles(now, j), within(l.Files); got != want {
			t.Errorf("keeps the output files: %v, want %v", got, want)
		}
	})
}

// TestTheShorterLimitOfACheckpointCounts: its own, or that of its job.
func TestTheShorterLimitOfACheckpointCounts(t *testing.T) {
	t.Parallel()
	all := []retention.Saved{saved("j1", 1, 4*time.Hour, 10)}

	for limits, want := range map[retention.Limits]string{
		{Checkpoints: 2 * time.Hour, Jobs: 3 * time.Hour}: "its job ended more than 2h ago",
		{Checkpoints: 5 * time.Hour, Jobs: 3 * time.Hour}: "its job ended more than 3h ago",
		{Jobs: 3 * time.Hour}:                             "its job ended more than 3h ago",
		{Checkpoints: 2 * time.Hour}:                      "its job ended more than 2h ago",
		{Checkpoints: 5 * time.Hour, Jobs: 6 * time.Hour}: "",
	} {
		why := ""
		for _, r := range limits.Surplus(now, all) {
			why = r.Why
		}

		if why != want {
			t.Errorf("%+v: removed because %q, want %q", limits, why, want)
		}
	}
}

func TestEventsAreKeptForATime(t *testing.T) {
	t.Parallel()

	for hours, keeps := range map[int]bool{1: true, 2: true, 3: false} {
		at := now.Add(-time.Duration(hours) * time.Hour)
		if got := (retention.Limits{Events: 2 * time.Hour}).KeepsEvent(now, at); got != keeps {
			t.Errorf("an event of %d hours ago is kept: %v", hours, got)
		}

		if !(retention.Limits{}).KeepsEvent(now, at) {
			t.Errorf("without a limit an event of %d hours ago is not kept", hours)
		}
	}
}

func TestTheOldestOutputGoesFirst(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	all := []retention.Printed{
		{Job: "j3", Owner: "ada", Ended: day(3), Bytes: 40},
		{Job: "j1", Owner: "ada", Ended: day(1), Bytes: 40},
		{Job: "j2", Owner: "ada", Ended: day(2), Bytes: 40},
		{Job: "j4", Owner: "bob", Ended: day(1), Bytes: 70},
	}

	for _, test := range []struct {
		name   string
		limits retention.Limits
		want   map[id.Job]string
	}{
		{"no limits", retention.Limits{}, map[id.Job]string{}},
		{"enough", retention.Limits{UserOutput: 120, AllOutput: 190}, map[id.Job]string{}},
		{"too much of one user", retention.Limits{UserOutput: 80},
			map[id.Job]string{"j1": "the output of ended jobs of ada takes more than 80 B"}},
		{"far too much", retention.Limits{UserOutput: 60}, map[id.Job]string{
			"j1": "the output of ended jobs of ada takes more than 60 B",
			"j2": "the output of ended jobs of ada takes more than 60 B",
			"j4": "the output of ended jobs of bob takes more than 60 B",
		}},
		{"too much of all", retention.Limits{AllOutput: 120}, map[id.Job]string{
			"j1": "the output of all ended jobs takes more than 120 B",
			"j4": "the output of all ended jobs takes more than 120 B",
		}},
		{"both", retention.Limits{UserOutput: 80, AllOutput: 90}, map[id.Job]string{
			"j1": "the output of ended jobs of ada takes more than 80 B",
			"j4": "the output of all ended jobs takes more than 90 B",
		}},
	} {
		if diff := cmp.Diff(test.want, test.limits.SurplusOutput(all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
