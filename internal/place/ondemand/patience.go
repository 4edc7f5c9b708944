package ondemand

import (
	"maps"
	"time"

	"trainyard/internal/money"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// Patience is how long a job waits for a node of the yard before one is provisioned for it.
//
// Waiting until the time lost is worth more than the rent costs more than provisioning:
// that is the break-even wait. But a job that waits for a node takes it from jobs that come
// meanwhile, and nodes are provisioned for those instead, so waiting saves the rent only as
// far as the node would have been idle. The node that a short job takes would surely have
// been used by another; that of a long one is taken through nights and weekends. So only a
// share of the rent counts as saved: little for jobs that cost less than the mean, nearly
// all for those that cost far more. It is computed when a job arrives.
type Patience struct {
	Lasts time.Duration // 0 if nothing can be provisioned for it
	Share float64       // of the rent that counts as saved
}

// halfSaved is the cost, in mean costs of all jobs, at which half the rent counts as saved.
const halfSaved = 40

// stopAt is after how many patiences a node is provisioned for a job even if another is
// reserved for it.
const stopAt = 2

// Patiences are those of the queued jobs, and what all jobs so far cost. The zero value is
// ready to use.
type Patiences struct {
	byNumber map[uint64]Patience
	count    int
	sum      money.Amount
}

// Known returns the patience of a job that has one.
func (m *Patiences) Known(it *queue.Item) (Patience, bool) {
	p, ok := m.byNumber[it.Number]
	return p, ok
}

// Add computes the patience of a new job: rent is what it costs to provision for it, and
// value what an hour of its time is worth.
func (m *Patiences) Add(it *queue.Item, rent money.Amount, value money.PerHour) Patience {
	m.count++
	m.sum += rent
	p := Patience{Share: float64(rent / (rent + halfSaved*m.sum/money.Amount(m.count)))}
	if rent == 0 {
		p.Share = 0
	}

	p.Lasts = timeline.Never
	if value > 0 {
		p.Lasts = rent.Times(p.Share).Lasts(value)
	}

	if m.byNumber == nil {
		m.byNumber = map[uint64]Patience{}
	}

	m.byNumber[it.Number] = p

	return p
}

// Forget drops jobs that have left the queue.
func (m *Patiences) Forget(l *queue.Queue) {
	if len(m.byNumber) <= 2*l.Len()+1024 {
		return
	}

	kept := make(map[uint64]Patience, l.Len())
	for _, it := range l.Stays {
		if p, ok := m.byNumber[it.Number]; ok {
			kept[it.Number] = p
		}
	}

	m.byNumber = kept
}

// Clone returns a copy that does not change with this one.
func (m *Patiences) Clone() Patiences {
	c := *m
	c.byNumber = maps.Clone(m.byNumber)

	return c
}

// Most returns how long a job waits at most, from when it was submitted, before a node is provisioned
// for it whatever is reserved.
func (p Patience) Most() time.Duration {
	return time.Duration(min(stopAt*float64(p.Lasts), float64(timeline.Never)))
}

// Limit returns how long from now a job waits at most before a node is provisioned for it
// that would be ready after readyIn.
func (p Patience) Limit(waited, readyIn time.Duration) time.Duration {
	if p.Lasts == timeline.Never || p.Lasts == 0 && p.Share > 0 {
		return p.Lasts
	}

	return max(min(p.Lasts, p.Most()-waited)+readyIn, 0)
}
