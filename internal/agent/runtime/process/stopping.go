package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Stopping chooses which processes of a program get SIGTERM, and when.
//
// A program that gets SIGTERM may save a checkpoint, and needs its own processes for that: a training whose data
// loaders get SIGTERM too loses them while it saves, and fails. Therefore SIGTERM first goes only to processes
// without a parent in the program: those whose parent is outside the program, is a shell, or has exited. The others
// are left to their parents until the caller asks for all. Even then a process that reads the output of another
// one, as tee does behind a training, is spared, because the writer would fail without its reader. When the writer is
// gone, the reader still has to pass on what it has not read yet: it exits at the end of its input, and gets SIGTERM
// only if it is still there when the caller asks for all. Processes started after the first call belong to the saving
// of the checkpoint and never get SIGTERM.
type Stopping struct {
	signalled map[name]bool // processes at the first call; true for those that got SIGTERM
	readers   map[name]bool // that were spared because they read the output of another one
	begun     bool          // Next has been called
}

// name identifies one process.
type name struct {
	pid   int
	begun uint64
}

// Relations answers questions about how processes relate to each other.
type Relations struct {
	Shell     func(Process) bool                 // whether one is a shell
	ReadsFrom func(p Process, of []Process) bool // whether p reads the output of one of the others
}

// Next returns the processes that get SIGTERM now. procs are all live processes of the program. With all it returns
// every process that existed at the first call and has not received SIGTERM yet.
func (s *Stopping) Next(procs []Process, kin Relations, all bool) []Process {
	next := s.choose(procs, kin, all)
	if len(next) == 0 && !s.begun { // they read from each other in a cycle
		clear(s.readers)

		next = s.choose(procs, Relations{kin.Shell, func(Process, []Process) bool { return false }}, all)
	}

	s.begun = true

	return next
}

func (s *Stopping) choose(procs []Process, kin Relations, all bool) []Process {
	if s.signalled == nil {
		s.signalled, s.readers = map[name]bool{}, map[name]bool{}
		for _, p := range procs {
			s.signalled[name{p.PID, p.Started}] = false
		}
	}

	parents := map[int]Process{}
	for _, p := range procs {
		parents[p.PID] = p
	}

	var next []Process
	for _, p := range procs {
		this := name{p.PID, p.Started}
		if told, there := s.signalled[this]; told || !there {
			continue
		}

		if !all && (s.readers[this] || !unattended(p, parents, kin.Shell)) {
			continue
		}

		if kin.ReadsFrom(p, procs) {
			s.readers[this] = true
			continue
		}

		s.signalled[this] = true
		next = append(next, p)
	}

	return next
}

// unattended reports whether there are only shells between a process and the outside of the
// program.
func unattended(p Process, parents map[int]Process, shell func(Process) bool) bool {
	for range len(parents) {
		parent, inside := parents[p.Parent]
		if !inside {
			return true
		}
		if !shell(parent) {
			return false
		}

		p = parent
	}

	return true // a cycle: the processes were not all read at the same moment
}

// shells are the names of programs that start other programs and do not look after them.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"}

// Shell reports whether a process is a shell. A script counts as its interpreter.
func (p Process) Shell() bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/exe")
	return err == nil && slices.Contains(shells, filepath.Base(strings.TrimSuffix(exe, " (deleted)")))
}

// ReadsFrom reports whether a process reads from a pipe into which one of the others writes.
func (p Process) ReadsFrom(of []Process) bool {
	in, err := os.Readlink(p.file(0))
	if err != nil || !strings.HasPrefix(in, "pipe:") {
		return false
	}

	return slices.ContainsFunc(of, func(other Process) bool {
		if other.PID == p.PID {
			return false
		}

		for _, n := range []int{1, 2} {
			if out, err := os.Readlink(other.file(n)); err == nil && out == in {
				return true
			}
		}

		return false
	})
}

// file returns the name of an open file of a process, by its descriptor.
func (p Process) file(n int) string {
	return filepath.Join("/proc", strconv.Itoa(p.PID), "fd", strconv.Itoa(n))
}
