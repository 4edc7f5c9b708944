package daemon

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	g := Group{Dir: t.TempDir()}
	child := filepath.Join(g.Dir, "child")

	// The shell ignores SIGTERM's effect on its child: only the group's signals reach it.
	cmd := exec.Command(
		"/bin/sh",
		"-c",
		"trap 'exit 0' TERM; sh -c 'trap : TERM; echo $$ >$0.new; mv $0.new $0; while :; do sleep 60; done' "+child+" & wait",
	)

	if err := g.Start("shell", cmd); err != nil {
		t.Fatal(err)
	}

	var text []byte

	err := g.Await(t.Context(), time.Minute, func(context.Context) (err error) {
		text, err = os.ReadFile(child)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}

	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}

	if !gone(t, pid) {
		t.Errorf("process %d outlived its group", pid)
	}
}

// gone waits until pid has ended; one that only waits to be reaped has.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	var g Group

	return nil == g.Await(t.Context(), time.Minute, func(context.Context) error {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return nil
		}
		if err == nil && strings.Contains(string(stat), ") Z ") {
			return nil
		}

		return errors.New("still there")
	})
}

func TestAwaitTellsWhyADaemonEnded(t *testing.T) {
	t.Parallel()
	g := Group{Dir: t.TempDir()}
	if err := g.Start("broken", exec.Command("/bin/sh", "-c", "echo no such file; exit 3")); err != nil {
		t.Fatal(err)
	}

	err := g.Await(t.Context(), time.Minute, func(context.Context) error { return errors.New("not yet") })
	if err == nil || !strings.Contains(err.Error(), "broken ended early (exit status 3): no such file") {
		t.Errorf("await: %v", err)
	}

	if err := g.Stop(); err != nil {
		t.Error(err)
	}
}

func TestKillEndsOneDaemonAndForgetsIt(t *testing.T) {
	t.Parallel()
	g := Group{Dir: t.TempDir()}
	for _, name := range []string{"one", "two"} {
		if err := g.Start(name, exec.Command("/bin/sh", "-c", "trap : TERM; echo $0 >&2; while :; do sleep 60; done", name)); err != nil {
			t.Fatal(err)
		}
	}

	defer func() {
		if err := g.Kill("two"); err != nil {
			t.Error(err)
		}
	}()

	err := g.Await(t.Context(), time.Minute, func(context.Context) error {
		if text, err := g.Output("one"); err != nil || text != "one\n" {
			return errors.New("not yet")
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	pid := g.PID("one")

	if err := g.Kill("one"); err != nil {
		t.Fatal(err)
	}

	if !gone(t, pid) {
		t.Errorf("process %d is still there", pid)
	}

	if g.PID("one") != 0 || g.PID("two") == 0 {
		t.Errorf("pids = %d, %d; want none for the first and one for the second", g.PID("one"), g.PID("two"))
	}

	if err := g.Kill("one"); err == nil {
		t.Error("what is gone was killed again")
	}
}

func TestFreePortsDiffer(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}

	if len(ports) != 3 || ports[0] == ports[1] || ports[1] == ports[2] || ports[0] == ports[2] {
		t.Errorf("ports = %v, want three different ones", ports)
	}
}
