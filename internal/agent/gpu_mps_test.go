package agent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/share/sharetest"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/executable"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// newMPSNode is an agent with one fake GPU that jobs of one owner can share through MPS. The sockets of a daemon need a
// short path.
func newMPSNode(t *testing.T) *sharedNode {
	t.Helper()

	dir, err := os.MkdirTemp("/tmp", "mps") //nolint:usetesting // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}

	n := newSharedNodeIn(t, dir)
	t.Cleanup(func() {
		if text, err := os.ReadFile(n.daemonFile()); err == nil { // of a test that failed
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}

		_ = os.RemoveAll(dir)
	})

	return n
}

// pipes is where programs find the daemon of the GPU.
func (n *sharedNode) pipes() string { return filepath.Join(n.cfg.Dir, "mps", "fake", "pipe") }

// daemonFile holds the process id of the daemon.
func (n *sharedNode) daemonFile() string {
	return filepath.Join(n.pipes(), "nvidia-cuda-mps-control.pid")
}

// throughMPS is a run of the test program with a share of the GPU through MPS.
func (n *sharedNode) throughMPS(run id.Run, part float64, args string) api.Assignment {
	as := n.shared(run, part, args)
	as.Launch.ShareMPS = true

	return as
}

// control returns what was done with daemons.
func (n *sharedNode) control() string {
	n.t.Helper()

	text, err := os.ReadFile(n.cfg.MPSControl + ".log")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}

	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
}

// awaitControl waits until this was done with daemons.
func (n *sharedNode) awaitControl(want string) {
	n.t.Helper()
	n.await("MPS: "+want, func() bool { return n.control() == want })
}

// hasMPS returns what the newest inventory says.
func (n *sharedNode) hasMPS() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	has := false
	for _, r := range n.reports {
		if r.Inventory != nil {
			has = r.Inventory.MPS
		}
	}

	return has
}

func TestRunsShareAGPUThroughMPS(t *testing.T) {
	t.Parallel()

	n := newMPSNode(t)
	n.cfg.InventoryEvery = time.Hour // which stops daemons, too
	stop := launch(t, n.cfg)

	const start = "start " + sharetest.UUID

	first := n.throughMPS("j1.1", 0.7, "pause=1000")
	first.Launch.Command = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; exec " + first.Launch.Command
	second := n.throughMPS("j2.1", 0.2, "pause=1000")
	second.Launch.ShareLimit = 0.29
	second.Launch.Command = "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; exec " + second.Launch.Command
	n.assign(first, second)

	// The library is there for memory alone: that the GPU is used by both at once it cannot see.
	shares := func(u *job.ShareUse) bool {
		return u.Mode == job.ShareModeMPS && u.Held == 0 && u.Demanded == 0 && u.Memory >= sharetest.ContextBytes && u.Cap > 0
	}

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		n.awaitShare(run, "shares the GPU", shares)
	}

	if !n.hasMPS() || n.control() != start {
		t.Errorf("the inventory says %t, and what was done is %q", n.hasMPS(), n.control())
	}

	// The next agent finds the daemon.
	stop()
	n.forgetReports()
	stop = launch(t, n.cfg)

	for _, run := range []id.Run{"j1.1", "j2.1"} {
		n.awaitShare(run, "shares the GPU again", shares)
	}

	first.Stop = job.StopKill
	n.assign(first, second)
	n.awaitState("j1.1", job.RunEnded)
	n.forgetReports()
	n.awaitShare("j2.1", "shares the GPU as before", shares)

	if n.control() != start {
		t.Errorf("what was done until the last run ended is %q", n.control())
	}

	second.Stop = job.StopKill
	n.assign(first, second)
	n.awaitControl(start + ", quit")
	n.await("the folder of the daemon to go", func() bool {
		_, err := os.Stat(filepath.Dir(n.pipes()))
		return errors.Is(err, fs.ErrNotExist)
	})

	for run, percent := range map[id.Run]string{"j1.1": "70", "j2.1": "29"} {
		n.awaitOutput(run)
		n.mu.Lock()
		out := lines(t, n.logs[rankKey{run, 0}].data)
		n.mu.Unlock()

		if want := n.pipes() + " " + percent; !slices.Contains(out, want) {
			t.Errorf("%s printed %q, not %q", run, out, want)
		}
	}

	// One that takes turns needs no daemon, and one that comes later starts it anew.
	n.assign(n.shared("j3.1", 0.5, "pause=1000"))
	n.awaitShare("j3.1", "has the GPU", func(u *job.ShareUse) bool { return u.Mode == "whole" })

	turns := n.shared("j3.1", 0.5, "pause=1000")
	turns.Stop = job.StopKill
	n.assign(turns, n.throughMPS("j4.1", 0.5, "pause=1000"))
	n.awaitShare("j4.1", "shares the GPU", shares)
	n.awaitControl(start + ", quit, " + start)
	stop()
}

func TestTheNextAgentStopsMPSIfAllRunsHaveEnded(t *testing.T) {
	t.Parallel()

	n := newMPSNode(t)
	n.cfg.InventoryEvery = time.Hour // which stops daemons, too
	stop := launch(t, n.cfg)
	over := filepath.Join(n.cfg.Dir, "over")
	as := n.throughMPS("j1.1", 0.5, "")
	as.Launch.Command = fmt.Sprintf("while [ ! -e %s ]; do sleep 0.01; done", over)
	n.assign(as)
	n.awaitState("j1.1", job.RunRunning)
	stop()

	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for ended := false; !ended; clock.Sleep(t.Context(), time.Millisecond) {
		var st rundir.State
		known, err := rundir.ReadState(filepath.Join(n.cfg.Dir, "runs", "j1.1.0"), &st)
		ended = known && err == nil && st.State == job.RunEnded
	}

	if got, want := n.control(), "start "+sharetest.UUID; got != want {
		t.Errorf("without an agent %q was done, want %q", got, want)
	}

	launch(t, n.cfg)
	n.awaitControl("start " + sharetest.UUID + ", quit")
}

func TestARunWhoseMPSDoesNotStartFails(t *testing.T) {
	t.Parallel()

	n := newMPSNode(t)
	n.cfg.MPSControl = filepath.Join(t.TempDir(), "control")

	if err := executable.Write(n.cfg.MPSControl, []byte("#!/bin/sh\necho no such device\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	launch(t, n.cfg)
	n.assign(n.throughMPS("j1.1", 0.5, "steps=1"))

	end := n.awaitState("j1.1", job.RunEnded)
	if end.Cause != job.CauseLaunchFailed || !strings.Contains(end.Reason, "start NVIDIA MPS for GPU-fake: exit status 1: no such device") ||
		!strings.Contains(end.Reason, "remove share_mps from the job") {
		t.Errorf("it ended as %s, %q", end.Cause, end.Reason)
	}

	n.await("what was prepared for the daemon to go", func() bool {
		_, err := os.Stat(filepath.Dir(n.pipes()))
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestANodeThatHasNoMPSSaysSo(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		change func(*testing.T, *sharedNode)
		reason string
	}{
		"without the program": {func(_ *testing.T, n *sharedNode) { n.cfg.MPSControl = "no-such-program" }, "find NVIDIA MPS"},
		"with isolation":      {func(_ *testing.T, n *sharedNode) { n.cfg.Isolated = true }, "users of their own"},
		"with a long path": {func(t *testing.T, n *sharedNode) {
			t.Helper()

			dir := filepath.Join(n.cfg.Dir, strings.Repeat("x", 80))
			n.cfg.NewRuntime, n.cfg.Dir = realConfigIn(t, n.fakeYard, dir).NewRuntime, dir
		}, "too long a path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := newMPSNode(t)
			tc.change(t, n)
			launch(t, n.cfg)
			n.assign(n.throughMPS("j1.1", 0.5, "steps=1"))

			end := n.awaitState("j1.1", job.RunEnded)
			if end.Cause != job.CauseLaunchFailed || !strings.Contains(end.Reason, "cannot share a GPU through MPS") ||
				!strings.Contains(end.Reason, tc.reason) {
				t.Errorf("it ended as %s, %q", end.Cause, end.Reason)
			}

			if n.hasMPS() || n.shares() == "" {
				t.Errorf("the inventory says %t, and %q for the library", n.hasMPS(), n.shares())
			}
		})
	}
}
