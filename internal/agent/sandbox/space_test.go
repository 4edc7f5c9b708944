package sandbox

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
)

// TestMain lets the test binary be the first process of a space, as main does.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == InitCommand {
		os.Exit(Init(os.Stderr))
	}

	os.Exit(m.Run())
}

// begin starts a script in a space of its own.
func begin(t *testing.T, script string) *Space {
	t.Helper()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to make namespaces")
		}

		t.Skip("needs root to make namespaces")
	}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}

	start := func(path string, args []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
		pid, err := syscall.ForkExec(path, args, attr)
		exit := make(chan syscall.WaitStatus, 1)

		if err == nil {
			go func() {
				var status syscall.WaitStatus
				_, _ = syscall.Wait4(pid, &status, 0, nil)
				exit <- status
			}()
		}

		return pid, exit, err
	}

	space, err := Start(Setting{Exe: "/proc/self/exe", Start: start, Stdout: null, Stderr: null},
		Program{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = unix.Kill(space.PID, unix.SIGKILL) // it is gone already, or the test failed
		_ = space.Close()
		_ = null.Close()
	})

	return space
}

func TestASpaceEndsWithItsLastProcess(t *testing.T) {
	t.Parallel()
	space := begin(t, "exit 3")

	if status := <-space.Ended(); status.ExitStatus() != 3 {
		t.Errorf("it ended with %v", status)
	}

	if p, there := process.Read(space.PID); there {
		t.Errorf("the end was reported before that of the space: %+v", p)
	}
}

func TestTheEndOfAProgramDoesNotWaitForWhatItLeaves(t *testing.T) {
	t.Parallel()
	space := begin(t, "sleep 1000 & exit 3")

	if status := <-space.Ended(); status.ExitStatus() != 3 {
		t.Errorf("it ended with %v", status)
	}

	left, err := space.Processes()
	if err != nil || len(left) != 1 {
		t.Errorf("it left %+v, %v", left, err)
	}
}
