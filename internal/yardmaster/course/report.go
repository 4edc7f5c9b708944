package course

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Report is how far a rank has come, as its node's agent tells.
type Report struct {
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

// Of returns the rank that a node reports of, nil if the run has none like it there: it
// is none of ours then, and the agent will find it missing from its assignments.
func (rep *Report) Of(run *job.Run, node id.Node) *job.Rank {
	if rep.Rank < 0 || rep.Rank >= len(run.Ranks) || run.Ranks[rep.Rank].Node != node {
		return nil
	}
	return &run.Ranks[rep.Rank]
}

// order is how far each state of a rank is. Reports that are not further than what
// is known are old or repeated and change nothing.
var order = map[job.RunState]int{
	job.RunOrdered: 0, job.RunPreparing: 1, job.RunRunning: 2, job.RunStopping: 2, job.RunEnded: 3,
}

// Step is what a report says that is new.
type Step int

// The steps.
const (
	Nothing  Step = iota
	Prepares      // or is further with that
	Runs
	Ended // which is not written down yet: see End
)

// Take writes down how far a rank has come, and says what of that is new.
func (rep *Report) Take(k *job.Rank, now time.Time) Step {
	if rep.State == job.RunPreparing && k.State == job.RunPreparing && rep.Reason != k.Reason {
		k.Reason = rep.Reason // how far its preparation is
		return Prepares
	}
	if order[rep.State] <= order[k.State] {
		return Nothing
	}
	switch rep.State {
	case job.RunPreparing:
		k.State, k.Reason = job.RunPreparing, rep.Reason
		return Prepares
	case job.RunRunning, job.RunStopping:
		if rep.State == job.RunStopping && rep.Started.IsZero() {
			return Nothing // stopped before it began: its end will be told
		}
		k.State, k.Started, k.Reason = job.RunRunning, rep.Started, ""
		if k.Started.IsZero() {
			k.Started = now
		}
		return Runs
	case job.RunEnded:
		return Ended
	case job.RunOrdered:
	}
	return Nothing
}

// End writes down the end of a rank. A cause that the catalogue does not know counts as
// the program's own failure, unless it was told to stop: its exit is the answer then.
func (rep *Report) End(k *job.Rank, now time.Time) {
	k.State, k.Ended, k.ExitCode, k.Signal = job.RunEnded, rep.Ended, rep.ExitCode, rep.Signal
	k.Cause, k.Reason, k.Signalled = rep.Cause, rep.Reason, rep.Signalled
	if k.Ended.IsZero() {
		k.Ended = now
	}
	if k.Cause == job.CauseCancelled { // the agent's word for: stopped as told
		k.Cause, k.Signalled = job.CauseNone, true
	}
	if _, known := job.HandlingOf(k.Cause); !known {
		k.Cause = job.CauseNone
		if !k.Signalled && (k.ExitCode != 0 || k.Signal != "") {
			k.Cause = job.CauseUserCode
		}
	}
}

// Begin moves a run to running once all its ranks have started, and reports whether
// they just have.
func Begin(run *job.Run, now time.Time) bool {
	for i := range run.Ranks {
		if run.Ranks[i].Started.IsZero() {
			return false
		}
	}
	if !run.Started.IsZero() {
		return false
	}
	run.Started = now
	Move(run, job.RunStart)
	return true
}

// Move applies an event to a run where its life cycle allows that: reports of ranks come
// in any order.
func Move(run *job.Run, ev job.RunEvent) {
	if to, err := run.State.After(ev); err == nil {
		run.State = to
	}
}

// Over reports whether all ranks of a run have ended.
func Over(run *job.Run) bool {
	for i := range run.Ranks {
		if run.Ranks[i].State != job.RunEnded {
			return false
		}
	}
	return true
}
