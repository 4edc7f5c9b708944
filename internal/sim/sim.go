// Package sim is the other shell around the yardmaster: virtual time instead of
// the clock, modelled nodes and jobs instead of agents and programs.
//
// The yardmaster, the policies and place.Check are the very ones that the server
// runs; nothing of what is decided is written here. A run of the simulator is a
// loop over events in order of time, then of their making. The same seed gives
// the same decisions byte by byte. Workloads come from sim/trace, texts that a
// person writes from sim/scenario, tables and plots from sim/report.
package sim

import (
	"io"
	"math"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/scaling"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Epoch is the beginning of virtual time.
func Epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Job is a job of a workload: what its owner submits, and what it is really like.
type Job struct {
	Name  string
	At    time.Duration // submitted so long after the beginning
	Owner id.User
	Spec  *job.Spec // as submitted; may be shared between jobs and is never changed

	// Duration is how long it runs on any node, for a job of a trace that records only
	// that. 0 means that its speed decides.
	Duration time.Duration
	// Reference is the GPU that Duration is for: on others it takes as long as the rule for expected run
	// times says. Nil means that it takes equally long everywhere.
	Reference *job.Reference
	// Speed is how fast it really is, and how much work it really has, where that
	// is not what its spec says. Nil means that the spec is right.
	Speed *job.Speed
	// Phases are later stretches of the job with speeds of their own.
	Phases []Phase
	// ReportsProgress says that the program reports its progress and its current speed.
	ReportsProgress bool
	// Program makes the job's program, if that decides for itself how it uses its GPUs. Speed
	// then says only how much work the job is and what its starts cost. Such a program reports
	// how much it has done, and nothing else.
	Program func() Program `json:"-"`
	// MaxLoss bounds the work that a stop without warning loses, in seconds of running;
	// 0 means everything since the last checkpoint.
	MaxLoss time.Duration
	// Data is what must be brought to a node before the job can start there for the
	// first time, CheckpointSize the size of its checkpoint, which follows it when it moves.
	Data, CheckpointSize job.Bytes
	// ErrorCurve is its error by progress: X is the share of its work, Y the error. A job
	// with an upper bound as target ends when its error reaches it.
	ErrorCurve []Point
	// Failures end its runs early: one for each entry, in order, when that share of its
	// work (0 to 1) is done.
	Failures []Failure
	// CancelAfter is the time from submission until its owner cancels it; 0 for never.
	CancelAfter time.Duration
}

// Phase is a stretch of a job, from some amount of work on.
type Phase struct {
	From  float64 // units of work done
	Speed *job.Speed
}

// Program is a program that chooses how it uses the GPUs it has, for instance its batch size,
// and learns from that. It is asked when a run begins and after each time that it reports.
type Program interface {
	// Step returns the units per second that it does on these GPUs from now on, having done so
	// many units, and up to how many units at most that holds.
	Step(on GPUs, done float64) (rate, until float64)
	// Report returns what it measured of its batch on these GPUs before the last step; nil if it
	// does not report that.
	Report() *scaling.Training
}

// GPUs are what a run has.
type GPUs struct {
	Model string
	Count int // of all nodes together
	Nodes int
}

// Failure is an end of a run that is not the job's own.
type Failure struct {
	Share float64 // of the job's work
	Cause job.Cause
}

// Jobs yields the jobs of a workload in order of submission. Next returns io.EOF
// after the last. What it returned stays valid.
type Jobs interface {
	Next() (*Job, error)
}

// ChangeKind is what happens to a node.
type ChangeKind string

// The changes of nodes.
const (
	NodeJoins ChangeKind = "join" // a machine joins the yard; Node has its class and inventory
	// NodeReclaimed is a node whose owner wants it back at once: its runs are stopped without time to save a checkpoint.
	NodeReclaimed  ChangeKind = "reclaim"
	NodeCordoned   ChangeKind = "cordon"   // no new runs are placed there; running ones continue
	NodeUncordoned ChangeKind = "uncordon" // available again after a cordon or a reclaim
	NodeFails      ChangeKind = "fail"     // crashes; the yard notices after Config.Detect without a heartbeat
	NodeHeals      ChangeKind = "heal"     // is back after a crash
)

// Change is something that happens to a node.
type Change struct {
	At   time.Duration
	Kind ChangeKind
	ID   id.Node
	Node *fleet.Node // of a join: class and inventory
}

// Changes yields the changes of nodes in order of time, and io.EOF after the last.
type Changes interface {
	Next() (Change, error)
}

// Config says what to simulate.
type Config struct {
	Policy    place.Policy
	Nodes     []fleet.Node // there from the beginning
	Jobs      Jobs
	Changes   Changes // nil if nodes stay as they are
	Tariff    *fleet.Tariff
	Quotas    []tenant.Quota
	Data      []dataset.Dataset
	Cloud     *Cloud                   // from which nodes can be provisioned; nil if from none
	Yard      func(*yardmaster.Config) // sets what else there is to set; nil for nothing
	Network   *Network                 // how data and checkpoints travel; nil if that takes no time
	FairShare bool                     // fair share between users decides the order; else they submit as one
	Until     time.Duration            // end there even if jobs are left; 0 to run until all have ended
	Detect    time.Duration            // from a node's death until the yard gives it up
	// Suspending is how long a node that can takes to suspend a program in place, and to let it continue.
	Suspending time.Duration
	Log        io.Writer // gets the decisions, one a line; nil for none
	// CheckpointsStay says that checkpoints do not travel, as in a yard whose jobs save on their nodes alone: each lies
	// on the first node of the run that wrote it, and a run elsewhere begins with what is there. Otherwise they follow
	// the job.
	CheckpointsStay bool
	// Forecast makes the forecast of a run from how long it has really run and will still run; nil for none. It is asked
	// when the run has begun to work and then every ForecastEvery.
	Forecast      func(j *Job, ran, left time.Duration) *job.Forecast
	ForecastEvery time.Duration
	// Begin is a yard in the midst of its work to go on from; nil to begin with nothing.
	Begin *Beginning
	// OnEnd is called for each job that has ended, in order; it may be nil.
	OnEnd func(*Outcome)
	// OnLease is called for each lease that is new or has changed; it may be nil.
	OnLease func(*fleet.Lease)
	// OnLedger is called with what the yard's own ledger records, if Yard sets that the use of nodes
	// is metered; it may be nil.
	OnLedger func(*ledger.Changes)
	// OnBatch is called with all that the yard wants to be stored, in order; it may keep the batch. It may be nil.
	OnBatch func(*yardmaster.Batch)
	// Begun is called when the simulation begins, so that it can let people and machines do things; it may be nil.
	Begun func(Hand)
	// Watch is called when a run has begun to work, every WatchEvery after that, when the yard asks it to save a
	// checkpoint, and when it ends. The watcher enters the checkpoints of runs in the catalogue; without one the
	// simulator does.
	Watch      func(Hand, *Watched)
	WatchEvery time.Duration
	// Origin says from where the owner of a job submits it; nil if that is not recorded.
	Origin func(*Job) yardmaster.Origin
	// OnRefusal is called with the yard's refusal of a message, and the simulation goes on; nil if it is to end with that.
	OnRefusal func(error)
	// OnStep is called after each batch of events with the virtual time and the number of
	// ended jobs; it may be nil.
	OnStep func(now time.Duration, ended int)
	// Stop is asked before each time at which something happens; the simulation ends
	// there if it says so, and what it came to until then is returned. Nil for never.
	Stop func() bool
	// Keep is how many of the longest series (utilisation over time, spans of
	// a Gantt chart) to keep points of; 0 for none.
	Keep int
}

// Outcome is how a job went.
type Outcome struct {
	Job        *Job
	ID         id.Job
	State      job.State
	Started    time.Duration // first start, since the beginning; NotStarted if it never did
	Ended      time.Duration
	GPUSeconds float64 // GPU-seconds
	Runs       int
	Stops      int // by plans
	Lateness   time.Duration
	LateCost   money.Amount
	Cost       money.Amount // its share of what its nodes cost
	Energy     float64      // kWh, its share
}

// Completion returns how long the job took from submission to end.
func (o *Outcome) Completion() time.Duration { return o.Ended - o.Job.At }

// Wait returns how long it waited for its first start.
func (o *Outcome) Wait() time.Duration {
	if o.Started == NotStarted {
		return o.Ended - o.Job.At
	}

	return o.Started - o.Job.At
}

// NotStarted is when a job started that never did.
const NotStarted = time.Duration(math.MinInt64)

// Beginning is a yard in the midst of its work.
type Beginning struct {
	Now   time.Time        // the beginning of virtual time
	State yardmaster.State // its nodes, users, jobs and live runs
	// Truth says what a job of it is really like. Its time of submission is that of
	// the job itself, before the beginning.
	Truth func(job.Job) *Job
	// Progress says how much work a running job of it had done at some time; nil if that is known from its runs alone.
	Progress func(id.Job) (done float64, at time.Time, known bool)
}
