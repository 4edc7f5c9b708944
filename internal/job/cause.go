package job

import (
	"slices"
	"strings"
	"time"
)

// Cause says why a run did not succeed.
type Cause string

// The failure catalogue.
const (
	CauseNone         Cause = ""
	CauseUserCode     Cause = "user_code"     // the program itself failed
	CauseHostOOM      Cause = "host_oom"      // the memory of the node, or the job's memory limit, was exceeded
	CauseGPUOOM       Cause = "gpu_oom"       // the GPU ran out of memory
	CauseNodeLost     Cause = "node_lost"     // the node stopped responding and was declared lost
	CauseSetupFailed  Cause = "setup_failed"  // the set-up step failed
	CauseImageFailed  Cause = "image_failed"  // the container image could not be fetched
	CauseDataFailed   Cause = "data_failed"   // a dataset could not be staged on the node
	CauseLaunchFailed Cause = "launch_failed" // the node could not start the program
	CauseDiskLimit    Cause = "disk_limit"    // its folders used more of the node's disk than a run may
	// CauseSupervisorLost counts against the job's retry: on a node without isolation the program itself can be at fault.
	CauseSupervisorLost Cause = "supervisor_lost" // the process that supervises the program was killed
	CauseRestoreFailed  Cause = "restore_failed"  // the checkpoint could not be restored on the node
	CauseCancelled      Cause = "cancelled"       // cancelled by a person
	CauseTimedOut       Cause = "timed_out"       // ran longer than max_duration
	CausePreempted      Cause = "preempted"       // stopped for other work, or its node was drained
	CauseNeedFailed     Cause = "need_failed"     // a job it depends on did not succeed
)

// Next says what follows a cause.
type Next string

// What may follow.
const (
	NextRetry     Next = "retry"           // on any node that fits, up to the job's retry
	NextElsewhere Next = "retry_elsewhere" // on another node; not the job's fault, so it does not count against its retry
	NextEscalate  Next = "escalate"        // on a node with more memory, if there is one
	NextRequeue   Next = "requeue"         // back in the queue at once
	NextGiveUp    Next = "give_up"
)

// Handling is one row of the failure catalogue.
type Handling struct {
	Cause   Cause
	Status  Status // shown when the job ends with this cause
	Next    Next
	Limit   int  // how often Next is done before giving up; 0 means as the job's retry says
	Backoff bool // wait longer each time
	Meaning string
}

// Asks reports whether the owner of a job is asked what to do when nothing more is done by itself: where a person can
// make room, or remove the cause outside the program.
func (h Handling) Asks() bool { return h.Next == NextElsewhere || h.Next == NextEscalate }

// catalogue is the whole failure catalogue. It is the only place that decides this.
var catalogue = []Handling{
	{CauseUserCode, StatusFailed, NextRetry, 0, true, "the program failed"},
	{CauseHostOOM, StatusOutOfMemory, NextEscalate, 2, false, "out of memory"},
	{CauseGPUOOM, StatusOutOfMemory, NextEscalate, 2, false, "out of GPU memory"},
	{CauseNodeLost, StatusNodeFail, NextElsewhere, 8, true, "the node stopped responding"},
	{CauseSetupFailed, StatusFailedSetup, NextGiveUp, 0, false, "the set-up step failed"},
	{CauseImageFailed, StatusFailedSetup, NextElsewhere, 2, true, "the container image could not be fetched"},
	{CauseDataFailed, StatusFailedSetup, NextElsewhere, 2, true, "its data could not be staged on the node"},
	{CauseLaunchFailed, StatusNodeFail, NextElsewhere, 4, true, "the node could not start the program"},
	{CauseDiskLimit, StatusFailed, NextGiveUp, 0, false, "used more of the node's disk than a run may"},
	{CauseSupervisorLost, StatusNodeFail, NextRetry, 0, true, "the process that supervises the program was killed"},
	{CauseRestoreFailed, StatusNodeFail, NextElsewhere, 100, true, "its checkpoint could not be restored on the node"},
	{CauseCancelled, StatusCancelled, NextGiveUp, 0, false, "cancelled"},
	{CauseTimedOut, StatusTimeout, NextGiveUp, 0, false, "exceeded its max_duration"},
	{CausePreempted, StatusPreempted, NextRequeue, 0, false, "preempted by other work"},
	{CauseNeedFailed, StatusCancelled, NextGiveUp, 0, false, "a job it depends on did not succeed"},
}

// Catalogue lists the failure catalogue: for each cause what is shown and what happens next.
func Catalogue() []Handling { return slices.Clone(catalogue) }

// HandlingOf returns the catalogue's row for a cause.
func HandlingOf(c Cause) (Handling, bool) {
	for _, h := range catalogue {
		if h.Cause == c {
			return h, true
		}
	}

	return Handling{}, false
}

// Backoff returns how long to wait before attempt n (from 1), doubling from base up to limit.
func Backoff(n int, base, limit time.Duration) time.Duration {
	d := base
	for ; n > 1 && d < limit; n-- {
		d *= 2
	}

	return min(d, limit)
}

// Status is the one word that people see: the state, or for a failed job why it failed.
type Status string

// The words people see.
const (
	StatusPending     Status = "PENDING"
	StatusStarting    Status = "STARTING"
	StatusRunning     Status = "RUNNING"
	StatusSuspended   Status = "SUSPENDED" // running, and suspended in place to lend its GPUs
	StatusRecovering  Status = "RECOVERING"
	StatusPausing     Status = "PAUSING"
	StatusPaused      Status = "PAUSED"
	StatusCancelling  Status = "CANCELLING"
	StatusSucceeded   Status = "SUCCEEDED"
	StatusFailed      Status = "FAILED"
	StatusFailedSetup Status = "FAILED_SETUP"
	StatusOutOfMemory Status = "OUT_OF_MEMORY"
	StatusTimeout     Status = "TIMEOUT"
	StatusNodeFail    Status = "NODE_FAIL"
	StatusPreempted   Status = "PREEMPTED"
	StatusCancelled   Status = "CANCELLED"
)

// stateStatus is the word for each state; an ended job's cause may give a finer one.
var stateStatus = map[State]Status{
	Pending: StatusPending, Starting: StatusStarting, Running: StatusRunning, Recovering: StatusRecovering,
	Pausing: StatusPausing, Paused: StatusPaused, Cancelling: StatusCancelling,
	Succeeded: StatusSucceeded, Failed: StatusFailed, Cancelled: StatusCancelled,
}

// StatusOf returns the word for a job in this state, and with this cause if it failed.
func StatusOf(s State, c Cause) Status {
	if s == Failed {
		if h, ok := HandlingOf(c); ok {
			return h.Status
		}
	}

	return stateStatus[s]
}

// Statuses lists every word that people see, in the order of a job's life.
func Statuses() []Status {
	return []Status{
		StatusPending, StatusStarting, StatusRunning, StatusSuspended, StatusRecovering, StatusPausing, StatusPaused,
		StatusCancelling, StatusSucceeded, StatusFailed, StatusFailedSetup, StatusOutOfMemory, StatusTimeout,
		StatusNodeFail, StatusPreempted, StatusCancelled,
	}
}

// StateWords lists the words by which jobs are chosen: every word that people see, in lower case. All states are among
// them.
func StateWords() []string {
	var words []string
	for _, s := range Statuses() {
		words = append(words, strings.ToLower(string(s)))
	}

	return words
}

// FailedAs returns the causes with which a failed job shows this word.
func FailedAs(s Status) []Cause {
	var causes []Cause
	for _, h := range catalogue {
		if h.Status == s {
			causes = append(causes, h.Cause)
		}
	}

	return causes
}
