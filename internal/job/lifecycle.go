package job

import (
	"trainyard/internal/fault"
)

// State is the state of a job. It changes only by the table below.
type State string

// The states of a job.
const (
	Pending    State = "pending"    // queued: waits for other jobs or for a node
	Starting   State = "starting"   // placed; its nodes prepare the run
	Running    State = "running"    // its processes run
	Recovering State = "recovering" // a run ended early; waits to run again
	Pausing    State = "pausing"    // stopping, to be resumed later
	Paused     State = "paused"     // holds no node until it is resumed
	Cancelling State = "cancelling" // stopping for good
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
)

// Event is something that happens to a job.
type Event string

// The events of a job's life.
const (
	EventPlace   Event = "place"   // it was placed on nodes
	EventStart   Event = "start"   // all its processes run
	EventSucceed Event = "succeed" // its run succeeded
	EventRetry   Event = "retry"   // its run ended early and another will follow
	EventFail    Event = "fail"    // its run failed and no other will follow
	EventPause   Event = "pause"   // someone paused it
	EventResume  Event = "resume"  // someone resumed it
	EventCancel  Event = "cancel"  // someone cancelled it
	EventStopped Event = "stopped" // its run has stopped on request
	EventHold    Event = "hold"    // its run failed, and its owner decides what follows
)

// transitions is the life cycle of a job. Any other pair is an error.
var transitions = map[State]map[Event]State{
	Pending:    {EventPlace: Starting, EventPause: Paused, EventCancel: Cancelled, EventFail: Failed},
	Recovering: {EventPlace: Starting, EventPause: Paused, EventCancel: Cancelled, EventFail: Failed},
	Starting: {
		EventStart:   Running,
		EventSucceed: Succeeded,
		EventRetry:   Recovering,
		EventFail:    Failed,
		EventPause:   Pausing,
		EventCancel:  Cancelling,
		EventHold:    Paused,
	},
	Running: {
		EventSucceed: Succeeded,
		EventRetry:   Recovering,
		EventFail:    Failed,
		EventPause:   Pausing,
		EventCancel:  Cancelling,
		EventHold:    Paused,
	},
	Pausing:    {EventStopped: Paused, EventSucceed: Succeeded, EventFail: Failed, EventCancel: Cancelling},
	Paused:     {EventResume: Pending, EventCancel: Cancelled, EventFail: Failed},
	Cancelling: {EventStopped: Cancelled, EventSucceed: Succeeded, EventFail: Failed},
	Succeeded:  {},
	Failed:     {},
	Cancelled:  {},
}

// States lists every state in the order of a job's life.
func States() []State {
	return []State{Pending, Starting, Running, Recovering, Pausing, Paused, Cancelling, Succeeded, Failed, Cancelled}
}

// Events lists every event.
func Events() []Event {
	return []Event{
		EventPlace,
		EventStart,
		EventSucceed,
		EventRetry,
		EventFail,
		EventPause,
		EventResume,
		EventCancel,
		EventStopped,
		EventHold,
	}
}

// Final reports whether a job in this state has ended.
func (s State) Final() bool { return len(transitions[s]) == 0 }

// Waiting reports whether a job in this state may be placed.
func (s State) Waiting() bool { return s == Pending || s == Recovering }

// Live reports whether a job in this state has a run that holds nodes.
func (s State) Live() bool {
	return s == Starting || s == Running || s == Pausing || s == Cancelling
}

// After returns the state after an event, or a conflict if it cannot happen.
func (s State) After(ev Event) (State, error) {
	to, ok := transitions[s][ev]
	if !ok {
		return s, fault.New(fault.Conflict, "job_state", "the job %s and cannot %s", stateClauses[s], eventClauses[ev])
	}

	return to, nil
}

// After returns the state of the job after an event, or a conflict that names the job
// if the event cannot happen.
func (j *Job) After(ev Event) (State, error) {
	to, ok := transitions[j.State][ev]
	if !ok {
		return j.State, fault.New(fault.Conflict, "job_state", "job %s %s and cannot %s",
			j.ID, stateClauses[j.State], eventClauses[ev])
	}

	return to, nil
}

// stateClauses says in a sentence about a job in which state it is.
var stateClauses = map[State]string{
	Pending:    "is pending",
	Starting:   "is starting",
	Running:    "is running",
	Recovering: "is waiting to be retried",
	Pausing:    "is being paused",
	Paused:     "is paused",
	Cancelling: "is being cancelled",
	Succeeded:  "has already succeeded",
	Failed:     "has already failed",
	Cancelled:  "has already been cancelled",
}

// eventClauses says in a sentence about a job what cannot happen to it.
var eventClauses = map[Event]string{
	EventPlace:   "be placed",
	EventStart:   "start",
	EventSucceed: "succeed",
	EventRetry:   "be retried",
	EventFail:    "fail",
	EventPause:   "be paused",
	EventResume:  "be resumed",
	EventCancel:  "be cancelled",
	EventStopped: "stop",
	EventHold:    "be held",
}

// RunState is the state of a run. A rank of a run, its part on one node, has the
// same states.
type RunState string

// The states of a run.
const (
	RunOrdered   RunState = "ordered"   // sent to its nodes
	RunPreparing RunState = "preparing" // files are fetched, set-up runs
	RunRunning   RunState = "running"
	RunStopping  RunState = "stopping" // a stop was requested and it has not ended yet
	RunEnded     RunState = "ended"
)

// RunEvent is something that happens to a run.
type RunEvent string

// The events of a run's life.
const (
	RunPrepare RunEvent = "prepare"
	RunStart   RunEvent = "start"
	RunStop    RunEvent = "stop"
	RunEnd     RunEvent = "end"
)

var runTransitions = map[RunState]map[RunEvent]RunState{
	RunOrdered:   {RunPrepare: RunPreparing, RunStart: RunRunning, RunStop: RunStopping, RunEnd: RunEnded},
	RunPreparing: {RunStart: RunRunning, RunStop: RunStopping, RunEnd: RunEnded},
	RunRunning:   {RunStop: RunStopping, RunEnd: RunEnded},
	RunStopping:  {RunEnd: RunEnded},
	RunEnded:     {},
}

// RunStates lists every state of a run in order.
func RunStates() []RunState {
	return []RunState{RunOrdered, RunPreparing, RunRunning, RunStopping, RunEnded}
}

// RunEvents lists every event of a run.
func RunEvents() []RunEvent { return []RunEvent{RunPrepare, RunStart, RunStop, RunEnd} }

// After returns the state after an event, or a conflict if it cannot happen.
func (s RunState) After(ev RunEvent) (RunState, error) {
	to, ok := runTransitions[s][ev]
	if !ok {
		return s, fault.New(fault.Conflict, "run_state", "a run in state %s cannot %s", s, ev)
	}

	return to, nil
}
