package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// RankReport is the state of a rank as its node's agent reports it.
type RankReport = job.RankReport

// watch handles a report about a rank. A report about a run that is no longer live is
// ignored: the agent will find the run missing from its assignments and stop it.
func (y *Yard) watch(node id.Node, rep *RankReport, marks bool) {
	run, ok := y.runs[rep.Run]
	if !ok || !y.isRun(run, rep, marks) {
		return
	}

	k := rep.Of(&run.Run, node)
	if k == nil {
		return
	}

	// The clock of a node may be wrong: what follows from these times is decided by the server's.
	if n, known := y.nodes.Get(node); known {
		rep.Started = n.Time(rep.Started, run.Ordered, y.now)
		rep.Ended = n.Time(rep.Ended, run.Ordered, y.now)
	}

	r := y.jobs[run.Job]
	if rep.Progress != nil && rep.Rank == 0 {
		y.recordProgress(r, run, rep.Progress, rep.State != job.RunEnded)
	}

	if len(run.Ranks) > 1 {
		y.gather(run, rep)
	}

	switch rep.Take(k, y.now) {
	case job.RankUnchanged:
	case job.RankPreparing:
		run.Advance(job.RunPrepare)
		y.changedRun(run)
	case job.RankRunning:
		y.changedRun(run)
		y.markRunning(r, run)
	case job.RankEnded:
		if rep.NewestEpoch >= run.Epoch && rep.Started.IsZero() {
			run.newestEpoch = max(run.newestEpoch, rep.NewestEpoch)
		}

		if !rep.Started.IsZero() && k.Started.IsZero() {
			k.Started = rep.Started
			y.markRunning(r, run) // the report of its start was lost
		}

		y.noteCorrupt(r, run, k, rep)
		y.rankEnded(r, run, k, rep)
	}

	if rep.State == job.RunRunning && k.State == job.RunRunning {
		y.watchSuspension(r, run, k, &rep.Suspension)
		y.watchIdle(r, run, rep)
	}

	if run.gang != nil {
		y.startGang(r, run)
	}
}

// recordProgress handles the progress that a program reports.
func (y *Yard) recordProgress(r *jobRecord, run *runRecord, p *job.Progress, works bool) {
	if r.running == nil || run.Suspended() {
		return
	}

	before := *r.outlook
	y.touch(r)
	changed := r.running.RecordProgress(y.now, run.Started, p, works, y.nodes.Of)

	if !r.outlook.SameLessons(&before) {
		y.changedObserved(r)
		y.bookNodes(r, run)
	}

	if changed {
		y.bookNodes(r, run)
		y.planDue = true
	}

	if works {
		y.observeBeside(r, run, r.outlook.Done)
	}
}

// markRunning moves run and job to running once all ranks have started.
func (y *Yard) markRunning(r *jobRecord, run *runRecord) {
	if !run.Begin(y.now) {
		return
	}

	y.changedRun(run)

	r.running.Began = y.now
	if r.running.Takes > 0 || r.running.Rate > 0 {
		y.bookNodes(r, run) // the expected end counts from the start
	}

	if d := time.Duration(r.Spec.MaxDuration); d > 0 {
		y.setTimeout(run.ID, d)
	}

	if r.Started.IsZero() {
		r.Started = y.now
		y.changedJob(r)
	}

	if r.State == job.Starting {
		y.must(y.moveJob(r, job.EventStart, theYard, "running on "+nodesOf(run)))
	}
}

// setTimeout stops a run when it exceeds its max_duration.
func (y *Yard) setTimeout(runID id.Run, d time.Duration) {
	run := y.runs[runID]
	run.timeout = y.after(run.WorkingSince().Add(d), func() {
		if run, ok := y.runs[runID]; ok && run.Stop == job.StopNone {
			y.stop(run, job.StopTerm, job.CauseTimedOut)
			y.event(Event{Kind: "run.timed_out", Actor: theYard, Owner: y.jobs[run.Job].Owner, Job: run.Job, Run: runID,
				Reason: fmt.Sprintf("reached its max_duration of %s; being stopped", job.Duration(d))})
		}
	})
}

// nodesOf names the nodes of a run.
func nodesOf(run *runRecord) string {
	first := string(run.Ranks[0].Node)
	if gpus := run.Ranks[0].GPUs; len(gpus) > 0 {
		first = fmt.Sprintf("%s with %s", first, humanize.Count(len(gpus), "GPU"))
	}

	if n := len(run.Ranks); n > 1 {
		return fmt.Sprintf("%s and %s", first, humanize.Count(n-1, "more node"))
	}

	return first
}

// rankEnded records the end of a rank and frees what it held. If it was the last rank, the run
// ends; if it failed, the other ranks are stopped.
func (y *Yard) rankEnded(r *jobRecord, run *runRecord, k *job.Rank, rep *RankReport) {
	rep.End(k, y.now)
	y.orders.Close(run.ID, k.Rank)
	y.release(run, k)
	y.changedRun(run)

	if run.Over() {
		y.finish(r, run)
		return
	}

	if k.Cause != job.CauseNone || k.Signalled {
		y.stop(run, job.StopTerm, k.StopCause())
		y.killGang(run)
	}
}

// release frees what a rank held.
func (y *Yard) release(run *runRecord, k *job.Rank) {
	y.nodes.Rooms.Release(k.Node, run.ID)
	y.meterChanged(k.Node)
	r := y.jobs[run.Job]
	if !k.Lends() { // its use ended when it was suspended
		y.countUse(r, k, -1)
		y.people.Charge(y.now, r.Owner, r.Project, -k.Weight)
	}

	if n, ok := y.nodes.Get(k.Node); ok {
		n.Leave(run.ID, run.port)
		y.nodes.CheckTwins(y.now, n, false)

		if len(n.Runs) == 0 {
			n.Idle = y.now
		}

		if n.Lease != "" && len(n.Runs) == 0 {
			y.nodeUsed(n)

			if run.stoppedByPlan && r.promise != nil {
				y.keepOrigin(n.ID, r)
			}

			y.checkIdle(n.ID)
		}
	}

	y.promisesDue = y.promisesDue || len(y.promises) > 0
	if !run.stoppedByPlan { // otherwise the plan took it into account
		y.planDue, y.freed = true, true
	}
}
