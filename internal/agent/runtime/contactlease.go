package runtime

import (
	"time"

	"trainyard/internal/agent/runtime/rundir"
)

// RenewContactLease lets the runs of this machine continue without the server for
// this long from now. A supervisor that finds the contact lease expired stops its run
// with SIGTERM and a grace period of at most a tenth of the lease, so the server must
// wait longer than the lease plus that tenth before it starts the job elsewhere.
// Before the first call there is no such bound.
func (r *Runtime) RenewContactLease(valid time.Duration) error {
	return rundir.WriteContactLease(r.dir, valid)
}
