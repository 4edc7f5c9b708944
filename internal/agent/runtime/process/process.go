// Package process finds processes of this machine and signals them.
//
// A process is identified by its PID and its start time, so that a signal never reaches another
// process that got the same PID later. Package runtime uses it to find all processes of a run. The
// package only reads and signals: it neither starts processes nor waits for them.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is a process as the kernel lists it.
type Process struct {
	PID, Parent, Session int
	Started              uint64 // in ticks since boot; together with PID it identifies one process
	Dead                 bool   // a zombie: it has ended and was not waited for
}

// Read reads one process and reports whether it exists.
func Read(pid int) (Process, bool) {
	// All reads one for every process of the machine, so it does without what package os does for files that may block.
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}

	defer func() { _ = unix.Close(fd) }()

	var buf [maxStat]byte // the kernel gives all of it at once

	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return Process{}, false
	}

	return parseStat(pid, buf[:n])
}

// maxStat is more than a line of /proc/<pid>/stat can have: a name and 52 numbers.
const maxStat = 2048

// parseStat parses the text of /proc/<pid>/stat. The name in parentheses may contain spaces and
// parentheses, so the fields are counted from the last one.
func parseStat(pid int, data []byte) (Process, bool) {
	_, rest, ok := cutLast(data, ')')
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return Process{}, false
	}

	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])

	begun, err3 := strconv.ParseUint(fields[19], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return Process{}, false
	}

	dead := fields[0] == "Z" || fields[0] == "X"

	return Process{PID: pid, Parent: parent, Session: session, Started: begun, Dead: dead}, true
}

func cutLast(data []byte, sep byte) (before, after []byte, ok bool) {
	i := bytes.LastIndexByte(data, sep)
	if i < 0 {
		return data, nil, false
	}

	return data[:i], data[i+1:], true
}

// All lists every process that is not dead.
func All() ([]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}

	defer func() { _ = dir.Close() }()

	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}

	var procs []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}

		if p, ok := Read(pid); ok && !p.Dead {
			procs = append(procs, p)
		}
	}

	return procs, nil
}

// Descendants returns those of procs that descend from one in roots, without the roots.
func Descendants(procs []Process, roots map[int]bool) []Process {
	children := map[int][]Process{}
	for _, p := range procs {
		children[p.Parent] = append(children[p.Parent], p)
	}

	var found []Process
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
			if !seen[c.PID] {
				seen[c.PID] = true
				found = append(found, c)
				queue = append(queue, c.PID)
			}
		}
	}

	return found
}

// Family lists a process with its descendants, and what these have left to their reaper when they ended, by their ids.
// It looks at them alone, not at every process of the machine, if the kernel lists the children of processes. One that
// is started or loses its parent meanwhile may be missing.
func Family(pid, reaper int) ([]int, error) {
	// The kernel gives orphans to the first thread of the reaper. The others are not looked at: whoever waits for the
	// reaper would then wait, at work, until the kernel has forgotten what it showed of each of its threads.
	family, err := childrenOf(reaper, strconv.Itoa(reaper))
	if errors.Is(err, errNoChildren) {
		return searchFamily(pid, reaper)
	}
	if err != nil {
		return nil, err
	}

	if !slices.Contains(family, pid) {
		family = append(family, pid)
	}

	for i := 0; i < len(family); i++ {
		more, err := children(family[i])
		if err != nil {
			return nil, err
		}

		for _, c := range more {
			if !slices.Contains(family, c) { // it may have been moved to another parent, and an id may come again
				family = append(family, c)
			}
		}
	}

	return family, nil
}

// searchFamily is Family for a kernel that does not list the children of processes.
func searchFamily(pid, reaper int) ([]int, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}

	family := []int{pid}
	for _, p := range Descendants(all, map[int]bool{reaper: true}) {
		if p.PID != pid {
			family = append(family, p.PID)
		}
	}

	return family, nil
}

// errNoChildren says that the kernel does not list the children of processes.
var errNoChildren = errors.New("the kernel does not list the children of processes")

// children lists the children of a process, which belong to its threads. One that has ended has none.
func children(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the threads of process %d: %w", pid, err)
	}

	var pids []int
	for _, e := range entries {
		more, err := childrenOf(pid, e.Name())
		if err != nil {
			return nil, err
		}

		pids = append(pids, more...)
	}

	return pids, nil
}

// childrenOf lists the children of one thread. One that has ended has none.
func childrenOf(pid int, thread string) ([]int, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task", thread)

	text, err := os.ReadFile(filepath.Join(dir, "children"))
	if err != nil {
		if _, gone := os.Stat(dir); gone == nil && errors.Is(err, fs.ErrNotExist) {
			return nil, errNoChildren
		}

		return nil, nil
	}

	var pids []int
	for word := range strings.FieldsSeq(string(text)) {
		if c, err := strconv.Atoi(word); err == nil {
			pids = append(pids, c)
		}
	}

	return pids, nil
}

// Own reports whether a process runs as the user of this one.
func Own(pid int) bool {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+strconv.Itoa(pid), &st)

	return err == nil && int(st.Uid) == os.Geteuid()
}

// HasEnv reports whether a process was started with this entry in its environment.
func HasEnv(pid int, entry string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // it has ended, or belongs to another user
	}

	for e := range bytes.SplitSeq(data, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}

	return false
}

// Executing reports whether a process seems to be in the middle of executing another program: then it has no
// environment for a moment, which is longer on a busy machine. One that was started without any looks like that, too.
func Executing(p Process) bool {
	if p.Dead || p.Session == 0 { // the latter is the kernel's own
		return false
	}

	data, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/environ")

	return err == nil && len(data) == 0
}

// Signal sends a signal to exactly this process, never to one that got its PID later. It is not an
// error if the process has ended.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.ENOSYS):
		err = unix.Kill(p.PID, sig) // an old kernel without pidfd: the PID may have been reused
	case err != nil:
		return fmt.Errorf("open process %d: %w", p.PID, err)
	default:
		defer func() { _ = unix.Close(fd) }()

		if now, ok := Read(p.PID); !ok || now.Started != p.Started {
			return nil
		}

		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}

	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}

	return nil
}

// ReadCounter reads the number that follows key in a file of "key number" lines.
func ReadCounter(path, key string) (int64, bool) {
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
