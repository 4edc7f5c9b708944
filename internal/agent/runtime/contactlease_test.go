package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// leaseOf is a contact lease that is granted now.
func (y *yard) leaseOf(valid, grace time.Duration) contact.Lease {
	y.t.Helper()

	now, err := rundir.NewBootClock().Now()
	if err != nil {
		y.t.Fatal(err)
	}

	return contact.Grant{Lease: valid, Grace: grace}.From(now)
}

// renew renews the contact lease by an answer of the server.
func (y *yard) renew(valid, grace time.Duration) {
	y.t.Helper()

	if err := y.RenewContactLease(y.leaseOf(valid, grace), true); err != nil {
		y.t.Fatal(err)
	}
}

// awaitExpiry waits until the contact lease has expired.
func (y *yard) awaitExpiry() {
	y.t.Helper()

	fail := func(err error) { y.t.Error(err) }
	if _, _, over := rundir.NewBootClock().AwaitContactLeaseExpiry(y.t.Context(), y.dir, fail); !over {
		y.t.Fatal("the lease has not expired")
	}
}

func TestLeaseThatIsOverStopsTheRun(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.renew(time.Hour, time.Minute)

	run := y.script("sleep 1000")
	y.await(run, job.RunRunning)
	y.renew(20*time.Millisecond, time.Minute)

	s := y.end(run)
	check(
		t,
		s,
		143,
		"SIGTERM",
		job.CauseNodeLost,
		true,
		"no contact with the server for 20ms; the job may be restarted elsewhere",
	)

	if kind := fault.KindOf(y.Start(t.Context(), y.spec(api.Launch{Command: "true"}))); kind != fault.Unavailable {
		t.Errorf("kind = %q for a start without a lease", kind)
	}

	y.renew(time.Hour, time.Minute)
	check(t, y.end(y.script("exit 2")), 2, "", job.CauseUserCode, false, "")
}

const stubborn = "trap '' TERM; echo ready; while true; do sleep 0.05; done"

func TestALeaseThatExpiresDuringAStopEndsItsGracePeriod(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.renew(time.Hour, time.Minute)

	run := y.start(api.Launch{Command: stubborn, Grace: job.Duration(time.Hour)})
	y.follow(run, "ready")

	if err := y.Stop(run, 0, job.StopTerm); err != nil {
		t.Fatal(err)
	}

	y.await(run, job.RunStopping)
	y.renew(20*time.Millisecond, 20*time.Millisecond)

	if s := y.end(run); s.Cause != job.CauseCancelled || s.Signal != "SIGKILL" {
		t.Errorf("it ended as %+v, want killed on request", s)
	}
}

func TestAnExpiredLeaseIsRenewedWhenAllRunsHaveEnded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.renew(time.Hour, time.Minute)

	run := y.start(api.Launch{Command: stubborn, Grace: job.Duration(time.Hour)})
	y.follow(run, "ready")
	y.renew(20*time.Millisecond, time.Hour) // the run has an hour to exit
	y.await(run, job.RunStopping)

	for _, answered := range []bool{true, false} {
		err := y.RenewContactLease(y.leaseOf(time.Hour, time.Minute), answered)
		if fault.KindOf(err) != fault.Unavailable {
			t.Fatalf("renewed under a run that has not ended, answered = %v: %v", answered, err)
		}
	}

	if err := y.Stop(run, 0, job.StopKill); err != nil {
		t.Fatal(err)
	}

	y.end(run)

	if err := y.RenewContactLease(y.leaseOf(time.Hour, time.Minute), false); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("an expired lease was renewed without an answer: %v", err)
	}

	y.renew(time.Hour, time.Minute)
	check(t, y.end(y.script("exit 2")), 2, "", job.CauseUserCode, false, "")
}

func TestAnAgentThatHasNotAdoptedItsRunsRenewsNoExpiredLease(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.renew(time.Hour, time.Minute)

	run := y.start(api.Launch{Command: stubborn, Grace: job.Duration(time.Hour)})
	y.follow(run, "ready")
	y.renew(20*time.Millisecond, time.Hour)
	y.await(run, job.RunStopping)

	if err := y.Close(); err != nil {
		t.Fatal(err)
	}

	early, err := New(y.opts)
	if err != nil {
		t.Fatal(err)
	}

	y.Runtime = early
	if err := early.RenewContactLease(y.leaseOf(time.Hour, time.Minute), true); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("renewed under a run that has not ended: %v", err)
	}

	if _, err := early.Adopt(); err != nil {
		t.Fatal(err)
	}
}

func TestARunThatIsPreparedWhenItsLeaseExpiresIsNotStarted(t *testing.T) {
	t.Parallel()

	fetching := make(chan struct{})
	y := newYard(t, func(o *Options) {
		o.Files = func(ctx context.Context, _, _ string) error {
			close(fetching)
			<-ctx.Done()

			return errors.New("the fetch was cancelled")
		}
	})
	y.renew(time.Hour, time.Minute)

	run := y.start(api.Launch{Command: "true", Workdir: "some"})
	<-fetching
	y.renew(time.Millisecond, time.Minute)
	y.awaitExpiry()

	if err := y.RenewContactLease(y.leaseOf(time.Hour, time.Minute), true); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("renewed under a run that has not ended: %v", err)
	}

	check(t, y.end(run), 0, "", job.CauseNodeLost, false,
		"the contact lease of the node expired before the run was started")
	y.renew(time.Hour, time.Minute)
}

func TestARunThatAnEarlierAgentPreparedIsNotStartedAfterItsLease(t *testing.T) {
	t.Parallel()

	fetching := make(chan struct{}, 1)
	y := newYard(t, func(o *Options) {
		o.Files = func(ctx context.Context, _, _ string) error {
			fetching <- struct{}{}
			<-ctx.Done()

			return errors.New("the fetch was cancelled")
		}
	})
	y.renew(time.Hour, time.Minute)

	run := y.start(api.Launch{Command: "true", Workdir: "some"})
	<-fetching
	y.renew(time.Millisecond, time.Minute)
	y.reopen()
	y.awaitExpiry()

	if err := y.RenewContactLease(y.leaseOf(time.Hour, time.Minute), true); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("renewed under a run that has not ended: %v", err)
	}

	if s := y.end(run); s.Cause != job.CauseNodeLost {
		t.Errorf("it ended as %+v", s)
	}

	y.renew(time.Hour, time.Minute)
}
