package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// files is a store whose every manifest holds one file.
func files(_ context.Context, digest, dir string) error {
	if digest == "sha256:bad" {
		return errors.New("no such manifest")
	}

	return os.WriteFile(filepath.Join(dir, "source"), []byte(digest+"\n"), 0o600)
}

func withFiles(o *Options) { o.Files = files }

func TestSetupIsMadeOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t, withFiles)
	marks := filepath.Join(t.TempDir(), "marks")
	l := api.Launch{
		Owner: "ada", Workdir: "sha256:1",
		Setup: "echo x >> " + marks + "; cat source > built; ln -s built link; mkdir bin; chmod 755 bin; " +
			"printf '#!/bin/sh\necho tool\n' > bin/tool; chmod 750 bin/tool; echo kept > $TRAINYARD_SETUP_DIR/venv; echo setting up",
		Command: "cat built link $TRAINYARD_SETUP_DIR/venv; bin/tool; stat -c %a bin/tool; echo spoiled > built",
	}

	const want = "sha256:1\nsha256:1\nkept\ntool\n750\n"

	var first, again id.Run
	for i := range 3 {
		run := y.start(l)
		check(t, y.end(run), 0, "", "", false, "")

		switch i {
		case 0:
			first = run
		case 2:
			again = run
		}
	}

	if got := y.output(first)[logs.Stdout]; got != "setting up\n"+want {
		t.Errorf("output of the run that made it = %q", got)
	}

	if got := y.output(again)[logs.Stdout]; got != want {
		t.Errorf("output of a run that found it = %q", got)
	}

	if n := count(t, marks); n != 1 {
		t.Fatalf("the set-up ran %d times", n)
	}

	for name, change := range map[string]func(*api.Launch){
		"files": func(l *api.Launch) { l.Workdir = "sha256:2" },
		"owner": func(l *api.Launch) { l.Owner = "bob" },
		"text":  func(l *api.Launch) { l.Setup += " " },
		"env":   func(l *api.Launch) { l.Env = map[string]string{"A": "b"} },
	} {
		other, before := l, count(t, marks)
		change(&other)
		y.end(y.start(other))

		if count(t, marks) != before+1 {
			t.Errorf("a run with other %s did not make its own set-up", name)
		}
	}
}

func TestSetupThatChangesNoFilesKeepsNoTree(t *testing.T) {
	t.Parallel()
	y := newYard(t, withFiles)

	l := api.Launch{
		Workdir: "sha256:1",
		Setup:   "echo v > $TRAINYARD_SETUP_DIR/v",
		Command: "cat source $TRAINYARD_SETUP_DIR/v",
	}

	for range 2 {
		run := y.start(l)
		check(t, y.end(run), 0, "", "", false, "")

		if got := y.output(run)[logs.Stdout]; got != "sha256:1\nv\n" {
			t.Errorf("output = %q", got)
		}
	}

	plan, err := planSetup(y.dir, l, y.base, nil, "")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(plan.Dir, rundir.SetupTreeName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a tree is kept: %v", err)
	}
}

func TestSetupIsMadeOnceByRunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	marks, hold := filepath.Join(t.TempDir(), "marks"), pipe(t)
	l := api.Launch{Setup: "echo x >> " + marks + "; read x < " + hold + "; echo done > built", Command: "cat built"}

	var runs []id.Run
	for range 4 {
		runs = append(runs, y.start(l))
	}

	release(t, hold)

	for _, run := range runs {
		check(t, y.end(run), 0, "", "", false, "")

		if got := y.output(run)[logs.Stdout]; got != "done\n" {
			t.Errorf("output = %q", got)
		}
	}

	if n := count(t, marks); n != 1 {
		t.Errorf("the set-up ran %d times", n)
	}
}

func TestSetupThatFails(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	marks := filepath.Join(t.TempDir(), "marks")
	l := api.Launch{
		Setup:   "echo x >> " + marks + "; test ! -e $TRAINYARD_SETUP_DIR/half; touch $TRAINYARD_SETUP_DIR/half; echo no wheel >&2; exit 3",
		Command: "echo never",
	}

	for i := range 2 { // a failed one is not cached, and leaves nothing for the next
		run := y.start(l)
		s := y.end(run)
		check(t, s, 3, "", job.CauseSetupFailed, false, "set-up failed with exit code 3; last line of output: no wheel")

		if !s.Started.IsZero() || y.output(run)[logs.Stdout] != "" {
			t.Errorf("the command was started: %+v", s)
		}

		if n := count(t, marks); n != i+1 {
			t.Errorf("the set-up ran %d times", n)
		}
	}
}

func TestSetupCanBeStopped(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ready := pipe(t)
	l := api.Launch{Setup: "echo > " + ready + "; sleep 1000", Command: "echo never"}
	maker := y.start(l)
	receive(t, ready)

	waiter := y.start(l)
	if err := y.Stop(waiter, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(waiter), 0, "", job.CauseCancelled, true, "before it was started")

	if err := y.Stop(maker, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(maker), 143, "SIGTERM", job.CauseCancelled, true, "stopped on request")
}

func TestARankThatASupervisorHasTakenIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	marks := filepath.Join(t.TempDir(), "marks")
	s := y.spec(api.Launch{Setup: "echo x >> " + marks, Command: "true"})
	plan, err := planSetup(y.dir, s.Launch, y.base, nil, "")
	if err != nil {
		t.Fatal(err)
	}

	lock, err := rundir.TryLockSetup(plan.Dir, rundir.SetupMakeLock, unix.LOCK_EX) // so that it waits
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	dir := y.runDir(s.Run)

	for begun := false; !begun; {
		changed := y.Watch()
		y.mu.Lock()
		begun = y.ranks[s.Name()].begun
		y.mu.Unlock()

		if !begun {
			<-changed
		}
	}

	supervisor, err := rundir.LockHolder(dir)
	if err != nil || supervisor == 0 {
		t.Fatalf("supervisor = %d, %v", supervisor, err)
	}

	if err := y.Close(); err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(unix.Kill(supervisor, unix.SIGKILL), lock.Close()); err != nil {
		t.Fatal(err)
	}

	y.open()

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(s.Run), 0, "", job.CauseSupervisorLost, false, "the supervisor was killed")

	if n := count(t, marks); n != 0 {
		t.Errorf("it was started again, %d times", n)
	}
}

func TestFilesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	y := newYard(t, withFiles)
	s := y.end(y.start(api.Launch{Workdir: "sha256:bad", Command: "true"}))
	check(t, s, 0, "", job.CauseLaunchFailed, false, "cannot start the run: fetch the files: no such manifest")
}

func TestASupervisorThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	missing := newYard(t, func(o *Options) { o.Exe = "/no/such/binary" })
	check(
		t,
		missing.end(missing.script("true")),
		0,
		"",
		job.CauseLaunchFailed,
		false,
		"cannot start the run: start the supervisor",
	)

	broken := newYard(t, func(o *Options) { o.Exe = "/bin/sh" }) // has no such subcommand, and says so
	check(
		t,
		broken.end(broken.script("true")),
		0,
		"",
		job.CauseLaunchFailed,
		false,
		"exited without starting the program; last line of output: trainyard: ",
	)
}

func TestOldSetupsAreRemoved(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) { o.SetupBytes, o.SetupAge = 2500, 90*24*time.Hour })
	now := y.clk.Now()
	root := filepath.Join(y.dir, rundir.SetupsDir)
	add := func(name string, size job.Bytes, age time.Duration) string {
		t.Helper()
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Join(dir, rundir.SetupDirName), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := rundir.WriteJSON(
			filepath.Join(dir, rundir.SetupResultFile),
			rundir.SetupResult{Size: size},
			false,
		); err != nil {
			t.Fatal(err)
		}

		if err := os.Chtimes(filepath.Join(dir, rundir.SetupResultFile), now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}

		return dir
	}

	ancient := add("ancient", 1, 91*24*time.Hour)
	used := add("used", 1000, 50*time.Hour)
	lock, err := rundir.TryLockSetup(used, rundir.SetupUseLock, unix.LOCK_SH)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}

	old := add("old", 1000, 40*time.Hour)
	newer := add("newer", 1000, 30*time.Hour)
	newest := add("newest", 500, 20*time.Hour)
	y.pruneSetups()

	for dir, want := range map[string]bool{ancient: false, used: true, old: false, newer: true, newest: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}

	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckpointsLastFromRunToRun(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) {
		o.Files = func(_ context.Context, digest, dir string) error {
			if digest == "link" {
				return os.Symlink(dataOf(dir), filepath.Join(dir, "out"))
			}
			if err := os.MkdirAll(filepath.Join(dir, "out", "ckpt"), 0o755); err != nil {
				return err
			}

			return os.WriteFile(filepath.Join(dir, "out", "ckpt", "shipped"), []byte("from the start\n"), 0o600)
		}
	})

	s := y.spec(
		api.Launch{
			Workdir:    "x",
			Checkpoint: "out/ckpt",
			Command:    `cat out/ckpt/shipped; echo changed > out/ckpt/shipped; test out/ckpt -ef "$TRAINYARD_CHECKPOINT_DIR"`,
		},
	)

	for epoch, want := range []string{"from the start\n", "changed\n"} {
		s.Epoch, s.Run = epoch+1, id.NewRun(s.Job, epoch+1)
		if err := y.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		check(t, y.end(s.Run), 0, "", "", false, "")

		if got := y.output(s.Run)[logs.Stdout]; got != want {
			t.Errorf("run %s reads %q, want %q", s.Run, got, want)
		}

		if err := y.Forget(s.Run, 0); err != nil {
			t.Fatal(err)
		}
	}

	// A link in the shipped files does not lead the yard out of the working directory.
	out := y.spec(api.Launch{Workdir: "link", Checkpoint: "out/ckpt", Command: "echo never"})
	if err := y.Start(t.Context(), out); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(out.Run), 0, "", job.CauseLaunchFailed, false, "cannot prepare the checkpoint folder")
}

func TestCheckpointsAreRemovedWhenNobodyNeedsThem(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) { o.CheckpointAge = 24 * time.Hour })
	folder := func(s rundir.Spec) string { return filepath.Join(y.dir, rundir.CheckpointsDir, string(s.Job)) }
	there := func(s rundir.Spec) bool {
		_, err := os.Stat(folder(s))
		return err == nil
	}

	finish := func(command string) rundir.Spec {
		s := y.spec(api.Launch{Command: command})
		if err := y.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		check(t, y.end(s.Run), 0, "", "", false, "")

		return s
	}

	empty := finish("true")
	fresh := finish(`echo 1 > "$TRAINYARD_CHECKPOINT_DIR/a"`)
	old := finish(`echo 1 > "$TRAINYARD_CHECKPOINT_DIR/a"`)

	past := time.Now().Add(-48 * time.Hour)
	for _, path := range []string{filepath.Join(folder(old), "a"), folder(old)} {
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}

	y.pruneCheckpoints()

	if !there(old) {
		t.Fatal("the checkpoints of a rank that is still here are gone")
	}

	for _, s := range []rundir.Spec{empty, fresh, old} {
		if err := y.Forget(s.Run, 0); err != nil {
			t.Fatal(err)
		}
	}

	if there(empty) || !there(fresh) || there(old) {
		t.Errorf("empty is there: %v, fresh: %v, old: %v; want only fresh", there(empty), there(fresh), there(old))
	}
}

// dataOf is the data directory that a working directory lies in.
func dataOf(work string) string { return filepath.Dir(filepath.Dir(filepath.Dir(work))) }
