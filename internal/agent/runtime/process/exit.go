package process

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
)

// AwaitExit waits for the end of a process, which need not be a child. It returns false if ctx ends first. It does
// not reap the process.
func AwaitExit(ctx context.Context, pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return true
	}

	if err == nil {
		err = awaitReadable(ctx, fd, pid)
	}

	for err != nil && ctx.Err() == nil { // an old kernel without pidfd
		if p, ok := Read(pid); !ok || p.Dead {
			return true
		}

		clock.Sleep(ctx, 100*time.Millisecond)
	}

	return ctx.Err() == nil
}

// AwaitExit waits for the end of this process, and returns at once if its PID belongs to another one now.
func (p Process) AwaitExit(ctx context.Context) bool {
	if !p.Exists() {
		return true
	}

	return AwaitExit(ctx, p.PID)
}

// Exists reports whether this process, not another one with its PID, is there and has not ended.
func (p Process) Exists() bool {
	now, ok := Read(p.PID)
	return ok && !now.Dead && now.Started == p.Started
}

// awaitReadable waits until a pidfd reports the end of its process, or until ctx ends, and closes the descriptor.
func awaitReadable(ctx context.Context, fd, pid int) error {
	f := os.NewFile(uintptr(fd), "process "+strconv.Itoa(pid))
	defer func() { _ = f.Close() }()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()

	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}

	return conn.Read(func(fd uintptr) bool {
		n, perr := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return perr == nil && n > 0
	})
}
