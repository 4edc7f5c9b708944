package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"trainyard/internal/agent/checkpoints"
	"trainyard/internal/agent/runtime"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/job"
)

// savedCheckpoints saves the checkpoints of ranks and restores them before a rank starts. The end of a rank is held
// back until everything complete in its checkpoint directory is in the catalogue, or cannot be: what the server hears
// of as ended may be started elsewhere, or its node released.
type savedCheckpoints struct {
	*checkpoints.Checkpoints

	mu        sync.Mutex
	savers    map[key]*checkpoints.Saver
	restoring map[key]*checkpoints.Restoring
}

func (a *Agent) openCheckpoints() *savedCheckpoints {
	return &savedCheckpoints{
		savers: map[key]*checkpoints.Saver{}, restoring: map[key]*checkpoints.Restoring{},
		Checkpoints: checkpoints.New(checkpoints.Options{
			Dir: a.path("checkpoint-uploads"), Yard: func() checkpoints.Yard { return a.client.Load() }, Log: a.log,
			Clock: a.clk, Changed: func() { notify(a.reconcileSoon) }, Problem: a.noteProblem, Free: a.cfg.Free,
			Shared: a.sharedRoot,
			Every:  a.cfg.CheckpointEvery, Rest: a.cfg.CheckpointRest, Patience: a.cfg.CheckpointPatience,
		}),
	}
}

// updateSavers begins to save the checkpoints of ranks that have started, and says to the others which have ended.
func (a *Agent) updateSavers(list []rundir.Status) error {
	c := a.checkpoints
	c.mu.Lock()
	defer c.mu.Unlock()

	var errs []error

	for _, st := range list {
		if st.Started.IsZero() {
			continue
		}

		k := key{st.Run, st.Rank}
		s := c.savers[k]

		if s == nil {
			sources, err := a.rt.MetricSources(st.Run, st.Rank)
			if err != nil || sources.Checkpoints == "" {
				errs = append(errs, err)
				continue
			}

			s = c.Save(checkpoints.Rank{
				Run: st.Run, UID: st.UID, Rank: st.Rank, Ranks: max(1, len(sources.Launch.Nodes)), Dir: sources.Checkpoints,
				Started: st.Started, Every: time.Duration(sources.Launch.SaveEvery),
				Shared: sources.Launch.Shared,
			})
			c.savers[k] = s
		}

		if st.State == job.RunEnded {
			s.End(st.Ended, st.ExitCode == 0 && st.Signal == "" && st.Cause == job.CauseNone)
		}
	}

	return errors.Join(errs...)
}

// stop ends all savers; the next agent process continues.
func (c *savedCheckpoints) stop() {
	c.mu.Lock()
	savers := slices.Collect(maps.Values(c.savers))
	c.mu.Unlock()

	for _, s := range savers {
		s.Stop()
	}

	c.Close()
}

// drop ends the saver of a rank that the runtime does not have any more.
func (a *Agent) dropSaver(k key) error {
	c := a.checkpoints
	c.mu.Lock()
	s := c.savers[k]
	delete(c.savers, k)
	c.mu.Unlock()

	if s != nil {
		s.Stop()
	}

	a.outputs.drop(k)

	a.mu.Lock()
	delete(a.problems, checkpoints.Operation(k.run))
	a.mu.Unlock()

	if err := c.Forget(k.run, k.rank); err != nil {
		return fmt.Errorf("forget checkpoint uploads of %s rank %d: %w", k.run, k.rank, err)
	}

	return nil
}

// request tells the saver of a rank that its program was asked to save.
func (c *savedCheckpoints) request(k key, number int) {
	c.mu.Lock()
	s := c.savers[k]
	c.mu.Unlock()

	if s != nil {
		s.Request(number)
	}
}

// saved reports whether the checkpoints of an ended rank are stored, or cannot be.
func (c *savedCheckpoints) saved(k key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	s := c.savers[k]
	if s == nil {
		return true
	}

	done, _ := s.Finished()

	return done
}

// describe adds to the report of a rank how far its checkpoint is. A rank that has ended is reported as running while
// its last checkpoint is being stored, unless it was ordered to end at once.
func (c *savedCheckpoints) describe(k key, stop job.StopMode, report *api.RankReport) {
	c.mu.Lock()
	s, restoring := c.savers[k], c.restoring[k]
	c.mu.Unlock()

	if report.State == job.RunPreparing && restoring != nil && report.Reason == "" {
		report.Reason = restoring.Progress()
	}

	switch {
	case s == nil:
	case report.State == job.RunEnded:
		holdBack(&s.Upload, stop, report, "storing its last checkpoint", "its last checkpoint was not stored")
	case report.Reason == "":
		report.Reason = s.Progress()
	}
}

// restore brings the checkpoint of a launch before the program starts. It is what the runtime calls.
func (a *Agent) restore(ctx context.Context, s rundir.Spec, dir string) error {
	c := a.checkpoints
	k := key{s.Run, s.Rank}
	progress := &checkpoints.Restoring{}

	c.mu.Lock()
	c.restoring[k] = progress
	c.mu.Unlock()

	notify(a.reconcileSoon)

	defer func() {
		c.mu.Lock()
		delete(c.restoring, k)
		c.mu.Unlock()
	}()

	rank := checkpoints.Rank{Run: s.Run, UID: s.Launch.UID, Rank: s.Rank, Ranks: max(1, len(s.Launch.Nodes)), Dir: dir,
		Shared: s.Launch.Shared}

	err := c.Restore(ctx, rank, s.Launch.Restore, progress)
	if err == nil {
		return nil
	}

	return &runtime.RestoreError{
		Failure: job.RestoreFailure{Checkpoint: s.Launch.Restore.Checkpoint, Corrupt: checkpoints.Corrupt(err)}, Err: err,
	}
}

// busy reports whether a checkpoint is being restored.
func (c *savedCheckpoints) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.restoring) > 0
}
