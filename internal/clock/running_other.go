//go:build !linux

package clock

import "time"

// runningTime returns a clock of how long this process has been running. Servers and agents run on
// Linux; elsewhere the time in which the machine was suspended is not counted.
func runningTime() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
