package rules

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// patience is how long a job waits for a node of the yard before one is hired for it.
//
// Waiting for longer than its rent is worth costs more than hiring: that is the
// break-even wait. But a job that waits for room takes it from those that come
// meanwhile, and they are hired for instead, so waiting saves the rent only as far as
// the room would have stood empty. The room that a short job takes is sure to find
// another taker; that of a long one reaches into nights and week-ends. So only a share
// of the rent counts as saved: little for jobs that cost less than the mean, nearly all
// for those that cost far more. It is settled when a job comes.
type patience struct {
	lasts time.Duration // 0 if nothing could be hired for it
	share float64       // of the rent that counts as saved
}

// halfSaved is the cost, in mean costs of all jobs, at which half the rent counts as saved.
const halfSaved = 40

// stopAt is after how many patiences a job is hired for whatever is planned for it.
const stopAt = 2

// memory is what is remembered of jobs.
type memory struct {
	of    map[uint64]patience
	count float64
	sum   float64 // money
}

// patienceOf returns the patience of a job, and settles it when the job is new. It is
// not settled as long as nothing can be hired for it: an offer may come.
func (e *engine) patienceOf(w *wait) (p patience, settled bool) {
	m := &e.policy.seen
	if p, settled = m.of[w.it.Number]; settled {
		return p, true
	}
	h, ok := e.hiring(w, e.shapeOf(w))
	if !ok {
		return patience{}, !fleet.OnDemand.Allows(w.it.Shape.Need.Place)
	}
	m.count++
	m.sum += h.money
	p = patience{share: h.money / (h.money + halfSaved*m.sum/m.count)}
	if h.money == 0 {
		p.share = 0
	}
	if p.lasts = timeline.Never; w.value > 0 {
		p.lasts = job.Seconds(p.share * h.money / w.value * 3600)
	}
	m.of[w.it.Number] = p
	return p, true
}

// forget drops jobs that no longer wait.
func (m *memory) forget(l *queue.Line) {
	if len(m.of) <= 2*l.Len()+1024 {
		return
	}
	kept := make(map[uint64]patience, l.Len())
	for _, it := range l.Stays {
		if p, ok := m.of[it.Number]; ok {
			kept[it.Number] = p
		}
	}
	m.of = kept
}
