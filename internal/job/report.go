package job

import (
	"time"

	"trainyard/internal/id"
)

// RankReport is the state of a rank as its node's agent reports it.
type RankReport struct {
	Run       id.Run
	UID       id.UID // of the run, "" if its agent does not know it
	Rank      int
	State     RunState
	Started   time.Time
	Ended     time.Time
	ExitCode  int
	Signal    string
	Cause     Cause
	Reason    string
	Signalled bool
	// Needed is how much memory the program had and asked for when it ran out of it, as far as it said; 0 if unknown.
	Needed   Bytes
	Progress *Progress // as the program reports it, nil if that is not new
	// NewestEpoch is given when a node refuses a run because it has had one of this job with the
	// same or a later epoch: the greatest that it knows.
	NewestEpoch int
	// Restore is given with CauseRestoreFailed: the checkpoint that could not be restored.
	Restore *RestoreFailure
	// Suspension is zero for a rank that was never to be suspended.
	Suspension Suspension
	// PassedEnv names the variables of the machine that the program got, separated by spaces.
	PassedEnv string
	// Digest is that of the container image that the rank got; "" before it has one, and if it runs in none.
	Digest string
	// Use is what the rank uses of its node; nil if its agent does not say. The yard decides nothing by it.
	Use *Use
	// Silent says that the rank has ended and has printed nothing: there is no log of it.
	Silent bool
	// Idle is for how many seconds nobody and nothing has used the rank; nil if its agent does not know.
	Idle *int64
	// Ready says that a rank of a run on several nodes is prepared, Probe what its agent found out about the network, and
	// Error what the output says of its failure.
	Ready bool
	Probe *Probe
	Error string
}

// RestoreFailure says which checkpoint could not be restored.
type RestoreFailure struct {
	Checkpoint id.Checkpoint `json:"checkpoint" maxLength:"100"`
	Corrupt    bool          `json:"corrupt,omitempty" doc:"its content is wrong or gone; otherwise it could not be reached"`
}

// Of returns the rank that a node reports, nil if the run has no such rank there: the agent
// will find it missing from its assignments then.
func (rep *RankReport) Of(run *Run, node id.Node) *Rank {
	if rep.Rank < 0 || rep.Rank >= len(run.Ranks) || run.Ranks[rep.Rank].Node != node {
		return nil
	}

	return &run.Ranks[rep.Rank]
}

// rankOrder is the order of the states of a rank. A report that is not ahead of what is
// known is old or repeated and changes nothing.
var rankOrder = map[RunState]int{
	RunOrdered: 0, RunPreparing: 1, RunRunning: 2, RunStopping: 2, RunEnded: 3,
}

// Past reports whether a rank is beyond a state.
func (k *Rank) Past(s RunState) bool { return rankOrder[k.State] > rankOrder[s] }

// RankStep is what is new in a report.
type RankStep int

// The steps.
const (
	RankUnchanged RankStep = iota
	RankPreparing          // or further with its preparation
	RankRunning
	RankEnded // not recorded yet: see End
)

// Take records the state of a rank and returns what is new.
func (rep *RankReport) Take(k *Rank, now time.Time) RankStep {
	if rep.State == RunPreparing && k.State == RunPreparing && rep.Reason != k.Reason {
		k.Reason = rep.Reason // how far its preparation is
		return RankPreparing
	}

	if rep.State == RunRunning && k.State == RunRunning && rep.Reason != k.Reason {
		k.Reason = rep.Reason // how far the upload of a checkpoint is
		return RankRunning
	}

	if rankOrder[rep.State] <= rankOrder[k.State] {
		return RankUnchanged
	}

	switch rep.State {
	case RunPreparing:
		k.State, k.Reason, k.PassedEnv = RunPreparing, rep.Reason, rep.PassedEnv
		rep.takeDigest(k)

		return RankPreparing
	case RunRunning, RunStopping:
		if rep.State == RunStopping && rep.Started.IsZero() {
			return RankUnchanged // stopped before it began: its end will be reported
		}

		k.State, k.Started, k.Reason, k.PassedEnv = RunRunning, rep.Started, rep.Reason, rep.PassedEnv
		rep.takeDigest(k)

		if k.Started.IsZero() {
			k.Started = now
		}

		return RankRunning
	case RunEnded:
		return RankEnded
	case RunOrdered:
	}

	return RankUnchanged
}

// takeDigest records which container image a rank got, once its agent says so.
func (rep *RankReport) takeDigest(k *Rank) {
	if rep.Digest != "" {
		k.Digest = rep.Digest
	}
}

// End records the end of a rank. An unknown cause counts as a failure of the program, unless
// the program was ordered to stop: then that caused its exit.
func (rep *RankReport) End(k *Rank, now time.Time) {
	k.State = RunEnded
	k.Ended = rep.Ended
	k.ExitCode = rep.ExitCode
	k.Signal = rep.Signal
	k.Cause = rep.Cause
	k.Reason = rep.Reason
	k.Signalled = rep.Signalled
	k.Needed = rep.Needed
	k.Silent = rep.Silent
	k.Error = rep.Error
	if rep.PassedEnv != "" {
		k.PassedEnv = rep.PassedEnv
	}

	rep.takeDigest(k)

	if k.Ended.IsZero() {
		k.Ended = now
	}

	if k.Cause == CauseCancelled { // the agent's word for: stopped as ordered
		k.Cause, k.Signalled = CauseNone, true
	}

	if _, known := HandlingOf(k.Cause); !known {
		k.Cause = CauseNone
		if !k.Signalled && (k.ExitCode != 0 || k.Signal != "") {
			k.Cause = CauseUserCode
		}
	}
}

// Begin moves a run to running once all its ranks have started, and reports whether they
// just have.
func (r *Run) Begin(now time.Time) bool {
	if !r.Started.IsZero() || !r.allStarted() {
		return false
	}

	r.Started = now
	r.Advance(RunStart)

	return true
}

// Advance applies an event to a run where its life cycle allows that: reports of ranks come
// in any order.
func (r *Run) Advance(ev RunEvent) {
	if to, err := r.State.After(ev); err == nil {
		r.State = to
	}
}

// Over reports whether all ranks of a run have ended.
func (r *Run) Over() bool {
	for i := range r.Ranks {
		if r.Ranks[i].State != RunEnded {
			return false
		}
	}

	return true
}
