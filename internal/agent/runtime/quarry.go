package runtime

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
)

// quarry says which processes belong to a rank.
type quarry struct {
	dir     string        // its run directory
	group   *cgroup.Group // its cgroup, nil if it has none
	root    int           // the supervisor, whose descendants all belong to it; 0 if it is gone
	session int           // of the program, for when the supervisor is gone; 0 if unknown
	since   uint64        // when the program was started: an older process is none of its
}

// find lists the rank's processes. With deep it reads the environment of every
// process of the machine too, which takes longer.
func (q quarry) find(deep bool) ([]process.Process, error) {
	procs, err := process.All()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	inGroup := q.group.Procs()
	mark := rankDirVar + "=" + q.dir
	var found []process.Process
	roots := map[int]bool{}
	if q.root != 0 {
		roots[q.root] = true
	}
	for _, p := range procs {
		if p.PID == self || p.PID == q.root {
			continue
		}
		ours := inGroup[p.PID] || q.session != 0 && p.Session == q.session && p.Begun >= q.since
		if ours || deep && process.HasEnv(p.PID, mark) {
			roots[p.PID] = true
			found = append(found, p)
		}
	}
	for _, p := range process.Descendants(procs, roots) {
		if p.PID != self {
			found = append(found, p)
		}
	}
	return found, nil
}

// signal sends a signal to all of the rank's processes and says how many there were.
func (q quarry) signal(sig unix.Signal, deep bool) (int, error) {
	if sig == unix.SIGKILL {
		q.group.Kill()
	}
	procs, err := q.find(deep)
	errs := []error{err}
	for _, p := range procs {
		errs = append(errs, p.Signal(sig))
		if sig == unix.SIGTERM {
			errs = append(errs, p.Signal(unix.SIGCONT)) // a stopped process must see it
		}
	}
	return len(procs), errors.Join(errs...)
}
