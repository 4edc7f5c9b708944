package inventory

import (
	"math"
	"slices"
	"time"
)

const (
	// drawWeight is the number of readings over which the mean is taken.
	drawWeight = 100
	// drawEvery and drawStep say when a new mean is reported. Each report changes the record of the
	// node, and the ledger needs no finer values.
	drawEvery = 10 * time.Minute
	drawStep  = 0.10
)

// meter keeps the mean power draw of all GPUs of a node together, by how many of them are in use.
type meter struct {
	mean       []float64
	count      []int
	reported   []float64
	reportedAt time.Time // time of the last report
}

// add adds a reading in watts to the mean for this number of GPUs in use.
func (m *meter) add(used int, watts float64) {
	for len(m.mean) <= used {
		m.mean, m.count = append(m.mean, 0), append(m.count, 0)
	}

	m.count[used] = min(m.count[used]+1, drawWeight)
	m.mean[used] += (watts - m.mean[used]) / float64(m.count[used])
}

// draw returns the means to report, in whole watts. It repeats the last report unless a mean has
// changed by drawStep or the report is older than drawEvery.
func (m *meter) draw(now time.Time) []float64 {
	fresh := make([]float64, len(m.mean))
	for i, w := range m.mean {
		fresh[i] = math.Round(w)
	}

	if slices.Equal(fresh, m.reported) || !m.news(fresh) && now.Sub(m.reportedAt) < drawEvery {
		return slices.Clone(m.reported)
	}

	m.reported, m.reportedAt = fresh, now

	return slices.Clone(fresh)
}

// news reports whether a mean is new or differs much from the last report.
func (m *meter) news(fresh []float64) bool {
	if len(fresh) != len(m.reported) {
		return true
	}

	for i, w := range fresh {
		if math.Abs(w-m.reported[i]) > drawStep*math.Max(m.reported[i], 1) {
			return true
		}
	}

	return false
}
