package sim

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// loan is how far a run is with being suspended in place.
type loan struct {
	order int           // number of the last order to suspend it or to let it continue
	still bool          // it does no work
	since time.Duration // as long as it is still
	lent  bool          // others have its GPU
	from  time.Duration // as long as they have it
	total time.Duration // for which they had it before
}

// suspend carries out an order to suspend a run in place or to let it continue. Its program stands still from the order
// on, holds its GPU until what it has there is in host memory, and works again when that is back.
func (s *simulation) suspend(m *model, o job.SuspendOrder) {
	if o.Number <= m.loan.order || m.halted {
		return // it was repeated, or comes too late
	}

	m.loan.order = o.Number
	m.advance(s)
	m.gen++
	gen, done := m.gen, s.lend

	if o.On() {
		m.loan.still, m.loan.since = true, s.now
	} else {
		done = s.resumeLent

		if m.loan.lent {
			s.takeBack(m)
		}
	}

	s.at(s.now+s.cfg.Suspending, func(s *simulation) {
		if m.gen != gen {
			return
		}

		done(m)
		s.reportRank(m, 0, yardmaster.RankReport{
			State: job.RunRunning, Suspension: job.Suspension{Number: o.Number, On: o.On()},
		})
	})
}

// lend frees the GPU of a run that is suspended. It stays on its node.
func (s *simulation) lend(m *model) {
	s.vacate(m, 0)
	m.loan.lent, m.loan.from = true, s.now
	s.tally.out.Suspensions++
}

// takeBack gives a run the GPU again that it lent.
func (s *simulation) takeBack(m *model) {
	s.hold(m, 0)
	m.loan.total = m.lentFor(s.now)
	m.loan.lent = false
}

// lentFor returns for how long others have had the GPU of a run.
func (m *model) lentFor(now time.Duration) time.Duration {
	if m.loan.lent {
		return m.loan.total + now - m.loan.from
	}

	return m.loan.total
}

// resumeLent lets a run that was suspended go on with its work.
func (s *simulation) resumeLent(m *model) {
	m.loan.still = false
	m.works += s.now - m.loan.since // it has worked for as much less
	m.since = s.now
	s.schedule(m)
}
