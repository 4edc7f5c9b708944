package checkpoints

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// sharedFS is a shared file system of the tests.
type sharedFS struct {
	t    *testing.T
	root string
	away atomic.Bool
}

var errAway = errors.New("not mounted")

// share lets checkpoints use a shared file system.
func share(t *testing.T, c *Checkpoints) *sharedFS {
	t.Helper()
	fs := &sharedFS{t: t, root: t.TempDir()}
	c.opt.Shared = func(_ context.Context, name string) (string, error) {
		if name != "lab" || fs.away.Load() {
			return "", errAway
		}

		return fs.root, nil
	}

	return fs
}

// rank returns a rank whose checkpoint directory is on the file system.
func (f *sharedFS) rank(epoch int) Rank {
	f.t.Helper()
	uid := id.UID("u" + string(rune('0'+epoch)))
	at := SharedRank{Job: "j1", JobUID: "uid", UID: uid, Epoch: epoch}
	r := Rank{Run: id.NewRun("j1", epoch), UID: uid, Ranks: 1, Dir: at.DirOn(f.root), Shared: "lab"}

	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		f.t.Fatal(err)
	}

	return r
}

func (f *sharedFS) restoreOf(in *api.NewCheckpoint) *job.Restore {
	return &job.Restore{
		Checkpoint: "j1.c1", Name: in.Name, Step: -1, Size: in.Size,
		Parts: []job.RestorePart{{Manifest: in.Manifest, Shared: in.Shared, Path: in.Path}},
	}
}

// saved saves files as the checkpoint of a rank and returns its entry.
func (f *sharedFS) saved(y *fakeYard, c *Checkpoints, rank Rank, files map[string]string) *api.NewCheckpoint {
	f.t.Helper()
	write(f.t, rank.Dir, files)
	s := c.Save(rank)
	in := y.awaitEntries(1)[0]
	s.Stop()

	return &in
}

func TestACheckpointStaysOnASharedFileSystem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	fs := share(t, c)
	rank := fs.rank(1)
	files := huggingFace("5", "adam", noise(1, 40<<20))

	if err := os.Symlink("checkpoint-5", filepath.Join(rank.Dir, "last")); err != nil {
		t.Fatal(err)
	}

	in := fs.saved(y, c, rank, files)
	if in.Shared != "lab" || !strings.HasPrefix(in.Path, "trainyard/j1-uid/1-u1/kept/") || in.Name != "checkpoint-5" ||
		int(in.Size) < 40<<20 {
		t.Errorf("entered %+v", in)
	}

	if _, only := y.chunks[in.Manifest]; !only || len(y.chunks) != 1 {
		t.Errorf("%d chunks were uploaded, want the manifest alone", len(y.chunks))
	}

	want := maps.Clone(files)
	want["last"] = "-> checkpoint-5"
	sameFiles(t, "what is kept", contents(t, filepath.Join(fs.root, in.Path)), want)

	// Another node that sees it restores it without a transfer, and the next run does not write where the last one did.
	next := fs.rank(2)
	if err := c.Restore(t.Context(), next, fs.restoreOf(in), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, next.Dir), want)

	if int(y.fetched) != len(y.chunks[in.Manifest]) {
		t.Errorf("%d bytes were downloaded, want the manifest alone", y.fetched)
	}

	if left, err := os.ReadDir(filepath.Dir(next.Dir)); err != nil || len(left) != 1 {
		t.Errorf("beside the directory: %v, %v", left, err)
	}
}

func TestNoProgramCanChangeWhatIsKept(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	fs := share(t, c)
	rank, next := fs.rank(1), fs.rank(2)
	in := fs.saved(y, c, rank, map[string]string{"model.pt": "first"})

	// The old run, which may still be alive, writes into its file, and the new one into what was restored.
	overwrite := func(r Rank) {
		t.Helper()

		if err := os.WriteFile(filepath.Join(r.Dir, "model.pt"), []byte("torn!"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	overwrite(rank)

	if err := c.Restore(t.Context(), next, fs.restoreOf(in), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, next.Dir), map[string]string{"model.pt": "first"})
	overwrite(next)

	again := fs.rank(3)
	if err := c.Restore(t.Context(), again, fs.restoreOf(in), &Restoring{}); err != nil {
		t.Fatal(err)
	}

	sameFiles(t, "the directory", contents(t, again.Dir), map[string]string{"model.pt": "first"})
}

func TestWhatIsWrongOnASharedFileSystemIsCorruptAndWhatIsAwayIsNot(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		harm    func(fs *sharedFS, kept string) error
		corrupt bool
	}{
		"damaged": {func(_ *sharedFS, kept string) error {
			return os.WriteFile(filepath.Join(kept, "model.pt"), []byte("other"), 0o600)
		}, true},
		"shorter":        {func(_ *sharedFS, kept string) error { return os.Truncate(filepath.Join(kept, "model.pt"), 2) }, true},
		"a file is gone": {func(_ *sharedFS, kept string) error { return os.Remove(filepath.Join(kept, "model.pt")) }, true},
		"gone":           {func(_ *sharedFS, kept string) error { return os.RemoveAll(kept) }, true},
		"not mounted":    {func(fs *sharedFS, _ string) error { fs.away.Store(true); return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			all := newCheckpoints(t, y)
			fs := share(t, all)
			in := fs.saved(y, all, fs.rank(1), map[string]string{"model.pt": "first"})

			if err := c.harm(fs, filepath.Join(fs.root, in.Path)); err != nil {
				t.Fatal(err)
			}

			err := all.Restore(t.Context(), fs.rank(2), fs.restoreOf(in), &Restoring{})
			if err == nil || Corrupt(err) != c.corrupt {
				t.Errorf("restored with %v, corrupt: %t, want %t", err, Corrupt(err), c.corrupt)
			}
		})
	}
}

func TestNothingIsKeptWhileTheFileSystemIsAway(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	fs := share(t, c)
	problems := make(chan error, 1)
	c.opt.Problem = func(_ string, err error) {
		select {
		case problems <- err:
		default:
		}
	}

	fs.away.Store(true)

	rank := fs.rank(1)
	write(t, rank.Dir, huggingFace("5", "adam", []byte("model")))
	s := save(t, c, rank)

	if err := <-problems; !errors.Is(err, errAway) {
		t.Errorf("the problem is %v", err)
	}

	fs.away.Store(false)

	if in := y.awaitEntries(1)[0]; in.Shared != "lab" {
		t.Errorf("entered %+v", in)
	}

	s.End(time.Now(), true)
	finish(t, y, s)
}

func TestWhatIsNotNeededIsRemovedFromASharedFileSystem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := newCheckpoints(t, y)
	fs := share(t, c)
	rank := fs.rank(1)
	in := fs.saved(y, c, rank, huggingFace("5", "adam", []byte("model")))

	foreign := filepath.Join(fs.root, SharedDir, "notes")
	if err := os.MkdirAll(foreign, 0o700); err != nil {
		t.Fatal(err)
	}

	var asked []api.SharedDir
	y.unneeded = func(d api.SharedDir) bool {
		asked = append(asked, d)
		return d.Kept
	}

	if err := c.Sweep(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}

	want := []api.SharedDir{
		{Run: "j1.1", UID: "u1", Path: "trainyard/j1-uid/1-u1/rank-0"}, {Run: "j1.1", UID: "u1", Path: in.Path, Kept: true},
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked about %+v, want %+v", asked, want)
	}

	if _, err := os.Stat(filepath.Join(fs.root, in.Path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not needed is still there: %v", err)
	}

	sameFiles(t, "the directory of the run", contents(t, rank.Dir), huggingFace("5", "adam", []byte("model")))

	y.unneeded = func(api.SharedDir) bool { return true }

	if err := c.Sweep(t.Context(), "lab"); err != nil {
		t.Fatal(err)
	}

	if left, err := os.ReadDir(filepath.Join(fs.root, SharedDir)); err != nil || len(left) != 1 || left[0].Name() != "notes" {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAFolderIsASharedFileSystemOnlyWithItsNonce(t *testing.T) {
	t.Parallel()
	right, other := t.TempDir(), t.TempDir()
	folder := func(path, nonce string, create bool) *api.SharedFolder {
		return &api.SharedFolder{Name: "lab", Path: path, Nonce: nonce, Create: create}
	}

	if err := LookAt(folder(right, "12345678-a", false)); err == nil || !strings.Contains(err.Error(), "not mounted") {
		t.Errorf("a folder without a nonce: %v", err)
	}

	if err := LookAt(folder(right, "12345678-a", true)); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name string
		*api.SharedFolder
		ok bool
	}{
		{"the same", folder(right, "12345678-a", false), true},
		{"another folder", folder(other, "12345678-a", false), false},
		{"of another yard", folder(right, "12345678-b", true), false},
		{"no folder", folder(filepath.Join(other, "missing"), "12345678-a", true), false},
	} {
		if err := LookAt(c.SharedFolder); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	// The mount is gone, and what is beneath it is empty.
	if err := os.Rename(right, right+".unmounted"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(right, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := LookAt(folder(right, "12345678-a", false)); err == nil {
		t.Error("an empty folder passes for the file system that was mounted there")
	}
}
