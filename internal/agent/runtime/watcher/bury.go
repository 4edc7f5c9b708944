package watcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// Grave is a rank whose supervisor was killed.
type Grave struct {
	Dir   string // the run directory
	State rundir.State
	Clock clock.Clock
	Boot  string // the present start of the machine
	Log   *slog.Logger
}

// Bury ends all processes of the rank and records its end. The caller holds the rank's lock. It fails if ctx ends
// first; then somebody else may do it.
func (g *Grave) Bury(ctx context.Context) error {
	if err := g.endProcesses(ctx); err != nil {
		return err
	}

	if err := g.mend(); err != nil {
		g.Log.Error("cannot repair the log of a rank", "rank", filepath.Base(g.Dir), "error", err)
	}

	if err := g.State.Group.Remove(); err != nil {
		g.Log.Warn("cannot remove a cgroup", "rank", filepath.Base(g.Dir), "error", err)
	}

	return g.End(ctx, g.ending())
}

// ending says how the rank ended. A program that is not isolated can have killed its supervisor, and one that was in no
// cgroup may have hidden processes from us.
func (g *Grave) ending() rundir.Ending {
	e := rundir.Ending{
		Cause:  job.CauseNodeLost,
		Reason: "the supervisor was killed, so all processes of the rank were ended",
	}

	if g.State.Isolated || g.State.Boot == "" || g.State.Boot != g.Boot {
		return e
	}

	e.Cause = job.CauseSupervisorLost
	if g.State.Group == nil {
		e.Reason = "the supervisor was killed and all processes of the rank that were found were ended; it may have left " +
			"processes, because nothing isolates jobs on this node and they are not in a cgroup"
	}

	return e
}

// End records the end of the rank. The caller holds the rank's lock.
func (g *Grave) End(ctx context.Context, e rundir.Ending) error {
	if err := rundir.RemoveSecrets(g.Dir); err != nil {
		g.Log.Warn("cannot remove the secrets of a rank", "rank", filepath.Base(g.Dir), "error", err)
	}

	g.State.End(e, g.Clock.Now())

	failed := func(err error) {
		g.Log.Error("cannot record the end of a rank, retrying", "rank", filepath.Base(g.Dir), "error", err)
	}

	return rundir.WriteFinalState(ctx, g.Dir, g.State, failed, func() {})
}

// endProcesses ends the processes with SIGTERM and soon afterwards SIGKILL, until none is left.
func (g *Grave) endProcesses(ctx context.Context) error {
	q := rundir.Processes{
		Dir: g.Dir, Group: g.State.Group, Session: g.State.PID, Since: g.State.Begun, Isolated: g.State.Isolated,
	}
	sig, wait := unix.SIGTERM, time.Millisecond
	for {
		n, err := q.Signal(sig, true)
		if err != nil {
			g.Log.Error("cannot end processes that a rank left behind", "rank", filepath.Base(g.Dir), "error", err)
		}

		if n == 0 && err == nil {
			return nil
		}

		if sig == unix.SIGTERM {
			g.awaitGone(ctx, q, rundir.LeftoverGrace)
			sig = unix.SIGKILL
			continue
		}

		wait = min(2*wait, 100*time.Millisecond)
		if !clock.Sleep(ctx, wait) {
			return fmt.Errorf("end what a rank left behind: %w", ctx.Err())
		}
	}
}

// awaitGone waits until the processes have ended, for at most d.
func (g *Grave) awaitGone(ctx context.Context, q rundir.Processes, d time.Duration) {
	for end := g.Clock.Now().Add(d); g.Clock.Now().Before(end); {
		if procs, err := q.Find(true); err != nil || len(procs) == 0 {
			return
		}
		if !clock.Sleep(ctx, 10*time.Millisecond) {
			return
		}
	}
}

// mend completes the log of a rank whose supervisor was killed. How much the supervisor wrote is
// recorded before anything is added, so that it is known also if this process is killed here.
func (g *Grave) mend() (err error) {
	f, err := os.OpenFile(filepath.Join(g.Dir, rundir.OutputFile), os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()

	whole, kept, err := checkLog(f)
	if err != nil {
		return err
	}

	if !g.State.Mended {
		g.State.Mended, g.State.LogKept = true, kept
		if err := rundir.WriteState(g.Dir, g.State); err != nil {
			return err
		}
	}

	return mendLog(f, whole, kept, g.Clock)
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
