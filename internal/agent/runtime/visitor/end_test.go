package visitor

import (
	"os/exec"
	"syscall"
	"testing"

	"trainyard/internal/agent/runtime/process"
)

// started starts a process that stays, in a session of its own.
func started(t *testing.T, env ...string) process.Process {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	cmd.Env, cmd.SysProcAttr = append([]string{}, env...), &syscall.SysProcAttr{Setsid: true}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	go func() { _ = cmd.Wait() }() // it is killed

	p, ok := process.Read(cmd.Process.Pid)
	if !ok {
		t.Fatal("it has ended")
	}

	return p
}

// A process has no environment while it executes another program, so one without any may be of the visitor. It is
// looked at again, and not killed for that.
func TestAProcessWithoutEnvironmentIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	root, marked, bare := started(t), started(t, Var+"=v1"), started(t)

	left, unsure, err := find("v1", root)
	if err != nil || !unsure {
		t.Errorf("a process without an environment is taken for another's: %v", err)
	}

	found := map[int]bool{}
	for _, p := range left {
		found[p.PID] = true
	}

	if !found[root.PID] || !found[marked.PID] || found[bare.PID] {
		t.Errorf("the processes of the visitor are %v", left)
	}

	if err := Kill("v1", root); err != nil {
		t.Error(err)
	}

	for _, p := range []process.Process{root, marked} {
		if now, ok := process.Read(p.PID); ok && !now.Dead && now.Started == p.Started {
			t.Errorf("process %d is left", p.PID)
		}
	}

	if now, ok := process.Read(bare.PID); !ok || now.Dead {
		t.Error("a process of somebody else was killed")
	}
}
