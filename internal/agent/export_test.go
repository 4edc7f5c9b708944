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
