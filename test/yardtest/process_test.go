package yardtest_test

import (
	"os/exec"
	"syscall"
	"testing"

	"trainyard/test/yardtest"
)

// A program that hides from its yard, as that of an attack does, is killed with it.
func TestProcessesThatHideAreKilled(t *testing.T) {
	t.Parallel()

	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.Dir, cmd.Env = t.TempDir(), []string{"LANG=C"} // nothing names the folder

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	if err := yardtest.KillAll(cmd.Dir); err != nil {
		t.Error(err)
	}

	_ = cmd.Process.Signal(syscall.SIGTERM) // ends it if it was not found
	_ = cmd.Wait()                          // says how it ended, as ProcessState does

	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the program was not killed: %s", cmd.ProcessState)
	}
}
