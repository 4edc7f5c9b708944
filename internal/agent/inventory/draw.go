package inventory

import (
	"math"
	"slices"
	"time"
)

const (
	// drawWeight is how many readings the mean remembers.
	drawWeight = 100
	// drawEvery and drawStep say when a new mean is worth telling: the books need no
	// finer ones, and each is a change to the node's record.
	drawEvery = 10 * time.Minute
	drawStep  = 0.10
)

// meter keeps what the GPUs of a node draw together, by how many are in use.
type meter struct {
	mean       []float64
	count      []int
	reported   []float64
	reportedAt time.Time // when it was told
}

// add takes in a reading.
func (m *meter) add(used int, watts float64) {
	for len(m.mean) <= used {
		m.mean, m.count = append(m.mean, 0), append(m.count, 0)
	}

	m.count[used] = min(m.count[used]+1, drawWeight)
	m.mean[used] += (watts - m.mean[used]) / float64(m.count[used])
}

// draw returns the means in whole watts as they are told: those of before
// unless they have changed much or are old.
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

// news reports whether a mean is new or far from what was told.
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
