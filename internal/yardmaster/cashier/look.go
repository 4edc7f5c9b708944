package cashier

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/quota"
)

// every is how often budgets are looked at.
const every = time.Minute

// Watch lets time pass for the books: hours are posted, budgets are watched. It is
// called again when something changed that may use up a budget sooner.
func (c *Cashier) Watch(now time.Time) {
	if c.unmetered {
		return
	}
	c.timers.Stop(c.look)
	c.look = c.timers.After(c.next(now), func(now time.Time) {
		c.Roll(now)
		if c.Limited() {
			c.Settle(now, c.watched)
			for _, a := range c.Quotas.Alerts(now) {
				c.watcher.Alert(&a)
			}
			c.watcher.Looked()
		}
		c.Watch(now)
	})
}

// next returns when the books are to be looked at: on the next full minute, or when a
// budget will be used up if that is sooner.
func (c *Cashier) next(now time.Time) time.Time {
	next := now.Truncate(every).Add(every)
	if !c.Limited() {
		return next
	}
	sooner := func(at time.Time) {
		if at = at.Add(time.Second); !at.Before(now) && at.Before(next) {
			next = at
		}
	}
	for _, s := range c.Quotas.Statuses(now) {
		for _, course := range []quota.Projection{s.Cost, s.GPUHours} {
			if course.Exhausted.After(now) {
				sooner(course.Exhausted)
			}
		}
	}
	c.watcher.Spending(func(a *Account, hourly float64) {
		if left := a.left(); hourly > 0 && left > 0 {
			sooner(now.Add(job.Seconds(left / hourly * 3600)))
		}
	})
	return next
}

// watched reports whether someone who holds a node, or for whom it was hired, has a limit.
func (c *Cashier) watched(s *ledger.State) bool {
	limited := func(w quota.Payer, j id.Job) bool { return c.watcher.Budgeted(j) || c.Quotas.Binds(w) }
	if limited(quota.Payer{Owner: s.Owner, Project: s.Project}, s.Job) {
		return true
	}
	for i := range s.Holders {
		h := &s.Holders[i]
		if limited(quota.Payer{Owner: h.Owner, Project: h.Project}, h.Job) {
			return true
		}
	}
	return false
}

func purse(w quota.Payer) queue.Purse { return queue.Purse{User: w.Owner, Project: w.Project} }

// SetAside keeps a job out of the line.
func (c *Cashier) SetAside(w quota.Payer) {
	number, _ := w.Job.Number()
	c.aside.Put(purse(w), number)
}

// BringBack takes a job from those that are aside.
func (c *Cashier) BringBack(w quota.Payer) {
	number, _ := w.Job.Number()
	c.aside.Remove(purse(w), number)
}

// LetBack visits those that are aside, for each who pays in order of submission, until
// back says that one has to stay: those behind it have to as well. A job that may go
// back has to be brought back.
func (c *Cashier) LetBack(back func(id.Job) bool) {
	for _, p := range c.aside.Purses() {
		for number, ok := c.aside.First(p); ok && back(id.NewJob(number)); {
			number, ok = c.aside.First(p)
		}
	}
}
