package download

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// server has chunks by their digests.
type server struct {
	mu     sync.Mutex
	chunks map[string]string
	asked  []string
	change func(digest, text string) (string, error) // of what is sent
}

func (s *server) chunk(_ context.Context, _ id.Run, _ int, digest string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.asked = append(s.asked, s.chunks[digest])
	text := s.chunks[digest]

	if s.change != nil {
		var err error
		if text, err = s.change(digest, text); err != nil {
			return nil, err
		}
	}

	return io.NopCloser(strings.NewReader(text)), nil
}

// file is one with these chunks.
func (s *server) file(name string, chunks ...string) Item {
	item := Item{Run: "j1.1", Path: name, File: api.CheckpointFile{Path: name, Mode: 0o755}}

	for _, text := range chunks {
		digest := digestOf([]byte(text))
		s.chunks[digest] = text
		item.File.Chunks = append(item.File.Chunks, api.CheckpointChunk{Digest: digest, Size: int64(len(text))})
		item.File.Size += int64(len(text))
	}

	return item
}

func linkTo(name, target string) Item {
	return Item{Run: "j1.1", Path: name, File: api.CheckpointFile{Path: name, Link: target}}
}

func newServer() *server { return &server{chunks: map[string]string{}} }

func (s *server) fetch(t *testing.T, dir string, force bool, items ...Item) (Summary, error) {
	t.Helper()
	return Fetch(t.Context(), s.chunk, dir, items, Options{Force: force, Progress: func(int64, int64) {}})
}

// filesIn returns what is in a folder.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}

	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}

		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			files[name] = "-> " + target

			return err
		}

		text, err := os.ReadFile(path)
		files[name] = string(text)

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

func write(t *testing.T, name, text string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Errorf("error %v, want the code %s", err, code)
	}
}

func TestFilesAreFetchedOnce(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), filepath.Join(t.TempDir(), "new", "folder")
	items := []Item{s.file("a/model", "abc", "de"), s.file("empty"), linkTo("a/latest", "model")}

	sum, err := s.fetch(t, dir, false, items...)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(Summary{Written: 3, Bytes: 5}, sum); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}

	want := map[string]string{"a/model": "abcde", "empty": "", "a/latest": "-> model"}
	if diff := cmp.Diff(want, filesIn(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}

	if info, err := os.Stat(filepath.Join(dir, "a", "model")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}

	s.asked = nil
	sum, err = s.fetch(t, dir, false, items...)
	if err != nil || sum != (Summary{Same: 3}) || len(s.asked) > 0 {
		t.Errorf("again: %+v, %v, asked for %q", sum, err, s.asked)
	}
}

func TestAnInterruptedDownloadContinues(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	item := s.file("model", "abc", "def", "ghi")
	last := item.File.Chunks[2].Digest
	s.change = func(digest, text string) (string, error) {
		if digest == last {
			return "", fault.New(fault.Denied, "token_revoked", "your token was revoked")
		}

		return text, nil
	}

	_, err := s.fetch(t, dir, false, item)
	wantCode(t, err, "token_revoked")

	if _, err := os.Lstat(filepath.Join(dir, "model")); err == nil {
		t.Error("an unfinished file has its name")
	}

	// What the disk has damaged meanwhile is fetched again.
	part := filepath.Join(dir, partName(&item))
	write(t, part, "abcdXf")

	s.change, s.asked = nil, nil
	if _, err := s.fetch(t, dir, false, item); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"def", "ghi"}, s.asked); diff != "" {
		t.Errorf("fetched (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{"model": "abcdefghi"}, filesIn(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
}

func TestDamagedContentIsFetchedAgain(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	item := s.file("model", "abc", "def")
	times := 0
	s.change = func(_, text string) (string, error) {
		times++

		switch times {
		case 1:
			return "XXX", nil
		case 2:
			return "a", nil // it broke off
		}

		return text, nil
	}

	if _, err := s.fetch(t, dir, false, item); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(map[string]string{"model": "abcdef"}, filesIn(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
}

func TestFilesThatAreThereAreNotOverwritten(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	items := []Item{s.file("a", "new"), s.file("b", "b"), linkTo("l", "a")}
	write(t, filepath.Join(dir, "a"), "old")
	write(t, filepath.Join(dir, "l"), "mine")

	_, err := s.fetch(t, dir, false, items...)
	wantCode(t, err, "file_exists")

	if err == nil || !strings.Contains(err.Error(), "a, l would be overwritten") {
		t.Errorf("error %v", err)
	}

	if diff := cmp.Diff(map[string]string{"a": "old", "l": "mine"}, filesIn(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}

	if _, err := s.fetch(t, dir, true, items...); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(map[string]string{"a": "new", "b": "b", "l": "-> a"}, filesIn(t, dir)); diff != "" {
		t.Errorf("folder after --force (-want +got):\n%s", diff)
	}
}

// A server or a program may have sent any names and links.
func TestNothingIsWrittenOutsideTheFolder(t *testing.T) {
	t.Parallel()
	s, top := newServer(), t.TempDir()
	dir, outside := filepath.Join(top, "in"), filepath.Join(top, "out")
	write(t, filepath.Join(outside, "x"), "untouched")

	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "door")); err != nil {
		t.Fatal(err)
	}

	// They are refused before anything is fetched, for what they are.
	for _, name := range []string{"../out/x", "/tmp/x", "a/../../out/x", "a//b", ".", "a\x00b"} {
		_, err := s.fetch(t, dir, true, s.file(name, "bad"))
		wantCode(t, err, "bad_path")
	}

	for name, item := range map[string]Item{
		"a path that leads out":           s.file("../out/x", "bad"),
		"an absolute path":                s.file("/tmp/x", "bad"),
		"a path through a link of before": s.file("door/x", "bad"),
		"a link that leads out":           linkTo("l", "../out/x"),
		"an absolute link":                linkTo("l", filepath.Join(outside, "x")),
	} {
		if _, err := s.fetch(t, dir, true, item); err == nil {
			t.Errorf("%s was fetched", name)
		}
	}

	if diff := cmp.Diff(map[string]string{"x": "untouched"}, filesIn(t, outside)); diff != "" {
		t.Errorf("outside (-want +got):\n%s", diff)
	}
}

// What an interrupted download has left may be of an earlier, longer file of the same name.
func TestALongerPartIsCut(t *testing.T) {
	t.Parallel()
	s, dir := newServer(), t.TempDir()
	item := s.file("model", "abc")
	write(t, filepath.Join(dir, partName(&item)), "abc of before")

	if _, err := s.fetch(t, dir, false, item); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(map[string]string{"model": "abc"}, filesIn(t, dir)); diff != "" {
		t.Errorf("folder (-want +got):\n%s", diff)
	}
}

// A list of chunks that cannot be is refused, also if something is there already.
func TestChunksOfImpossibleSizeAreRefused(t *testing.T) {
	t.Parallel()

	for _, size := range []int64{-1, 0, api.MaxChunk + 1} {
		s, dir := newServer(), t.TempDir()
		item := s.file("model", "abc")
		item.File.Chunks[0].Size = size
		write(t, filepath.Join(dir, partName(&item)), "abc")

		_, err := s.fetch(t, dir, false, item)
		wantCode(t, err, "bad_manifest")
	}
}

// A file of several chunks is intact up to the first that is not.
func TestIntactCountsChunks(t *testing.T) {
	t.Parallel()
	s := newServer()
	item := s.file("x", "abc", "def")

	for text, want := range map[string]int{"": 0, "ab": 0, "abc": 1, "abcdeX": 1, "abcdef": 2, "Xbcdef": 0} {
		name := filepath.Join(t.TempDir(), "x")
		write(t, name, text)

		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}

		if got := intact(f, item.File.Chunks); got != want {
			t.Errorf("%q has %d chunks, want %d", text, got, want)
		}

		_ = f.Close() // it was only read
	}
}
