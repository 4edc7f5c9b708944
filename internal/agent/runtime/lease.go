package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
)

// lease is until when the runs of this machine may go on without the yard. It
// counts by the time since boot, which goes on while the machine sleeps and
// does not jump when somebody sets the clock.
type lease struct {
	Boot  string        `json:"boot"`  // which boot of the machine it counts from
	Until time.Duration `json:"until"` // since boot
	Valid time.Duration `json:"valid"` // how long it was given for
}

// Renew lets the runs go on without the yard for this long from now. A
// supervisor that finds the lease over stops its run with SIGTERM and a grace
// period of at most a tenth of the lease, so what the yard waits before it starts
// the job elsewhere must be longer than the lease by more than that. Before the
// first call there is no such bound.
func (r *Runtime) Renew(valid time.Duration) error {
	boot, now, err := sinceBoot()
	if err != nil {
		return err
	}
	l := lease{Boot: boot, Until: now + valid, Valid: valid}
	return writeJSON(filepath.Join(r.dir, leaseFile), l, false)
}

// readLease returns how long the lease in a data directory still holds, which
// is negative if it is over, and whether there is one.
func readLease(dir string) (lease, time.Duration, bool, error) {
	var l lease
	ok, err := readJSON(filepath.Join(dir, leaseFile), &l)
	if !ok || err != nil {
		return l, 0, false, err
	}
	boot, now, err := sinceBoot()
	if err != nil {
		return l, 0, false, err
	}
	if l.Boot != boot {
		return l, -1, true, nil // given before the machine was started anew
	}
	return l, l.Until - now, true, nil
}

// sinceBoot returns which boot this is and how long ago it was.
func sinceBoot() (string, time.Duration, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0, fmt.Errorf("read the boot id: %w", err)
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0, fmt.Errorf("read the time since boot: %w", err)
	}
	return strings.TrimSpace(string(id)), time.Duration(ts.Nano()), nil
}

// leaseOver waits until the lease in a data directory is over and returns it. It
// returns false if ctx ends first. Timers stand still while the machine sleeps,
// so it looks at least every second.
func leaseOver(ctx context.Context, dir string, failed func(error)) (lease, bool) {
	for {
		l, left, ok, err := readLease(dir)
		switch {
		case err != nil:
			failed(err)
			left = time.Second
		case !ok:
			if _, gone := os.Stat(dir); errors.Is(gone, fs.ErrNotExist) {
				return lease{}, true // the agent's data was removed: nobody will ever ask for this run
			}
			left = time.Second
		case left <= 0:
			return l, true
		}
		if !clock.Sleep(ctx, min(left, time.Second)) {
			return lease{}, false
		}
	}
}

// pause waits for a moment that nothing can cut short.
func pause(d time.Duration) { clock.Sleep(context.Background(), d) }
