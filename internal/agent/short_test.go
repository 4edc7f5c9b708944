package agent_test

import (
	"slices"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// reportsOf returns what was reported of a run; call it under the lock.
func (y *fakeYard) reportsOf(run string) (list []api.RankReport) {
	for _, r := range y.reports {
		for _, k := range r.Ranks {
			if string(k.Run) == run {
				list = append(list, k)
			}
		}
	}

	return list
}

func TestARunWithoutOutputNeedsNoUpload(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.mutes, rt.instant = true, true
	launch(t, config(t, y, rt))

	y.await("the first answer", func() bool { return len(y.reports) > 1 })
	y.assign(assignment("j1.1"))

	if got := y.awaitState("j1.1", job.RunEnded); !got.Silent {
		t.Errorf("reported as %+v, want silent", got)
	}

	y.assign()
	rt.wait(y, "it is forgotten", func() bool { return slices.Contains(rt.forgot, "j1.1") })

	y.mu.Lock()
	defer y.mu.Unlock()

	if s := y.logs[rankKey{"j1.1", 0}]; s != nil {
		t.Errorf("an upload of %d bytes, final %v", len(s.data), s.final)
	}
}

// An earlier server waits for the end of every log, and rejects reports with words that it does not know.
func TestAServerThatKnowsNoSilentRunsGetsAnEmptyLog(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	rt.instant = true
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))

	if got := y.awaitState("j1.1", job.RunEnded); got.Silent {
		t.Error("reported as silent")
	}

	y.await("the empty log", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final && len(s.data) == 0
	})
}

// A run that ended without output and is not assigned any more may be one that the yard does not know: only an upload
// finds that out.
func TestASilentRunThatIsNotAssignedIsUploaded(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), newFakeRuntime()
	y.mutes, rt.instant = true, true
	cfg := config(t, y, rt)
	stop := launch(t, cfg)

	y.await("the first answer", func() bool { return len(y.reports) > 1 })
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunEnded)
	stop()

	y.assign()
	launch(t, cfg)
	y.await("the empty log", func() bool {
		s := y.logs[rankKey{"j1.1", 0}]
		return s != nil && s.final
	})
}
