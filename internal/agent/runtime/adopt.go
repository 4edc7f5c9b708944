package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Adopt takes over the ranks that an earlier agent process left. It is called once, before anything
// else. Running ranks are monitored as if this agent had started them. If the supervisor of a rank
// is gone without a result, all its processes are killed and the rank ends with the cause
// node_lost. A rank whose supervisor was never started waits for Start.
func (r *Runtime) Adopt() ([]rundir.Status, error) {
	runs := filepath.Join(r.dir, rundir.RunsDir)
	entries, err := os.ReadDir(runs)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}

	var dirs []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // being created, or removed but not yet deleted
			if err := rundir.RemoveTree(filepath.Join(runs, e.Name())); err != nil {
				return nil, fmt.Errorf("clean up: %w", err)
			}

			continue
		}

		if err := r.adopt(e.Name()); err != nil {
			return nil, err
		}

		dirs = append(dirs, filepath.Join(runs, e.Name()))
	}

	if err := rundir.DropFormerLease(r.dir, dirs); err != nil {
		return nil, fmt.Errorf("clean up: %w", err)
	}

	if err := r.loadKept(); err != nil {
		return nil, fmt.Errorf("list kept working directories: %w", err)
	}

	r.mu.Lock()
	r.adopted = true
	r.announce()
	r.mu.Unlock()
	r.tasks.Go(r.pruneSetups)
	r.tasks.Go(r.pruneCheckpoints)
	r.tasks.Go(r.pruneCaches)
	r.tasks.Go(r.keepPruning)
	r.tasks.Go(r.keepSweeping)

	return r.List(), nil
}

// adopt takes over one run directory.
func (r *Runtime) adopt(name string) error {
	rk := &rank{name: name, dir: filepath.Join(r.dir, rundir.RunsDir, name)}
	ok, err := rundir.ReadJSON(filepath.Join(rk.dir, rundir.LaunchFile), &rk.rec)
	if err != nil || !ok || rk.rec.Name() != name {
		if known, err := r.salvage(rk, err); err != nil || !known {
			return err
		}
	}

	rk.state.Status = rundir.NewStatus(rk.rec.Spec)
	rk.begun, err = rundir.ReadState(rk.dir, &rk.state)
	if err != nil {
		// The state of a rank that runs is not synced, so a power cut may leave an empty file. The rank has begun,
		// and its processes are gone or will be found by its directory.
		r.log.Warn("cannot read the state of a rank, ending it", "rank", name, "error", err)
		rk.state, rk.begun = rundir.State{Status: rundir.NewStatus(rk.rec.Spec)}, true
	}

	if rk.rec.Boot != "" && rk.rec.Boot != r.boot.Boot() {
		rk.begun = true // it may have been, and a power cut took the news: it must not begin again
	}

	holder, err := rundir.LockHolder(rk.dir)
	if err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.ranks[name] = rk
	if rk.state.State != job.RunEnded && (rk.begun || holder != 0) {
		rk.begun, rk.monitored = true, true

		if holder != 0 {
			r.watch(rk, holder) // the earlier agent may have been killed before it did
		}

		r.tasks.Go(func() {
			r.openEndpoint(rk)
			r.monitor(rk) // which ends the watch, too
		})
	}

	return nil
}

// salvage finds out what is left of a rank whose record cannot be read, and reports whether it is known now. The record
// is whole when the directory gets its name, so a power cut took it or somebody has damaged it. What has ended is in
// its state, which is synced, and needs no record. What has not ended has no process after a power cut, and its
// directory is removed. Anything else is left for a person to look at.
func (r *Runtime) salvage(rk *rank, cause error) (known bool, err error) {
	var st rundir.State
	begun, serr := rundir.ReadState(rk.dir, &st)

	holder, err := rundir.LockHolder(rk.dir)
	if err != nil {
		return false, err
	}

	left := rundir.RankName(st.Run, st.Rank) == rk.name && st.State == job.RunEnded

	switch {
	case serr == nil && begun && left:
		rk.rec = rundir.Record{Spec: rundir.Spec{
			Run: st.Run, Rank: st.Rank, Job: st.Job, Epoch: st.Epoch, Launch: api.Launch{UID: st.UID},
		}}

		return true, nil
	case serr == nil && holder == 0 && (!begun || st.Boot != r.boot.Boot()):
		r.log.Warn("a power cut took the record of a rank, removing its directory", "dir", rk.dir, "error", cause)
		return false, rundir.RemoveTree(rk.dir)
	}

	r.log.Error("cannot read a run directory, skipping it", "dir", rk.dir, "error", errors.Join(cause, serr))

	return false, nil
}

// monitor waits until no supervisor holds the rank's lock and then makes sure that its end is
// recorded.
func (r *Runtime) monitor(rk *rank) {
	if !r.hasEnded(rk) {
		if err := r.openShare(rk); err != nil { // the program goes on without
			r.log.Error("the GPU share of a rank is not enforced", "rank", rk.name, "error", err)
		}
	}

	for !r.hasEnded(rk) {
		holder, err := rundir.LockHolder(rk.dir)
		if err == nil && holder != 0 {
			if !r.awaitExit(holder) {
				return // closed
			}

			continue
		}

		var lock *os.File

		var mine bool
		if err == nil {
			lock, mine, err = rundir.TakeLock(rk.dir)
		}

		if mine {
			r.ensureEnd(rk)
			err = lock.Close()
		}

		if err != nil {
			r.log.Error("cannot monitor a rank", "rank", rk.name, "error", err)
		}

		if r.ctx.Err() != nil || err != nil && !clock.Sleep(r.ctx, time.Second) {
			return
		}
	}

	r.watched.remove(rk.name)
	r.closeEndpoint(rk)
	r.endShare(rk)

	if rk.rec.Setup != nil || rk.rec.Launch.Python != nil {
		r.pruneSetups() // it may have been the last rank to use a set-up
		r.pruneCheckpoints()
	}
}

// hasEnded reports whether the end of a rank is recorded.
func (r *Runtime) hasEnded(rk *rank) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rk.state.State == job.RunEnded
}

// ensureEnd records the end of a rank that has no supervisor, if the supervisor did
// not. The caller holds the rank's lock.
func (r *Runtime) ensureEnd(rk *rank) {
	r.refresh(rk)
	r.mu.Lock()
	st, begun := rk.state, rk.begun
	r.mu.Unlock()

	switch {
	case st.State == job.RunEnded:
	case begun:
		r.bury(rk, st)
	default: // the supervisor records each step before it takes it, so it started nothing
		r.writeEnd(
			rk,
			st,
			rundir.Ending{
				Cause:  job.CauseLaunchFailed,
				Reason: "the supervisor exited without starting the program" + r.supervisorLogTail(rk),
			},
		)
	}
}

// awaitExit waits for the end of a process. It returns false if Close is called first. It does not
// reap the process.
func (r *Runtime) awaitExit(pid int) bool { return process.AwaitExit(r.ctx, pid) }

// endUnstarted ends a rank that no supervisor has taken. If one has, the supervisor will end it.
func (r *Runtime) endUnstarted(rk *rank, e rundir.Ending) {
	if rk.rec.Launch.Image != "" { // it may have a container that was not started
		defer r.sweepContainers()
	}

	lock, mine, err := rundir.TakeLock(rk.dir)
	if err != nil {
		r.log.Error("cannot lock a rank", "rank", rk.name, "error", err)
	}

	if mine {
		r.refresh(rk)
		r.mu.Lock()
		st, begun := rk.state, rk.begun
		r.mu.Unlock()

		if !begun {
			r.writeEnd(rk, st, e)
		}

		if err := lock.Close(); err != nil {
			r.log.Error("cannot unlock a rank", "rank", rk.name, "error", err)
		}
	}

	r.monitor(rk)
}

// Forget removes all traces of an ended rank except its checkpoints and, for a while, its working directory. Call it
// once the server has its ending and its complete log.
func (r *Runtime) Forget(run id.Run, n int) error {
	rk, err := r.lookup(run, n)
	if err != nil {
		return err
	}

	r.mu.Lock()

	st := rk.state
	if st.State != job.RunEnded {
		r.mu.Unlock()
		return fault.New(fault.Conflict, "rank_running", "rank %d of run %s has not ended", n, run)
	}

	if err := r.secureCheckpoints(rk.rec.Spec); err != nil {
		r.mu.Unlock()
		return err
	}

	gone := filepath.Join(r.dir, rundir.RunsDir, ".gone-"+rk.name)
	err = os.Rename(rk.dir, gone)
	if err == nil {
		delete(r.ranks, rk.name)
		r.announce()
	}

	r.mu.Unlock()

	if err != nil {
		return fmt.Errorf("forget rank %s: %w", rk.name, err)
	}

	r.pruneCheckpoint(rk.rec.Job)

	return errors.Join(r.keep(rk.name, gone), st.Group.Remove(), rundir.RemoveTree(gone))
}
