// Package fleet holds the nouns node and GPU, their life cycle, and the table
// of all nodes with what is free on them.
//
// The package is pure. The yardmaster keeps the table and applies the events;
// policies see a copy of it in their view. It decides nothing about which job
// goes where.
package fleet

import (
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Class says whose a node is and how it is paid for.
type Class string

// The classes.
const (
	Local    Class = "local"    // the team's own machine
	Reserved Class = "reserved" // a cloud machine paid for anyway
	OnDemand Class = "ondemand" // a cloud machine provisioned by the hour
)

// Classes lists every class, the one to fill first in front.
func Classes() []Class { return []Class{Local, Reserved, OnDemand} }

// Words names a node of the class.
func (c Class) Words() string {
	switch c {
	case Local:
		return "a local node"
	case Reserved:
		return "a reserved node"
	case OnDemand:
		return "an on-demand node"
	}

	return "a node"
}

// Allows reports whether a place rule lets a job run on nodes of this class.
func (c Class) Allows(p job.Place) bool {
	switch p {
	case job.PlaceLocal:
		return c == Local
	case job.PlaceCloud:
		return c == Reserved || c == OnDemand
	case job.PlaceAny:
		return true
	case job.PlaceNowhere:
	}

	return false
}

// State is where a node stands with the yard.
type State string

// The states of a node.
const (
	Ready   State = "ready"   // its agent reports
	Suspect State = "suspect" // silent for a while; its runs continue, nothing new is placed
	Lost    State = "lost"    // silent for too long; its runs were declared lost
	Removed State = "removed" // removed by an operator; may not come back
)

// Event is something that happens to a node.
type Event string

// The events of a node's life.
const (
	EventReport Event = "report" // its agent was heard
	EventSilent Event = "silent" // not heard for suspect_after
	EventLose   Event = "lose"   // not heard for lost_after
	EventGone   Event = "gone"   // known to be dead
	EventRemove Event = "remove" // an operator took it out
)

var transitions = map[State]map[Event]State{
	Ready:   {EventReport: Ready, EventSilent: Suspect, EventGone: Lost, EventRemove: Removed},
	Suspect: {EventReport: Ready, EventLose: Lost, EventGone: Lost, EventRemove: Removed},
	Lost:    {EventReport: Ready, EventRemove: Removed},
	Removed: {},
}

// States lists every state of a node.
func States() []State { return []State{Ready, Suspect, Lost, Removed} }

// Events lists every event of a node.
func Events() []Event { return []Event{EventReport, EventSilent, EventLose, EventGone, EventRemove} }

// After returns the state after an event, or a conflict if it cannot happen.
func (s State) After(ev Event) (State, error) {
	to, ok := transitions[s][ev]
	if !ok {
		return s, fault.New(fault.Conflict, "node_state", "a node in state %s cannot %s", s, ev)
	}

	return to, nil
}

// Node is a machine that can run jobs.
type Node struct {
	ID        id.Node
	Seq       uint64
	Class     Class
	Pool      string
	State     State
	Since     time.Time // in this state, drained or not, since
	Reason    string    // why it is in this state
	Cordoned  bool      // cordoned by an operator: nothing new is placed on it
	Joined    time.Time
	Key       string   // names the machine's own key, so that joining twice makes one node
	Lease     id.Lease // of a provisioned node, "" for others
	Inventory Inventory
}

// GPUSize returns the memory of the node's GPUs, of the first if they differ, and 0 if it has none.
func (n *Node) GPUSize() job.Bytes {
	if len(n.Inventory.GPUs) == 0 {
		return 0
	}

	return n.Inventory.GPUs[0].Memory
}

// Inventory is what a node's agent found on it.
type Inventory struct {
	Address string    `json:"address"` // how other nodes of a run reach it
	OS      string    `json:"os"`
	Kernel  string    `json:"kernel,omitempty"`
	Arch    string    `json:"arch"`
	Version string    `json:"version"` // of the agent
	CPUs    job.CPUs  `json:"cpus"`
	Memory  job.Bytes `json:"memory"`
	Disk    job.Bytes `json:"disk"`
	GPUs    []GPU     `json:"gpus,omitempty"`
	// Limits says how the node enforces what a run may use: "cgroup v2", "cgroup v1" or why it cannot.
	Limits string `json:"limits,omitempty"`
	// Draw is how many watts all GPUs together draw with 0, 1, 2, … of them in use, as
	// measured; 0 where that has not been seen yet, nothing if it cannot be measured.
	Draw []float64 `json:"draw_w,omitempty"`
}

// GPU returns the device with an index, nil if there is none.
func (inv *Inventory) GPU(index int) *GPU {
	if index >= 0 && index < len(inv.GPUs) && inv.GPUs[index].Index == index { // as a rule
		return &inv.GPUs[index]
	}

	for i := range inv.GPUs {
		if inv.GPUs[i].Index == index {
			return &inv.GPUs[i]
		}
	}

	return nil
}

// GPU is one device.
type GPU struct {
	Index  int       `json:"index"`
	UUID   string    `json:"uuid"`
	Model  string    `json:"model"`
	Memory job.Bytes `json:"memory"`
	Driver string    `json:"driver,omitempty"`
	Fake   bool      `json:"fake,omitempty"` // declared, not real: for evaluation and tests
	Error  string    `json:"error,omitempty"`
	// Peak and Measured are bf16 TFLOPS, or of the next narrower number it has: by the
	// table of what vendors say, and by a probe on this very device. 0 if unknown.
	Peak     float64 `json:"peak_tflops,omitempty"`
	Measured float64 `json:"measured_tflops,omitempty"`
	// Achievable is what others have measured on its kind, 0 if that is not known.
	Achievable float64 `json:"achievable_tflops,omitempty"`
	Bandwidth  float64 `json:"bandwidth_gbs,omitempty"` // of its memory, GB/s
	Watts      float64 `json:"power_limit_w,omitempty"`
	Health     string  `json:"health,omitempty"` // evidence that something is wrong or was: Xid, ECC, heat
}

// FakeMark ends the model of a declared GPU, so that every list shows what it is.
const FakeMark = " (fake)"

// achievable is which part of its peak a device reaches in practice, where
// nobody has measured its kind.
const achievable = 0.75

// TFLOPS returns how fast the device is and how that is known: "measured", "table",
// or "unknown" with 0.
func (g *GPU) TFLOPS() (speed float64, origin string) {
	switch {
	case g.Measured > 0:
		return g.Measured, "measured"
	case g.Achievable > 0:
		return g.Achievable, "table"
	case g.Peak > 0:
		return g.Peak * achievable, "table"
	}

	return 0, "unknown"
}

// GPUState is what a GPU is doing.
type GPUState string

// The states of a GPU.
const (
	GPUIdle    GPUState = "idle"
	GPURunning GPUState = "running"
	GPUError   GPUState = "error"
	GPUForeign GPUState = "foreign" // used by a process that is not the yard's
)
