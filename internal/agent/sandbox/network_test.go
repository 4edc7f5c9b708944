package sandbox_test

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"trainyard/internal/agent/sandbox"
)

// What is done in the network of a container must not change in which network the process is: /proc/self shows the
// first thread, which cannot be ended.
func TestOthersStayInTheirNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}

	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()

	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}

	theirs := "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net"
	var tasks, inside sync.WaitGroup

	// All of them are there at once, so that they take every thread that is free.
	const threads = 64
	inside.Add(threads)

	for range threads {
		tasks.Go(func() {
			err := sandbox.InNetwork(theirs, func() error {
				inside.Done()
				inside.Wait()

				there, err := os.Readlink("/proc/thread-self/ns/net")
				if err == nil && there == own {
					t.Error("the function was not called in the other network")
				}

				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}

	inside.Wait()

	if is, err := os.Readlink("/proc/self/ns/net"); is != own || err != nil {
		t.Errorf("the process is in %s, before it was in %s: %v", is, own, err)
	}

	tasks.Wait()
}
