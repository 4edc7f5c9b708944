package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"trainyard/internal/blob"
	"trainyard/internal/fault"
)

// shelf is a logbook in a folder of its own, with its blobs.
type shelf struct {
	*Archive
	t      testing.TB
	blobs  *testBlobs
	folder string // of the blobs
	clock  *handClock
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	dir, err := blob.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	s := &shelf{t: t, blobs: &testBlobs{Store: dir}, folder: dir.Folder(), clock: &handClock{}}
	s.reopen(filepath.Join(t.TempDir(), "logs"))

	t.Cleanup(func() {
		s.clock.advance(2 * keepOpen)

		if err := s.Sweep(); err != nil {
			t.Error(err)
		}
	})

	return s
}

// reopen opens the folder anew, as a server does that was started again.
func (s *shelf) reopen(dir string) {
	s.t.Helper()
	book, err := Open(dir, s.blobs, s.clock)
	if err != nil {
		s.t.Fatal(err)
	}

	s.Archive = book
}

// empty gives back the space that the log takes.
func (s *shelf) empty() {
	s.t.Helper()
	s.clock.advance(2 * keepOpen)

	if err := errors.Join(s.Sweep(), os.RemoveAll(s.dir)); err != nil {
		s.t.Error(err)
	}
}

var theLog = Log{Run: "j1.1", UID: "0123456789abcdef"}

func (s *shelf) append(offset int64, data string, final bool) int64 {
	s.t.Helper()
	size, _, err := s.Append(s.t.Context(), theLog, offset, []byte(data), final)
	if err != nil {
		s.t.Fatal(err)
	}

	return size
}

// content is all that the log holds.
func (s *shelf) content() string {
	s.t.Helper()
	raw, err := s.Read(s.t.Context(), theLog, 0, 1<<30)
	if err != nil {
		s.t.Fatal(err)
	}

	return string(raw)
}

func (s *shelf) state() State {
	s.t.Helper()
	st, err := s.State(s.t.Context(), theLog)
	if err != nil {
		s.t.Fatal(err)
	}

	return st
}

func TestOutputIsTakenExactlyOnce(t *testing.T) {
	t.Parallel()
	type part struct {
		offset int64
		data   string
		final  bool
		want   int64
	}

	tests := []struct {
		name  string
		parts []part
		want  string
		ended bool
	}{
		{"in order", []part{{0, "abc", false, 3}, {3, "def", false, 6}}, "abcdef", false},
		{"the same again", []part{{0, "abc", false, 3}, {0, "abc", false, 3}, {3, "d", false, 4}}, "abcd", false},
		{"overlapping", []part{{0, "abc", false, 3}, {1, "bcde", false, 5}}, "abcde", false},
		{"within what is there", []part{{0, "abcdef", false, 6}, {2, "c", false, 6}}, "abcdef", false},
		{
			"a gap",
			[]part{{0, "abc", false, 3}, {5, "fgh", false, 3}, {3, "de", false, 5}, {5, "fgh", false, 8}},
			"abcdefgh",
			false,
		},
		{"the last first", []part{{3, "def", true, 0}, {0, "abc", false, 3}, {3, "def", true, 6}}, "abcdef", true},
		{"the end twice", []part{{0, "abc", true, 3}, {0, "abc", true, 3}, {3, "", true, 3}}, "abc", true},
		{"the end apart", []part{{0, "abc", false, 3}, {3, "", true, 3}}, "abc", true},
		{"the end with nothing", []part{{0, "", true, 0}}, "", true},
		{"the end with nothing twice", []part{{0, "", true, 0}, {0, "", true, 0}}, "", true},
		{"more after the end", []part{{0, "abc", true, 3}, {3, "def", false, 3}}, "abc", true},
		{"an end that is behind", []part{{0, "abcdef", false, 6}, {0, "abc", true, 6}}, "abcdef", false},
		{"an end past a gap", []part{{0, "abc", false, 3}, {9, "", true, 3}}, "abc", false},
	}

	for _, tt := range tests {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, started anew %v", tt.name, again), func(t *testing.T) {
				t.Parallel()
				s := newShelf(t)
				for i, p := range tt.parts {
					if got := s.append(p.offset, p.data, p.final); got != p.want {
						t.Fatalf("part %d: it has %d bytes, want %d", i, got, p.want)
					}

					if again {
						s.clock.advance(2 * keepOpen)

						if err := s.Sweep(); err != nil {
							t.Fatal(err)
						}

						s.reopen(s.dir)
					}
				}

				if got := s.content(); got != tt.want {
					t.Errorf("it holds %q, want %q", got, tt.want)
				}

				if st := s.state(); st.Ended != tt.ended || st.Size != int64(len(tt.want)) {
					t.Errorf("its state is %+v, want it ended %v", st, tt.ended)
				}
			})
		}
	}
}

// randomBytes do not compress, so that segments are as large as they can be.
func randomBytes(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	out := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(out) // never fails

	return out
}

func TestAnArchivedLogIsReadAcrossItsSegments(t *testing.T) {
	t.Parallel()
	s := newShelf(t)

	data := randomBytes(1, 2*segmentSize+12345)
	for at := 0; at < len(data); at += 8 << 20 {
		s.append(int64(at), string(data[at:min(at+8<<20, len(data))]), at+8<<20 >= len(data))
	}

	if n := s.blobs.puts.Load(); n != 3 {
		t.Errorf("it is in %d blobs, want 3", n)
	}

	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 1 || entries[0].Name() != journalDir {
		t.Errorf("beside its journal the folder still has %v (%v)", entries, err)
	}

	for _, span := range [][2]int{{0, 10}, {segmentSize - 5, 10}, {segmentSize, 1}, {segmentSize - 1, 1},
		{2*segmentSize - 7, 7}, {10, 2 * segmentSize},
		{2*segmentSize + 12344, 100}, {2*segmentSize + 12345, 1}, {3 * segmentSize, 5}, {0, 3 * segmentSize}} {
		got, err := s.Read(t.Context(), theLog, int64(span[0]), int64(span[1]))
		if err != nil {
			t.Fatal(err)
		}

		start := min(span[0], len(data))
		if want := data[start:min(start+span[1], len(data))]; !bytes.Equal(got, want) {
			t.Errorf("%d bytes from %d on: got %d bytes that are not those", span[1], span[0], len(got))
		}
	}

	wantCopies(t, s, data)
}

// wantCopies copies parts of a log of which this is all.
func wantCopies(t *testing.T, s *shelf, data []byte) {
	t.Helper()

	for _, span := range [][2]int{
		{0, len(data)}, {0, 0}, {len(data), len(data)}, {5, 6}, {min(segmentSize-1, len(data)), len(data)},
		{len(data) / 2, len(data) - 1},
	} {
		var out bytes.Buffer
		if err := s.Copy(t.Context(), &out, theLog, int64(span[0]), int64(span[1])); err != nil {
			t.Fatal(err)
		}

		if !bytes.Equal(out.Bytes(), data[span[0]:span[1]]) {
			t.Errorf("from %d to %d: got %d bytes that are not those", span[0], span[1], out.Len())
		}
	}

	if err := s.Copy(t.Context(), io.Discard, theLog, 0, int64(len(data))+1); err == nil {
		t.Error("more was copied than there is")
	}
}

func TestALogThatIsBeingWrittenIsCopied(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data := randomBytes(1, chunk+12345)
	s.append(0, string(data), false)
	wantCopies(t, s, data)
}

func TestArchivingGoesOnWhereItFailed(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data := randomBytes(2, segmentSize+100)
	s.append(0, string(data), false)
	s.blobs.failAfter(1, fault.New(fault.Unavailable, "blob_store", "full"))
	changed := s.state().Changed
	_, _, err := s.Append(t.Context(), theLog, int64(len(data)), []byte("end"), true)
	wantFault(t, err, fault.Unavailable, "blob_store")

	select {
	case <-changed:
	default:
		t.Error("who follows was not told of what came before archiving failed")
	}

	if st := s.state(); st.Ended || st.Size != int64(len(data))+3 {
		t.Errorf("after the failure its state is %+v", st)
	}

	s.blobs.failAfter(0, nil)

	if got := s.append(int64(len(data)), "end", true); got != int64(len(data))+3 {
		t.Errorf("it has %d bytes", got)
	}

	if n := s.blobs.puts.Load(); n != 2 {
		t.Errorf("%d blobs were written, want each of 2 once", n)
	}

	if s.content() != string(data)+"end" || !s.state().Ended {
		t.Error("the archived log is not what was sent")
	}
}

func TestALogInOnePieceGoesToTheBlobStoreAtOnce(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.blobs.failAfter(0, fault.New(fault.Unavailable, "blob_store", "full"))

	size, ended, err := s.Append(t.Context(), theLog, 0, []byte("hello\n"), true)
	wantFault(t, err, fault.Unavailable, "blob_store")

	if size != 0 || ended {
		t.Errorf("%d bytes were acknowledged, the end: %v", size, ended)
	}

	s.blobs.failAfter(0, nil)

	for range 2 { // its agent may not have heard the answer
		size, ended, err := s.Append(t.Context(), theLog, 0, []byte("hello\n"), true)
		if size != 6 || !ended || err != nil {
			t.Errorf("%d bytes, ended %v, %v", size, ended, err)
		}
	}

	if entries, err := os.ReadDir(s.dir); len(entries) != 0 || err != nil {
		t.Errorf("beside the blob there are %v, %v", entries, err)
	}

	if n := s.blobs.puts.Load(); n != 1 || s.content() != "hello\n" || !s.state().Ended {
		t.Errorf("%d blobs were written; the log is %q", n, s.content())
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, "abc", false)
	f := s.open[theLog.String()]
	good := f.file

	// A file that cannot be written stands in for a disk that is full ...
	broken, err := os.Open(good.Name())
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = broken.Close() }()

	f.file = broken
	size, _, err := s.Append(t.Context(), theLog, 3, []byte("def"), true)
	wantFault(t, err, fault.Unavailable, "log_store")

	if size != 3 || s.state().Ended {
		t.Errorf("%d bytes were acknowledged", size)
	}

	// ... and this for the part that it took.
	if _, err := good.WriteAt([]byte("d?"), 3); err != nil {
		t.Fatal(err)
	}

	if got := s.content(); got != "abc" {
		t.Errorf("readers see %q, which was not acknowledged", got)
	}

	f.file = good

	if got := s.append(3, "def", false); got != 6 || s.content() != "abcdef" {
		t.Errorf("it holds %q", s.content())
	}

	s.append(6, "", true)

	if s.content() != "abcdef" {
		t.Errorf("it holds %q", s.content())
	}
}

func TestALogThatCannotBeOpenedIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	if err := os.Mkdir(filepath.Join(s.dir, theLog.String()), 0o700); err != nil {
		t.Fatal(err)
	}

	_, _, err := s.Append(t.Context(), theLog, 0, []byte("a"), false)
	wantFault(t, err, fault.Unavailable, "log_store")
}

func TestAnEmptyFileThatACrashLeftIsArchived(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	if err := os.WriteFile(filepath.Join(s.dir, theLog.String()), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	s.append(0, "", true)
	s.reopen(s.dir)

	if st := s.state(); !st.Ended || st.Size != 0 {
		t.Errorf("started anew its state is %+v", st)
	}

	if _, err := os.Stat(filepath.Join(s.dir, theLog.String())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestSweepingWakesAndForgets(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, "abc", false)
	st := s.state()
	s.clock.advance(keepOpen - time.Second)

	if err := s.Sweep(); err != nil || len(s.open) != 1 {
		t.Fatalf("%d logs are open, %v", len(s.open), err)
	}

	s.clock.advance(2 * time.Second)

	if err := s.Sweep(); err != nil || len(s.open) != 0 {
		t.Fatalf("%d logs are open, %v", len(s.open), err)
	}

	select {
	case <-st.Changed:
	default:
		t.Error("who follows was not woken")
	}

	if got := s.append(3, "def", false); got != 6 || s.content() != "abcdef" {
		t.Errorf("afterwards it holds %q", s.content())
	}
}

// A blob store that does not answer delays who reads an archived log, and nobody else.
func TestASlowBlobStoreHoldsUpNoOtherLog(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, "begin ", false)

	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.blobs.listing = func() {
		once.Do(func() { close(asked) })
		<-answer
	}
	found := make(chan error)

	go func() {
		_, err := s.State(t.Context(), Log{Run: "j2.1", UID: "f"})
		found <- err
	}()

	<-asked

	if size := s.append(6, "end", false); size != 9 {
		t.Errorf("the log has %d bytes, want 9", size)
	}

	close(answer)

	if err := <-found; err != nil {
		t.Error(err)
	}
}
