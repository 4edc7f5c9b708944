package cloud

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
)

// DeadlineFile is the name of the file, in the data folder of a provisioned machine's agent,
// that says when the machine must end itself. The boot script writes the first one,
// the agent replaces it whenever the yard renews the lease, and both the agent
// and the dead man's switch obey it.
const DeadlineFile = "lease-end"

// Slack is how long after its deadline the dead man's switch of a machine waits for the
// agent to stop what runs and end the machine in order. A machine thus
// outlives its lease by no more than this and the time that a shutdown takes.
const Slack = 5 * time.Minute

// Moment is a point in time on a machine, by the clock that nobody can set, which
// counts from its boot, and by the one on its wall.
type Moment struct {
	Boot  string        // which boot of the machine
	Since time.Duration // since that boot, also while the machine slept
	Wall  time.Time
}

// MomentOf returns the moment it is on this machine. Its wall time is that of the machine's own
// clock, however it is set, because the dead man's switch is a shell script and reads no other.
func MomentOf() (Moment, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Moment{}, fmt.Errorf("read the boot id: %w", err)
	}

	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return Moment{}, fmt.Errorf("read the time since boot: %w", err)
	}

	return Moment{Boot: strings.TrimSpace(string(boot)), Since: time.Duration(since.Nano()), Wall: clock.Wall{}.Now()}, nil
}

// Deadline is when a machine must end itself. It counts by the time since boot, so
// that a clock that is wrong or is set moves nothing. After another boot
// that clock has begun anew: then it holds until its time on the wall clock, but
// never for longer from that boot on than it was given for.
type Deadline struct {
	Boot     string
	Until    time.Duration // since boot
	Wall     time.Time
	Duration time.Duration // how long it was given for
}

// In returns the deadline so long after a moment.
func (m Moment) In(left time.Duration) Deadline {
	return Deadline{Boot: m.Boot, Until: m.Since + left, Wall: m.Wall.Add(left), Duration: left}
}

// Remaining returns how long the deadline is away; it is negative if it has passed.
func (d Deadline) Remaining(now Moment) time.Duration {
	if d.Boot == now.Boot {
		return d.Until - now.Since
	}

	return min(d.Wall.Sub(now.Wall), d.Duration-now.Since)
}

// String is the line that the file holds: boot, then in whole seconds the time since
// boot, the Unix time and how long it was given for. A shell reads it too.
func (d Deadline) String() string {
	seconds := func(t time.Duration) int64 { return int64(max(t, 0) / time.Second) }
	return fmt.Sprintf("%s %d %d %d\n", d.Boot, seconds(d.Until), max(d.Wall.Unix(), 0), seconds(d.Duration))
}

// ParseDeadline reads what String wrote.
func ParseDeadline(text string) (Deadline, error) {
	var d Deadline
	var until, wall, given int64
	n, err := fmt.Sscanf(text, "%s %d %d %d\n", &d.Boot, &until, &wall, &given)

	const most = int64(1<<63-1) / int64(time.Second)
	if err != nil || n != 4 || until < 0 || wall < 0 || given < 0 || until > most || given > most {
		return Deadline{}, fmt.Errorf("invalid lease deadline %.80q", text)
	}

	d.Until, d.Duration, d.Wall = time.Duration(until)*time.Second, time.Duration(given)*time.Second, time.Unix(wall, 0).
		UTC()

	return d, nil
}
