package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/executable"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

func TestARunSurvivesItsAgent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	hold := pipe(t)
	run := y.script("echo one; read x < " + hold + "; echo two; exit 7")
	before := y.await(run, job.RunRunning)
	y.reopen()

	after := y.await(run, job.RunRunning)
	if after.PID != before.PID || !after.Started.Equal(before.Started) {
		t.Errorf("adopted %+v, was %+v", after, before)
	}

	release(t, hold)
	check(t, y.end(run), 7, "", job.CauseUserCode, false, "")

	if got := y.output(run)[logs.Stdout]; got != "one\ntwo\n" {
		t.Errorf("output = %q", got)
	}
}

func TestAnAdoptedRunCanBeStopped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	run := y.script("sleep 1000")
	y.await(run, job.RunRunning)
	y.reopen()

	if err := y.Stop(run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(run), 143, "SIGTERM", job.CauseCancelled, true, "")
}

func TestARunThatEndsWithoutAnAgentIsFound(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		hold := pipe(t)
		run := y.script("read x < " + hold + "; exit 8")
		y.await(run, job.RunRunning)

		supervisor, err := rundir.LockHolder(y.runDir(run))
		if err != nil || supervisor == 0 {
			t.Fatalf("supervisor = %d, %v", supervisor, err)
		}

		if err := y.Close(); err != nil {
			t.Fatal(err)
		}

		release(t, hold)

		for { // no agent is there to tell of the end: wait for the process
			if p, ok := process.Read(supervisor); !ok || p.Dead {
				break
			}

			time.Sleep(time.Millisecond)
		}

		y.open()

		if s, _ := y.Status(run, 0); s.State != job.RunEnded || s.ExitCode != 8 {
			t.Errorf("status = %+v", s)
		}
	})
}

func TestAKilledSupervisorLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	for _, agent := range []string{"there", "away", "there and no cgroup"} {
		t.Run("with the agent "+agent, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			if agent == "there and no cgroup" {
				y.limits = cgroup.Place{}
			}

			pids := pipe(t)
			run := y.start(api.Launch{
				Command: "echo hello\nsetsid sleep 1000 &\nsecond=$(env -i bash -c 'sleep 1000 > /dev/null 2>&1 & echo $!')\necho $! $second $$ > $PIDS\nwait",
				Env:     map[string]string{"PIDS": pids},
			})

			all := strings.Fields(receive(t, pids))
			y.await(run, job.RunRunning)
			y.follow(run, "hello\n")

			if y.limits.Usable() {
				for _, pid := range all { // it gets there a moment after its start
					awaitText(t, filepath.Join("/proc", pid, "cgroup"), rundir.GroupName(y.runDir(run)))
				}
			}

			supervisor, err := rundir.LockHolder(y.runDir(run))
			if err != nil || supervisor == 0 {
				t.Fatalf("supervisor = %d, %v", supervisor, err)
			}

			if agent == "away" {
				y.awaitWatcher(run)

				if err := y.Close(); err != nil {
					t.Fatal(err)
				}
			}

			if agent == "away" {
				// As if the supervisor had died in the middle of a frame.
				f, err := os.OpenFile(filepath.Join(y.runDir(run), rundir.OutputFile), os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					t.Fatal(err)
				}

				_, err = f.WriteString("1700000000000 o 10\nhalf")
				if err := errors.Join(err, f.Close()); err != nil {
					t.Fatal(err)
				}
			}

			if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}

			if agent == "away" {
				awaitEnd(t, y.runDir(run)) // by the watcher
				y.open()
			}

			reason := "the supervisor was killed, so all processes of the rank were ended"
			if agent == "there and no cgroup" {
				reason = "it may have left processes"
			}

			s := y.end(run)
			check(t, s, 0, "", job.CauseSupervisorLost, false, reason)

			for _, pid := range all {
				if alive(t, pid) {
					t.Errorf("process %s is left", pid)
				}
			}

			got := y.output(run)
			if !strings.HasPrefix(got[logs.Stdout], "hello\n") ||
				!strings.Contains(got[logs.Yard], "supervisor of this run was killed") {
				t.Errorf("output = %q", got)
			}

			if s.Started.IsZero() {
				t.Error("the start is forgotten")
			}
		})
	}
}

func TestAnUnpreparedRunIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	fetching := make(chan struct{}, 1)
	y := newYard(t, func(o *Options) {
		o.Files = func(ctx context.Context, _, dir string) error {
			if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o600); err != nil {
				return err
			}

			fetching <- struct{}{}
			<-ctx.Done()

			return ctx.Err()
		}
	})

	s := y.spec(api.Launch{Command: "ls", Workdir: "sha256:x"})

	other := y.spec(api.Launch{Command: "echo never", Workdir: "sha256:x"})
	for _, spec := range []rundir.Spec{s, other} {
		if err := y.Start(t.Context(), spec); err != nil {
			t.Fatal(err)
		}

		<-fetching
	}

	y.opts.Files = func(_ context.Context, _, dir string) error {
		return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
	}
	y.reopen()

	if st := y.await(s.Run, job.RunPreparing); st.PID != 0 {
		t.Errorf("status = %+v before it is started again", st)
	}

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(s.Run), 0, "", "", false, "")

	if got := y.output(s.Run)[logs.Stdout]; got != "whole\n" {
		t.Errorf("files = %q", got)
	}

	if err := y.Stop(other.Run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(other.Run), 0, "", job.CauseCancelled, true, "before it was started")
}

func TestASupervisorThatComesLateFindsItsFilesWhole(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	late := filepath.Join(folder, "late")

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	// The supervisor of the first agent, which is killed right after it has started it.
	text := "#!/bin/sh\ntouch " + folder + "/spawned\nwhile ! test -e " + folder + "/go; do sleep 0.01; done\nexec " + exe + " \"$@\"\n"
	if err := executable.Write(late, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}

	var fetched atomic.Bool

	y := newYard(t, func(o *Options) {
		o.Exe = late
		o.Files = func(_ context.Context, _, dir string) error {
			return os.WriteFile(filepath.Join(dir, "data"), nil, 0o600)
		}
	})

	s := y.spec(api.Launch{Command: "test -e data && sleep 0.2 && test -e data", Workdir: strings.Repeat("0", 64)})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	awaitPath(t, filepath.Join(folder, "spawned"))
	y.opts.Exe = ""
	y.opts.Files = func(_ context.Context, _, dir string) error {
		fetched.Store(true)

		// The late supervisor comes while the files are fetched a second time.
		if err := os.WriteFile(filepath.Join(folder, "go"), nil, 0o600); err != nil {
			return err
		}

		time.Sleep(300 * time.Millisecond)

		return os.WriteFile(filepath.Join(dir, "data"), nil, 0o600)
	}

	y.reopen()

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if st := y.await(s.Run, job.RunEnded); st.ExitCode != 0 || st.Cause != job.CauseNone || !fetched.Load() {
		t.Errorf("it ended as %+v, with its files fetched again: %t", st, fetched.Load())
	}
}

// awaitText waits until a file contains a text.
func awaitText(t *testing.T, path, text string) {
	t.Helper()

	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), text) {
			return
		}

		if time.Now().After(end) {
			t.Fatalf("%s has no %s: %s", path, text, content)
		}
	}
}

func awaitPath(t *testing.T, path string) {
	t.Helper()

	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}

		if time.Now().After(end) {
			t.Fatalf("%s never came", path)
		}
	}
}

func TestOneAgentPerDirectory(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	if _, err := New(y.opts); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a second agent: %v", err)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	hold := pipe(t)
	run := y.script("mkdir -p a/b; chmod 500 a; read x < " + hold)
	y.await(run, job.RunRunning)

	if err := y.Forget(run, 0); fault.KindOf(err) != fault.Conflict {
		t.Errorf("forget a running rank: %v", err)
	}

	release(t, hold)
	s := y.end(run)

	if err := y.Forget(run, 0); err != nil {
		t.Fatal(err)
	}

	if _, ok := y.Status(run, 0); ok {
		t.Error("it is still known")
	}

	if entries, err := os.ReadDir(filepath.Join(y.dir, rundir.RunsDir)); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}

	if _, _, err := y.OpenLog(run, 0, 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("its log: %v", err)
	}

	if s.Cause != "" {
		t.Errorf("cause = %q", s.Cause)
	}
}

func TestBadLaunchesAreRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	good := y.spec(api.Launch{Command: "true"})

	tests := []struct {
		name   string
		change func(*rundir.Spec)
		code   string
	}{
		{"a run of another job", func(s *rundir.Spec) { s.Job = "j7" }, "bad_rank"},
		{"a path as a run", func(s *rundir.Spec) { s.Run = "../x" }, "bad_rank"},
		{"a negative rank", func(s *rundir.Spec) { s.Rank = -1 }, "bad_rank"},
		{"checkpoints outside", func(s *rundir.Spec) { s.Launch.Checkpoint = "../x" }, "bad_checkpoint"},
		{"checkpoints everywhere", func(s *rundir.Spec) { s.Launch.Checkpoint = "." }, "bad_checkpoint"},
		{"a variable without a name", func(s *rundir.Spec) { s.Launch.Env = map[string]string{"": "x"} }, "bad_env"},
		{"a zero byte in the command", func(s *rundir.Spec) { s.Launch.Command = "a\x00b" }, "bad_script"},
		{"files without a store", func(s *rundir.Spec) { s.Launch.Workdir = "sha256:x" }, "no_files"},
	}

	for _, tt := range tests {
		s := good
		tt.change(&s)

		var f *fault.Error
		if err := y.Start(t.Context(), s); !errors.As(err, &f) || f.Code != tt.code {
			t.Errorf("%s: error = %v, want %s", tt.name, err, tt.code)
		}
	}

	if n := len(y.List()); n != 0 {
		t.Errorf("%d ranks are known", n)
	}
}

func TestASupervisorWhoseFolderIsGoneEndsItsRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ready := pipe(t)
	y.start(api.Launch{Command: `echo $$ $PPID > "$READY"; sleep 1000`, Env: map[string]string{"READY": ready}})
	pids := strings.Fields(receive(t, ready)) // of the program and of its supervisor

	if err := y.Close(); err != nil {
		t.Fatal(err)
	}

	if err := os.RemoveAll(y.dir); err != nil {
		t.Fatal(err)
	}

	for _, pid := range pids {
		for alive(t, pid) {
			clock.Sleep(t.Context(), 10*time.Millisecond)
		}
	}

	y.open() // for the clean-up, which finds nothing
}
