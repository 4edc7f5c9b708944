// Package batch is the output of the yardmaster, and the state it is restored from after a
// restart: changed values, events, and orders to carry out.
//
// The parts of the yard collect their changes here: Set knows what has changed, Feed numbers
// the events, Orders holds the open orders. All are emptied into one Batch, so that what a
// message changed in several parts is stored together. The package stores and sends nothing.
package batch

import (
	"strconv"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/share"
	"trainyard/internal/tenant"
)

// Batch is what a number of messages changed: the new values of all things
// that changed, the events that describe it, and the orders that were opened or
// closed. The store commits it in one transaction before anything is answered or
// carried out. Committing the same batch twice is the same as once.
type Batch struct {
	Jobs        []job.Job
	Runs        []job.Run
	Nodes       []fleet.Node
	Agents      []fleet.Agent // admitted
	Users       []tenant.User
	Tokens      []tenant.Token
	Projects    []tenant.Project
	Members     []tenant.Member
	Leases      []fleet.Lease
	Quotas      []tenant.Quota
	Usage       []quota.Usage
	Notices     []quota.Notice
	Datasets    []dataset.Dataset
	Uses        []dataset.Use
	Checkpoints []checkpoint.Checkpoint
	Shares      []queue.Share
	Past        []queue.PastRun // runs from which the durations of others are estimated
	Observed    []job.Observed  // what was learned of jobs that have not ended
	Shortages   []job.Shortage  // what was learned of the memory that jobs of a kind need
	Beside      []share.Record  // what was learned of kinds of jobs beside others on a GPU
	Ledger      ledger.Changes
	Events      []Event
	Orders      []Order  // opened or changed
	Closed      []string // keys of closed orders
	// What is remembered no more: numbers of past runs, jobs that have ended, and keys of shortages and
	// of what was learned of jobs beside others.
	PastForgotten      []uint64
	ObservedForgotten  []id.Job
	ShortagesForgotten []string
	BesideForgotten    []string
	Incarnations       []Incarnation // that began, or settled
	Questions          []inbox.Question
	Secrets            []tenant.Secret
	Channels           []tenant.Channel
	Schedules          []job.Schedule
	Reservations       []fleet.Reservation
}

// Empty reports whether there is nothing to commit.
func (b *Batch) Empty() bool {
	return len(b.Jobs)+len(b.Runs)+len(b.Nodes)+len(b.Agents)+len(b.Users)+len(b.Tokens)+len(b.Events)+
		len(b.Orders)+len(b.Closed)+len(b.Leases)+len(b.Quotas)+len(b.Datasets)+len(b.Uses)+len(b.Shares)+
		len(b.Usage)+len(b.Notices)+len(b.Past)+len(b.Observed)+len(b.Shortages)+len(b.Checkpoints)+
		len(b.Projects)+len(b.Members)+len(b.Secrets)+len(b.Channels)+len(b.Schedules)+len(b.Reservations)+
		len(b.PastForgotten)+len(b.ObservedForgotten)+len(b.ShortagesForgotten)+len(b.Beside)+len(b.BesideForgotten)+
		len(b.Incarnations)+len(b.Questions) == 0 &&
		b.Ledger.Empty()
}

// Event is one entry of the feed: the audit log, the live feed and the history
// of every thing in one. Its number is its place in the feed and never changes.
type Event struct {
	Seq    uint64
	At     time.Time
	Kind   string  // what happened: "job.submitted"
	Actor  string  // who did it: a user, a node as "node/NAME", or "yard"
	Owner  id.User // whose thing it is; researchers see their own
	Job    id.Job
	Run    id.Run
	Node   id.Node
	Lease  id.Lease
	From   string // state before and after, where it changed one
	To     string
	Reason string // one sentence for people
	// Token and Address are with what and from where a person, a token or a node caused it. Address is "" if the yard
	// itself did.
	Token   id.Token
	Address string
	// Count is how many calls an entry about refused calls or about reading stands for; 0 for others.
	Count int
	// Question is what the event asks, or which question it ends.
	Question id.Question
	// Hold is what keeps the job of a "job.held" out of the queue.
	Hold tenant.Hold
	// NotBefore is when its job may go on at the earliest: the end of the delay before it is
	// retried, or of the period of the quota that holds it. Zero if that is not known.
	NotBefore time.Time
}

// Order is something an engine must do: run one rank on a node, or stop it. It is open from
// the placement until the rank has ended, so the open orders of a node are at any time exactly
// what the node must run.
type Order struct {
	Run   id.Run
	Job   id.Job
	Epoch int
	Rank  int
	Node  id.Node
	Stop  job.StopMode
	Dump  bool `json:",omitempty"` // a snapshot is taken when it is stopped
	// Save counts the requests to save a checkpoint and to go on. The program is asked each time it has increased.
	Save int
	// Move names the nodes to which the job moves once it has saved a checkpoint; "" if it does not.
	Move string
	// Keeps are on-demand nodes that the job has left for this run and that are not released before it runs.
	Keeps []id.Node
	// Suspend is the last order to suspend the program in place or to let it continue; zero if there was none.
	Suspend job.SuspendOrder
	// Peers are the ports at which the agents of the run's ranks answer probes, -1 for one that does not; nil until all
	// are known. Start is nil until the programs of a run on several nodes may start.
	Peers  []int          `json:",omitempty"`
	Start  *job.GangStart `json:",omitempty"`
	Launch job.Launch
	// Adopt says that the node may go on with the rank but must not start it: the order is from
	// before a restore. It is not stored; Load sets it.
	Adopt bool `json:"-"`
}

// Key identifies the order: an engine may receive an order several times.
func (o *Order) Key() string { return keyOf(o.Run, o.Rank) }

func keyOf(run id.Run, rank int) string { return string(run) + "/" + strconv.Itoa(rank) }

// State is all that the yardmaster needs to continue after a restart, as the store restored
// it: everything that has not ended, in any order.
type State struct {
	Jobs     []job.Job // not final, and those that ended recently
	Runs     []job.Run // of these jobs, not ended
	Nodes    []fleet.Node
	Agents   []fleet.Agent // admitted last, one for each node that has had one
	Users    []tenant.User
	Tokens   []tenant.Token
	Projects []tenant.Project
	Members  []tenant.Member
	Orders   []Order
	Leases   []fleet.Lease // not ended, and those that ended recently
	Datasets []dataset.Dataset
	// Checkpoints are those that are not removed, and enough of the others to know which numbers are used.
	Checkpoints []checkpoint.Checkpoint
	Shares      []queue.Share
	Past        []queue.PastRun
	Observed    []job.Observed
	Shortages   []job.Shortage
	Beside      []share.Record
	Quotas      []tenant.Quota
	Usage       []quota.Usage
	Notices     []quota.Notice
	Ledger      ledger.Stored
	// Questions are those that are open.
	Questions []inbox.Question
	Secrets   []tenant.Secret
	Channels  []tenant.Channel
	Schedules []job.Schedule
	// Reservations are all that there ever were: their numbers are not used again.
	Reservations []fleet.Reservation
	// Needs holds the states of final jobs that waiting jobs need.
	Needs map[id.Job]job.State
	// IdleSince is when the last run on a node ended, or when the node joined if it has had none.
	IdleSince map[id.Node]time.Time
	// LastJob, LastEvent and LastLease are the greatest numbers ever used.
	LastJob   uint64
	LastEvent uint64
	LastLease uint64
	// LastEventAt is when the last event happened.
	LastEventAt time.Time
	// Incarnation is the newest.
	Incarnation Incarnation
	// Seed is random and new for every load; the UIDs of runs are made from it. Without it runs
	// have none.
	Seed string
}

// Newest returns the newest time in the state, so that time does not run backwards when the next server
// has a clock that is behind: that of the last event, or until when a node's costs are posted.
func (s *State) Newest() time.Time {
	newest := s.LastEventAt
	for i := range s.Ledger.Meters {
		if since := s.Ledger.Meters[i].Since; since.After(newest) {
			newest = since
		}
	}

	return newest
}
