//go:build !chaos

package clock

import "time"

// step is by how much a test has stepped this process's wall clock; only builds for chaos
// tests can be stepped.
func step() time.Duration { return 0 }
