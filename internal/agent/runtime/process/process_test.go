package process

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStatOfAProcess(t *testing.T) {
	t.Parallel()
	const rest = " 7 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 100 200"
	tests := []struct {
		name, text string
		want       Process
		ok         bool
	}{
		{"plain", "9 (bash) S" + rest, Process{PID: 9, Parent: 7, Session: 43, Started: 9876}, true},
		{"odd name", "9 (a) b) (c d)) Z" + rest, Process{PID: 9, Parent: 7, Session: 43, Started: 9876, Dead: true}, true},
		{"cut", "9 (bash) S 7 42", Process{}, false},
		{"empty", "", Process{}, false},
	}

	for _, tt := range tests {
		if got, ok := parseStat(9, []byte(tt.text)); got != tt.want || ok != tt.ok {
			t.Errorf("%s: got %+v, %v", tt.name, got, ok)
		}
	}
}

func TestAFamilyIsAProcessWithItsDescendants(t *testing.T) {
	t.Parallel()

	// A shell that starts another, which starts a process and waits.
	cmd := exec.Command("sh", "-c", "(sleep 1000 & wait) & echo; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	defer func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	}()

	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	for { // until the inner shell has started its process
		family, err := Family(cmd.Process.Pid, os.Getpid())
		if err != nil {
			t.Fatal(err)
		}

		if slices.Contains(family, os.Getpid()) || !slices.Contains(family, cmd.Process.Pid) {
			t.Fatalf("the family of %d is %v", cmd.Process.Pid, family)
		}

		if len(family) >= 3 {
			return
		}
	}
}

func TestASignalReachesNoOtherProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"MARK=this one"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	p, ok := Read(cmd.Process.Pid)
	if !ok || p.Parent != os.Getpid() {
		t.Fatalf("read %+v, %v", p, ok)
	}

	other := p
	other.Started++ // as if the PID had been reused
	if err := other.Signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}

	if now, ok := Read(p.PID); !ok || now.Dead || now.Started != p.Started {
		t.Fatal("the signal reached a process that only has the same PID")
	}

	if !HasEnv(p.PID, "MARK=this one") || HasEnv(p.PID, "MARK=this") {
		t.Error("its environment is not read as it is")
	}

	all, err := All()
	if err != nil {
		t.Fatal(err)
	}

	found := false
	for _, d := range Descendants(all, map[int]bool{os.Getpid(): true}) {
		found = found || d.PID == p.PID
	}

	if !found {
		t.Error("a child is not among the descendants")
	}

	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}

	if err := cmd.Wait(); err == nil {
		t.Error("the signal did not reach its process")
	}

	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Errorf("a process that is gone: %v", err)
	}
}
