package yardmaster

import (
	"fmt"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// RankReport is how far a rank has come, as its node's agent tells.
type RankReport struct {
	Run       id.Run
	Rank      int
	State     job.RunState
	Started   time.Time
	Ended     time.Time
	ExitCode  int
	Signal    string
	Cause     job.Cause
	Reason    string
	Signalled bool
	Progress  *job.Progress // what the program tells of itself, nil if nothing new
}

// rankOrder is how far each state of a rank is. Reports that are not further
// than what is known are old or repeated and change nothing.
var rankOrder = map[job.RunState]int{
	job.RunOrdered: 0, job.RunPreparing: 1, job.RunRunning: 2, job.RunStopping: 2, job.RunEnded: 3,
}

// watch takes a report about a rank. A report of a run that is no longer live,
// or of a rank that is not on the node that reports it, is none of ours: the
// agent will find the run missing from its assignments and stop it.
func (y *Yard) watch(node id.Node, rep *RankReport) {
	run, ok := y.runs[rep.Run]
	if !ok || rep.Rank < 0 || rep.Rank >= len(run.Ranks) || run.Ranks[rep.Rank].Node != node {
		return
	}
	k := &run.Ranks[rep.Rank]
	if rep.Progress != nil && rep.Rank == 0 {
		y.told(y.jobs[run.Job], run, rep.Progress, rep.State != job.RunEnded)
	}
	if rep.State == job.RunPreparing && k.State == job.RunPreparing && rep.Reason != k.Reason {
		k.Reason = rep.Reason // how far its preparation is
		y.changedRun(run)
	}
	if rankOrder[rep.State] <= rankOrder[k.State] {
		return
	}
	r := y.jobs[run.Job]
	switch rep.State {
	case job.RunPreparing:
		k.State, k.Reason = job.RunPreparing, rep.Reason
		y.changedRun(run)
		if to, err := run.State.After(job.RunPrepare); err == nil {
			run.State = to
		}
	case job.RunRunning, job.RunStopping:
		if rep.State == job.RunStopping && rep.Started.IsZero() {
			return // stopped before it began: its end will be told
		}
		k.State, k.Started, k.Reason = job.RunRunning, rep.Started, ""
		if k.Started.IsZero() {
			k.Started = y.now
		}
		y.changedRun(run)
		y.started(r, run)
	case job.RunEnded:
		if !rep.Started.IsZero() && k.Started.IsZero() {
			k.Started = rep.Started
			y.started(r, run) // the report of its start was lost; it did start
		}
		y.rankEnded(r, run, k, rep)
	case job.RunOrdered:
	}
}

// started moves run and job to running once all ranks have started.
func (y *Yard) started(r *jobRecord, run *runRecord) {
	for i := range run.Ranks {
		if run.Ranks[i].Started.IsZero() {
			return
		}
	}
	if !run.Started.IsZero() {
		return
	}
	run.Started = y.now
	if to, err := run.State.After(job.RunStart); err == nil {
		run.State = to
	}
	y.changedRun(run)
	r.running.Began = y.now
	if lasts(r.Spec) > 0 || r.running.Rate > 0 {
		y.hold(r, run) // the expected end counts from the start
	}
	if d := time.Duration(r.Spec.MaxDuration); d > 0 {
		y.limit(run.ID, d)
	}
	if r.Started.IsZero() {
		r.Started = y.now
		y.changedJob(r)
	}
	if r.State == job.Starting {
		y.must(y.moveJob(r, job.EventStart, theYard, "runs on "+nodesOf(run)))
	}
}

// limit stops a run that lasts longer than it may.
func (y *Yard) limit(runID id.Run, d time.Duration) {
	run := y.runs[runID]
	run.limit = y.after(run.Started.Add(d), func(y *Yard) {
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
		first = fmt.Sprintf("%s with %s", first, count(len(gpus), "GPU"))
	}
	if n := len(run.Ranks); n > 1 {
		return fmt.Sprintf("%s and %s", first, count(n-1, "more node"))
	}
	return first
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// rankEnded writes down a rank's end, frees what it held, and when it was the
// last ends the run. One rank that fails takes the others with it.
func (y *Yard) rankEnded(r *jobRecord, run *runRecord, k *job.Rank, rep *RankReport) {
	k.State, k.Ended, k.ExitCode, k.Signal = job.RunEnded, rep.Ended, rep.ExitCode, rep.Signal
	k.Cause, k.Reason, k.Signalled = rep.Cause, rep.Reason, rep.Signalled
	if k.Ended.IsZero() {
		k.Ended = y.now
	}
	if k.Cause == job.CauseCancelled { // the agent's word for: stopped as told
		k.Cause, k.Signalled = job.CauseNone, true
	}
	if _, known := job.HandlingOf(k.Cause); !known {
		k.Cause = job.CauseNone
		if !k.Signalled && (k.ExitCode != 0 || k.Signal != "") { // else its exit is the answer to the stop
			k.Cause = job.CauseUserCode
		}
	}
	y.close(run.ID, k.Rank)
	y.release(run, k)
	y.changedRun(run)
	left := 0
	for i := range run.Ranks {
		if run.Ranks[i].State != job.RunEnded {
			left++
		}
	}
	if left == 0 {
		y.finish(r, run)
		return
	}
	if k.Cause != job.CauseNone || k.Signalled {
		y.stop(run, job.StopTerm, k.Unasked())
	}
}

// release frees what a rank held.
func (y *Yard) release(run *runRecord, k *job.Rank) {
	y.table.Release(k.Node, run.ID)
	y.touch(k.Node)
	y.use(y.jobs[run.Job], k, -1)
	if n, ok := y.nodes[k.Node]; ok {
		delete(n.runs, run.ID)
		if n.ports[run.port] == run.ID {
			delete(n.ports, run.port)
		}
		if n.Lease != "" && len(n.runs) == 0 {
			n.idle = y.now
			y.idle(n.ID)
		}
	}
	y.charge(y.jobs[run.Job], -k.Weight)
	y.freed = y.freed || len(y.promises) > 0
	if !run.planned { // else the plan knew
		y.round = true
	}
}

// must writes down a transition that the code believed possible and the table
// did not. It never happens unless there is a bug, and then it must be seen.
func (y *Yard) must(err error) {
	if err != nil {
		y.event(Event{Kind: "yard.bug", Actor: theYard, Reason: err.Error()})
	}
}
