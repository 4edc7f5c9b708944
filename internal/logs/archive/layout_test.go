package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/id"
)

// inodes lists the files and folders of logs among the blobs.
func (s *shelf) inodes() []string {
	s.t.Helper()
	var found []string

	root := filepath.Join(s.folder, "logs")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if path != root {
			found = append(found, strings.TrimPrefix(path, root+"/"))
		}

		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}

	return found
}

// complete lists the archived logs.
func (s *shelf) complete() []Stored {
	s.t.Helper()
	var list []Stored
	for l, err := range s.Complete(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}

		list = append(list, l)
	}

	return list
}

// fileAsBefore archives a log as earlier versions did, in pieces.
func (s *shelf) fileAsBefore(l Log, pieces ...[]byte) {
	s.t.Helper()
	start := 0

	for _, p := range pieces {
		var packed bytes.Buffer
		if len(p) > 0 {
			if err := compress(&packed, l, bytes.NewReader(p)); err != nil {
				s.t.Fatal(err)
			}
		}

		name := fmt.Sprintf("%s%015d-%015d.gz", formerPrefix(l), start, start+len(p))
		if err := s.blobs.Put(s.t.Context(), name, &packed); err != nil {
			s.t.Fatal(err)
		}

		start += len(p)
	}
}

func TestALogIsOneFileInAFolderOfManyJobs(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	const jobs = 150

	for n := range jobs {
		l := Log{Run: id.NewRun(id.NewJob(uint64(n+1)), 1), UID: "0123456789abcdef", Rank: n % 3}
		if _, _, err := s.Append(t.Context(), l, 0, fmt.Appendf(nil, "output of %d", n+1), true); err != nil {
			t.Fatal(err)
		}
	}

	if found := s.inodes(); len(found) != jobs+2 { // and two folders
		t.Errorf("%d jobs have %d files and folders: %v", jobs, len(found), found)
	}

	list := s.complete()
	if len(list) != jobs {
		t.Errorf("%d logs are listed, want %d", len(list), jobs)
	}

	for _, l := range list {
		raw, err := s.Read(t.Context(), l.Log, 0, 100)
		j, _, _ := l.Run.Split()

		if want := "output of " + strings.TrimPrefix(string(j), "j"); err != nil || string(raw) != want || l.Former {
			t.Errorf("%+v has %q (%v), want %q", l, raw, err, want)
		}
	}
}

// Jobs of thousands of ranks do not make a folder in which each of their logs is looked for among all.
func TestAFolderHasFewRanks(t *testing.T) {
	t.Parallel()
	folders := map[string]int{}
	for rank := range 100 {
		folders[filepath.Dir(blobPrefix(Log{Run: "j7.1", Rank: rank}))]++
	}

	for folder, n := range folders {
		if n > ranksPerFolder {
			t.Errorf("%s has %d ranks of a job", folder, n)
		}
	}
}

func TestALogOfAnEarlierVersionIsFoundMovedAndRemoved(t *testing.T) {
	t.Parallel()
	silent := Log{Run: "j2.1", UID: "0123456789abcdef"}

	for _, moved := range []bool{false, true} {
		t.Run(fmt.Sprintf("moved %v", moved), func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			s.fileAsBefore(theLog, []byte("hello "), []byte("world"))
			s.fileAsBefore(silent, nil)

			if moved {
				for _, l := range s.complete() {
					if err := s.Move(t.Context(), l.Log); err != nil || !l.Former {
						t.Errorf("move %+v: %v", l, err)
					}
				}

				if found := s.inodes(); len(found) != 4 { // one folder
					t.Errorf("three pieces of two logs have %d files and folders: %v", len(found), found)
				}
			}

			if st := s.state(); !st.Ended || s.content() != "hello world" {
				t.Errorf("state %+v, content %q", st, s.content())
			}

			if st, err := s.State(t.Context(), silent); err != nil || !st.Ended || st.Size != 0 {
				t.Errorf("the one without output: %+v, %v", st, err)
			}

			list := s.complete()
			if len(list) != 2 || list[0].Log != theLog || list[0].Bytes == 0 || list[0].Former == moved ||
				list[1].Log != silent || list[1].Bytes != 0 {
				t.Fatalf("listed: %+v", list)
			}

			for _, l := range list {
				if freed, err := s.Remove(t.Context(), l.Log); err != nil || freed != int64(l.Bytes) {
					t.Errorf("removing %s freed %d bytes (%v)", l.Log, freed, err)
				}
			}

			if found := s.inodes(); len(found) > 0 {
				t.Errorf("removed, they left %v", found)
			}
		})
	}
}

// Whenever a server is killed while it moves a log, and whoever reads it meanwhile: all of it is there.
func TestALogIsReadWhileItIsMoved(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.fileAsBefore(theLog, []byte("one "), []byte("two "), []byte("three"))
	killed := errors.New("killed")

	check := func(when string) {
		t.Helper()
		s.unpacked.last = nil

		if got := s.content(); got != "one two three" || !s.state().Ended {
			t.Errorf("%s: %q", when, got)
		}
	}

	for _, survives := range []int{0, 1, 1} {
		deleted := 0
		s.blobs.deleting = func(name string) error {
			check("before " + name + " is deleted")

			deleted++
			if deleted > survives {
				return killed
			}

			return nil
		}

		if err := s.Move(t.Context(), theLog); !errors.Is(err, killed) {
			t.Fatalf("killed at the deletion after %d: %v", survives, err)
		}

		s.blobs.deleting = nil
		s.reopen(s.dir)
		check(fmt.Sprintf("after %d deletions", survives))
	}

	// What was listed before it moved is found where it is now.
	list, err := s.segments(t.Context(), theLog)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Move(t.Context(), theLog); err != nil {
		t.Fatal(err)
	}

	for _, piece := range list {
		if raw, err := s.unpack(t.Context(), theLog, piece); err != nil || len(raw) == 0 {
			t.Errorf("%s: %q, %v", piece.name, raw, err)
		}
	}

	check("afterwards")

	if found := s.inodes(); len(found) != 4 {
		t.Errorf("left: %v", found)
	}
}

// Whenever a server is killed while it removes a log: what is left is the beginning of it, and goes the next time.
func TestTheRemovalOfALogContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data := string(randomBytes(1, 2*segmentSize+5))
	s.append(0, data, false)
	s.append(int64(len(data)), "", true)

	killed := errors.New("killed")
	for left := 2; left >= 0; left-- {
		deleted := 0
		s.blobs.deleting = func(string) error {
			deleted++
			if deleted > 1 {
				return killed
			}

			return nil
		}

		freed, err := s.Remove(t.Context(), theLog)
		if left > 0 && !errors.Is(err, killed) || left == 0 && err != nil || freed == 0 {
			t.Fatalf("freed %d bytes, %v", freed, err)
		}

		s.reopen(s.dir)

		if got := s.content(); got != data[:left*segmentSize] {
			t.Errorf("%d bytes are left of %d segments", len(got), left)
		}
	}

	if found := s.inodes(); len(found) > 0 {
		t.Errorf("left: %v", found)
	}

	if freed, err := s.Remove(t.Context(), theLog); err != nil || freed != 0 {
		t.Errorf("removing it again freed %d bytes (%v)", freed, err)
	}
}
