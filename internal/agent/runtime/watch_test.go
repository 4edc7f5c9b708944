package runtime

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// awaitOtherWatcher waits until a run has another watcher than this one.
func (y *yard) awaitOtherWatcher(run id.Run, than int) int {
	y.t.Helper()

	for {
		if pid := y.awaitWatcher(run); pid != than {
			return pid
		}
		if !clock.Sleep(y.t.Context(), time.Millisecond) {
			y.t.Fatal("the test was ended")
		}
	}
}

func TestOneProcessWatchesAllRuns(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first, _ := y.sleeper(t)
	second, _ := y.sleeper(t)

	if a, b := y.awaitWatcher(first.Run), y.awaitWatcher(second.Run); a != b {
		t.Errorf("the watchers of two runs are the processes %d and %d", a, b)
	}

	// The next agent process has one of its own, for what it starts.
	old := y.awaitWatcher(first.Run)
	y.reopen()
	third, _ := y.sleeper(t)

	if a, b := y.awaitWatcher(first.Run), y.awaitWatcher(third.Run); a != old || b == old {
		t.Errorf("after a restart the watchers are %d and %d, before it %d", a, b, old)
	}

	// The one of the earlier process goes with the last of its runs.
	watcher, ok := process.Read(old)
	if !ok {
		t.Fatal("the watcher is gone")
	}

	for _, run := range []id.Run{first.Run, second.Run} {
		if err := y.Stop(run, 0, job.StopKill); err != nil {
			t.Fatal(err)
		}

		y.end(run)
	}

	for watcher.Exists() {
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatal("the test was ended")
		}
	}
}

func TestAKilledWatcherIsReplaced(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first, pid := y.sleeper(t)
	second, _ := y.sleeper(t)
	y.awaitWatcher(second.Run)

	watcher := y.awaitWatcher(first.Run)
	if err := unix.Kill(watcher, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if a, b := y.awaitOtherWatcher(first.Run, watcher), y.awaitOtherWatcher(second.Run, watcher); a != b {
		t.Errorf("the watchers of two runs are the processes %d and %d", a, b)
	}

	if err := errors.Join(y.Close(), unix.Kill(y.supervisor(first), unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}

	awaitEnd(t, y.runDir(first.Run))

	if alive(t, pid) {
		t.Error("the program is left")
	}

	y.open()
}
