package yardmaster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
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

	c.Work = y.workIn(r, &c)
	y.describeImage(r, &c)

	entry, err := y.checkpoints.Add(y.now, &r.Job, c, r.restoring())
	if err != nil {
		return nil, err
	}

	saved := r.outlook.Saved.Travels
	y.updateSaved(r)
	y.updateNeed(r)

	late := r.run == nil && entry.State == checkpoint.Stored // its last part came after the run had ended
	if late && !r.State.Final() && !y.cfg.AssumeSaved {
		r.Done, r.outlook.Done = r.outlook.Saved.Work, r.outlook.Saved.Work
		y.changedJob(r)
	}

	if entry.State == checkpoint.Stored {
		y.checkpointStored(r, &entry)
	}

	if late && r.item != nil && entry.Image != (fleet.Image{}) {
		y.requeue(r) // it continues only where the snapshot can be restored
	}

	if !saved && r.run != nil && y.relocates() && y.nodes.HomeFree(y.need(r)) {
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

// workIn returns how much work of a job is in a checkpoint that its newest run has written.
func (y *Yard) workIn(r *jobRecord, c *checkpoint.Checkpoint) float64 {
	if r.running == nil {
		return r.Done
	}

	until := y.now
	if !r.run.stopOrdered.IsZero() {
		until = r.run.stopOrdered // since then it only saves
	}

	return savedWork(until, r.Done, r.running, c)
}

// savedWork returns the units of work in a checkpoint of a running job that had done so much before. That is its
// step, if the program counts its work in steps. Otherwise it is what was done when it was written: until now the
// run is assumed to have worked at an even rate.
func savedWork(now time.Time, before float64, rn *place.Running, c *checkpoint.Checkpoint) float64 {
	done := rn.Done(now)
	from := rn.Began
	if s := rn.Outlook.Speed; s != nil {
		from = from.Add(time.Duration(s.Start))
	}

	estimate := before
	switch {
	case rn.Began.IsZero() || !c.Written.After(from):
	case !c.Written.Before(now):
		estimate = done
	default:
		estimate += max(done-before, 0) * float64(c.Written.Sub(from)) / float64(now.Sub(from))
	}

	// A step that is far from the estimate counts something else than the program's progress does.
	if step := float64(c.Step); step >= before && step >= estimate/2 && step <= math.Ceil(done) {
		return step
	}

	return estimate
}

// updateSaved lets policies know the newest checkpoint of a job, or that what it saves stays where it is.
func (y *Yard) updateSaved(r *jobRecord) {
	if newest := y.checkpoints.Newest(r.ID); newest != nil {
		r.outlook.Saved = job.Saved{
			Size: newest.Size, At: newest.Written, Step: newest.Step, Work: newest.Work, Travels: true,
			Shared: newest.Shared(),
		}

		return
	}

	r.outlook.Saved = job.Saved{Stays: r.outlook.Resumes && y.stays(r)}
}

// stays reports whether what a job without a checkpoint in the catalogue has saved, or will save, is on its nodes
// alone.
func (y *Yard) stays(r *jobRecord) bool {
	if y.cfg.AssumeSaved {
		return false
	}

	if r.run == nil {
		return r.Last != "" && r.Done > 0
	}

	return slices.ContainsFunc(r.run.Ranks, func(k job.Rank) bool { return !y.restores(k.Node) })
}

// restores reports whether a node's agent saves and restores checkpoints that travel.
func (y *Yard) restores(name id.Node) bool {
	n := y.nodes.Of(name)
	return n != nil && n.Inventory.Restores
}

// workLost returns how much work a job loses that is started where it cannot continue from what it has saved.
func (y *Yard) workLost(r *jobRecord, s *place.Start) float64 {
	newest, unfit := y.newestOn(r, s)
	if len(unfit) > 0 && !y.cfg.AssumeSaved {
		return max(r.Done-workOf(newest), 0)
	}

	carried := newest != nil &&
		!slices.ContainsFunc(s.Allocations, func(a place.Allocation) bool { return !y.restorable(a.Node, newest) })
	if carried || y.cfg.AssumeSaved || r.Last == "" || r.Last == s.Allocations[0].Node {
		return 0
	}

	return r.Done
}

// workOf returns the work in a checkpoint, 0 in none.
func workOf(c *checkpoint.Checkpoint) float64 {
	if c == nil {
		return 0
	}

	return c.Work
}

// forgetWork records that a job has to begin anew, or from an earlier checkpoint than its newest.
func (y *Yard) forgetWork(r *jobRecord, s *place.Start) {
	newest, unfit := y.newestOn(r, s)
	if len(unfit) > 0 {
		r.Done, r.outlook.Done, r.outlook.At = workOf(newest), workOf(newest), time.Time{}
		return
	}

	to := s.Allocations[0].Node
	r.Done, r.outlook.Done, r.outlook.At = 0, 0, time.Time{}
	y.event(Event{
		Kind: "checkpoint.left", Actor: theYard, Owner: r.Owner, Job: r.ID, Node: to,
		Reason: fmt.Sprintf("begins anew on node %s: what it has saved is on node %s", to, r.Last),
	})
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
		y.updateNeed(r)
		r.Done, r.outlook.Done = r.outlook.Saved.Work, r.outlook.Saved.Work
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
