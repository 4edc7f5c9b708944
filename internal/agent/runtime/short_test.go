package runtime

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/logs"
)

// strangers starts processes that have nothing to do with any run.
func strangers(t *testing.T, n int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "for i in $(seq "+strconv.Itoa(n)+"); do sleep 1000 & done; echo; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})

	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// reads returns how many calls a process has made that read something. It has ended and was not waited for.
func reads(t *testing.T, pid int) int {
	t.Helper()

	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}

	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "syscr: "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}

			return n
		}
	}

	t.Fatalf("no count in %q", text)

	return 0
}

// A supervisor once read all of /proc two times, so that each job cost more the more processes the machine had.
func TestARunReadsNothingOfOtherProcesses(t *testing.T) {
	t.Parallel()
	const others = 200
	strangers(t, others)

	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		rk, err := y.createRunDir(y.spec(api.Launch{Command: "true"}))
		if err == nil {
			err = y.prepare(t.Context(), rk)
		}

		if err != nil {
			t.Fatal(err)
		}

		s, err := y.spawn(rk)
		if err != nil {
			t.Fatal(err)
		}

		if !y.awaitRank(s) {
			t.Fatal("the supervisor has exited")
		}

		if err := s.series.Close(); err != nil {
			t.Fatal(err)
		}

		n := reads(t, s.pid())
		if err := s.cmd.Wait(); err != nil {
			t.Error(err)
		}

		if n >= others {
			t.Errorf("the supervisor of a program that does nothing read %d times beside %d other processes", n, others)
		}
	})
}

// Whose checkpoints a node has is recorded without a sync as long as the record of a rank says it too.
func TestWhoseCheckpointsTheseAreIsNotLost(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.spec(api.Launch{Command: "touch $TRAINYARD_CHECKPOINT_DIR/model", JobUID: "first"})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	y.end(s.Run)

	owner := filepath.Join(y.dir, rundir.CheckpointOwnersDir, string(s.Job))
	if err := os.WriteFile(owner, nil, 0o600); err != nil { // as after a power cut
		t.Fatal(err)
	}

	y.reopen()

	y.mu.Lock()
	uid, err := y.checkpointOwner(s.Job)
	y.mu.Unlock()

	if uid != "first" || err != nil {
		t.Errorf("after a restart they belong to %q, %v", uid, err)
	}

	if err := os.Remove(owner); err != nil {
		t.Fatal(err)
	}
	if err := y.Forget(s.Run, 0); err != nil {
		t.Fatal(err)
	}

	if text, err := os.ReadFile(owner); string(text) != "first" || err != nil {
		t.Errorf("when the rank was forgotten they belong to %q, %v", text, err)
	}

	// Another job that got the same id in another history of the yard does not get them.
	s.Epoch, s.Run, s.Launch.JobUID = 2, id.NewRun(s.Job, 2), "second"
	s.Launch.Command = "ls $TRAINYARD_CHECKPOINT_DIR"
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	y.end(s.Run)

	if out := y.output(s.Run); len(out) != 0 {
		t.Errorf("it found %v", out)
	}
}

// The rank of another history of the yard leaves its checkpoints, and they stay those of its job.
func TestWhoseCheckpointsTheseAreIsKnownWhenTheRankIsSetAside(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.spec(api.Launch{Command: "touch $TRAINYARD_CHECKPOINT_DIR/model", JobUID: "first"})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	y.end(s.Run)

	if _, err := y.SetAside(s.Run, 0); err != nil {
		t.Fatal(err)
	}

	s.Launch.JobUID, s.Launch.Command = "second", "ls $TRAINYARD_CHECKPOINT_DIR"
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	y.end(s.Run)

	if out := y.output(s.Run); len(out) != 0 {
		t.Errorf("another job found %v", out)
	}
}

// A rank of another history that is set aside late does not take the checkpoints of the job that has its id now.
func TestARankThatIsSetAsideTakesNoCheckpointsOfOthers(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	old := y.spec(api.Launch{Command: "touch $TRAINYARD_CHECKPOINT_DIR/old", JobUID: "first"})
	now := old
	now.Epoch, now.Run = 2, id.NewRun(old.Job, 2)
	now.Launch.JobUID, now.Launch.Command = "second", "touch $TRAINYARD_CHECKPOINT_DIR/new"

	for _, s := range []rundir.Spec{old, now} {
		if err := y.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		y.end(s.Run)
	}

	if _, err := y.SetAside(old.Run, 0); err != nil {
		t.Fatal(err)
	}
	if err := y.Forget(now.Run, 0); err != nil {
		t.Fatal(err)
	}

	now.Epoch, now.Run, now.Launch.Command = 3, id.NewRun(old.Job, 3), "ls $TRAINYARD_CHECKPOINT_DIR"
	if err := y.Start(t.Context(), now); err != nil {
		t.Fatal(err)
	}

	y.end(now.Run)

	if out := y.output(now.Run)[logs.Stdout]; out != "new\n" {
		t.Errorf("the job found %q, want its own", out)
	}
}

// A job without checkpoints and files leaves nothing on the node.
func TestAJobWithoutFilesLeavesNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) { o.KeepRuns, o.KeptBytes = 1<<40, 1<<40 })
	before := countFiles(t, y.dir)
	s := y.spec(api.Launch{Command: "true", JobUID: "first"})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if !y.end(s.Run).Silent {
		t.Error("a program that printed nothing is not silent")
	}
	if err := y.Forget(s.Run, 0); err != nil {
		t.Fatal(err)
	}

	if after := countFiles(t, y.dir); after != before {
		t.Errorf("%d files and folders became %d", before, after)
	}

	if s := y.end(y.script("echo")); s.Silent {
		t.Error("a program that printed a line is silent")
	}
}

// countFiles counts the files and folders below a folder.
func countFiles(t *testing.T, root string) (n int) {
	t.Helper()

	err := filepath.WalkDir(root, func(string, fs.DirEntry, error) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return n
}
