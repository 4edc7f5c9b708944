package agent

import "time"

// KeepsContactLease is vouches, for tests that make its errors on real connections.
func KeepsContactLease(err error) bool { return keepsContactLease(err) }

// ReadRegularFile is readPlain, for tests that put odd things in its way.
func ReadRegularFile(path string, most int64) ([]byte, time.Time, error) {
	return readRegularFile(path, most)
}
