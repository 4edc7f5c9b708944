package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/clock"
)

// stopPatience is how long processes may take to stop; one in the middle of disk I/O takes a while.
const stopPatience = 10 * time.Second

// Processes lists the processes of a program.
type Processes func() ([]process.Process, error)

// HostMemory returns how many bytes of the machine's memory programs can still have.
func HostMemory() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("find the free memory of the machine: %w", err)
	}

	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("find the free memory of the machine: %w", err)
			}

			return kib << 10, nil
		}
	}

	return 0, errors.New("find the free memory of the machine: /proc/meminfo does not say it")
}

// Continue lets the stopped processes of a program run, without their GPU memory.
func Continue(list Processes) error {
	procs, err := list()
	errs := []error{err}
	for _, p := range procs {
		errs = append(errs, p.Signal(unix.SIGCONT))
	}

	return errors.Join(errs...)
}

// Suspend moves the GPU memory of a program to host memory, if cuda is not nil, and stops its processes. It returns
// when none of them runs. The driver comes first, because it needs the processes to move their memory. On failure the
// program goes on.
func Suspend(ctx context.Context, cuda *CUDA, list Processes) error {
	if cuda != nil {
		pids, err := pidsOf(list)
		if err == nil {
			_, err = cuda.Suspend(ctx, pids)
		}

		if err != nil {
			return fmt.Errorf("suspend the program: %w", err)
		}
	}

	if err := stopAll(ctx, list); err != nil {
		return errors.Join(fmt.Errorf("suspend the program: %w", err), Resume(context.WithoutCancel(ctx), cuda, list))
	}

	return nil
}

// Resume lets a suspended program go on. If the GPU memory cannot be had back, because somebody else has it, the
// program waits in its next CUDA call, and Resume can be tried again.
func Resume(ctx context.Context, cuda *CUDA, list Processes) error {
	procs, err := list()
	errs := []error{err}
	var pids []int
	for _, p := range procs {
		pids = append(pids, p.PID)
		errs = append(errs, p.Signal(unix.SIGCONT))
	}

	if cuda != nil {
		errs = append(errs, cuda.Resume(ctx, pids))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("resume the program: %w", err)
	}

	return nil
}

func pidsOf(list Processes) ([]int, error) {
	procs, err := list()
	pids := make([]int, len(procs))
	for i, p := range procs {
		pids[i] = p.PID
	}

	return pids, err
}

// stopAll stops processes until all of them, also those that were started meanwhile, are stopped.
func stopAll(ctx context.Context, list Processes) error {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()

	for {
		procs, err := list()
		if err != nil {
			return err
		}

		running := 0
		for _, p := range procs {
			if stopped(p.PID) {
				continue
			}

			running++

			if err := p.Signal(unix.SIGSTOP); err != nil {
				return err
			}
		}

		if running == 0 {
			return nil
		}
		if !clock.Sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("%d processes do not stop: %w", running, ctx.Err())
		}
	}
}

// stopped reports whether a process runs no code of its own any more: it is stopped or gone, or will stop before it
// returns from the kernel. One that waits there for a stopped child, after vfork, stays in that state.
func stopped(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return true
	}

	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)

		switch name {
		case "State":
			if strings.HasPrefix(value, "T") || strings.HasPrefix(value, "t") {
				return true
			}
		case "SigPnd", "ShdPnd":
			pending, err := strconv.ParseUint(value, 16, 64)
			if err == nil && pending&(1<<(unix.SIGSTOP-1)) != 0 {
				return true
			}
		}
	}

	return false
}
