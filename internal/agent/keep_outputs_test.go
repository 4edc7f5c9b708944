package agent_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// addOutputs takes what an agent says of output files.
func (y *fakeYard) addOutputs(w http.ResponseWriter, r *http.Request) {
	var in api.NewOutputs
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	y.change(func() { y.outputs = append(y.outputs, in) })
	w.WriteHeader(http.StatusNoContent)
}

// The node of a run that the server hears of as ended may be released, and its files with it.
func TestTheEndOfARunWaitsForItsOutputFiles(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var away atomic.Bool
	away.Store(true)
	y.refuse = func(path string) int {
		if away.Load() && path == "/agent/v1/outputs" {
			return http.StatusServiceUnavailable
		}

		return 0
	}

	launch(t, quickly(realConfig(t, y)))
	as := realAssignment("j1.1", "echo weights > model")
	as.Launch.UID, as.Launch.Outputs = "u1", []string{"model"}
	y.assign(as)

	var report api.RankReport
	y.await("a report that the program has ended", func() bool {
		report, _ = y.last("j1.1")
		return report.State == job.RunEnded || strings.HasPrefix(report.Reason, "the program has ended; keeping output files")
	})

	if report.State == job.RunEnded {
		t.Error("it was reported as ended before its output files were kept")
	}

	away.Store(false)

	if end := y.awaitState("j1.1", job.RunEnded); end.ExitCode != 0 || end.Reason != "" {
		t.Errorf("end %+v", end)
	}

	y.mu.Lock()
	defer y.mu.Unlock()

	if len(y.outputs) == 0 || y.outputs[len(y.outputs)-1].Manifest == "" {
		t.Errorf("entered %+v", y.outputs)
	}
}
