package job

import (
	"trainyard/internal/fault"
)

// State is where a job stands. Every state is reached by the table below only.
type State string

// The states of a job.
const (
	Pending    State = "pending"    // waits for its turn, for other jobs, or for a node
	Starting   State = "starting"   // has a place; its nodes prepare the run
	Running    State = "running"    // its processes run
	Recovering State = "recovering" // a run ended early; waits to run again
	Pausing    State = "pausing"    // asked to stop so that it can be resumed
	Paused     State = "paused"     // holds no node until it is resumed
	Cancelling State = "cancelling" // asked to stop for good
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
)

// Event is something that happens to a job.
type Event string

// The events of a job's life.
const (
	EventPlace   Event = "place"   // the plan gave it nodes
	EventStart   Event = "start"   // all its processes run
	EventSucceed Event = "succeed" // its run ended well
	EventRetry   Event = "retry"   // its run ended early and another will follow
	EventFail    Event = "fail"    // its run ended badly and no other will follow
	EventPause   Event = "pause"   // someone asked to pause it
	EventResume  Event = "resume"  // someone asked to go on
	EventCancel  Event = "cancel"  // someone asked to end it
	EventStopped Event = "stopped" // its run has stopped as asked
)

// transitions is the whole life of a job. A pair that is not here cannot happen.
var transitions = map[State]map[Event]State{
	Pending:    {EventPlace: Starting, EventPause: Paused, EventCancel: Cancelled, EventFail: Failed},
	Recovering: {EventPlace: Starting, EventPause: Paused, EventCancel: Cancelled, EventFail: Failed},
	Starting:   {EventStart: Running, EventSucceed: Succeeded, EventRetry: Recovering, EventFail: Failed, EventPause: Pausing, EventCancel: Cancelling},
	Running:    {EventSucceed: Succeeded, EventRetry: Recovering, EventFail: Failed, EventPause: Pausing, EventCancel: Cancelling},
	Pausing:    {EventStopped: Paused, EventSucceed: Succeeded, EventFail: Failed, EventCancel: Cancelling},
	Paused:     {EventResume: Pending, EventCancel: Cancelled},
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
	return []Event{EventPlace, EventStart, EventSucceed, EventRetry, EventFail, EventPause, EventResume, EventCancel, EventStopped}
}

// Final reports whether nothing can happen to a job in this state any more.
func (s State) Final() bool { return len(transitions[s]) == 0 }

// Waiting reports whether a job in this state may be given a place.
func (s State) Waiting() bool { return s == Pending || s == Recovering }

// Live reports whether a job in this state has a run that holds nodes.
func (s State) Live() bool {
	return s == Starting || s == Running || s == Pausing || s == Cancelling
}

// After returns the state after an event, or a conflict if it cannot happen.
func (s State) After(ev Event) (State, error) {
	to, ok := transitions[s][ev]
	if !ok {
		return s, fault.New(fault.Conflict, "job_state", "a job that is %s cannot %s", s, ev)
	}
	return to, nil
}

// RunState is where a run stands. A rank of a run, its part on one node, goes
// through the same states.
type RunState string

// The states of a run.
const (
	RunOrdered   RunState = "ordered"   // its nodes have been told
	RunPreparing RunState = "preparing" // files are fetched, set-up runs
	RunRunning   RunState = "running"
	RunStopping  RunState = "stopping" // told to stop, not gone yet
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
		return s, fault.New(fault.Conflict, "run_state", "a run that is %s cannot %s", s, ev)
	}
	return to, nil
}
