package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
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

	y.kill(first.Run)
	y.kill(second.Run)
	y.awaitGone(watcher)
}

// awaitGone waits until a process has ended.
func (y *yard) awaitGone(p process.Process) {
	y.t.Helper()

	if !p.AwaitExit(y.t.Context()) {
		y.t.Fatal("the test was ended")
	}
}

// kill ends a run.
func (y *yard) kill(run id.Run) {
	y.t.Helper()

	if err := y.Stop(run, 0, job.StopKill); err != nil {
		y.t.Fatal(err)
	}

	y.end(run)
}

func TestAWatcherWithoutRunsEnds(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first, _ := y.sleeper(t)
	second, _ := y.sleeper(t)
	y.awaitWatcher(second.Run)

	watcher, ok := process.Read(y.awaitWatcher(first.Run))
	if !ok {
		t.Fatal("the watcher is gone")
	}

	y.kill(first.Run)

	if !watcher.Exists() {
		t.Error("the watcher is gone before the last of its runs")
	}

	y.kill(second.Run)
	y.awaitGone(watcher) // while the agent goes on

	// The next run has another one, which an agent that is stopped leaves to the run, and takes with it else.
	third, _ := y.sleeper(t)
	watcher, ok = process.Read(y.awaitWatcher(third.Run))

	y.reopen()

	if !ok || !watcher.Exists() {
		t.Fatal("the watcher is gone before its run")
	}

	y.kill(third.Run)
	y.awaitGone(watcher)

	fourth, _ := y.sleeper(t)
	watcher, ok = process.Read(y.awaitWatcher(fourth.Run))
	y.kill(fourth.Run)

	for !y.watched.none() { // it is told of the end right after it is recorded
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatal("the test was ended")
		}
	}

	y.reopen()

	if !ok || watcher.Exists() {
		t.Error("an agent without runs has left its watcher behind")
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

// A watcher ends a rank whose state is damaged, too, and the end that it records is that of the rank.
func TestAWatcherEndsARankWhoseStateIsDamaged(t *testing.T) {
	t.Parallel()

	for name, record := range map[string]bool{"the record is there": true, "the record is damaged, too": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			s, pid := y.sleeper(t)
			watcher, ok := process.Read(y.awaitWatcher(s.Run))
			if !ok {
				t.Fatal("the watcher is gone")
			}

			supervisor := y.supervisor(s)

			// The agent is closed, so that the watcher is the one who ends the rank.
			if err := y.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(y.runDir(s.Run), rundir.StateFile), 0); err != nil {
				t.Fatal(err)
			}

			if !record {
				y.cutRecord(s.Run)
			}

			if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}

			y.awaitGone(watcher)

			if alive(t, pid) {
				t.Error("the program still runs")
			}

			y.open()

			st, known := y.Status(s.Run, 0)
			if known != record || record && (st.Run != s.Run || st.Epoch != s.Epoch || st.Cause != job.CauseNodeLost) {
				t.Errorf("the rank is known: %t, as %+v", known, st)
			}
		})
	}
}
