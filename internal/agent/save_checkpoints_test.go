package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/agent"
	"trainyard/internal/api"
	"trainyard/internal/job"
)

// quickly makes an agent look at checkpoints often.
func quickly(cfg agent.Config) agent.Config {
	cfg.CheckpointEvery, cfg.CheckpointRest = 10*time.Millisecond, 50*time.Millisecond
	return cfg
}

// trains counts in a file that it replaces atomically, from where an earlier run came to, until it is stopped.
const trains = `
cd "$TRAINYARD_CHECKPOINT_DIR"
n=$(cat step 2>/dev/null || echo 0)
echo "starts at $n"
trap 'exit 0' TERM
while :; do
	n=$((n + 1))
	echo $n > step.tmp && mv step.tmp step
	sleep 0.02
done`

func restoreOf(in api.NewCheckpoint) *job.Restore {
	return &job.Restore{
		Checkpoint: "j1.c1", Name: in.Name, Step: -1, Size: in.Size, Parts: []job.RestorePart{{Manifest: in.Manifest}},
	}
}

func TestACheckpointTravelsToAnotherNode(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := quickly(realConfig(t, y))
	stop := launch(t, first)
	as := realAssignment("j1.1", trains)
	as.Launch.UID = "u1"
	y.assign(as)
	y.await("a checkpoint", func() bool { return len(y.catalogue()) > 0 })

	as.Stop = job.StopTerm
	y.assign(as)

	if end := y.awaitState("j1.1", job.RunEnded); end.ExitCode != 0 {
		t.Errorf("end %+v", end)
	}

	all := y.catalogue() // nothing is entered after the end was reported
	last, err := os.ReadFile(filepath.Join(first.Dir, "checkpoints", "j1", "step"))
	if err != nil {
		t.Fatal(err)
	}

	stop()

	second := quickly(realConfig(t, y))
	launch(t, second)
	as = realAssignment("j1.2", trains)
	as.Launch.UID, as.Launch.Restore = "u2", restoreOf(all[len(all)-1])
	y.assign(as)

	want := "starts at " + strings.TrimSpace(string(last))
	y.await(want, func() bool {
		s := y.logs[rankKey{"j1.2", 0}]
		return s != nil && cmp.Equal(lines(t, s.data), []string{want})
	})

	y.await("a checkpoint of the second run", func() bool {
		all = y.catalogue()
		return all[len(all)-1].Run == "j1.2"
	})

	if in := all[len(all)-1]; in.UID != "u2" || in.Name != "step" || in.Found != "rename" {
		t.Errorf("entered %+v", in)
	}

	// It would go on writing into a folder that is being removed.
	as.Stop = job.StopTerm
	y.assign(as)
	y.awaitState("j1.2", job.RunEnded)
}

func TestTheEndIsHeldBackUntilTheLastCheckpointIsStored(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var down atomic.Bool
	down.Store(true)
	y.refuse = func(path string) int {
		if down.Load() && strings.HasPrefix(path, "/agent/v1/chunks/") {
			return 503
		}

		return 0
	}

	cfg := quickly(realConfig(t, y))
	stop := launch(t, cfg)
	as := realAssignment("j1.1", `echo done > "$TRAINYARD_CHECKPOINT_DIR/model.pt"`)
	y.assign(as)

	y.await("the wait to be reported", func() bool {
		r, ok := y.last("j1.1")
		return ok && r.State == job.RunRunning && strings.HasPrefix(r.Reason, "the program has ended; uploading checkpoint model.pt: ")
	})

	stop() // the next agent goes on with it
	launch(t, cfg)
	y.await("the wait to be reported again", func() bool {
		r, ok := y.last("j1.1")
		return ok && r.State == job.RunRunning && strings.HasSuffix(r.Reason, "refused by the test")
	})
	down.Store(false)

	if end := y.awaitState("j1.1", job.RunEnded); end.ExitCode != 0 || end.Reason != "" || end.Ended.IsZero() {
		t.Errorf("end %+v", end)
	}

	if all := y.catalogue(); len(all) != 1 || all[0].Name != "model.pt" {
		t.Errorf("entered %+v", all)
	}
}

func TestACorruptCheckpointEndsTheRank(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	launch(t, quickly(realConfig(t, y)))
	as := realAssignment("j1.2", "true")
	as.Launch.Restore = restoreOf(api.NewCheckpoint{Name: ".", Manifest: strings.Repeat("0", 64)})
	y.assign(as)

	end := y.awaitState("j1.2", job.RunEnded)
	want := &job.RestoreFailure{Checkpoint: "j1.c1", Corrupt: true}
	if end.Cause != job.CauseRestoreFailed || !cmp.Equal(end.Restore, want) || !end.Started.IsZero() ||
		!strings.Contains(end.Reason, "checkpoint j1.c1") {
		t.Errorf("end %+v, restore %+v", end, end.Restore)
	}
}
