package runtime

import (
	"errors"
	"io"
	"math"
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

	if err := r.mend(rk, &st); err != nil {
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

// mend completes the log of a rank whose supervisor was killed. How much the supervisor wrote is
// recorded before anything is added, so that it is known also if this agent is killed here.
func (r *Runtime) mend(rk *rank, st *rundir.State) (err error) {
	f, err := os.OpenFile(filepath.Join(rk.dir, rundir.OutputFile), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()

	whole, kept, err := checkLog(f)
	if err != nil {
		return err
	}

	if !st.Mended {
		st.Mended, st.LogKept = true, kept
		if err := rundir.WriteJSON(filepath.Join(rk.dir, rundir.StateFile), st, true); err != nil {
			return err
		}
	}

	return mendLog(f, whole, kept, r.clk)
}

// checkLog returns how far a log has whole frames, and how far it makes sense: a frame that is torn is
// kept, and the zeros that a power cut may leave are not.
func checkLog(f *os.File) (whole, kept int64, err error) {
	d := logs.NewDecoder(io.NewSectionReader(f, 0, math.MaxInt64))
	for err == nil {
		_, err = d.Next()
	}

	var damage *logs.DamageError
	switch {
	case errors.Is(err, io.EOF), errors.As(err, &damage):
		return d.Offset(), d.Offset(), nil
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, 0, err
	}

	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}

	return d.Offset(), info.Size(), nil
}

// mendLog completes the frame with which a log ends and adds a remark that it ended early.
func mendLog(f *os.File, whole, kept int64, clk clock.Clock) error {
	if err := f.Truncate(kept); err != nil {
		return err
	}

	torn, err := io.ReadAll(io.NewSectionReader(f, whole, kept-whole))
	if err != nil {
		return err
	}
	if _, err := f.Write(logs.Mend(torn)); err != nil {
		return err
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
