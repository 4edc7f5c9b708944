package archive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/atomicfile"
	"trainyard/internal/atomicfile/disktest"
	"trainyard/internal/blob"
	"trainyard/internal/id"
)

// powered is an archive on a disk whose power is cut, and what its agents know.
type powered struct {
	*Archive
	t     *rapid.T
	disk  *disktest.Disk
	dir   string
	ranks []*sender
}

// sender is the agent of one rank.
type sender struct {
	run    id.Run
	rank   int
	output []byte // all that the program printed
	acked  int64  // how much of it the server has acknowledged
	over   bool   // the program has ended and prints no more
	ended  bool   // the server has acknowledged the end
}

func newPowered(t *rapid.T, temp string) *powered {
	t.Helper()
	dir, err := os.MkdirTemp(temp, "disk")
	if err != nil {
		t.Fatal(err)
	}

	disk, err := disktest.New(dir)
	if err != nil {
		t.Fatal(err)
	}

	return &powered{t: t, disk: disk, dir: dir}
}

func (p *powered) start() {
	p.t.Helper()
	blobs, err := blob.OpenDirOn(p.disk, filepath.Join(p.dir, "blobs"))
	if err == nil {
		p.Archive, err = openOn(p.disk, filepath.Join(p.dir, "logs"), blobs, &handClock{})
	}

	if err != nil {
		p.t.Fatalf("start: %v", err)
	}

	p.journal.most = 200 // so that it is full often
}

// check compares what the server has with what it acknowledged.
func (p *powered) check() {
	p.t.Helper()

	for _, s := range p.ranks {
		state, err := p.State(p.t.Context(), Log{Run: s.run, Rank: s.rank})
		if err != nil {
			p.t.Fatalf("state of %s: %v", s.run, err)
		}
		if state.Size < s.acked || s.ended && !state.Ended {
			p.t.Fatalf("%s-%d: %d bytes (ended %t), but %d were acknowledged (ended %t)",
				s.run, s.rank, state.Size, state.Ended, s.acked, s.ended)
		}
		if state.Size > int64(len(s.output)) {
			p.t.Fatalf("%s-%d: %d bytes, but only %d were printed", s.run, s.rank, state.Size, len(s.output))
		}

		got, err := p.Read(p.t.Context(), Log{Run: s.run, Rank: s.rank}, 0, state.Size)
		if err != nil || !bytes.Equal(got, s.output[:state.Size]) {
			p.t.Fatalf("%s-%d holds %q (%v), want %q", s.run, s.rank, got, err, s.output[:state.Size])
		}
	}
}

// upload is what an agent does: it prints something, sends from where the server was, and goes to where the server
// says. An error acknowledges nothing.
func (p *powered) upload(s *sender, printed []byte, from int64, final bool) {
	if s.ended {
		return
	}
	if !s.over {
		s.output = append(s.output, printed...)
	}

	s.over = s.over || final
	size, _, err := p.Append(p.t.Context(), Log{Run: s.run, Rank: s.rank}, from, s.output[from:], final)
	if err != nil {
		return
	}

	s.acked = size
	s.ended = final && size == int64(len(s.output))
}

func TestAPowerCutTakesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()

	rapid.Check(t, func(t *rapid.T) {
		p := newPowered(t, temp)
		for i := range 3 {
			p.ranks = append(p.ranks, &sender{run: id.Run(fmt.Sprintf("j%d.1", 1+i/2)), rank: i % 2})
		}

		p.start()

		choose := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		t.Repeat(map[string]func(*rapid.T){
			"upload": func(t *rapid.T) {
				s := rapid.SampledFrom(p.ranks).Draw(t, "rank")
				printed := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "printed")
				p.upload(s, printed, rapid.Int64Range(0, s.acked).Draw(t, "from"), false)
			},
			"end": func(t *rapid.T) {
				s := rapid.SampledFrom(p.ranks).Draw(t, "rank")
				p.upload(s, nil, s.acked, true)
			},
			"sweep":   func(*rapid.T) { _ = p.Sweep() }, // fails without power, and is repeated
			"restart": func(*rapid.T) { p.powerBack(choose) },
			"power fails soon": func(t *rapid.T) {
				p.disk.FailAfter(rapid.IntRange(0, 25).Draw(t, "calls"))
			},
			"": func(*rapid.T) {},
		})

		p.powerBack(choose)
	})
}

// powerBack cuts the power, starts the server anew and lets the agents find what was acknowledged.
func (p *powered) powerBack(choose func(int) int) {
	p.t.Helper()

	if err := p.disk.Cut(choose); err != nil {
		p.t.Fatal(err)
	}

	p.start()
	p.check()
}

// slowDisk holds every sync back until it is allowed.
type slowDisk struct {
	atomicfile.Disk
	started chan struct{}
	allowed chan struct{}
}

func (d *slowDisk) OpenFile(path string, flag int) (atomicfile.File, error) {
	f, err := d.Disk.OpenFile(path, flag)
	return &slowFile{File: f, disk: d}, err
}

type slowFile struct {
	atomicfile.File
	disk *slowDisk
}

func (f *slowFile) Sync() error {
	f.disk.started <- struct{}{}
	<-f.disk.allowed

	return f.File.Sync()
}

func TestOneSyncServesAllWhoWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := &slowDisk{Disk: atomicfile.OS{}, started: make(chan struct{}), allowed: make(chan struct{})}
	blobs, err := blob.OpenDir(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	b, err := openOn(disk, filepath.Join(dir, "logs"), blobs, &handClock{})
	if err != nil {
		t.Fatal(err)
	}

	var uploads sync.WaitGroup
	upload := func(rank int) {
		uploads.Go(func() {
			log := Log{Run: theLog.Run, Rank: rank}
			if size, _, err := b.Append(t.Context(), log, 0, []byte("hello"), false); err != nil || size != 5 {
				t.Errorf("rank %d: %d, %v", rank, size, err)
			}
		})
	}

	upload(0)
	<-disk.started // the first is under way; all others come meanwhile

	for rank := 1; rank <= 20; rank++ {
		upload(rank)
	}

	for waiting := 0; waiting < 20; {
		b.journal.mu.Lock()
		waiting = len(b.journal.waiting)
		b.journal.mu.Unlock()
	}

	disk.allowed <- struct{}{}
	<-disk.started // one more for the 20
	disk.allowed <- struct{}{}
	uploads.Wait() // a third would hang here
}

// A server that does not know yet that another leads in its place cannot harm the journal of the other.
func TestAServerThatWasReplacedLeavesTheJournalAlone(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	root := filepath.Join(temp, "disk")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}

	disk, err := disktest.New(root)
	if err != nil {
		t.Fatal(err)
	}

	blobs, err := blob.OpenDir(filepath.Join(temp, "blobs"))
	if err != nil {
		t.Fatal(err)
	}

	open := func() *Archive {
		b, err := openOn(disk, filepath.Join(root, "logs"), blobs, &handClock{})
		if err != nil {
			t.Fatal(err)
		}

		return b
	}

	first := open()
	if _, _, err := first.Append(t.Context(), theLog, 0, []byte("one "), false); err != nil {
		t.Fatal(err)
	}

	second := open()
	if size, _, err := second.Append(t.Context(), theLog, 4, []byte("two"), false); err != nil || size != 7 {
		t.Fatalf("%d, %v", size, err)
	}

	first.journal.most = 1 // its file is full, and it begins the next
	if _, _, err := first.Append(t.Context(), Log{Run: theLog.Run, Rank: 1}, 0, []byte("late"), false); err == nil {
		t.Error("the server that was replaced acknowledged output")
	}
	if err := disk.Cut(func(int) int { return 0 }); err != nil {
		t.Fatal(err)
	}

	got, err := open().Read(t.Context(), theLog, 0, 100)
	if err != nil || string(got) != "one two" {
		t.Errorf("the log holds %q (%v)", got, err)
	}
}

// BenchmarkAppend measures uploads of 4 KiB that come from so many ranks at a time.
func BenchmarkAppend(b *testing.B) {
	for _, ranks := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("%d ranks", ranks), func(b *testing.B) {
			s := newShelf(b)
			data := bytes.Repeat([]byte("x"), 4<<10)
			b.SetBytes(int64(len(data)))

			var next atomic.Int64
			var uploads sync.WaitGroup
			for rank := range ranks {
				uploads.Go(func() {
					for at := int64(0); next.Add(1) <= int64(b.N); at += int64(len(data)) {
						if _, _, err := s.Append(b.Context(), Log{Run: theLog.Run, Rank: rank}, at, data, false); err != nil {
							b.Error(err)
						}
					}
				})
			}

			uploads.Wait()
		})
	}
}
