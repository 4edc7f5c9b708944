package agent

import "time"

// Vouches is vouches, for tests that make its errors on real connections.
func Vouches(err error) bool { return vouches(err) }

// ReadPlain is readPlain, for tests that put odd things in its way.
func ReadPlain(path string, most int64) ([]byte, time.Time, error) { return readPlain(path, most) }
