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
	"trainyard/internal/contact"
)

// ReserveContactLease makes room for the contact lease of a data directory, so that it can be renewed on a full
// disk.
func ReserveContactLease(dir string) error { return reserveSlots(filepath.Join(dir, ContactLeaseFile)) }

// WriteContactLease gives the runs of a data directory a contact lease. It needs no disk space.
func WriteContactLease(dir string, lease contact.Lease) error {
	err := writeRecord(filepath.Join(dir, ContactLeaseFile), lease)
	return errors.Join(err, writeFormerLease(dir, lease))
}

// ReadContactLease returns the contact lease of a data directory, the time left of it (negative
// once it has expired), and whether there is one.
func (b *BootClock) ReadContactLease(dir string) (contact.Lease, time.Duration, bool, error) {
	var lease contact.Lease
	ok, err := readRecord(filepath.Join(dir, ContactLeaseFile), &lease)
	if !ok || err != nil {
		return lease, 0, false, err
	}

	now, err := b.Now()
	if err != nil {
		return lease, 0, false, err
	}

	return lease, lease.Left(now), true, nil
}

// BootClock reads the time since boot, which advances while the machine is suspended and does not jump when the clock
// is set. It reads once which start of the machine this is: no process outlives that.
type BootClock struct {
	boot string
	err  error
}

// NewBootClock returns the clock of this process.
func NewBootClock() *BootClock {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &BootClock{boot: strings.TrimSpace(string(id)), err: err}
}

// Boot names the present start of the machine, "" if the kernel does not say.
func (b *BootClock) Boot() string { return b.boot }

// Now returns the time since boot.
func (b *BootClock) Now() (contact.Moment, error) {
	if b.err != nil {
		return contact.Moment{}, fmt.Errorf("read the boot id: %w", b.err)
	}

	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return contact.Moment{}, fmt.Errorf("read the time since boot: %w", err)
	}

	return contact.Moment{Boot: b.boot, Since: time.Duration(ts.Nano())}, nil
}

// AwaitContactLeaseExpiry waits until the contact lease of a data directory has expired and returns
// it with the time left, which is not positive. It returns false if ctx is cancelled first. Timers
// stop while the machine is suspended, so it checks at least once a second.
func (b *BootClock) AwaitContactLeaseExpiry(
	ctx context.Context,
	dir string,
	failed func(error),
) (contact.Lease, time.Duration, bool) {
	for {
		lease, left, ok, err := b.ReadContactLease(dir)
		switch {
		case err != nil:
			failed(err)
			left = time.Second
		case !ok:
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				return contact.Lease{}, 0, true // the agent's data was removed: no agent will ever adopt this run
			}

			left = time.Second
		case left <= 0:
			return lease, left, true
		}

		if !clock.Sleep(ctx, min(left, time.Second)) {
			return contact.Lease{}, 0, false
		}
	}
}
