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

// Class says who owns a node and how it is paid for.
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

// State is the state of a node.
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
	EventReport Event = "report" // its agent reported
	EventSilent Event = "silent" // no report for suspect_after
	EventLose   Event = "lose"   // no report for lost_after
	EventGone   Event = "gone"   // known to be dead
	EventRemove Event = "remove" // an operator removed it
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
	Since     time.Time // of the last change of state or cordon
	Reason    string    // why it is in this state
	Cordoned  bool      // cordoned by an operator: nothing new is placed on it
	Joined    time.Time
	Key       string   // identifies the machine's own key, so that joining twice makes one node
	Lease     id.Lease // of a provisioned node, "" for others
	Inventory Inventory
	Identity  Identity `json:"-"` // of no interest to policies
	// Reserved keeps the jobs of others than its user off the node; nil if it is not reserved now. It is stored on
	// its own.
	Reserved *Reservation `json:",omitempty"`
	// Upcoming keeps runs of others off the node that would not end before its next reservation begins; nil if none
	// begins soon.
	Upcoming *Upcoming `json:",omitempty"`
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
	Address string `json:"address"` // how other nodes of a run reach it
	// Addresses are all at which others may reach it, the fastest network first; nil if its operator declared Address, and
	// from an agent of an earlier version.
	Addresses []string `json:"addresses,omitempty" maxItems:"64"`
	// Topology is where the machine is, as its operator declared: names of places from the outside in, such as
	// hall-2/rack-7; "" if unknown.
	Topology string `json:"topology,omitempty" maxLength:"600"`
	// Labels are what jobs can ask for by name, as its operator declared.
	Labels  []string  `json:"labels,omitempty" maxItems:"32"`
	OS      string    `json:"os"`
	Kernel  string    `json:"kernel,omitempty"`
	Arch    string    `json:"arch"`
	Version string    `json:"version"` // of the agent
	CPUs    job.CPUs  `json:"cpus"`
	Memory  job.Bytes `json:"memory"`
	Disk    job.Bytes `json:"disk"`
	GPUs    []GPU     `json:"gpus,omitempty"`
	// Shares is the version of the library with which the node divides its GPUs among jobs; "" if it cannot.
	Shares string `json:"shares,omitempty" maxLength:"64"`
	// MPS says that jobs of one owner can share its GPUs through NVIDIA MPS.
	MPS bool `json:"mps,omitempty"`
	// Limits says how the node enforces what a run may use: "cgroup v2", "cgroup v1" or why it cannot.
	Limits string `json:"limits,omitempty"`
	// Draw is how many watts all GPUs together draw with 0, 1, 2, … of them in use, as
	// measured; 0 where that has not been measured yet, empty if it cannot be.
	Draw []float64 `json:"draw_w,omitempty"`
	// Restores says that its agent can restore checkpoints that another node wrote. The server sets it.
	Restores bool `json:"restores,omitempty"`
	// Suspends says that its agent can suspend programs in place. The server sets it; Snapshots says whether the machine
	// can.
	Suspends bool `json:"suspends,omitempty"`
	// Isolation is what separates the jobs of different users; "" from an agent of an earlier version.
	Isolation Isolation `json:"isolation,omitempty"`
	// MixUsers says that the node's operator allows jobs of several users at a time although nothing separates them.
	MixUsers bool `json:"mix_users,omitempty"`
	// SingleUser says that the node runs jobs of one user at a time. The server sets it; nodes of simulations do not have
	// it unless the scenario says so.
	SingleUser bool `json:"single_user,omitempty"`
	// Secrets says that its agent passes secrets on to programs. The server sets it.
	Secrets bool `json:"secrets,omitempty"`
	// Metadata says whether jobs can reach the metadata service of the cloud: "blocked", or why it is not; "" from an
	// agent of an earlier version.
	Metadata string `json:"metadata,omitempty"`
	// Activity is what its agent does at present beside running jobs, such as measuring GPUs; "" for nothing.
	Activity string `json:"activity,omitempty" maxLength:"200"`
	// Problem keeps new jobs off the node; nil if there is none.
	Problem *Problem `json:"problem,omitempty"`
	// Snapshots says which snapshots of programs the node can take; nil if its agent does not know.
	Snapshots *Snapshots `json:"snapshots,omitempty"`
	// Containers says whether the node runs jobs in containers; nil if its agent is of an earlier version.
	Containers *Containers `json:"containers,omitempty"`
	// Environments says which Python environments the node can build; nil if its agent is of an earlier version.
	Environments *Environments `json:"environments,omitempty"`
	// Shared says of each shared file system that is declared for the node whether it is there.
	Shared []Shared `json:"shared,omitempty"`
}

// Snapshots says how a node can save programs without their help.
type Snapshots struct {
	Suspend Ability `json:"suspend" doc:"move the GPU memory of a program to host memory and stop it"`
	Process Ability `json:"process" doc:"save and restore a program without GPUs"`
	GPU     Ability `json:"gpu" doc:"save and restore a program with one GPU"`
	CRIU    string  `json:"criu,omitempty" maxLength:"40" doc:"version of CRIU, if it can be used"`
}

// Containers says how a node runs jobs in containers.
type Containers struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"why it runs none"`
	Engine string `json:"engine,omitempty" maxLength:"100" doc:"name and version of the engine"`
	// HostNetwork says that containers have the network of the node, so that those of several nodes reach each other.
	HostNetwork bool `json:"host_network,omitempty" doc:"containers have the network of the node"`
}

// Contains says whether the node runs a job of one node, or of several, in containers.
func (inv *Inventory) Contains(several bool) Ability {
	switch c := inv.Containers; {
	case c == nil:
		return Ability{Reason: "its agent does not run containers"}
	case c.OK && several && !c.HostNetwork:
		return Ability{
			Reason: "its containers have networks of their own, so that those of several nodes cannot reach each other",
		}
	default:
		return Ability{OK: c.OK, Reason: c.Reason}
	}
}

// Saves says whether the node can save a program and restore it, with a GPU or without.
func (inv *Inventory) Saves(gpu bool) Ability {
	switch {
	case inv.Snapshots == nil:
		return Ability{Reason: "its agent does not take snapshots"}
	case gpu:
		return inv.Snapshots.GPU
	}

	return inv.Snapshots.Process
}

// Lends says whether the node can suspend a program in place, so that others can use its GPUs.
func (inv *Inventory) Lends() Ability {
	if inv.Snapshots == nil || !inv.Suspends {
		return Ability{Reason: "its agent does not suspend programs"}
	}

	return inv.Snapshots.Suspend
}

// Ability is whether a node can do something.
type Ability struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"why it cannot"`
}

// GPU returns the device with an index, nil if there is none.
func (inv *Inventory) GPU(index int) *GPU {
	if index >= 0 && index < len(inv.GPUs) && inv.GPUs[index].Index == index { // usually
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
	// Peak and Measured are TFLOPS in bf16, or in the best format it supports: from the table of
	// vendor specifications, and from a benchmark on this device. 0 if unknown.
	Peak     float64 `json:"peak_tflops,omitempty"`
	Measured float64 `json:"measured_tflops,omitempty"`
	// Achievable is a published measurement on this model, 0 if there is none.
	Achievable float64 `json:"achievable_tflops,omitempty"`
	Bandwidth  float64 `json:"bandwidth_gbs,omitempty"` // of its memory, GB/s
	Watts      float64 `json:"power_limit_w,omitempty"`
	Health     string  `json:"health,omitempty"` // signs of trouble now or earlier: Xid errors, ECC errors, overheating
}

// FakeMark is the suffix of the model of a declared GPU, so that every list shows it is not real.
const FakeMark = " (fake)"

// achievable is the fraction of its peak that a device reaches in practice, used where no
// measurement of its model is known.
const achievable = 0.75

// TFLOPS returns the speed of the device and its origin: "measured", "table", or "unknown"
// with 0.
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
	GPUForeign GPUState = "foreign" // used by a process outside the yard
)
