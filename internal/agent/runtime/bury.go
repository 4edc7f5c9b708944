package runtime

import (
	"os"
	"path/filepath"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/runtime/watcher"
)

// bury ends a rank whose supervisor was killed. The caller holds the rank's lock.
func (r *Runtime) bury(rk *rank, st rundir.State) {
	g := r.grave(rk, st)
	if g.Bury(r.ctx) != nil {
		return // closed: the watcher or the next agent process continues
	}

	r.refresh(rk)
}

func (r *Runtime) grave(rk *rank, st rundir.State) watcher.Grave {
	return watcher.Grave{Dir: rk.dir, State: st, Clock: r.clk, Boot: r.boot.Boot(), Log: r.log}
}

// supervisorLogTail returns the end of a supervisor's own log.
func (r *Runtime) supervisorLogTail(rk *rank) string {
	data, err := os.ReadFile(filepath.Join(rk.dir, rundir.SupervisorLog))
	if err != nil {
		return ""
	}

	return rundir.QuoteLastLine(rundir.LastLine(data))
}

// writeEnd records the end of a rank. The caller holds the rank's lock.
func (r *Runtime) writeEnd(rk *rank, st rundir.State, e rundir.Ending) {
	g := r.grave(rk, st)
	if g.End(r.ctx, e) != nil {
		return // closed: the next agent process does it
	}

	r.refresh(rk)
}
