package sim

import (
	"time"

	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// firstForecast is how long a run works before its first forecast.
const firstForecast = time.Minute

// forecastFrom lets forecasts of a run be made as long as it runs.
func (s *simulation) forecastFrom(m *model) {
	if s.cfg.Forecast == nil || s.cfg.ForecastEvery <= 0 {
		return
	}

	s.at(max(m.works, s.now)+firstForecast, func(s *simulation) { s.forecast(m) })
}

// forecast makes a forecast of a run, and sees to the next.
func (s *simulation) forecast(m *model) {
	if m.halted {
		return
	}

	m.advance(s)

	left := m.remaining()
	if f := s.cfg.Forecast(m.life.job, s.now-m.works, left); f != nil && !m.loan.still {
		f.At = s.time()
		s.step(yardmaster.PutForecasts{Jobs: []yardmaster.JobForecast{{Job: m.life.id, Forecast: f}}})
	}

	if left > s.cfg.ForecastEvery {
		s.at(s.now+s.cfg.ForecastEvery, func(s *simulation) { s.forecast(m) })
	}
}

// remaining returns how long a run will still take where it is, at the speed that it has now.
func (m *model) remaining() time.Duration {
	if m.life.job.Duration > 0 {
		return m.wall(m.life.job.Duration - m.ran)
	}

	if m.rate <= 0 {
		return 1<<63 - 1
	}

	return job.Seconds((m.life.work() - m.did) / m.rate)
}
