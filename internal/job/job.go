// Package job holds the nouns job and run and their life cycles.
//
// A job is what a researcher submits; a run is one attempt of it on chosen
// nodes. Both change only by the transition tables in lifecycle.go, and what
// follows a failure only by the catalogue in cause.go. The package is pure: it
// decides nothing about where or when, and does nothing. The yardmaster applies
// the events, the store keeps the results, everyone else reads.
package job

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/money"
)

// Job is what a researcher submitted, with its state.
type Job struct {
	ID        id.Job
	Seq       uint64 // number of the last change; grows by one with each
	Owner     id.User
	Project   id.Project
	Spec      *Spec    // as submitted and amended; never changed, only replaced; shared
	Workdir   string   // manifest digest of the uploaded files, "" if none
	Key       string   // idempotency key of the submission, "" if none
	KeyHash   string   // digest of what was submitted under Key
	Pipeline  string   // the jobs of one file share this; "" for a single job
	Array     id.Array // the jobs that the field array made of one file share this; "" for others
	Index     int      // in that array, from 0
	State     State
	Cause     Cause  // of the last run that did not succeed
	Reason    string // why it is in this state, as a sentence for its owner
	Submitted time.Time
	Since     time.Time // in this state since
	Started   time.Time // first start of a run; zero if none yet
	Ended     time.Time
	ExitCode  int
	Epoch     int           // of the newest run; 0 before the first
	Needs     []id.Job      // must have succeeded before it may start
	Tried     map[Cause]int // ended runs by cause, for the catalogue's limits
	NotBefore time.Time     // back-off: not placed before this time
	Avoid     []id.Node     // nodes on which it failed because of the infrastructure
	Floor     Floor         // raised by escalation
	FloorOf   id.Job        // job like it that ran out of memory, which raised Floor before the first run; "" if none did
	Lacked    Floor         // memory of which it ran out: it needs more than that
	Last      id.Node       // where rank 0 of the newest run was: its checkpoints are there
	Done      float64       // units of work that its ended runs have checkpointed
	Served    float64       // GPU-seconds of its ended runs
	Stops     int           // how often a plan has stopped it
	Cost      money.Amount  // as far as it is posted
	Paid      money.Amount  // part of Cost from before its owner last resumed it with a new budget
	Override  Override      // of the place rules of its data
	Reference Reference     // GPU that its expected run time is for
	Ran       time.Duration // that its ended runs ran in all, without the waits between them
	Queued    time.Time     // when it was last queued; zero if that was at Since
	Amended   *Amendment    // what was changed after its submission and is in Spec; nil if nothing was; never changed
	Questions int           // how many its owner was asked
	Suspended time.Time     // since when its run is suspended in place; zero if it is not
}

// Override lets a job run against the place rules of its data.
type Override struct {
	Place Place     `json:"place,omitempty"` // where it may run instead; "" if nothing is overridden
	By    id.User   `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

// Floor is the least memory that a job needs after it ran out of memory.
type Floor struct {
	Memory    Bytes `json:"memory,omitempty"`
	GPUMemory Bytes `json:"gpu_memory,omitempty"` // GPUs with more memory than this
}

// QueuedSince returns since when a job that waits is queued.
func (j *Job) QueuedSince() time.Time {
	if j.Queued.IsZero() {
		return j.Since
	}

	return j.Queued
}

// Status is the word people see for the job.
func (j *Job) Status() Status {
	if j.State == Running && !j.Suspended.IsZero() {
		return StatusSuspended
	}

	return StatusOf(j.State, j.Cause)
}

// Run is one attempt of a job on chosen nodes.
type Run struct {
	ID      id.Run
	UID     id.UID // no other run has it, also if a restored yard counts its runs again
	Job     id.Job
	Epoch   int
	Seq     uint64
	State   RunState
	Ranks   []Rank // one for each node, in rank order
	Cause   Cause
	Reason  string // why here, and then why it ended
	Ordered time.Time
	Started time.Time // all ranks run
	Ended   time.Time
	Stop    StopMode // how it was ordered to stop
	StopFor Cause    // why it was ordered to stop
}

// StopMode says how a run is stopped.
type StopMode string

// The ways to stop.
const (
	StopNone StopMode = ""
	StopDump StopMode = "dump" // a snapshot; if that fails, as StopTerm
	StopTerm StopMode = "term" // SIGTERM, the grace period, then SIGKILL
	StopKill StopMode = "kill" // SIGKILL at once
)

// GPUCount returns how many GPUs the rank holds; a share of one counts as a fraction.
func (k *Rank) GPUCount() float64 {
	if k.Share > 0 {
		return k.Share
	}

	return float64(len(k.GPUs))
}

// Rank is a run's part on one node.
type Rank struct {
	Rank     int       `json:"rank"`
	Node     id.Node   `json:"node"`
	GPUs     []int     `json:"gpus,omitempty"`  // indices on that node
	Share    float64   `json:"share,omitempty"` // of its one GPU, if it shares that with others
	CPUs     CPUs      `json:"cpus"`
	Memory   Bytes     `json:"memory,omitempty"`
	State    RunState  `json:"state"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exit_code,omitempty"`
	Signal   string    `json:"signal,omitempty"`
	Cause    Cause     `json:"cause,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	// Signalled says that the program was still running when it was ordered to stop, so that
	// its exit was caused by that order.
	Signalled bool `json:"signalled,omitempty"`
	// Needed is how much memory the program had and asked for when it ran out of it; 0 if unknown. It is of the GPU or of
	// the host, as the cause says.
	Needed Bytes `json:"needed,omitempty"`
	// Silent says that it has ended and has printed nothing: there is no log of it.
	Silent bool `json:"silent,omitempty"`
	// Error is the last line of the first traceback in its output, of a run on several nodes that failed; "" if there is
	// none.
	Error string `json:"error,omitempty"`
	// PassedEnv names the variables of the machine that the program got, separated by spaces.
	PassedEnv string `json:"passed_env,omitempty"`
	// Digest is that of the container image that it got; "" if it runs in none.
	Digest string `json:"digest,omitempty"`
	// Hourly is what it costs, as quotas count it.
	Hourly money.PerHour `json:"hourly,omitempty"`
	// Weight is its fair-share weight while it runs, fixed when it was placed.
	Weight float64 `json:"weight,omitempty"`
	// Suspended is since when its program is suspended and its GPUs are lent, zero if they are not, Lent how long they
	// were lent before, and Resumed when it got them back last.
	Suspended time.Time `json:"suspended,omitzero"`
	Lent      Duration  `json:"lent,omitempty"`
	Resumed   time.Time `json:"resumed,omitzero"`
	// Suspension is what its node reported last.
	Suspension Suspension `json:"suspension,omitzero"`
}
