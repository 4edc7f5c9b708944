package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepCheck is how often it is asked whether the machine was suspended. A suspension that is noticed so
// much later looks as if it had come so much later.
const sleepCheck = 100 * time.Millisecond

// runningTime returns the clock of how long this machine has been running, which is for one goroutine at a
// time. It counts the time in which the machine was suspended: a provisioned machine is paid for while it
// sleeps, and a contact lease expires meanwhile. That is CLOCK_BOOTTIME, which costs a system call; so it
// is read now and then, and the runtime's monotonic clock is used in between.
func runningTime() func() time.Duration {
	read, base := time.Now(), sinceBoot()

	return func() time.Duration {
		passed := time.Since(read)
		if passed < sleepCheck {
			return base + passed
		}

		// Never less than what was returned before, however the two clocks were read.
		read, base = time.Now(), max(sinceBoot(), base+passed)

		return base
	}
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock: the kernel has no CLOCK_BOOTTIME: " + err.Error()) // every Linux since 2.6.39 has it
	}

	return time.Duration(ts.Nano())
}
