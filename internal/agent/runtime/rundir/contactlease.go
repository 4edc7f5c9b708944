package rundir

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

// ContactLease is how long the runs of this machine may continue without contact to the server. It
// is measured as time since boot, which advances while the machine is suspended and does not jump
// when the clock is set.
type ContactLease struct {
	Boot  string        `json:"boot"`  // id of the boot it counts from
	Until time.Duration `json:"until"` // since boot
	Valid time.Duration `json:"valid"` // how long it was granted for
}

// WriteContactLease grants the runs of a data directory a contact lease of this
// length from now.
func WriteContactLease(dir string, valid time.Duration) error {
	boot, now, err := sinceBoot()
	if err != nil {
		return err
	}

	lease := ContactLease{Boot: boot, Until: now + valid, Valid: valid}

	return WriteJSON(filepath.Join(dir, ContactLeaseFile), lease, false)
}

// ReadContactLease returns the contact lease of a data directory, the time left of it (negative
// once it has expired), and whether there is one.
func ReadContactLease(dir string) (ContactLease, time.Duration, bool, error) {
	var lease ContactLease
	ok, err := ReadJSON(filepath.Join(dir, ContactLeaseFile), &lease)
	if !ok || err != nil {
		return lease, 0, false, err
	}

	boot, now, err := sinceBoot()
	if err != nil {
		return lease, 0, false, err
	}

	if lease.Boot != boot {
		return lease, -1, true, nil // granted before the machine was rebooted
	}

	return lease, lease.Until - now, true, nil
}

// sinceBoot returns the ID of this boot and the time since then.
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

// AwaitContactLeaseExpiry waits until the contact lease of a data directory has expired and returns
// it. It returns false if ctx is cancelled first. Timers stop while the machine is suspended, so it
// checks at least once a second.
func AwaitContactLeaseExpiry(ctx context.Context, dir string, failed func(error)) (ContactLease, bool) {
	for {
		lease, left, ok, err := ReadContactLease(dir)
		switch {
		case err != nil:
			failed(err)
			left = time.Second
		case !ok:
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				return ContactLease{}, true // the agent's data was removed: no agent will ever adopt this run
			}

			left = time.Second
		case left <= 0:
			return lease, true
		}

		if !clock.Sleep(ctx, min(left, time.Second)) {
			return ContactLease{}, false
		}
	}
}
