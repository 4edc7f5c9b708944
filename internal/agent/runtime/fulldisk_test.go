package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/diskspace"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// sleeper starts a program that writes its process id to a pipe and sleeps.
func (y *yard) sleeper(t *testing.T) (rundir.Status, string) {
	t.Helper()
	pids := pipe(t)
	run := y.start(api.Launch{Command: "echo $$ > $PIDS; sleep 1000", Env: map[string]string{"PIDS": pids}})
	pid := receive(t, pids)

	return y.await(run, job.RunRunning), pid
}

// leaseOver is the reason of a run whose contact lease of 20 ms has expired.
const leaseOver = "no contact with the server for 20ms; the job may be restarted elsewhere"

func TestOnAFullDiskTheContactLeaseIsRenewedAndObeyed(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 1)
	y := newYard(t, func(o *Options) { o.Dir = dir })
	st, pid := y.sleeper(t)
	smalldisk.Fill(t, dir)

	// A run that is in contact continues.
	for range 3 {
		y.renew(time.Hour, time.Minute)
	}

	if _, left, ok, err := rundir.NewBootClock().ReadContactLease(dir); left < time.Minute || !ok || err != nil {
		t.Fatalf("lease = %v, %v, %v", left, ok, err)
	}

	// One that is not stops, although the disk is still full.
	y.renew(20*time.Millisecond, time.Minute)
	check(t, y.end(st.Run), 143, "SIGTERM", job.CauseNodeLost, true, leaseOver)

	if alive(t, pid) {
		t.Error("the program is left")
	}
}

func TestOnAFullDiskARunIsStoppedOnRequest(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		mode   job.StopMode
		reason string
	}{
		{job.StopTerm, "stopped on request: exited after SIGTERM"},
		{job.StopKill, "stopped on request: killed at once"},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			t.Parallel()
			dir := smalldisk.Mount(t, 1)
			y := newYard(t, func(o *Options) { o.Dir = dir })
			st, pid := y.sleeper(t)
			smalldisk.Fill(t, dir)

			if err := y.Stop(st.Run, 0, test.mode); err != nil {
				t.Fatal(err)
			}

			end := y.end(st.Run)
			if alive(t, pid) || end.Cause != job.CauseCancelled || !strings.Contains(end.Reason, test.reason) {
				t.Errorf("alive %v, end %+v", alive(t, pid), end)
			}
		})
	}
}

// The log has room for its last remark, also if the disk is full until the end.
func TestOnAFullDiskTheLogSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 1)
	y := newYard(t, func(o *Options) { o.Dir = dir })
	begun, hold := pipe(t), pipe(t)
	run := y.start(api.Launch{
		Command: "echo before; echo > $BEGUN; read x < $HOLD; head -c 300000 /dev/zero | tr '\\0' x",
		Env:     map[string]string{"BEGUN": begun, "HOLD": hold},
	})

	receive(t, begun)

	for y.output(run)[logs.Stdout] == "" { // it is written a moment after it is printed
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatal("no output is written")
		}
	}

	smalldisk.Fill(t, dir)
	release(t, hold)
	check(t, y.end(run), 0, "", job.CauseNone, false, "")

	got := y.output(run)
	if !strings.HasPrefix(got[logs.Stdout], "before\n") || len(got[logs.Stdout]) > 200_000 ||
		!strings.Contains(got[logs.Yard], "bytes of output are missing here") {
		t.Errorf("%d bytes of output, remarks %q", len(got[logs.Stdout]), got[logs.Yard])
	}
}

func TestOnAFullDiskNothingIsStarted(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 1)
	y := newYard(t, func(o *Options) { o.Dir = dir })
	empty := smalldisk.Fill(t, dir)
	s := y.spec(api.Launch{Command: "exit 4"})

	err := y.Start(t.Context(), s)
	if !diskspace.Full(err) || !strings.Contains(err.Error(), "no space left on the disk that holds "+dir) {
		t.Errorf("start: %v", err)
	}

	left, err := os.ReadDir(filepath.Join(dir, rundir.RunsDir))
	if err != nil || len(left) != 0 || len(y.List()) != 0 {
		t.Errorf("left behind: %v, %v, %v", left, y.List(), err)
	}

	empty()

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(s.Run), 4, "", job.CauseUserCode, false, "exit code 4")
}

// An agent that is restarted on a full disk adopts its runs.
func TestOnAFullDiskRunsAreAdopted(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 1)
	y := newYard(t, func(o *Options) { o.Dir = dir })
	st, _ := y.sleeper(t)
	smalldisk.Fill(t, dir)
	y.reopen()

	if got := y.await(st.Run, job.RunRunning); got.PID != st.PID {
		t.Errorf("adopted %+v, was %+v", got, st)
	}
}

// awaitEnd waits until the end of a rank is recorded, without an agent.
func awaitEnd(t *testing.T, dir string) rundir.State {
	t.Helper()

	for {
		var st rundir.State
		if _, err := rundir.ReadState(dir, &st); err != nil {
			t.Fatal(err)
		}

		if st.State == job.RunEnded {
			return st
		}
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatal("the test was ended")
		}
	}
}

// supervisor returns the process id of a run's supervisor.
func (y *yard) supervisor(st rundir.Status) int {
	y.t.Helper()

	pid, err := rundir.LockHolder(y.runDir(st.Run))
	if err != nil || pid == 0 {
		y.t.Fatalf("supervisor = %d, %v", pid, err)
	}

	return pid
}

// awaitWatcher waits until a run has a watcher and returns its process id.
func (y *yard) awaitWatcher(run id.Run) int {
	y.t.Helper()
	f, err := os.OpenFile(filepath.Join(y.runDir(run), rundir.WatchLockFile), os.O_RDWR, 0)
	if err != nil {
		y.t.Fatal(err)
	}

	defer func() { _ = f.Close() }()

	for {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
			y.t.Fatal(err)
		}
		if lock.Type != unix.F_UNLCK {
			return int(lock.Pid)
		}
		if !clock.Sleep(y.t.Context(), time.Millisecond) {
			y.t.Fatal("the test was ended")
		}
	}
}

func TestAProgramWithoutAgentAndSupervisorEnds(t *testing.T) {
	t.Parallel()

	for _, disk := range []string{"full", "with space"} {
		t.Run("on a disk "+disk, func(t *testing.T) {
			t.Parallel()
			dir := smalldisk.Mount(t, 1)
			y := newYard(t, func(o *Options) { o.Dir = dir })
			st, pid := y.sleeper(t)
			y.awaitWatcher(st.Run)
			supervisor := y.supervisor(st)

			if disk == "full" {
				smalldisk.Fill(t, dir)
			}

			if err := errors.Join(y.Close(), unix.Kill(supervisor, unix.SIGKILL)); err != nil {
				t.Fatal(err)
			}

			end := awaitEnd(t, y.runDir(st.Run))
			if alive(t, pid) || end.Cause != job.CauseSupervisorLost || !strings.Contains(end.Reason, "supervisor was killed") {
				t.Errorf("alive %v, end %+v", alive(t, pid), end)
			}

			y.open()
			check(t, y.end(st.Run), 0, "", job.CauseSupervisorLost, false, "the supervisor was killed")
		})
	}
}

// A watcher survives its agent: the next agent may be killed too, before it has done anything.
func TestAWatcherOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	st, pid := y.sleeper(t)
	y.awaitWatcher(st.Run)
	y.reopen()
	supervisor := y.supervisor(st)

	if err := errors.Join(y.Close(), unix.Kill(supervisor, unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}

	awaitEnd(t, y.runDir(st.Run))

	if alive(t, pid) {
		t.Error("the program is left")
	}

	y.open()
}

func TestAProgramWhoseSupervisorIsSuspendedIsKilledWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.renew(time.Hour, time.Minute)
	st, pid := y.sleeper(t)
	y.awaitWatcher(st.Run)
	supervisor := y.supervisor(st)

	if err := unix.Kill(supervisor, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	y.renew(20*time.Millisecond, 50*time.Millisecond)

	for alive(t, pid) { // as a zombie it waits for its supervisor
		if !clock.Sleep(t.Context(), time.Millisecond) {
			t.Fatal("the test was ended")
		}
	}

	if p, err := os.ReadFile("/proc/" + strconv.Itoa(supervisor) + "/stat"); err != nil || len(p) == 0 {
		t.Fatalf("the supervisor is gone: %v", err)
	}

	if err := unix.Kill(supervisor, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(st.Run), 137, "SIGKILL", job.CauseNodeLost, true, leaseOver)
}
