package runtime

import (
	"path/filepath"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/id"
)

// openShare gives a rank its share of a GPU, if it shares one and this process has not done so yet.
func (r *Runtime) openShare(rk *rank) error {
	r.mu.Lock()
	needed := rk.rec.ShareLibrary != "" && !rk.shares && r.opt.Shares != nil
	rk.shares = rk.shares || needed
	r.mu.Unlock()

	if !needed {
		return nil
	}

	err := r.opt.Shares.Open(rk.rec.Spec, filepath.Join(rk.dir, rundir.ShareDir), rk.rec.User)
	if err != nil {
		r.mu.Lock()
		rk.shares = false
		r.mu.Unlock()
	}

	return err
}

// Evict stops a rank for what its program does. It has no effect on a rank whose program does not run.
func (r *Runtime) Evict(run id.Run, n int, reason string) error {
	return r.request(run, n, "evict", func(dir string) error { return rundir.RequestEviction(dir, reason) })
}

// endShare takes the share of a rank back that has ended.
func (r *Runtime) endShare(rk *rank) {
	r.mu.Lock()
	shares := rk.shares
	rk.shares = false
	r.mu.Unlock()

	if shares {
		r.opt.Shares.End(rk.rec.Spec)
	}
}
