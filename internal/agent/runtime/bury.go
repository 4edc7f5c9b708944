package runtime

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/clock"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// bury ends a rank whose supervisor was killed. The caller holds the rank's lock.
func (r *Runtime) bury(rk *rank, st rundir.State) {
	q := rundir.Processes{Dir: rk.dir, Group: st.Group, Session: st.PID, Since: st.Begun}
	sig, wait := unix.SIGTERM, time.Millisecond
	for {
		n, err := q.Signal(sig, true)
		if err != nil {
			r.log.Error("cannot end processes that a rank left behind", "rank", rk.name, "error", err)
		}

		if n == 0 && err == nil {
			break
		}

		if sig == unix.SIGTERM {
			r.awaitGone(q, rundir.LeftoverGrace)
			sig = unix.SIGKILL
			continue
		}

		wait = min(2*wait, 100*time.Millisecond)
		if !clock.Sleep(r.ctx, wait) {
			return // closed: the next agent process continues
		}
	}

	if err := mendLog(filepath.Join(rk.dir, rundir.OutputFile), r.clk); err != nil {
		r.log.Error("cannot repair the log of a rank", "rank", rk.name, "error", err)
	}

	if err := st.Group.Remove(); err != nil {
		r.log.Warn("cannot remove a cgroup", "rank", rk.name, "error", err)
	}

	r.writeEnd(
		rk,
		st,
		rundir.Ending{Cause: job.CauseNodeLost, Reason: "the supervisor was killed, so all processes of the rank were ended"},
	)
}

// awaitGone waits until the processes have ended, for at most d.
func (r *Runtime) awaitGone(q rundir.Processes, d time.Duration) {
	for end := r.clk.Now().Add(d); r.clk.Now().Before(end); {
		if procs, err := q.Find(true); err != nil || len(procs) == 0 {
			return
		}
		if !clock.Sleep(r.ctx, 10*time.Millisecond) {
			return
		}
	}
}

// mendLog truncates a log to its last complete frame and adds a remark that it ended early.
func mendLog(path string, clk clock.Clock) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()

	d := logs.NewDecoder(f)

	var derr error
	for derr == nil {
		_, derr = d.Next()
	}

	if errors.Is(derr, io.ErrUnexpectedEOF) {
		torn, rerr := io.ReadAll(io.NewSectionReader(f, d.Offset(), 2*logs.MaxFrame))
		if rerr != nil {
			return rerr
		}

		_, derr = io.Copy(f, bytes.NewReader(logs.Mend(torn)))
		if derr == nil {
			derr = io.EOF
		}
	}

	if !errors.Is(derr, io.EOF) {
		return derr
	}

	return logs.NewWriter(f, 0).Remark(clk.Now(), "the supervisor of this run was killed; output may be missing")
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
	st.End(e, r.clk.Now())
	err := rundir.WriteState(r.ctx, rk.dir, st, func(err error) {
		r.log.Error("cannot record the end of a rank, retrying", "rank", rk.name, "error", err)
	})
	if err != nil {
		return // closed: the next agent process does it
	}

	r.refresh(rk)
}
