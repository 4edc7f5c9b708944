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

	for round, clean := 0, 0; round < killRounds; round++ {
		left, unsure, err := find(id, root)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}

		// One that forks and ends while the others are looked at is in no single look.
		if len(left) == 0 && !unsure {
			clean++
		} else {
			clean = 0
		}

		if clean == 2 {
			return errors.Join(errs...)
		}

		errs = nil
		for _, p := range left {
			errs = append(errs, p.Signal(unix.SIGKILL))
		}

		clock.Sleep(context.Background(), time.Duration(min(round, 10))*time.Millisecond)
	}

	return errors.Join(errs...)
}

// find lists the processes of a visitor that have not ended. It is unsure if there are others that might be, of which
// the next look tells.
func find(id string, root process.Process) (found []process.Process, unsure bool, err error) {
	all, err := process.All()
	if err != nil {
		return nil, false, err
	}

	mark := Var + "=" + id
	roots := map[int]bool{}

	for _, p := range all {
		// The kernel gives the number of a session to no other process as long as one of the session is left.
		same := p.PID == root.PID && p.Started == root.Started
		if same || p.Session == root.PID && p.Started >= root.Started || process.HasEnv(p.PID, mark) {
			roots[p.PID] = true
			found = append(found, p)
		} else if p.Started >= root.Started && process.Executing(p) {
			unsure = true
		}
	}

	return append(found, process.Descendants(all, roots)...), unsure, nil
}
