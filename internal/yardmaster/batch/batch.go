// Package batch is what leaves the yardmaster, and what it is filled with again after a
// restart: the values that changed, the events that tell how, the orders to carry out.
//
// The parts of the yard collect here what they changed: Set knows which things have,
// Feed numbers the events, Orders are those that are open. All are emptied into one
// Batch, so that what a message changed in several parts is stored together.
package batch

import (
	"strconv"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
)

// Batch is what a number of messages changed: the new values of all things
// that changed, the events that tell how, and the orders that were opened or
// closed. The store commits it in one transaction before anyone is told and
// anything is done. Committing the same batch twice is the same as once.
type Batch struct {
	Jobs     []job.Job
	Runs     []job.Run
	Nodes    []fleet.Node
	Users    []tenant.User
	Tokens   []tenant.Token
	Leases   []fleet.Lease
	Quotas   []tenant.Quota
	Usage    []quota.Usage
	Notices  []quota.Notice
	Datasets []dataset.Dataset
	Uses     []dataset.Use
	Shares   []queue.Share
	Ledger   ledger.Changes
	Events   []Event
	Orders   []Order  // opened or changed
	Closed   []string // keys of orders that are done with
}

// Empty reports whether there is nothing to commit.
func (b *Batch) Empty() bool {
	return len(b.Jobs)+len(b.Runs)+len(b.Nodes)+len(b.Users)+len(b.Tokens)+len(b.Events)+len(b.Orders)+len(b.Closed)+
		len(b.Leases)+len(b.Quotas)+len(b.Datasets)+len(b.Uses)+len(b.Shares)+
		len(b.Usage)+len(b.Notices) == 0 && b.Ledger.Empty()
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
	Reason string // one sentence a researcher understands
}

// Order is something an engine shall do: run one rank on a node, or stop it.
// It is open from the placing until the rank has ended, so the open orders of
// a node are at any time exactly what the node shall run.
type Order struct {
	Run    id.Run
	Job    id.Job
	Epoch  int
	Rank   int
	Node   id.Node
	Stop   job.StopMode
	Launch job.Launch
}

// Key names the order; an engine that sees a key again is told of the same thing again.
func (o *Order) Key() string { return keyOf(o.Run, o.Rank) }

func keyOf(run id.Run, rank int) string { return string(run) + "/" + strconv.Itoa(rank) }

// State is all that the yardmaster needs to go on after a restart, as the
// store rebuilt it: everything that has not ended, in any order.
type State struct {
	Jobs     []job.Job // not final, and those lately final
	Runs     []job.Run // of these jobs, not ended
	Nodes    []fleet.Node
	Users    []tenant.User
	Tokens   []tenant.Token
	Orders   []Order
	Leases   []fleet.Lease // not ended, and those lately ended
	Datasets []dataset.Dataset
	Shares   []queue.Share
	Quotas   []tenant.Quota
	Usage    []quota.Usage
	Notices  []quota.Notice
	Ledger   ledger.Stored
	// Needs holds the states of final jobs that waiting jobs need.
	Needs map[id.Job]job.State
	// LastJob, LastEvent and LastLease are the greatest numbers ever given.
	LastJob   uint64
	LastEvent uint64
	LastLease uint64
}
