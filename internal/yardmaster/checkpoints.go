package yardmaster

import (
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// codeStaleEpoch is the code of the error that refuses a checkpoint of a run that is not the newest of its job. What
// such a run saves must not be continued from: the newer run may have gone further, or begun from another one.
const codeStaleEpoch = "stale_epoch"

// AddCheckpoint enters a checkpoint in the catalogue, or one rank's part of it: its Parts hold that part alone, and
// its Ranks says how many there are. All its chunks are stored. The answer is the entry.
type AddCheckpoint struct{ Checkpoint checkpoint.Checkpoint }

func (m AddCheckpoint) handle(y *Yard) (any, error) {
	c := m.Checkpoint

	r, err := y.newestRun(&c)
	if err != nil {
		return nil, err
	}

	entry, err := y.checkpoints.Add(y.now, &r.Job, c, r.restoring())
	if err != nil {
		return nil, err
	}

	saved := r.outlook.Saved.Travels
	y.updateSaved(r)

	if !saved && r.run != nil && y.relocates() {
		y.planDue = true // it can be moved now
	}

	return entry, nil
}

// newestRun returns the job of a checkpoint, and completes what the checkpoint says of its run. It refuses one of a run
// that is not the newest of its job, whether that still runs or has just ended.
func (y *Yard) newestRun(c *checkpoint.Checkpoint) (*jobRecord, error) {
	j, epoch, ok := c.Run.Split()
	r := y.jobs[j]
	if !ok || r == nil {
		return nil, fault.New(fault.Conflict, codeStaleEpoch, "run %s is not known, or its job ended long ago", c.Run)
	}

	var err error
	switch {
	case epoch != r.Epoch:
		err = fault.New(fault.Conflict, codeStaleEpoch, "run %s is not the newest of its job; %s is",
			c.Run, id.NewRun(j, r.Epoch))
	case r.run != nil && r.run.UID != c.UID:
		err = fault.New(fault.Conflict, codeStaleEpoch, "run %s is not the run of that id that this yard knows", c.Run)
	}

	if err != nil {
		y.checkpoints.Refuse(y.now, &r.Job, c, err.Error())
		return nil, err
	}

	c.Epoch = epoch

	return r, nil
}

// restoreOf returns what the next run of a job continues from, nil if it begins anew.
func (y *Yard) restoreOf(r *jobRecord) *job.Restore {
	if newest := y.checkpoints.Newest(r.ID); newest != nil {
		return newest.Restore()
	}

	return nil
}

// updateSaved lets policies know the newest checkpoint of a job.
func (y *Yard) updateSaved(r *jobRecord) {
	newest := y.checkpoints.Newest(r.ID)
	if newest == nil {
		r.outlook.Saved = job.Saved{}
		return
	}

	r.outlook.Saved = job.Saved{Size: newest.Size, At: newest.Written, Step: newest.Step, Travels: true}
}

// noteCorrupt marks the checkpoint that a rank could not restore as corrupt, if it says so of the one that it was to
// restore. Each time this happens the job has one checkpoint less to continue from, so it happens only so often.
func (y *Yard) noteCorrupt(r *jobRecord, run *runRecord, k *job.Rank, rep *RankReport) {
	failed := rep.Restore
	if rep.Cause != job.CauseRestoreFailed || failed == nil || !failed.Corrupt || failed.Checkpoint != run.restore {
		return
	}

	run.corrupt = true
	if y.checkpoints.MarkCorrupt(y.now, r.Owner, failed.Checkpoint, k.Node, rep.Reason) {
		y.updateSaved(r)
	}
}

// restoring returns the checkpoint that a run of a job is being restored from, "" if none is.
func (r *jobRecord) restoring() id.Checkpoint {
	if r.run == nil || !r.run.Started.IsZero() {
		return ""
	}

	return r.run.restore
}

// needs reports whether a job continues from a checkpoint, or is about to.
func (y *Yard) needs(j id.Job, name id.Checkpoint) bool {
	r, ok := y.jobs[j]
	if !ok || r.State.Final() {
		return false
	}

	newest := y.checkpoints.Newest(j)

	return newest != nil && newest.ID == name || r.restoring() == name
}

// PinCheckpoint keeps a checkpoint whatever the job's rule says, or no longer. The answer is the entry.
type PinCheckpoint struct {
	Checkpoint id.Checkpoint
	Owner      id.User // of the job
	By         id.User
	On         bool
}

func (m PinCheckpoint) handle(y *Yard) (any, error) {
	return answer(y.checkpoints.Pin(y.now, m.Owner, m.Checkpoint, m.By, m.On))
}

// RemoveCheckpoint removes a checkpoint, unless its job needs it. The answer is the entry.
type RemoveCheckpoint struct {
	Checkpoint id.Checkpoint
	Owner      id.User // of the job
	By         string  // a user, or the yard
	Why        string  // one sentence
}

func (m RemoveCheckpoint) handle(y *Yard) (any, error) {
	j, _, _ := m.Checkpoint.Split()
	if y.needs(j, m.Checkpoint) {
		return nil, fault.New(fault.Conflict, "checkpoint_needed", "job %s continues from checkpoint %s", j, m.Checkpoint).
			WithRemedy("cancel the job first, or wait for its next checkpoint")
	}

	return answer(y.checkpoints.Remove(y.now, m.Owner, m.Checkpoint, m.By, m.Why))
}

// Restoring returns what a run on a node is to restore, nil if it begins anew or does not run there.
func (y *Yard) Restoring(run id.Run, node id.Node) *job.Restore {
	r, ok := y.runs[run]
	if !ok {
		return nil
	}

	for i := range r.Ranks {
		if o := y.orders.Get(run, i); o != nil && o.Node == node {
			return o.Launch.Restore
		}
	}

	return nil
}
