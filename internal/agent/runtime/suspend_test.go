package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/executable"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// ticking writes lines until a file appears, from a child of the script, and says when it is told to stop.
const ticking = `trap 'echo got SIGTERM; exit 9' TERM
sh -c 'n=0; while [ ! -e done ]; do n=$((n+1)); echo "tick $n"; sleep 0.02; done' & wait $!
echo end
`

// lends starts a run of ticking on a fake GPU and waits until it ticks.
func (y *yard) lends() id.Run {
	y.t.Helper()
	s := y.spec(api.Launch{Command: ticking, GPUs: []int{0}, LogLimit: 1 << 20})
	s.Fake = true
	if err := y.Start(y.t.Context(), s); err != nil {
		y.t.Fatal(err)
	}

	y.follow(s.Run, "tick 1\ntick 2\n")

	return s.Run
}

// order gives an order to suspend a run or to let it continue, and waits until it is carried out. As the agent does, it
// gives it again with every change: the run may not be known to be running yet.
func (y *yard) order(run id.Run, number int) job.Suspension {
	y.t.Helper()

	patience, cancel := context.WithTimeout(y.t.Context(), 5*time.Minute)
	defer cancel()

	for {
		changed := y.Watch()
		if s, _ := y.Status(run, 0); s.Suspension.Number == number {
			return s.Suspension
		}

		if err := y.Suspend(run, 0, job.SuspendOrder{Number: number}); err != nil {
			y.t.Fatal(err)
		}

		select {
		case <-changed:
		case <-patience.Done():
			y.t.Fatalf("order %d was not carried out", number)
		}
	}
}

// ticks returns how many lines a run has written.
func (y *yard) ticks(run id.Run) int {
	y.t.Helper()
	return strings.Count(y.output(run)[logs.Stdout], "tick")
}

// still makes sure that a run writes nothing.
func (y *yard) still(run id.Run) {
	y.t.Helper()
	clock.Sleep(y.t.Context(), 50*time.Millisecond) // what it had written is in the log by then
	before := y.ticks(run)
	clock.Sleep(y.t.Context(), 200*time.Millisecond)

	if after := y.ticks(run); after != before {
		y.t.Errorf("it wrote %d lines while it was suspended", after-before)
	}
}

// goesOn waits until a run has written more.
func (y *yard) goesOn(run id.Run) {
	y.t.Helper()
	for before := y.ticks(run); y.ticks(run) == before; {
		if !clock.Sleep(y.t.Context(), 5*time.Millisecond) {
			y.t.Fatal("it wrote nothing")
		}
	}
}

// TestAProgramIsSuspendedAndContinues also replaces the agent in each state: the supervisor knows.
func TestAProgramIsSuspendedAndContinues(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		run := y.lends()

		for number := 1; number < 5; number += 2 {
			if s := y.order(run, number); !s.On || s.Error != "" {
				t.Fatalf("the suspension is %+v", s)
			}

			y.still(run)
			y.reopen()

			if s, _ := y.Status(run, 0); s.State != job.RunRunning || !s.Suspension.On {
				t.Fatalf("the next agent finds %+v", s)
			}

			y.order(run, number) // again changes nothing
			y.still(run)

			if s := y.order(run, number+1); s.On || s.Error != "" {
				t.Fatalf("the suspension is %+v", s)
			}

			y.goesOn(run)
			y.reopen()
			y.goesOn(run)
		}

		if err := os.WriteFile(filepath.Join(y.runDir(run), rundir.WorkDir, "done"), nil, 0o600); err != nil {
			t.Fatal(err)
		}

		if st := y.end(run); st.ExitCode != 0 || st.Cause != job.CauseNone {
			t.Errorf("it ended as %+v", st)
		}
	})
}

func TestASuspendedProgramIsStopped(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		mode job.StopMode
		code int
	}{
		"with its grace period": {job.StopTerm, 9},
		"at once":               {job.StopKill, 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			run := y.lends()
			y.order(run, 1)

			if err := y.Stop(run, 0, tc.mode); err != nil {
				t.Fatal(err)
			}

			if st := y.end(run); !st.Signalled || st.ExitCode != tc.code {
				t.Errorf("it ended as %+v, want exit code %d", st, tc.code)
			}
		})
	}
}

// TestAProgramGoesOnIfTheDriverFails has a machine without the driver of its GPU.
func TestAProgramGoesOnIfTheDriverFails(t *testing.T) {
	t.Parallel()
	python := filepath.Join(t.TempDir(), "python")
	if err := executable.Write(python, []byte("#!/bin/sh\necho '{\"missing\": \"no driver\"}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	y := newYard(t, func(o *Options) { o.Python = python })
	s := y.spec(api.Launch{Command: ticking, GPUs: []int{0}, LogLimit: 1 << 20})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	y.follow(s.Run, "tick 1\n")

	if got := y.order(s.Run, 1); got.On || !strings.Contains(got.Error, "no driver") {
		t.Errorf("the suspension is %+v", got)
	}

	y.goesOn(s.Run)
}

// TestASuspendedProgramOnAGPUIsKilled has a driver that moves GPU memory: the program cannot save anything without it.
func TestASuspendedProgramOnAGPUIsKilled(t *testing.T) {
	t.Parallel()
	python := filepath.Join(t.TempDir(), "python")
	driver := `#!/bin/sh
shift 2; verb=$1; shift 2
case $verb in
memory) echo '{"used": 1000000}' ;;
state) for pid; do echo "{\"pid\": $pid, \"state\": \"running\"}"; done ;;
suspend) for pid; do echo "{\"pid\": $pid, \"state\": \"suspended\"}"; done ;;
resume) for pid; do echo "{\"pid\": $pid, \"error\": \"out of memory\"}"; done ;;
esac
`
	if err := executable.Write(python, []byte(driver), 0o700); err != nil {
		t.Fatal(err)
	}

	y := newYard(t, func(o *Options) { o.Python = python })
	s := y.spec(api.Launch{Command: ticking, GPUs: []int{0}, LogLimit: 1 << 20})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	y.follow(s.Run, "tick 1\n")

	if got := y.order(s.Run, 1); got.On || !strings.Contains(got.Error, "do not fit into") {
		t.Errorf("without room the suspension is %+v", got)
	}

	if err := y.Suspend(s.Run, 0, job.SuspendOrder{Number: 3, Room: 2_000_000}); err != nil {
		t.Fatal(err)
	}

	if got := y.order(s.Run, 3); !got.On || got.Memory != 1_000_000 {
		t.Fatalf("the suspension is %+v", got)
	}

	if err := y.Stop(s.Run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	st := y.end(s.Run)
	if text := y.text(s.Run); st.Signal != "SIGKILL" || strings.Contains(text, "got SIGTERM") {
		t.Errorf("it ended as %+v, log %q", st, text)
	}
}
