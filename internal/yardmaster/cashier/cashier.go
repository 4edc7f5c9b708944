// Package cashier is the money side of the yard: the books, the limits by which people
// are held to them, the jobs that a limit keeps out of the line, and when to look again.
//
// The yardmaster tells it when a job takes or leaves something and asks what a job may
// still take. What is done about a limit that is reached, the yardmaster does: Watcher
// names what it is asked for.
package cashier

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"trainyard/internal/books"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// Account is on whose account a job runs, with what it may spend and has spent of that.
type Account struct {
	quota.Payer
	Budget job.Money // its own, 0 if it has none
	Spent  float64
}

// Outlay is what the account is expected to pay from now on; -1 where that is not known.
func (a *Account) Outlay(money, gpuHours float64) quota.Commitment {
	return quota.Commitment{RemainingCost: money, RemainingGPUHours: gpuHours, Budget: a.Budget, CostSoFar: a.Spent}
}

// left is what it has left of its own budget.
func (a *Account) left() float64 { return float64(a.Budget)/1e6 - a.Spent }

// Watcher is what the cashier asks of the yard.
type Watcher struct {
	Charged  func(*ledger.Posting)                        // something was posted to a job
	Budgeted func(id.Job) bool                            // whether a job has a budget of its own
	Spending func(visit func(a *Account, hourly float64)) // each job that runs on a budget, and what it costs in an hour
	Alert    func(*quota.Alert)                           // a limit is near, reached or free again
	Looked   func()                                       // those who were kept out of the line may be let back
}

// Cashier keeps the books. It is not safe for concurrent use.
type Cashier struct {
	*books.Books
	watcher   Watcher
	unmetered bool
	feed      *batch.Feed
	timers    *timers.Timers
	touched   map[id.Node]bool // whose meters have to be read
	budgets   int              // live jobs with a budget of their own
	aside     queue.Aside      // jobs that a limit keeps out of the line
	look      *timers.Timer
	changed   []tenant.Quota
}

// New returns one with empty books. Unmetered, it reads no meters and watches no budgets.
func New(t *fleet.Tariff, unmetered bool, feed *batch.Feed, timers *timers.Timers, w Watcher) *Cashier {
	return &Cashier{Books: books.New(t, w.Charged), watcher: w, unmetered: unmetered, feed: feed, timers: timers, touched: map[id.Node]bool{}}
}

// Take moves what has changed into a batch.
func (c *Cashier) Take(b *batch.Batch) {
	b.Quotas, c.changed = c.changed, nil
	b.Books = c.Books.Take()
}

// Put sets, changes or removes what a user or project may have.
func (c *Cashier) Put(now time.Time, l tenant.Quota, by string) (tenant.Quota, error) {
	if old, ok := c.Quotas.Own(l.Subject); ok {
		l.Seq = old.Seq
	} else if l.Removed {
		return l, fault.New(fault.NotFound, "limit_not_found", "there is no limit for %s", l.Subject)
	}
	l.Seq++
	words := "limit of " + l.Subject.String() + " set by " + by
	if l.Removed {
		c.Quotas.Remove(l.Subject)
		words = "limit of " + l.Subject.String() + " removed by " + by
	} else if err := c.Quotas.Put(l); err != nil {
		return l, err
	}
	c.changed = append(c.changed, l)
	c.feed.Tell(now, batch.Event{Kind: "limit.set", Actor: by, Owner: l.Subject.User, Reason: words})
	return l, nil
}

// Touch remembers that a node's meter has to be read.
func (c *Cashier) Touch(n id.Node) {
	if !c.unmetered {
		c.touched[n] = true
	}
}

// Lease takes note of a lease that has changed.
func (c *Cashier) Lease(now time.Time, l *fleet.Lease) {
	if !c.unmetered {
		c.Books.Lease(now, l)
	}
	if l.Node != "" {
		c.Touch(l.Node)
	}
}

// Read reads the meters of the nodes that something changed on.
func (c *Cashier) Read(read func(id.Node)) {
	for _, n := range slices.Sorted(maps.Keys(c.touched)) {
		read(n)
	}
	clear(c.touched)
}

// Count counts jobs with a budget that have not ended, or with a minus sign that have.
func (c *Cashier) Count(budget job.Money, jobs int) {
	if budget > 0 {
		c.budgets += jobs
	}
}

// Limited reports whether anyone is limited, or a job that has not ended has a budget.
func (c *Cashier) Limited() bool { return c.Quotas.Any() || c.budgets > 0 || c.aside.Len() > 0 }

// Allowance tells what a job may still take.
func (c *Cashier) Allowance(now time.Time, a *Account) tenant.Allowance {
	return c.Quotas.Allow(now, a.Payer, a.Budget, a.Spent)
}

// Borrows reports whether who owns a job, or its project, has more GPUs than their limit.
func (c *Cashier) Borrows(w quota.Payer) bool { return c.Quotas.Any() && c.Quotas.Borrowed(w) > 0 }

// Barred says which limit keeps a job from having so many GPUs now, "" if none does.
func (c *Cashier) Barred(now time.Time, a *Account, gpus int) string {
	if !c.Limited() && a.Budget == 0 {
		return ""
	}
	may := c.Allowance(now, a)
	switch {
	case may.Hold != "":
		return may.Hold
	case gpus > may.Ceiling:
		return fmt.Sprintf("%s is reached: it leaves %d and this job needs %d", may.By.GPUs, max(may.GPUs, 0), gpus)
	}
	return ""
}

// MayHire says which limit forbids to hire for a job, "" if none does.
func (c *Cashier) MayHire(now time.Time, a *Account, h *place.Hire) string {
	may := c.Allowance(now, a)
	switch {
	case may.Hold != "":
		return may.Hold
	case may.NoRent:
		return may.By.Money + " lets it run only where no rent is paid"
	case h.Count > may.Nodes:
		return fmt.Sprintf("%s lets it have %d more on-demand nodes", may.By.Nodes, may.Nodes)
	case h.Cost > may.Money:
		return fmt.Sprintf("%s has $%.2f left and this would cost $%.2f", may.By.Money, max(may.Money, 0), h.Cost)
	}
	return ""
}
