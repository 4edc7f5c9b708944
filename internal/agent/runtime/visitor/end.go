package visitor

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/clock"
)

// killRounds is how often the processes of a visitor are looked for and killed. Each round finds those that were
// forked during the last one.
const killRounds = 50

// Kill kills all processes of a visitor: the one that was started, its session, their descendants, and whatever has
// inherited its environment. It returns when none is left, or when they do not end, which the kernel delays if they are
// in the middle of a call: then they end with the program at the latest.
func Kill(id string, root process.Process) error {
	var errs []error

	for round := range killRounds {
		left, err := find(id, root)
		if err != nil || len(left) == 0 {
			return errors.Join(append(errs, err)...)
		}

		errs = nil
		for _, p := range left {
			errs = append(errs, p.Signal(unix.SIGKILL))
		}

		clock.Sleep(context.Background(), time.Duration(min(round, 10))*time.Millisecond)
	}

	return errors.Join(errs...)
}

// find lists the processes of a visitor that have not ended.
func find(id string, root process.Process) ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, err
	}

	mark := Var + "=" + id
	roots := map[int]bool{}
	var found []process.Process

	for _, p := range all {
		// The kernel gives the number of a session to no other process as long as one of the session is left.
		same := p.PID == root.PID && p.Started == root.Started
		if same || p.Session == root.PID && p.Started >= root.Started || process.HasEnv(p.PID, mark) {
			roots[p.PID] = true
			found = append(found, p)
		}
	}

	return append(found, process.Descendants(all, roots)...), nil
}
