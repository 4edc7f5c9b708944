package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/cloud"
	"trainyard/internal/diskspace"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestANodeIsWithoutSpaceUntilAQuarterMoreIsFree(t *testing.T) {
	t.Parallel()
	free := job.Bytes(0)
	s := space{dir: "/data", floor: diskspace.Floor{Size: 400}, free: func(string) (job.Bytes, job.Bytes, error) { return free, 1000, nil }}

	for _, step := range []struct {
		free job.Bytes
		low  bool
	}{{401, false}, {400, false}, {399, true}, {450, true}, {499, true}, {500, false}, {450, false}, {0, true}} {
		free = step.free
		p, err := s.problem()
		if err != nil || (p != nil) != step.low {
			t.Errorf("%d free: %+v, %v", step.free, p, err)
		}

		if p != nil && (p.Cause != "no_space" || p.Reason != "less than 400 B free on the disk that holds /data") {
			t.Errorf("%d free: %+v", step.free, p)
		}
	}

	// Of a larger disk more must be free.
	s.floor.Share, free = 0.5, 499
	if p, err := s.problem(); p == nil || err != nil || !strings.HasPrefix(p.Reason, "less than 500 B free") {
		t.Errorf("less than half is free: %+v, %v", p, err)
	}

	s.floor, free = diskspace.Floor{}, 0
	if p, err := s.problem(); p != nil || err != nil {
		t.Errorf("without a minimum: %+v, %v", p, err)
	}
}

// A line that a full disk takes only a part of must not spoil the next one.
func TestTheFenceOnAFullDiskForgetsNothing(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 4)
	path := filepath.Join(dir, "fence")
	f, err := openFence(atomicfile.OS{}, path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}

	// Up to a few bytes before the end of a block, so that the next line fits in part.
	for n := uint64(1); ; n++ {
		info, err := f.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if info.Size()%4096 > 4088 {
			break
		}

		k := key{id.NewRun(id.NewJob(n), 1), 0}
		if info.Size()%4096 > 4075 {
			k.rank = int(info.Size()) // lines of several lengths, so that one of them ends there
		}

		if err := f.recordStart(k, api.Incarnation{}); err != nil {
			t.Fatal(err)
		}
	}

	empty := smalldisk.Fill(t, dir)

	first, second := key{"j100000.1", 0}, key{"j100001.1", 0}
	if err := f.recordStart(first, api.Incarnation{}); err == nil {
		t.Fatal("a line was written on a full disk")
	}

	// An agent that starts on the full disk knows what was written before.
	if err := f.close(); err != nil {
		t.Fatal(err)
	}

	f, err = openFence(atomicfile.OS{}, path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.check(key{"j1.1", 0}); err != nil || f.newestEpoch["j1"] != 1 {
		t.Errorf("forgotten: %v, %v", f.newestEpoch["j1"], err)
	}

	empty()

	err = errors.Join(f.recordStart(first, api.Incarnation{}), f.recordStart(second, api.Incarnation{}), f.close())
	if err != nil {
		t.Fatal(err)
	}

	f, err = openFence(atomicfile.OS{}, path, "boot-1")
	if err != nil {
		t.Fatal(err)
	}

	if f.newestEpoch["j100000"] != 1 || f.newestEpoch["j100001"] != 1 {
		t.Errorf("forgotten: %v", f.newestEpoch)
	}

	if err := f.close(); err != nil {
		t.Error(err)
	}
}

// The dead man's switch reads the file: a renewal must reach it.
func TestOnAFullDiskTheNodeLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 4)
	path := filepath.Join(dir, cloud.DeadlineFile)
	c := &handClock{boot: "b1", since: time.Hour, wall: time.Unix(1_700_000_000, 0)}
	h := newHold(t, path, c)
	answer(t, h, 100_000)
	smalldisk.Fill(t, dir)
	answer(t, h, 200)

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if got, err := cloud.ParseDeadline(string(text)); err != nil || got.Until != time.Hour+200*time.Second ||
		strings.Count(string(text), "\n") != 1 {
		t.Errorf("the file has %q, %v", text, err)
	}
}
