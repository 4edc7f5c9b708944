package runtime

import (
	"context"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// stopTest is a way of stopping a program.
type stopTest struct {
	name   string
	script string // writes to $READY when it may be stopped
	grace  time.Duration
	modes  []job.StopMode
	code   int
	signal string
	reason string
}

func TestStop(t *testing.T) {
	t.Parallel()
	const deaf = "trap '' TERM; "
	tests := []stopTest{
		{"SIGTERM is obeyed", `trap 'echo saved; exit 9' TERM; echo > $READY; while :; do sleep 0.01; done`,
			time.Minute, []job.StopMode{job.StopTerm}, 9, "", "stopped on request: exited after SIGTERM with exit code 9"},
		{"SIGTERM kills who does not care", `echo > $READY; sleep 1000`,
			time.Minute, []job.StopMode{job.StopTerm}, 143, "SIGTERM", "exited after SIGTERM with killed by SIGTERM"},
		{"SIGTERM is ignored until the grace is over", deaf + `echo > $READY; while :; do sleep 0.01; done`,
			50 * time.Millisecond, []job.StopMode{job.StopTerm}, 137, "SIGKILL", "still running 50ms after SIGTERM, killed"},
		{
			"who writes through a pipe can do so until it has ended",
			// The reader says that it is ready: before, it may not have the pipe as its input yet.
			`(trap 'sleep 0.3; echo saved; exit' TERM; echo begun; while :; do sleep 0.01; done) |
				(read begun; echo > $READY; exec cat)`,
			time.Minute,
			[]job.StopMode{job.StopTerm},
			143,
			"SIGTERM",
			"exited after SIGTERM",
		},
		{"a kill comes at once", deaf + `echo > $READY; while :; do sleep 0.01; done`,
			time.Hour, []job.StopMode{job.StopKill}, 137, "SIGKILL", "stopped on request: killed at once"},
		{"a kill overrides a term", deaf + `echo > $READY; while :; do sleep 0.01; done`,
			time.Hour, []job.StopMode{job.StopTerm, job.StopKill}, 137, "SIGKILL", "killed at once"},
		{"a stopped process is stopped", `(kill -STOP $BASHPID) & echo > $READY; wait`,
			time.Minute, []job.StopMode{job.StopTerm}, 143, "SIGTERM", "exited after SIGTERM"},
	}

	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		testStops(t, tests, mode)
	})
}

func testStops(t *testing.T, tests []stopTest, mode func(*Options)) {
	t.Helper()

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, mode)
			ready := pipe(t)
			run := y.start(api.Launch{Command: tt.script, Env: map[string]string{"READY": ready}, Grace: job.Duration(tt.grace)})
			receive(t, ready)

			for i, mode := range tt.modes {
				if i > 0 {
					y.await(run, job.RunStopping)
				}

				if err := y.Stop(run, 0, mode); err != nil {
					t.Fatal(err)
				}
			}

			s := y.end(run)
			check(t, s, tt.code, tt.signal, job.CauseCancelled, true, tt.reason)

			if strings.Contains(tt.script, "saved") && y.output(run)[logs.Stdout] != "saved\n" {
				t.Errorf("output = %q: what the program wrote after SIGTERM is missing", y.output(run)[logs.Stdout])
			}
		})
	}
}

func TestAProgramIsAskedToSaveAndGoesOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ready := pipe(t)
	run := y.start(api.Launch{
		Command: `seen() { until [ "$(cat $TRAINYARD_RANK_DIR/save-request)" = $1 ]; do sleep 0.01; done 2>/dev/null; }
			echo > $READY; seen 1; echo > $READY; seen 2; echo saved twice`,
		Env: map[string]string{"READY": ready},
	})

	for number := 1; number <= 2; number++ {
		receive(t, ready)

		for _, request := range []int{number, number, number - 1} { // again, and late
			if err := y.RequestSave(run, 0, request); err != nil {
				t.Fatal(err)
			}
		}
	}

	check(t, y.end(run), 0, "", job.CauseNone, false, "")

	if got := y.output(run)[logs.Stdout]; got != "saved twice\n" {
		t.Errorf("output = %q", got)
	}

	// Too late: nobody is there to answer.
	if err := y.RequestSave(run, 0, 3); err != nil {
		t.Errorf("a rank that has ended: %v", err)
	}

	if err := y.RequestSave("j99.1", 0, 1); fault.KindOf(err) != fault.NotFound {
		t.Errorf("an unknown rank: %v", err)
	}
}

func TestStopBeforeTheStartPreventsIt(t *testing.T) {
	t.Parallel()
	fetching := make(chan struct{})
	y := newYard(t, func(o *Options) {
		o.Files = func(ctx context.Context, _, _ string) error {
			close(fetching)
			<-ctx.Done()
			return ctx.Err()
		}
	})

	run := y.start(api.Launch{Command: "echo never", Workdir: "sha256:x"})
	<-fetching

	if err := y.Stop(run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	s := y.end(run)
	check(t, s, 0, "", job.CauseCancelled, true, "before it was started")

	if !s.Started.IsZero() || len(y.output(run)) != 0 {
		t.Errorf("it was started: %+v", s)
	}
}

func TestSupervisorHeedsAStopThatCameFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	rk, err := y.createRunDir(y.spec(api.Launch{Command: "echo never"}))
	if err != nil {
		t.Fatal(err)
	}

	if err := rundir.RequestStop(rk.dir, job.StopKill); err != nil {
		t.Fatal(err)
	}

	if err := rundir.RequestStop(rk.dir, job.StopTerm); err != nil { // does not take the kill back
		t.Fatal(err)
	}

	if mode, err := rundir.ReadStop(rk.dir); mode != job.StopKill || err != nil {
		t.Errorf("stop = %q, %v", mode, err)
	}

	supervisor, err := y.spawn(rk)
	if err != nil {
		t.Fatal(err)
	}

	y.last(supervisor)

	y.reopen()
	s := y.end(rk.rec.Run)
	check(t, s, 0, "", job.CauseCancelled, true, "stopped on request before it was started")
}

func TestStopOfWhatIsNotThereOrHasEnded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	if kind := fault.KindOf(y.Stop("j9.1", 0, job.StopTerm)); kind != fault.NotFound {
		t.Errorf("kind = %q for an unknown run", kind)
	}

	run := y.script("exit 3")
	y.end(run)

	if kind := fault.KindOf(y.Stop(run, 0, "gently")); kind != fault.Invalid {
		t.Errorf("kind = %q for an unknown mode", kind)
	}

	if err := y.Stop(run, 0, job.StopKill); err != nil {
		t.Error(err)
	}

	s, _ := y.Status(run, 0)
	check(t, s, 3, "", job.CauseUserCode, false, "")
}

func TestNoProcessIsLeft(t *testing.T) {
	t.Parallel()

	// Each script writes the id of a process to $PIDS that would outlive it.
	scripts := map[string]string{
		"in the background": `sleep 1000 & echo $! > $PIDS`,
		"deaf":              `(trap '' TERM HUP; echo $BASHPID > $PIDS; while :; do sleep 0.01; done) &`,
		"forked twice into its own session, environment cleared": `env -i P=$PIDS setsid bash -c '(echo $BASHPID > $P; exec sleep 1000) & disown' &`,
		"with other output": `setsid sleep 1000 < /dev/null > /dev/null 2>&1 & echo $! > $PIDS`,
	}

	for name, script := range scripts {
		for _, how := range []string{"by itself", "when stopped"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				y := newYard(t)
				pids, hold := pipe(t), pipe(t)
				run := y.start(api.Launch{
					Command: script + "\nread x < $HOLD", Env: map[string]string{"PIDS": pids, "HOLD": hold},
					Grace: job.Duration(100 * time.Millisecond),
				})

				pid := receive(t, pids)
				if !alive(t, pid) {
					t.Fatal("the process is not there before the end")
				}

				if how == "by itself" {
					release(t, hold)
				} else if err := y.Stop(run, 0, job.StopTerm); err != nil {
					t.Fatal(err)
				}

				s := y.end(run)

				if alive(t, pid) {
					t.Error("a process is left")
				}

				if s.Signalled != (how == "when stopped") {
					t.Errorf("signalled = %v: %s", s.Signalled, s.Reason)
				}
			})
		}
	}
}

func TestOlderEpochsGiveWay(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	first := y.spec(api.Launch{Command: "sleep 1000"})
	if err := y.Start(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	y.await(first.Run, job.RunRunning)
	second := first
	second.Run, second.Epoch, second.Launch.Command = id.NewRun(first.Job, 2), 2, "exit 6"
	if err := y.Start(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	s := y.end(second.Run)
	check(t, s, 6, "", job.CauseUserCode, false, "")

	old := y.end(first.Run)
	if old.Ended.After(s.Started) {
		t.Errorf("the new run started at %v, before the old one ended at %v", s.Started, old.Ended)
	}

	stale := first
	stale.Rank = 1
	if err := y.Start(t.Context(), stale); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a rank of an old epoch: %v", err)
	}
}
