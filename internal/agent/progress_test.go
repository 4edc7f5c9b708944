package agent_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"trainyard/internal/agent"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// tell changes what the progress file of a run holds; err says why its path cannot be told.
func (f *fakeRuntime) tell(run id.Run, text string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	r := f.ranks[rankKey{run, 0}]
	r.mute = err

	if err := writeFile(f.progress, run, 0, text); err != nil {
		panic(err)
	}
}

// writeFile replaces the progress file of a rank, whose age never changes.
func writeFile(dir string, run id.Run, rank int, text string) error {
	path := filepath.Join(dir, fmt.Sprintf("%s.%d", run, rank))
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(path+".new", time.Unix(5, 0), time.Unix(5, 0)); err != nil {
		return err
	}

	return os.Rename(path+".new", path)
}

// tellingRuntime is one whose programs can tell their progress.
func tellingRuntime(t *testing.T) *fakeRuntime {
	t.Helper()
	rt := newFakeRuntime()
	rt.progress = t.TempDir()

	return rt
}

// heardProgress lists what was reported of a run's progress, in order; call it under the yard's lock.
func (y *fakeYard) heardProgress(run id.Run) (all []job.Progress) {
	for _, report := range y.reports {
		for _, r := range report.Ranks {
			if r.Run == run && r.Progress != nil {
				all = append(all, *r.Progress)
			}
		}
	}

	return all
}

// awaitDone waits until the newest progress of a run is this.
func (y *fakeYard) awaitDone(run id.Run, done float64) {
	y.t.Helper()
	y.await(fmt.Sprintf("%s to have done %v", run, done), func() bool {
		all := y.heardProgress(run)
		return len(all) > 0 && all[len(all)-1].Done == done
	})
}

// awaitReports waits for so many more reports about a run.
func (y *fakeYard) awaitReports(run id.Run, n int) {
	y.t.Helper()
	y.mu.Lock()
	from := len(y.reports)
	y.mu.Unlock()

	y.await("more reports", func() bool {
		seen := 0
		for _, report := range y.reports[from:] {
			for _, r := range report.Ranks {
				if r.Run == run {
					seen++
				}
			}
		}

		return seen >= n
	})
}

// journal is a log that can be searched while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), what)
}

func TestProgressIsToldOnceAndAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), tellingRuntime(t)
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)

	rt.tell(
		"j1.1",
		`{"done": 1234.5, "work": 1e6, "rates": [{"gpu": "A100", "gpus": 2, "per_second": 12.5}], "loss": 3}`,
		nil,
	)

	y.awaitDone("j1.1", 1234.5)
	y.awaitReports("j1.1", 3)
	rt.tell("j1.1", `{"done": 2000}`, nil)
	y.awaitDone("j1.1", 2000)
	rt.tell("j1.1", `{"done": 3000}`, nil)
	rt.end("j1.1", 0)
	y.awaitState("j1.1", job.RunEnded)
	y.awaitDone("j1.1", 3000)
	y.mu.Lock()
	defer y.mu.Unlock()

	at := time.Unix(5, 0).UTC()
	want := []job.Progress{
		{
			Done:  1234.5,
			Work:  1e6,
			Rates: []job.Rate{{GPU: "A100", GPUs: 2, PerSecond: 12.5}},
			At:    at,
		},
		{Done: 2000, At: at},
		{Done: 3000, At: at},
	}

	if diff := cmp.Diff(want, y.heardProgress("j1.1")); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// What a program tells last comes with its end, or the yard would settle the run without it.
func TestTheLastProgressComesWithTheEnd(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), tellingRuntime(t)
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)

	rt.change(func() {
		if err := writeFile(rt.progress, "j1.1", 0, `{"done": 7}`); err != nil {
			t.Error(err)
		}

		r := rt.ranks[rankKey{"j1.1", 0}]
		r.status.State, r.status.Ended = job.RunEnded, time.Unix(2, 0).UTC()
	})

	y.awaitDone("j1.1", 7)
	y.mu.Lock()
	defer y.mu.Unlock()

	for _, report := range y.reports {
		for _, r := range report.Ranks {
			if r.State == job.RunEnded && r.Progress == nil {
				t.Errorf("the end was told without the progress first: %+v", r)
			}

			if r.State == job.RunEnded {
				return
			}
		}
	}
}

func TestProgressThatTheServerMayNotHaveIsToldAgain(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), tellingRuntime(t)
	launch(t, config(t, y, rt))
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	lost := 0
	y.change(func() {
		y.meddle = func(when, path string) bool {
			y.mu.Lock()
			defer y.mu.Unlock()

			if when == "after" && path == "/agent/v1/reports" && len(y.heardProgress("j1.1")) > 0 && lost < 2 {
				lost++
				return true
			}

			return false
		}
	})

	rt.tell("j1.1", `{"done": 1}`, nil)
	y.await("the progress a third time, after two lost answers", func() bool { return len(y.heardProgress("j1.1")) == 3 })
	y.change(func() { y.meddle = nil })
	y.awaitReports("j1.1", 2)
	y.restart() // another process, which has forgotten what it was told
	y.await("the progress once more", func() bool { return len(y.heardProgress("j1.1")) > 3 })
}

func TestAProgressFileThatMakesNoSenseIsNotedOnceAndHarmsNothing(t *testing.T) {
	t.Parallel()

	for name, text := range map[string]string{
		"half written":      `{"done": 12`,
		"no JSON":           `step 12 of 40`,
		"not a number":      `{"done": NaN}`,
		"too great":         `{"done": 1e400}`,
		"negative":          `{"done": -1}`,
		"without done":      `{"work": 10}`,
		"a list":            `[1]`,
		"a rate of nothing": `{"done": 1, "rates": [{"gpus": 1, "per_second": 0}]}`,
		"GPUs out of range": `{"done": 1, "rates": [{"gpus": 99999999, "per_second": 1}]}`,
		"too many rates":    `{"done": 1, "rates": [` + strings.Repeat(`{"gpus": 1, "per_second": 1},`, 64) + `{"gpus": 1, "per_second": 1}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, rt, log := newYard(t), tellingRuntime(t), &journal{}
			cfg := config(t, y, rt)
			cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			launch(t, cfg)
			y.assign(assignment("j1.1"))
			y.awaitState("j1.1", job.RunRunning)
			rt.tell("j1.1", text, nil)
			y.awaitReports("j1.1", 4)

			if n := log.count("progress of j1.1"); n != 1 {
				t.Errorf("it was noted %d times, want once", n)
			}

			rt.tell("j1.1", `{"done": 5}`, nil)
			y.awaitDone("j1.1", 5)
			rt.end("j1.1", 0)

			if end := y.awaitState("j1.1", job.RunEnded); end.ExitCode != 0 || end.Cause != "" {
				t.Errorf("end %+v", end)
			}

			y.mu.Lock()
			defer y.mu.Unlock()

			if got := y.heardProgress("j1.1"); len(got) != 1 {
				t.Errorf("reported %v, want only what made sense", got)
			}
		})
	}
}

func TestAFileThatIsBeingWrittenIsNoTrouble(t *testing.T) {
	t.Parallel()
	y, rt, log := newYard(t), tellingRuntime(t), &journal{}
	cfg := config(t, y, rt)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)

	for i := range 5 {
		// Each piece is seen by one report at most, as the file is changed at each.
		y.meddleOnce(func() { rt.tell("j1.1", fmt.Sprintf(`{"done": %d`, i+1), nil) })
		y.meddleOnce(func() { rt.tell("j1.1", fmt.Sprintf(`{"done": %d}`, i+1), nil) })
		y.awaitDone("j1.1", float64(i+1))
	}

	rt.tell("j1.1", "", nil) // cut, and nothing written yet
	y.awaitReports("j1.1", 3)

	if n := log.count("progress of"); n != 0 {
		t.Errorf("half a file was noted %d times", n)
	}
}

// meddleOnce does something while the answer to the next report is awaited, so
// that exactly one report lies between two calls.
func (y *fakeYard) meddleOnce(do func()) {
	y.t.Helper()
	done := make(chan struct{})
	var once sync.Once
	y.change(func() {
		y.meddle = func(when, path string) bool {
			if when == "after" && path == "/agent/v1/reports" {
				once.Do(func() {
					do()
					close(done)
				})
			}

			return false
		}
	})

	<-done
}

func TestAProgressFileThatCannotBeReadIsNoted(t *testing.T) {
	t.Parallel()
	y, rt, log := newYard(t), tellingRuntime(t), &journal{}
	cfg := config(t, y, rt)
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	launch(t, cfg)
	y.assign(assignment("j1.1"))
	y.awaitState("j1.1", job.RunRunning)
	rt.tell("j1.1", "", errors.New("the disk is gone"))
	y.awaitReports("j1.1", 3)

	if n := log.count("the disk is gone"); n != 1 {
		t.Errorf("it was noted %d times, want once", n)
	}
}

// Only the first rank speaks for the run.
func TestOtherRanksAreNotAskedForProgress(t *testing.T) {
	t.Parallel()
	y, rt := newYard(t), tellingRuntime(t)
	launch(t, config(t, y, rt))
	second := assignment("j1.1")
	second.Rank = 1
	y.assign(second)
	y.awaitState("j1.1", job.RunRunning)

	if err := writeFile(rt.progress, "j1.1", 1, `{"done": 1}`); err != nil {
		t.Fatal(err)
	}

	y.awaitReports("j1.1", 3)
	y.mu.Lock()
	defer y.mu.Unlock()

	if got := y.heardProgress("j1.1"); len(got) != 0 {
		t.Errorf("rank 1 reported %v", got)
	}
}

func TestARealProgramTellsItsProgress(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	launch(t, realConfig(t, y))

	y.assign(realAssignment("j1.1", `
test "$(dirname "$TRAINYARD_PROGRESS")" = "$TRAINYARD_RANK_DIR"
echo '{"done": 1, "work": 4}' > "$TRAINYARD_PROGRESS"
echo written
trap 'echo "{\"done\": 3.5}" > "$TRAINYARD_PROGRESS.new"; mv "$TRAINYARD_PROGRESS.new" "$TRAINYARD_PROGRESS"; exit 0' TERM
while true; do sleep 0.02; done`))

	y.awaitDone("j1.1", 1)
	stop := realAssignment("j1.1", "")
	stop.Stop = job.StopTerm
	y.assign(stop)
	y.awaitState("j1.1", job.RunEnded)
	y.awaitDone("j1.1", 3.5)
	y.mu.Lock()
	defer y.mu.Unlock()

	got := y.heardProgress("j1.1")
	if len(got) != 2 || got[0].Work != 4 || got[0].At.IsZero() || got[1].At.Before(got[0].At) {
		t.Errorf("reported %+v", got)
	}
}

// A program may put anything at that place. The agent must neither wait for it nor read elsewhere.
func TestOddProgressFilesAreRefused(t *testing.T) {
	t.Parallel()
	const most = 65536
	for name, tt := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a pipe that nobody writes to": {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"a folder":                     {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"a link":                       {func(path string) error { return os.Symlink("/etc/hostname", path) }, "not a regular file"},
		"a link to nowhere":            {func(path string) error { return os.Symlink("nowhere", path) }, "not a regular file"},
		"a socket": {func(path string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}

			defer func() { _ = unix.Close(fd) }()

			return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}, "not a regular file"},
		"a very large file": {func(path string) error { return os.WriteFile(path, make([]byte, most+1), 0o600) }, "larger than 65536 bytes"},
		"a sparse file": {func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}

			return os.Truncate(path, 1<<40)
		}, "larger than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir() + "/progress.json"
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}

			text, _, err := agent.ReadRegularFile(path, most)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %d bytes and %v, want an error with %q", len(text), err, tt.want)
			}
		})
	}
}

func TestTheLargestProgressFileIsRead(t *testing.T) {
	t.Parallel()
	const most = 65536

	path := t.TempDir() + "/progress.json"
	if err := os.WriteFile(path, make([]byte, most), 0o600); err != nil {
		t.Fatal(err)
	}

	if text, _, err := agent.ReadRegularFile(path, most); err != nil || len(text) != most {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
