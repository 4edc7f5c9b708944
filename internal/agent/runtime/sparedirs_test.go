package runtime

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// inode returns the number of a file.
func inode(t testing.TB, path string) uint64 {
	t.Helper()

	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("the system says nothing of the file")
	}

	return stat.Ino
}

// leave ends a rank whose supervisor goes on, does something to its directory, and forgets it. It returns the inode of
// the directory, which waits for the next rank.
func (y *yard) leave(run id.Run, change func(dir string)) uint64 {
	y.t.Helper()
	y.end(run)
	y.keep(y.waiting()) // it has said that nothing of the rank is left
	dir := y.runDir(run)
	number := inode(y.t, dir)

	change(dir)

	if err := y.Forget(run, 0); err != nil {
		y.t.Fatal(err)
	}

	return number
}

// successor starts ranks until one of them has got a directory that waits for one.
func (y *yard) successor(number uint64, l api.Launch) id.Run {
	y.t.Helper()

	for {
		run := y.start(l)
		if inode(y.t, y.runDir(run)) == number {
			return run
		}

		y.end(run) // the directory was not offered yet
	}
}

// A rank that gets the directory of another finds nothing of it: no output, no files, no request to stop.
func TestTheNextRankHasTheDirectoryAndNothingElse(t *testing.T) {
	t.Parallel()

	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		y.spareRest = time.Hour

		number := y.leave(y.script("echo first; echo file > file; mkdir -p sub/dir; echo home > $HOME/.own"),
			func(dir string) {
				// Somebody stops the rank when it has ended, and its supervisor has written something.
				if err := rundir.RequestStop(dir, job.StopKill); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, rundir.SupervisorLog), []byte("first\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			})

		second := y.successor(number, api.Launch{Command: "ls -A . $PWD/..; test ! -e $PWD/../home/.own; echo second"})
		check(t, y.end(second), 0, "", "", false, "")

		dir := y.runDir(second)
		if out := y.output(second)[logs.Stdout]; len(out) < 7 || out[len(out)-7:] != "second\n" {
			t.Errorf("it printed %q", out)
		}

		if text, err := os.ReadFile(filepath.Join(dir, rundir.SupervisorLog)); len(text) > 0 || err != nil {
			t.Errorf("its supervisor wrote %q, %v", text, err)
		}

		if entries, err := os.ReadDir(filepath.Join(dir, rundir.WorkDir)); len(entries) > 0 || err != nil {
			t.Errorf("its working directory has %v, %v", entries, err)
		}
	})
}

// The directory of a rank whose supervisor may still have some of its files open is not used again.
func TestADirectoryInUseIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	y := patient(t)

	run := y.script("sleep 1000")
	y.await(run, job.RunRunning)

	if err := y.Stop(run, 0, job.StopKill); err != nil {
		t.Fatal(err)
	}

	y.end(run)

	if err := y.Forget(run, 0); err != nil {
		t.Fatal(err)
	}

	if left, err := os.ReadDir(filepath.Join(y.dir, rundir.RunsDir)); len(left) > 0 || err != nil {
		t.Errorf("%v is left of it, %v", left, err)
	}
}

// A directory whose files were replaced or removed is not used again.
func TestADamagedDirectoryIsNotUsedAgain(t *testing.T) {
	t.Parallel()

	for name, damage := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return replaceByLink(path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := patient(t)
			y.leave(y.script("true"), func(dir string) {
				if err := damage(filepath.Join(dir, rundir.StateFile)); err != nil {
					t.Fatal(err)
				}
			})

			if left, err := os.ReadDir(filepath.Join(y.dir, rundir.RunsDir)); len(left) > 0 || err != nil {
				t.Errorf("%v is left of it, %v", left, err)
			}
		})
	}
}

func replaceByLink(path string) error {
	if err := os.Rename(path, path+".was"); err != nil {
		return err
	}

	return os.Symlink(path+".was", path)
}

// After a power cut a directory may have the state of the rank that had it before. Its end is not that of this rank.
func TestTheStateOfAnotherRankSaysNothing(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	first := y.script("exit 3")
	y.end(first)

	state, err := os.ReadFile(filepath.Join(y.runDir(first), rundir.StateFile))
	if err != nil {
		t.Fatal(err)
	}

	second := y.start(api.Launch{Command: "sleep 1000"})
	y.await(second, job.RunRunning)
	y.powerCut(t, second)

	if err := os.WriteFile(filepath.Join(y.runDir(second), rundir.StateFile), state, 0o600); err != nil {
		t.Fatal(err)
	}

	launch := filepath.Join(y.runDir(second), rundir.LaunchFile)
	rec := rundir.Record{}
	if ok, err := rundir.ReadJSON(launch, &rec); err != nil || !ok {
		t.Fatal(ok, err)
	}

	rec.Boot = "another start of the machine"
	if err := rundir.WriteJSON(launch, rec, false); err != nil {
		t.Fatal(err)
	}

	y.open()

	if st := y.end(second); st.Run != second || st.Cause != job.CauseNodeLost {
		t.Errorf("it ended as %s with %q: %s", st.Run, st.Cause, st.Reason)
	}
}

// awaitFiles waits until there are so many files and folders below a folder.
func awaitFiles(t *testing.T, root string, want int) {
	t.Helper()

	for n := countFiles(t, root); n != want; n = countFiles(t, root) {
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatalf("there are %d files and folders, want %d", n, want)
		}
	}
}
