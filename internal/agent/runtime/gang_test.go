package runtime

import (
	"context"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// gangLaunch is the launch of a rank of two that waits for the other.
func gangLaunch(command string) api.Launch {
	return api.Launch{
		Command: command, Nodes: []string{"10.0.0.1", "10.0.0.2"}, Slots: []int{4, 0}, MasterPort: 29500, Barrier: true,
		Addresses: [][]string{{"10.0.0.1"}, {"10.0.0.2"}},
	}
}

// awaitReady waits until a rank waits for the others.
func (y *yard) awaitReady(run id.Run) {
	y.t.Helper()
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	for {
		changed := y.Watch()
		s, _ := y.Status(run, 0)
		if s.Ready && s.State == job.RunPreparing {
			return
		}

		if s.State == job.RunRunning || s.State == job.RunEnded {
			y.t.Fatalf("it did not wait: %+v", s)
		}

		select {
		case <-changed:
		case <-patience.Done():
			y.t.Fatalf("it is not ready: %+v", s)
		}
	}
}

func TestProgramOfAGangWaitsForItsStart(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode)
		run := y.start(gangLaunch(
			`echo $MASTER_ADDR $PET_MASTER_ADDR $WORLD_SIZE $LOCAL_WORLD_SIZE $GLOO_SOCKET_IFNAME; cat $TRAINYARD_HOSTFILE`))
		y.awaitReady(run)
		y.reopen() // a restarted agent finds it waiting, and may let it start
		y.awaitReady(run)

		start := rundir.GangStart{Interface: "ib0", GangStart: job.GangStart{
			Nodes: []string{"192.168.0.1", "192.168.0.2"}, Remark: "rank 1 did not reach rank 0",
		}}

		for range 2 { // an agent may ask twice
			if err := y.StartGang(run, 0, start); err != nil {
				t.Fatal(err)
			}
		}

		if s := y.end(run); s.ExitCode != 0 || s.Reason != "" || s.Ready || s.Started.IsZero() {
			t.Errorf("it ended as %+v", s)
		}

		out := y.output(run)
		want := "192.168.0.1 192.168.0.1 2 1 ib0\n192.168.0.1 slots=4\n192.168.0.2 slots=1\n"
		if out[logs.Stdout] != want {
			t.Errorf("it printed %q, want %q", out[logs.Stdout], want)
		}
	})
}

func TestInterfaceOfTheJobPrevails(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := gangLaunch(`echo $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME`)
	l.Env = map[string]string{"GLOO_SOCKET_IFNAME": "mine"}
	run := y.start(l)
	y.awaitReady(run)

	start := rundir.GangStart{Interface: "ib0", GangStart: job.GangStart{Nodes: l.Nodes}}
	if err := y.StartGang(run, 0, start); err != nil {
		t.Fatal(err)
	}

	y.end(run)

	if got := y.output(run)[logs.Stdout]; got != "mine =ib0\n" {
		t.Errorf("it printed %q", got)
	}
}

func TestProgramOfAGangThatIsStoppedNeverStarts(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	run := y.start(gangLaunch(`echo started`))
	y.awaitReady(run)

	if err := y.Stop(run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	if s := y.end(run); !s.Signalled || !s.Started.IsZero() || s.Ready {
		t.Errorf("it ended as %+v", s)
	}

	if got := y.output(run)[logs.Stdout]; got != "" {
		t.Errorf("it printed %q", got)
	}
}

func TestGangOfAServerWithoutBarrierStartsAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := gangLaunch(`cat $TRAINYARD_HOSTFILE`)
	l.Barrier, l.Addresses, l.Slots = false, nil, nil
	run := y.start(l)
	y.end(run)

	if got := y.output(run)[logs.Stdout]; got != "10.0.0.1 slots=1\n10.0.0.2 slots=1\n" {
		t.Errorf("the host file is %q", got)
	}
}

func TestFirstTracebackOfARankIsReported(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	l := gangLaunch(`printf 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: a bad batch\n` +
		`Traceback (most recent call last):\n  File "torchrun"\nChildFailedError: \n=====\n' >&2; exit 1`)
	l.Barrier = false
	run := y.start(l)

	s := y.end(run)
	if s.Error != "ValueError: a bad batch" || s.Reason != "exit code 1; ValueError: a bad batch" {
		t.Errorf("it ended with error %q, reason %q", s.Error, s.Reason)
	}

	if got := s.Report().Error; got != s.Error {
		t.Errorf("the report says %q", got)
	}
}
