package agent

import (
	"path/filepath"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile/disktest"
)

// A rank that was begun before a power cut must not begin again, whatever the power cut left of its directory. Nothing
// else of a start has to survive, so it takes one sync.
func TestABegunRankIsKnownAfterAPowerCut(t *testing.T) {
	t.Parallel()

	for _, survives := range []func(n int) int{
		func(int) int { return 0 },
		func(n int) int { return n - 1 },
		func(n int) int { return n / 2 },
	} {
		dir := t.TempDir()
		disk, err := disktest.New(dir)
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join(dir, "fence")
		open := func(boot string) *fence {
			f, err := openFence(disk, path, boot)
			if err != nil {
				t.Fatal(err)
			}

			return f
		}

		f := open("first")
		before := disk.Syncs()
		begun, recorded, ended := key{"j1.1", 0}, key{"j2.1", 1}, key{"j3.1", 0}

		for _, k := range []key{begun, recorded, ended} {
			if err := f.recordStart(k, api.Incarnation{}); err != nil {
				t.Fatal(err)
			}
		}

		for _, k := range []key{ended, begun, begun} { // a start that is tried again is no other one
			if err := f.recordBegin(k); err != nil {
				t.Fatal(err)
			}
		}

		if n := disk.Syncs() - before; n != 2 {
			t.Errorf("%d syncs for two ranks that were begun", n)
		}

		if err := f.recordEnd(ended); err != nil {
			t.Fatal(err)
		}

		// Another agent process at the same start of the machine goes on with it.
		f = open("first")
		if f.lost(begun) || f.lost(recorded) {
			t.Error("lost without a restart of the machine")
		}

		if err := disk.Cut(survives); err != nil {
			t.Fatal(err)
		}

		for range 2 { // also for the agent process after the next
			f = open("second")
			if !f.lost(begun) || f.lost(recorded) || f.lost(ended) {
				t.Errorf("begun is lost: %v, not begun: %v, ended: %v", f.lost(begun), f.lost(recorded), f.lost(ended))
			}
		}

		if err := f.recordBegin(recorded); err != nil || f.lost(recorded) {
			t.Errorf("what begins now is lost: %v, %v", f.lost(recorded), err)
		}
	}
}
