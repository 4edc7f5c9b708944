package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// last waits until the rank of a supervisor has ended, and ends the supervisor.
func (y *yard) last(s *supervisor) {
	if y.awaitRank(s) {
		y.dismiss(s)
	}
}

// patient is a yard whose supervisors wait for their next rank as long as a test takes.
func patient(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.spareRest = time.Hour

	return y
}

// idle returns a supervisor that has had a rank and waits for another.
func (y *yard) idle() *supervisor {
	y.t.Helper()
	y.end(y.script("true"))

	return y.waiting()
}

// offer is a supervisor that is kept for the next rank.
type offer struct {
	of    *supervisor
	taken <-chan struct{} // closed when somebody has got it
}

// keep keeps a supervisor for the next rank.
func (y *yard) keep(s *supervisor) offer {
	taken := make(chan struct{})
	s.used = false // until a rank gets it

	y.tasks.Go(func() {
		y.keepSpare(s)
		close(taken)
	})

	return offer{s, taken}
}

// waiting returns a supervisor that waits for a rank.
func (y *yard) waiting() *supervisor {
	y.t.Helper()

	select {
	case s := <-y.spare:
		return s
	case <-y.t.Context().Done():
		y.t.Fatal("the test was ended")
	}

	return nil
}

// given starts ranks until one of them has got the supervisor, and returns that one.
func (y *yard) given(o offer, command string) id.Run {
	y.t.Helper()

	for {
		run := y.script(command)

		for rk := y.onlyRank(run); !closed(o.taken) && !y.hasEnded(rk); {
			if !clock.Sleep(y.t.Context(), time.Millisecond) {
				y.t.Fatal("the test was ended")
			}
		}

		// A rank may have ended before it is noticed that it had the supervisor. If it had not, the supervisor still
		// waits, and can be taken back.
		if closed(o.taken) || !y.takeBack(o) {
			return run
		}

		o = y.keep(o.of)
	}
}

// takeBack takes a supervisor that waits for a rank, and reports whether no rank had got it. Others that wait end.
func (y *yard) takeBack(o offer) bool {
	for {
		select {
		case s := <-y.spare:
			switch {
			case s != o.of:
				y.dismiss(s)
			case s.used: // it waits for the rank after the one that it had
				y.tasks.Go(func() { y.keepSpare(s) })

				return false
			default:
				return true
			}
		case <-o.taken:
			return false
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// onlyRank returns the only rank of a run.
func (y *yard) onlyRank(run id.Run) *rank {
	y.t.Helper()

	rk, err := y.lookup(run, 0)
	if err != nil {
		y.t.Fatal(err)
	}

	return rk
}

func TestASupervisorHasOneRankAfterTheOther(t *testing.T) {
	t.Parallel()
	y := patient(t)
	s := y.idle()

	for i := range 20 {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid()))
		if err != nil {
			t.Fatal(err)
		}

		if len(files) > 12 { // standard streams, and what Go needs to wait
			t.Fatalf("after %d ranks the supervisor has %d files open", i+1, len(files))
		}

		run := y.given(y.keep(s), `echo $PPID; cd ..; basename "$PWD"; echo >&2 error`)
		st := y.end(run)
		out := y.output(run)

		want := fmt.Sprintf("%d\n%s\n", s.pid(), filepath.Base(y.runDir(run)))
		if st.ExitCode != 0 || out[logs.Stdout] != want || out[logs.Stderr] != "error\n" {
			t.Fatalf("rank %d ended with %+v and wrote %q, want %q", i, st, out, want)
		}

		s = y.waiting()
	}

	y.dismiss(s)
}

// What a rank has used does not count for the next one of its supervisor.
func TestARankIsChargedWithWhatItUsedItself(t *testing.T) {
	t.Parallel()
	y := patient(t)

	const costly = `dd if=/dev/zero of=/dev/null bs=100M count=20 2>/dev/null`

	first := y.end(y.given(y.keep(y.idle()), costly)).Use
	second := y.end(y.given(y.keep(y.waiting()), "exit 0")).Use

	if first.MemoryPeak < 100<<20 || second.MemoryPeak >= 100<<20 {
		t.Errorf("peak of memory: %d bytes, and %d of a rank that did nothing", first.MemoryPeak, second.MemoryPeak)
	}
	if first.CPUSeconds == 0 || second.CPUSeconds >= first.CPUSeconds {
		t.Errorf("CPU time: %v s, and %v s of a rank that did nothing", first.CPUSeconds, second.CPUSeconds)
	}
}

// A supervisor that is killed while it has no rank costs no rank its start, also if it has just been given one.
func TestASupervisorIsKilledWithoutARank(t *testing.T) {
	t.Parallel()
	y := patient(t)

	s := y.idle()
	if err := unix.Kill(s.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	st := y.end(y.given(y.keep(s), "exit 3"))
	if st.ExitCode != 3 {
		t.Errorf("a rank that got a supervisor that had been killed ended with %+v", st)
	}

	s = y.idle()
	if err := unix.Kill(s.pid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	run := y.given(y.keep(s), "exit 4")
	if err := unix.Kill(s.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if st := y.end(run); st.ExitCode != 4 {
		t.Errorf("a rank whose supervisor was killed before it noticed the rank ended with %+v", st)
	}
}

// Supervisors that wait for a rank end with the agent, and their watcher does not wait for them.
func TestNothingIsLeftOfSupervisorsWithoutARank(t *testing.T) {
	t.Parallel()
	y := patient(t)
	run := y.script("until [ -e go ]; do sleep 0.01; done")
	y.await(run, job.RunRunning)

	watcher, ok := process.Read(y.awaitWatcher(run))
	if !ok {
		t.Fatal("the watcher is gone")
	}

	if err := os.WriteFile(filepath.Join(y.runDir(run), rundir.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	y.end(run)
	s := y.waiting()
	y.keep(s)
	y.awaitGone(watcher)

	p, ok := process.Read(s.pid())
	if !ok {
		t.Fatal("the supervisor is gone")
	}

	y.reopen()

	if p.Exists() {
		t.Error("the agent was closed, and its supervisor without a rank is still there")
	}
}

// A rank with secrets has a supervisor of its own, and so has one that follows a rank that was stopped.
func TestSomeRanksShareNoSupervisor(t *testing.T) {
	t.Parallel()
	y := patient(t)
	s := y.idle()
	taken := y.keep(s)

	secretive := y.secretive(api.Launch{Command: "echo $PPID"})
	if err := y.Start(t.Context(), secretive); err != nil {
		t.Fatal(err)
	}

	y.end(secretive.Run)

	if out := y.output(secretive.Run)[logs.Stdout]; out == fmt.Sprintln(s.pid()) {
		t.Error("a rank with secrets got a supervisor that had another rank before")
	}

	run := y.given(taken, "sleep 1000")
	y.await(run, job.RunRunning)

	p, ok := process.Read(s.pid())
	if !ok {
		t.Fatal("the supervisor is gone")
	}

	rk := y.onlyRank(run)
	y.kill(run)
	y.awaitGone(p)

	// The rank has ended with its supervisor, and may be forgotten before anybody looks: it is not started again.
	if err := y.Forget(run, 0); err != nil {
		t.Fatal(err)
	}

	if y.untaken(rk) {
		t.Error("a rank that has ended and is forgotten looks as if no supervisor had taken it")
	}
}
