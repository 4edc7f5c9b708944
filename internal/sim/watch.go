package sim

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// Watched is a run as somebody would see it who looks at its node.
type Watched struct {
	Job     *Job
	ID      id.Job
	Run     id.Run
	UID     id.UID
	Ranks   []place.Allocation
	Started time.Time // of its processes
	Now     time.Time
	Done    float64 // units of work, over all runs of the job
	Work    float64 // units of work in all
	Rate    float64 // units per second
	Save    bool    // the yard asks it to save a checkpoint now
	Ended   bool
	Cause   job.Cause // of the end
}

// watch shows a run to the watcher, now that it works and again and again until it ends.
func (s *simulation) watch(m *model) {
	if s.cfg.Watch == nil || s.cfg.WatchEvery <= 0 {
		return
	}

	s.at(max(m.works, s.now), func(s *simulation) { s.look(m) })
}

func (s *simulation) look(m *model) {
	if m.halted {
		return
	}

	m.advance(s)
	s.show(m, Watched{})
	s.at(s.now+s.cfg.WatchEvery, func(s *simulation) { s.look(m) })
}

// requestSave lets a run save a checkpoint, unless it has already heard of this request.
func (s *simulation) requestSave(m *model, request int) {
	if request <= m.saves || m.halted || !m.runs {
		return
	}

	m.saves = request
	m.advance(s)
	s.at(s.now+s.disk(m.life), func(s *simulation) {
		if !m.halted {
			s.show(m, Watched{Save: true})
		}
	})
}

// show tells the watcher how a run is.
func (s *simulation) show(m *model, w Watched) {
	if s.cfg.Watch == nil || !m.runs {
		return
	}

	w.Job, w.ID, w.Run, w.UID, w.Ranks = m.life.job, m.life.id, m.run, m.uid, m.allocations
	w.Started, w.Now = s.epoch.Add(m.startedAt), s.time()
	w.Done, w.Work, w.Rate = m.did, m.life.work(), m.rate
	if d := m.life.job.Duration; d > 0 { // its work is to last
		w.Done, w.Work, w.Rate = m.ran.Seconds(), d.Seconds(), m.pace
	}

	s.cfg.Watch(Hand{s}, &w)
}
