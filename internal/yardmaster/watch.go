package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// RankReport is how far a rank has come, as its node's agent tells.
type RankReport = job.RankReport

// watch takes a report about a rank. A report of a run that is no longer live is none
// of ours: the agent will find the run missing from its assignments and stop it.
func (y *Yard) watch(node id.Node, rep *RankReport) {
	run, ok := y.runs[rep.Run]
	if !ok {
		return
	}

	k := rep.Of(&run.Run, node)
	if k == nil {
		return
	}

	r := y.jobs[run.Job]
	if rep.Progress != nil && rep.Rank == 0 {
		y.recordProgress(r, run, rep.Progress, rep.State != job.RunEnded)
	}

	switch rep.Take(k, y.now) {
	case job.RankUnchanged:
	case job.RankPreparing:
		run.Advance(job.RunPrepare)
		y.changedRun(run)
	case job.RankRunning:
		y.changedRun(run)
		y.started(r, run)
	case job.RankEnded:
		if !rep.Started.IsZero() && k.Started.IsZero() {
			k.Started = rep.Started
			y.started(r, run) // the report of its start was lost; it did start
		}

		y.rankEnded(r, run, k, rep)
	}
}

// recordProgress takes what a program tells of itself.
func (y *Yard) recordProgress(r *jobRecord, run *runRecord, p *job.Progress, works bool) {
	if r.running != nil && r.running.Told(y.now, run.Started, p, works, y.nodes.Of) {
		y.hold(r, run)
		y.round = true
	}
}

// started moves run and job to running once all ranks have started.
func (y *Yard) started(r *jobRecord, run *runRecord) {
	if !run.Begin(y.now) {
		return
	}

	y.changedRun(run)

	r.running.Began = y.now
	if r.Spec.DeclaredDuration() > 0 || r.running.Rate > 0 {
		y.hold(r, run) // the expected end counts from the start
	}

	if d := time.Duration(r.Spec.MaxDuration); d > 0 {
		y.setTimeout(run.ID, d)
	}

	if r.Started.IsZero() {
		r.Started = y.now
		y.changedJob(r)
	}

	if r.State == job.Starting {
		y.must(y.moveJob(r, job.EventStart, theYard, "runs on "+nodesOf(run)))
	}
}

// setTimeout stops a run that lasts longer than it may.
func (y *Yard) setTimeout(runID id.Run, d time.Duration) {
	run := y.runs[runID]
	run.timeout = y.after(run.Started.Add(d), func() {
		if run, ok := y.runs[runID]; ok && run.Stop == job.StopNone {
			y.stop(run, job.StopTerm, job.CauseTimedOut)
			y.event(Event{Kind: "run.timed_out", Actor: theYard, Owner: y.jobs[run.Job].Owner, Job: run.Job, Run: runID,
				Reason: fmt.Sprintf("it ran for its max_duration of %s and is being stopped", job.Duration(d))})
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

// rankEnded writes down a rank's end, frees what it held, and when it was the
// last ends the run. One rank that fails takes the others with it.
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
		y.stop(run, job.StopTerm, k.Unasked())
	}
}

// release frees what a rank held.
func (y *Yard) release(run *runRecord, k *job.Rank) {
	y.nodes.Rooms.Release(k.Node, run.ID)
	y.meterChanged(k.Node)
	r := y.jobs[run.Job]
	y.use(r, k, -1)

	if n, ok := y.nodes.Get(k.Node); ok {
		n.Leave(run.ID, run.port)

		if n.Lease != "" && len(n.Runs) == 0 {
			n.Idle = y.now
			y.checkIdle(n.ID)
		}
	}

	y.people.Charge(y.now, r.Owner, r.Project, -k.Weight)

	y.freed = y.freed || len(y.promises) > 0
	if !run.stoppedByPlan { // else the plan knew
		y.round = true
	}
}
