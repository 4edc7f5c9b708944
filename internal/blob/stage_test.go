package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/atomicfile"
	"trainyard/internal/atomicfile/disktest"
	"trainyard/internal/blob"
	"trainyard/internal/blob/blobtest"
	"trainyard/internal/fault"
)

func stage(t *testing.T, d *blob.Dir, name, text string) {
	t.Helper()

	if err := d.Stage(t.Context(), name, strings.NewReader(text)); err != nil {
		t.Fatalf("stage %s: %v", name, err)
	}
}

func TestAStagedBlobIsThereAtOnceAndHasNoFileOfItsName(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := open(t, root)
	stage(t, d, "a/b", "text")
	stage(t, d, "a/b", "text") // the same once more

	info, err := d.Stat(t.Context(), "a/b")
	if has, hasErr := d.Has(t.Context(), "a/b"); err != nil || hasErr != nil || !has || info.Size != 4 {
		t.Errorf("has %v, %v; stat %+v, %v", has, hasErr, info, err)
	}

	if got := get(t, d, "a/b"); got != "text" {
		t.Errorf("read %q", got)
	}

	if _, err := os.Stat(filepath.Join(root, "a", "b")); err == nil {
		t.Error("it has its name although it may not be on the disk")
	}

	if got := files(t, root); len(got) != 1 {
		t.Errorf("files: %v", got)
	}

	if err := d.Sync(t.Context(), []string{"a/b"}); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"a/b"}, files(t, root)); diff != "" || get(t, d, "a/b") != "text" {
		t.Errorf("read %q, files: %s", get(t, d, "a/b"), diff)
	}
}

func TestWhatIsStagedIsListed(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	stage(t, d, "a/b", "text")

	var got []string
	for info, err := range d.List(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, info.Name)
	}

	if diff := cmp.Diff([]string{"a/b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsStagedIsGoneAfterAStart(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := open(t, root)
	stage(t, d, "a/b", "text")

	later := open(t, root)
	if got := get(t, later, "a/b"); got != "not_found" {
		t.Errorf("read %q", got)
	}

	// The one before notices too that its files were removed.
	if err := d.Sync(t.Context(), []string{"a/b"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("sync = %v", err)
	}

	if has, err := d.Has(t.Context(), "a/b"); has || err != nil {
		t.Errorf("has = %v, %v", has, err)
	}

	stage(t, d, "a/b", "text")

	if err := d.Sync(t.Context(), []string{"a/b"}); err != nil || get(t, later, "a/b") != "text" {
		t.Errorf("put again: %v", err)
	}
}

func TestASyncWantsAllOfItsBlobs(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	put(t, d, "a/b", "text")
	stage(t, d, "a/c", "text")

	if err := d.Sync(t.Context(), []string{"a/b", "a/c"}); err != nil {
		t.Errorf("sync = %v", err)
	}
	if err := d.Sync(t.Context(), []string{"a/b", "x/y"}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("sync of one that is not there = %v", err)
	}
	if err := d.Sync(t.Context(), []string{"../b"}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("sync of a name that leads astray = %v", err)
	}

	stage(t, d, "x/y", "text")

	if err := d.Delete(t.Context(), "x/y"); err != nil || get(t, d, "x/y") != "not_found" {
		t.Errorf("delete = %v, read %q", err, get(t, d, "x/y"))
	}
}

func TestAStageThatFailsLeavesNoFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := open(t, root)
	broken := errors.New("line is down")

	err := d.Stage(t.Context(), "a/b", io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || len(files(t, root)) > 0 {
		t.Errorf("stage = %v, left behind: %v", err, files(t, root))
	}
}

// More is staged than is kept back, by many, while others sync and read.
func TestMuchIsStagedAtOnce(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	content := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
	var names []string

	for i := range 40 {
		names = append(names, fmt.Sprintf("x/%d/%d", i%4, i))
	}

	errs := make(chan error, len(names))
	for _, name := range names {
		go func() { errs <- d.Stage(t.Context(), name, bytes.NewReader(content)) }()
	}

	for range names {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}

	if err := d.Sync(t.Context(), names); err != nil {
		t.Fatal(err)
	}

	if got := blobtest.Names(t, d, ""); len(got) != len(names) {
		t.Errorf("%d blobs, want %d", len(got), len(names))
	}

	if got := get(t, d, names[7]); got != string(content) {
		t.Errorf("%d bytes that are not those that were staged", len(got))
	}
}

// A blob that was synced is there after a power cut; at every point before it is there as a whole or not at all.
func TestASyncSurvivesAPowerCut(t *testing.T) {
	t.Parallel()

	want := bytes.Repeat([]byte("text"), 1000)
	const most = 40

	for calls := range most { // the power fails at every point
		for _, keep := range []func(int) int{func(int) int { return 0 }, func(n int) int { return n - 1 }} {
			root := t.TempDir()
			disk, err := disktest.New(root)
			if err != nil {
				t.Fatal(err)
			}

			d, err := blob.OpenDirOn(disk, filepath.Join(root, "blobs"))
			if err != nil {
				t.Fatal(err)
			}

			disk.FailAfter(calls)

			err = d.Stage(t.Context(), "chunks/ab/1", bytes.NewReader(want))
			if err == nil {
				err = d.Stage(t.Context(), "chunks/cd/2", bytes.NewReader(want))
			}
			if err == nil {
				err = d.Sync(t.Context(), []string{"chunks/ab/1", "chunks/cd/2"})
			}
			if calls == most-1 && err != nil {
				t.Fatalf("it needs more than %d calls: %v", calls, err)
			}

			if err := disk.Cut(keep); err != nil {
				t.Fatal(err)
			}

			d, openErr := blob.OpenDirOn(disk, filepath.Join(root, "blobs"))
			if openErr != nil {
				t.Fatal(openErr)
			}

			for _, name := range []string{"chunks/ab/1", "chunks/cd/2"} {
				got := get(t, d, name)
				if got != string(want) && (err == nil || got != "not_found") {
					t.Errorf("after %d calls (%v) %s has %d bytes", calls, err, name, len(got))
				}
			}
		}
	}
}

func TestAFolderIsJoinedOnItsMachineAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	server := open(t, root)

	joined, nonce, err := blob.JoinDir(root, "agent-1")
	if err != nil {
		t.Fatal(err)
	}

	if !server.Sees(nonce) {
		t.Error("the server does not see the nonce")
	}

	for _, other := range []string{"", "x", "agent-1", "agent-1/x", "../" + filepath.Base(root) + "/.unfinished/" + nonce} {
		if server.Sees(other) {
			t.Errorf("the server sees %q", other)
		}
	}

	if open(t, t.TempDir()).Sees(nonce) {
		t.Error("a server with another folder sees the nonce")
	}

	// The same folder on the network, where another machine has made the nonce.
	if err := os.WriteFile(filepath.Join(root, ".unfinished", nonce), []byte("another machine"), 0o600); err != nil {
		t.Fatal(err)
	}

	if server.Sees(nonce) {
		t.Error("the nonce of another machine is taken for one of this")
	}

	stage(t, joined, "a/b", "text")

	if got := get(t, server, "a/b"); got != "not_found" {
		t.Errorf("before the sync the server reads %q", got)
	}

	if err := joined.Sync(t.Context(), []string{"a/b"}); err != nil || get(t, server, "a/b") != "text" {
		t.Errorf("sync = %v, the server reads %q", err, get(t, server, "a/b"))
	}

	// What a process that was killed has left goes when it joins again; what it has finished stays.
	stage(t, joined, "a/c", "text")

	joined, _, err = blob.JoinDir(root, "agent-1")
	if err != nil {
		t.Fatal(err)
	}

	if err := joined.Leave(); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"a/b"}, files(t, root)); diff != "" {
		t.Errorf("files: %s", diff)
	}

	if _, _, err := blob.JoinDir(filepath.Join(root, "a"), "agent-1"); err == nil {
		t.Error("a folder that no server has opened was joined")
	}
}

// watchful is a disk that notes what is written to new files.
type watchful struct {
	atomicfile.Disk
	writes [][]byte
}

func (w *watchful) CreateTemp(dir, pattern string) (atomicfile.File, error) {
	f, err := w.Disk.CreateTemp(dir, pattern)
	return &watchedFile{f, w}, err
}

type watchedFile struct {
	atomicfile.File
	disk *watchful
}

func (f *watchedFile) Write(p []byte) (int, error) {
	f.disk.writes = append(f.disk.writes, p)
	return f.File.Write(p)
}

func TestWhatIsInMemoryIsStagedWithoutACopy(t *testing.T) {
	t.Parallel()
	disk, root := &watchful{Disk: atomicfile.OS{}}, t.TempDir()

	d, err := blob.OpenDirOn(disk, root)
	if err != nil {
		t.Fatal(err)
	}

	data := bytes.Repeat([]byte("x"), 1<<20)
	if err := d.Stage(t.Context(), "a", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}

	at := 0
	for _, p := range disk.writes {
		if &p[0] != &data[at] {
			t.Fatalf("what is written at %d is a copy", at)
		}

		at += len(p)
	}

	if get(t, d, "a") != string(data) {
		t.Error("another content was stored")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := d.Stage(ctx, "b", bytes.NewReader(data)); !errors.Is(err, context.Canceled) || len(files(t, root)) != 1 {
		t.Errorf("staged for a caller who is gone: %v, files %v", err, files(t, root))
	}
}
