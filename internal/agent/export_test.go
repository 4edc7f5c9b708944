package agent

import (
	"time"

	"trainyard/internal/contact"
)

// FailureOf is failureOf, for tests that make its errors on real connections.
func FailureOf(err error) contact.Failure { return failureOf(err) }

// ReadRegularFile is readPlain, for tests that put odd things in its way.
func ReadRegularFile(path string, most int64) ([]byte, time.Time, error) {
	return readRegularFile(path, most)
}

// Remembered counts what the agent has in memory of runs, by what it is. All of it is to be gone when they are.
func (a *Agent) Remembered() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()

	return map[string]int{
		"started ranks":    len(a.startedRanks),
		"uploaders":        len(a.uploaders),
		"complete metrics": len(a.metricsComplete),
		"problems":         len(a.problems),
	}
}
