package rundir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
)

// Processes identifies the processes of a rank: the members of its cgroup, the
// descendants of its supervisor or the session of its program, and whatever carries
// RankDirVar in its environment.
type Processes struct {
	Dir     string        // the run directory
	Group   *cgroup.Group // the cgroup, nil if the rank has none
	Root    int           // the supervisor, all of whose descendants belong to the rank; 0 if it is gone
	Session int           // session of the program, for when the supervisor is gone; 0 if unknown
	Since   uint64        // start of the program: an older process in Session got a reused id
	// Isolated says that the program cannot leave its namespaces. What its user writes into an environment counts for
	// nothing then: it may be the name of somebody else's run.
	Isolated bool
}

// Find lists the rank's processes. With deep it also reads the environment of every process of the machine that is not
// older than the supervisor, which is slower. An older one cannot have inherited it.
func (q Processes) Find(deep bool) ([]process.Process, error) {
	procs, err := process.All()
	if err != nil {
		return nil, err
	}

	self := os.Getpid()
	inGroup := q.Group.Procs()
	mark := RankDirVar + "=" + q.Dir
	var found []process.Process
	var begun uint64 // when the supervisor did

	roots := map[int]bool{}
	if q.Root != 0 {
		roots[q.Root] = true
		root, _ := process.Read(q.Root)
		begun = root.Started
	}

	for _, p := range procs {
		if p.PID == self || p.PID == q.Root {
			continue
		}

		ours := inGroup[p.PID] || q.Session != 0 && p.Session == q.Session && p.Started >= q.Since
		inherits := deep && p.Started >= begun && (!q.Isolated || process.Own(p.PID))
		if ours || inherits && process.HasEnv(p.PID, mark) {
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

// Signal sends a signal to all of the rank's processes and returns how many there were.
func (q Processes) Signal(sig unix.Signal, deep bool) (int, error) {
	if sig == unix.SIGKILL {
		q.Group.Kill()
	}

	procs, err := q.Find(deep)
	errs := []error{err}
	for _, p := range procs {
		errs = append(errs, p.Signal(sig))
		if sig == unix.SIGTERM {
			errs = append(errs, p.Signal(unix.SIGCONT)) // a stopped process gets SIGTERM only once it continues
		}
	}

	return len(procs), errors.Join(errs...)
}
