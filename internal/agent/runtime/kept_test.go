package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// laterClock is the wall clock, set forward.
type laterClock struct {
	clock.Wall
	by atomic.Int64
}

func (c *laterClock) Now() time.Time { return c.Wall.Now().Add(time.Duration(c.by.Load())) }

// forgotten is a run that has ended and was forgotten; its program wrote a file.
func (y *yard) forgotten(content string) id.Run {
	y.t.Helper()
	run := y.script("printf %s '" + content + "' > result")
	y.end(run)

	if err := y.Forget(run, 0); err != nil {
		y.t.Fatal(err)
	}

	return run
}

// keptResult returns the file of a forgotten run, "" if it is not kept.
func (y *yard) keptResult(run id.Run) string {
	y.t.Helper()
	sources, err := y.MetricSources(run, 0)
	if fault.KindOf(err) == fault.NotFound {
		return ""
	}
	if err != nil {
		y.t.Fatal(err)
	}

	text, err := os.ReadFile(filepath.Join(sources.Work, "result"))
	if err != nil || sources.Launch.Command == "" {
		y.t.Errorf("kept: %v, of %+v", err, sources.Launch)
	}

	return string(text)
}

func TestTheWorkingDirectoryOfAnEndedRunIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	clk := &laterClock{}
	y := newYard(t, func(o *Options) { o.Clock, o.KeepRuns, o.KeptBytes = clk, time.Hour, 1000 })

	first := y.forgotten(strings.Repeat("a", 600))
	if got := y.keptResult(first); len(got) != 600 {
		t.Fatalf("kept %q", got)
	}

	entries, err := os.ReadDir(filepath.Join(y.dir, rundir.KeptDir, rundir.RankName(first, 0)))
	if err != nil || len(entries) != 3 { // the record, the directory, and since when it is kept
		t.Errorf("kept %v (%v)", entries, err)
	}

	// The oldest goes for one that does not fit beside it; one that never fits is not kept.
	clk.by.Add(int64(time.Minute))
	second := y.forgotten(strings.Repeat("b", 700))
	huge := y.forgotten(strings.Repeat("c", 1001))

	if y.keptResult(first) != "" || len(y.keptResult(second)) != 700 || y.keptResult(huge) != "" {
		t.Errorf("first %q, second %q, huge %q", y.keptResult(first), y.keptResult(second), y.keptResult(huge))
	}

	// The next agent process finds it, and drops it when its time is over.
	y.reopen()

	if len(y.keptResult(second)) != 700 {
		t.Error("a restart of the agent has removed it")
	}

	clk.by.Add(int64(2 * time.Hour))
	y.pruneKept()

	if got := y.keptResult(second); got != "" {
		t.Errorf("after two hours there is %q", got)
	}

	if _, err := y.MetricSources("../../etc", 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a run that is none: %v", err)
	}
}

// Working directories are kept only as long as the disk has room for other things.
func TestTheOldestWorkingDirectoriesGoWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	clk := &laterClock{}
	var full atomic.Bool
	y := newYard(t, func(o *Options) {
		o.Clock, o.KeepRuns, o.KeptBytes, o.MinFree = clk, time.Hour, 1000, diskspace.Floor{Share: 0.05}
		o.Free = func(dir string) (free, total job.Bytes, err error) {
			kept, err := os.ReadDir(filepath.Join(dir, rundir.KeptDir))
			if full.Load() && len(kept) > 1 {
				return 99, 1000, err
			}

			return 100, 1000, err
		}
	})

	first := y.forgotten("a")
	clk.by.Add(int64(time.Minute))
	second := y.forgotten("b")

	if y.keptResult(first) != "a" || y.keptResult(second) != "b" {
		t.Fatalf("with a tenth of the disk free: first %q, second %q", y.keptResult(first), y.keptResult(second))
	}

	full.Store(true) // until one of them is gone
	y.pruneKept()

	if y.keptResult(first) != "" || y.keptResult(second) != "b" {
		t.Errorf("with less: first %q, second %q", y.keptResult(first), y.keptResult(second))
	}
}

// The time of a kept directory also passes on a node where nothing else happens.
func TestAKeptWorkingDirectoryIsRemovedInTime(t *testing.T) {
	t.Parallel()
	y := newYard(t, func(o *Options) { o.KeepRuns, o.KeptBytes = time.Second, 1000 })
	dir := filepath.Join(y.dir, rundir.KeptDir, rundir.RankName(y.forgotten("a"), 0))

	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it is never removed")
		}
	}
}

func TestNothingIsKeptUnlessItIsWanted(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	if got := y.keptResult(y.forgotten("a")); got != "" {
		t.Errorf("kept %q", got)
	}
}
