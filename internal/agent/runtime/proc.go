package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// proc is a process as the kernel lists it.
type proc struct {
	pid, parent, session int
	begun                uint64 // in ticks since boot; with pid it names one process only
	dead                 bool   // a zombie: it does nothing any more
}

// readProc reads one process and reports whether it exists.
func readProc(pid int) (proc, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	return parseStat(pid, data)
}

// parseStat reads the text of /proc/<pid>/stat. The name in parentheses may
// hold anything, so the fields are counted from its last parenthesis on.
func parseStat(pid int, data []byte) (proc, bool) {
	_, rest, ok := cutLast(data, ')')
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return proc{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	begun, err3 := strconv.ParseUint(fields[19], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return proc{}, false
	}
	dead := fields[0] == "Z" || fields[0] == "X"
	return proc{pid: pid, parent: parent, session: session, begun: begun, dead: dead}, true
}

func cutLast(data []byte, sep byte) (before, after []byte, ok bool) {
	i := bytes.LastIndexByte(data, sep)
	if i < 0 {
		return data, nil, false
	}
	return data[:i], data[i+1:], true
}

// allProcs lists every process that is not dead.
func allProcs() ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var procs []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		if p, ok := readProc(pid); ok && !p.dead {
			procs = append(procs, p)
		}
	}
	return procs, nil
}

// descendants returns those of procs that descend from one in roots, without the roots.
func descendants(procs []proc, roots map[int]bool) []proc {
	children := map[int][]proc{}
	for _, p := range procs {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []proc
	seen := map[int]bool{}
	var queue []int
	for pid := range roots {
		queue = append(queue, pid)
		seen[pid] = true
	}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, c := range children[pid] {
			if !seen[c.pid] {
				seen[c.pid] = true
				found = append(found, c)
				queue = append(queue, c.pid)
			}
		}
	}
	return found
}

// hasEnv reports whether a process was started with this entry in its environment.
func hasEnv(pid int, entry string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // gone, or somebody else's
	}
	for e := range bytes.SplitSeq(data, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// signal sends a signal to exactly this process, never to one that got its PID
// later. A process that is gone is no error.
func (p proc) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.ENOSYS):
		err = unix.Kill(p.pid, sig) // an old kernel: the risk is a reused PID
	case err != nil:
		return fmt.Errorf("open process %d: %w", p.pid, err)
	default:
		defer func() { _ = unix.Close(fd) }()
		if now, ok := readProc(p.pid); !ok || now.begun != p.begun {
			return nil
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// quarry says which processes belong to a rank.
type quarry struct {
	dir     string // its run directory
	group   *group // its cgroup, nil if it has none
	root    int    // the supervisor, whose descendants all belong to it; 0 if it is gone
	session int    // of the program, for when the supervisor is gone; 0 if unknown
	since   uint64 // when the program was started: an older process is none of its
}

// find lists the rank's processes. With deep it reads the environment of every
// process of the machine too, which takes longer.
func (q quarry) find(deep bool) ([]proc, error) {
	procs, err := allProcs()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	inGroup := q.group.procs()
	mark := rankDirVar + "=" + q.dir
	var found []proc
	roots := map[int]bool{}
	if q.root != 0 {
		roots[q.root] = true
	}
	for _, p := range procs {
		if p.pid == self || p.pid == q.root {
			continue
		}
		ours := inGroup[p.pid] || q.session != 0 && p.session == q.session && p.begun >= q.since
		if ours || deep && hasEnv(p.pid, mark) {
			roots[p.pid] = true
			found = append(found, p)
		}
	}
	for _, p := range descendants(procs, roots) {
		if p.pid != self {
			found = append(found, p)
		}
	}
	return found, nil
}

// signal sends a signal to all of the rank's processes and says how many there were.
func (q quarry) signal(sig unix.Signal, deep bool) (int, error) {
	if sig == unix.SIGKILL {
		q.group.kill()
	}
	procs, err := q.find(deep)
	errs := []error{err}
	for _, p := range procs {
		errs = append(errs, p.signal(sig))
		if sig == unix.SIGTERM {
			errs = append(errs, p.signal(unix.SIGCONT)) // a stopped process must see it
		}
	}
	return len(procs), errors.Join(errs...)
}

// readNumber reads the number that follows key in a file of "key number" lines.
func readNumber(path, key string) (int64, bool) {
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
