package agent_test

import (
	"testing"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// problem returns the newest problem that the node has reported, nil for none. The caller holds the yard's lock.
func (y *fakeYard) problem() *fleet.Problem {
	for i := len(y.reports) - 1; i >= 0; i-- {
		if inv := y.reports[i].Inventory; inv != nil {
			return inv.Problem
		}
	}

	return nil
}

func TestANodeWithoutSpaceSaysSoAndItsRunsContinueUntilTheyAreStopped(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 4)
	y := newYard(t)
	cfg := realConfigIn(t, y, dir)
	cfg.MinFree.Size = 1 << 20
	stop := launch(t, cfg)
	y.assign(realAssignment("j1.1", "sleep 1000"))
	y.awaitState("j1.1", job.RunRunning)

	lease := func() time.Duration {
		l, _, _, err := rundir.NewBootClock().ReadContactLease(dir)
		if err != nil {
			t.Error(err)
		}

		return l.Until
	}

	y.await("a node in order", func() bool { return y.problem() == nil && lease() > 0 })
	empty := smalldisk.Fill(t, dir)
	y.await("the node says that it has no space", func() bool {
		p := y.problem()
		return p != nil && p.Cause == "no_space"
	})

	// It is in contact, so its contact lease is renewed although the disk is full.
	before := lease()
	y.await("a renewed contact lease", func() bool { return lease() > before })

	// The agent may be restarted meanwhile.
	stop()
	launch(t, cfg)
	before = lease()
	y.await("a renewed contact lease after a restart", func() bool { return lease() > before })

	if got := y.awaitState("j1.1", job.RunRunning); got.Reason != "" {
		t.Errorf("got %+v", got)
	}

	as := realAssignment("j1.1", "sleep 1000")
	as.Stop = job.StopKill
	y.assign(as)

	if got := y.awaitState("j1.1", job.RunEnded); got.Cause != job.CauseCancelled || got.Signal != "SIGKILL" {
		t.Errorf("got %+v", got)
	}

	empty()
	y.await("the node takes jobs again", func() bool { return y.problem() == nil })
}
