package agent_test

import (
	"slices"
	"testing"

	"trainyard/internal/job"
)

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

// What a short run prints comes in one upload, with its end. A server of an earlier version is sent the end once more.
func TestAShortLogIsOneUpload(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		says bool
		want int
	}{{true, 1}, {false, 2}} {
		y, rt := newYard(t), newFakeRuntime()
		y.mutes, rt.instant, rt.text = test.says, true, "hello\n"
		launch(t, config(t, y, rt))
		y.assign(assignment("j1.1"))
		y.awaitState("j1.1", job.RunEnded)
		y.assign()
		rt.wait(y, "it is forgotten", func() bool { return slices.Contains(rt.forgot, "j1.1") })

		y.mu.Lock()
		if s := y.logs[rankKey{"j1.1", 0}]; s == nil || !s.final || string(s.data) != "hello\n" || y.uploads != test.want {
			t.Errorf("%d uploads, want %d; the log is %+v", y.uploads, test.want, s)
		}
		y.mu.Unlock()
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
