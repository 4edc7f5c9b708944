package agent

import (
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// The server stores every report that says something new. That a rank has begun waits for its end, if that comes soon.
func TestOnlyNewsThatSomebodyWaitsForIsReportedAtOnce(t *testing.T) {
	t.Parallel()

	soon, later := make(chan struct{}, 1), make(chan struct{}, 1)
	rank := func(state job.RunState, reason string) api.RankReport {
		return api.RankReport{Run: "j1.1", State: state, Reason: reason}
	}

	for _, test := range []struct {
		name        string
		before, now api.RankReport
		want        chan struct{}
	}{
		{"a rank that prepares", api.RankReport{}, rank(job.RunPreparing, ""), later},
		{"a rank that runs at once", api.RankReport{}, rank(job.RunRunning, ""), later},
		{"a rank that runs now", rank(job.RunPreparing, ""), rank(job.RunRunning, ""), later},
		{"nothing new", rank(job.RunRunning, ""), rank(job.RunRunning, ""), nil},
		{"how far the files are", rank(job.RunPreparing, ""), rank(job.RunPreparing, "1 of 2"), soon},
		{"how far a checkpoint is", rank(job.RunRunning, ""), rank(job.RunRunning, "half"), soon},
		{"a rank that stops", rank(job.RunRunning, ""), rank(job.RunStopping, ""), soon},
		{"an end", rank(job.RunRunning, ""), rank(job.RunEnded, ""), soon},
		{"an end at once", api.RankReport{}, rank(job.RunEnded, ""), soon},
	} {
		a := &Agent{reportSoon: soon, reportLater: later}
		if test.before.State != "" {
			a.rankReports = []api.RankReport{test.before}
		}

		if got := a.wakeFor(&test.now); got != test.want {
			t.Errorf("%s: got %v, want %v (soon is %v, later %v)", test.name, got, test.want, soon, later)
		}
	}
}
