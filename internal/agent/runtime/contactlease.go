package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

// RenewContactLease lets the runs of this machine continue without the server until the lease
// expires. A supervisor that finds it expired stops its run within the grace period of the lease.
// answered says that the server has granted the lease in an answer. Package contact says what may
// renew an expired lease: only an answer, and only when all runs have ended. Until then
// RenewContactLease fails; their supervisors are stopping them, and it ends those that have none yet.
func (r *Runtime) RenewContactLease(l contact.Lease, answered bool) error {
	old, _, exists, err := r.boot.ReadContactLease(r.dir)
	if err != nil {
		return err
	}

	now, err := r.boot.Now()
	if err != nil {
		return err
	}

	renewal := contact.Renewal{Old: old, Exists: exists, Answered: answered, Live: true}
	if !renewal.Allowed(now) {
		renewal.Live, err = r.endOutlived()
		if err != nil {
			return err
		}
	}

	if !renewal.Allowed(now) {
		return fault.New(fault.Unavailable, "contact_lease_over",
			"the contact lease expired after %v; it is renewed when all runs of this node have ended",
			job.Duration(old.Valid))
	}

	return rundir.WriteContactLease(r.dir, l)
}

// endOutlived ends the ranks that no supervisor has taken yet, because their contact lease has
// expired, and reports whether there are ranks that have not ended. Before Adopt it reports whether
// there are supervisors.
func (r *Runtime) endOutlived() (live bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if !r.adopted {
		return r.supervised()
	}

	for _, rk := range r.ranks {
		if rk.state.State == job.RunEnded {
			continue
		}

		live = true
		if rk.begun {
			continue
		}

		rk.outlived = true
		if rk.abort != nil {
			rk.abort()
		}

		if !rk.monitored {
			rk.monitored = true
			r.tasks.Go(func() { r.endUnstarted(rk, leaseEndedEarly()) })
		}
	}

	return live, nil
}

// supervised reports whether a supervisor of an earlier agent process has a rank.
func (r *Runtime) supervised() (bool, error) {
	runs := filepath.Join(r.dir, rundir.RunsDir)
	entries, err := os.ReadDir(runs)
	if err != nil {
		return false, fmt.Errorf("list runs: %w", err)
	}

	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // being created, or removed but not yet deleted
			continue
		}

		holder, err := rundir.LockHolder(filepath.Join(runs, e.Name()))
		if err != nil || holder != 0 {
			return true, err
		}
	}

	return false, nil
}

// leaseEndedEarly returns the ending of a rank whose contact lease expired before a supervisor took it.
func leaseEndedEarly() rundir.Ending {
	return rundir.Ending{
		Cause:  job.CauseNodeLost,
		Reason: "the contact lease of the node expired before the run was started",
	}
}
