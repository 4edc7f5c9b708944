package rundir

import (
	"os/exec"
	"slices"
	"testing"

	"trainyard/internal/agent/runtime/process"
)

// A process that was there before the supervisor has not inherited the variable of its rank.
func TestAProcessOlderThanTheSupervisorIsNotOfItsRank(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() process.Process {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{RankDirVar + "=" + dir}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})

		p, ok := process.Read(cmd.Process.Pid)
		if !ok {
			t.Fatal("the process is not there")
		}

		return p
	}

	later := func(than process.Process) process.Process { // the kernel counts in hundredths of a second
		for {
			if p := start(); p.Started > than.Started {
				return p
			}
		}
	}

	older := start()
	supervisor := later(older)
	younger := later(supervisor)

	found, err := Processes{Dir: dir, Root: supervisor.PID}.Find(true)
	if err != nil {
		t.Fatal(err)
	}

	has := func(p process.Process) bool {
		return slices.ContainsFunc(found, func(f process.Process) bool { return f.PID == p.PID })
	}
	if !has(younger) || has(older) || has(supervisor) {
		t.Errorf("found %+v, want %+v and neither %+v nor %+v", found, younger, older, supervisor)
	}

	found, err = Processes{Dir: dir}.Find(true)
	if err != nil || !has(older) {
		t.Errorf("without a supervisor: found %+v, %v", found, err)
	}
}
