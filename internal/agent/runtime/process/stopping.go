package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Stopping says who of the processes of a program is told to end, and when.
//
// A program that is told to end saves itself, and needs its own processes for that: a training whose data
// loaders are told too loses them while it saves, and fails. So only those are told that nobody in
// the program looks after: whose parent is outside, is a shell, or has ended. The others are their parents'
// affair, until all are told. Nor is one told, even then, that reads what another prints, as tee does behind a training:
// without it that other one could not print, and would fail too. It ends when nobody writes to it any more, or is told then.
// What is started after the first look is part of the saving and is never told.
type Stopping struct {
	there map[name]bool // at the first look; true for those that have been told
	begun bool          // there was a look
}

// name is one process.
type name struct {
	pid   int
	begun uint64
}

// Kin is what is asked about processes.
type Kin struct {
	Shell func(Process) bool                 // whether one is a shell
	Hears func(p Process, of []Process) bool // whether one reads what another of them prints
}

// Next returns who is to be told now. procs are all processes of the program that live. With all everyone who was there
// and has not been told is.
func (s *Stopping) Next(procs []Process, kin Kin, all bool) []Process {
	next := s.choose(procs, kin, all)
	if len(next) == 0 && !s.begun { // they read from each other in a circle
		next = s.choose(procs, Kin{kin.Shell, func(Process, []Process) bool { return false }}, all)
	}
	s.begun = true
	return next
}

func (s *Stopping) choose(procs []Process, kin Kin, all bool) []Process {
	if s.there == nil {
		s.there = map[name]bool{}
		for _, p := range procs {
			s.there[name{p.PID, p.Begun}] = false
		}
	}
	parents := map[int]Process{}
	for _, p := range procs {
		parents[p.PID] = p
	}
	var next []Process
	for _, p := range procs {
		if told, there := s.there[name{p.PID, p.Begun}]; told || !there {
			continue
		}
		if (all || unattended(p, parents, kin.Shell)) && !kin.Hears(p, procs) {
			s.there[name{p.PID, p.Begun}] = true
			next = append(next, p)
		}
	}
	return next
}

// unattended reports whether between a process and the outside there are shells only.
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
	return true // a circle: the processes were not seen at one moment
}

// shells are the names of programs that start others and leave them to themselves.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"}

// Shell reports whether a process is a shell. A script is one by the program that carries it out.
func (p Process) Shell() bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(p.PID) + "/exe")
	return err == nil && slices.Contains(shells, filepath.Base(strings.TrimSuffix(exe, " (deleted)")))
}

// Hears reports whether a process reads from a pipe into which another one prints.
func (p Process) Hears(of []Process) bool {
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

// file is the name of one of the files that a process has open.
func (p Process) file(n int) string {
	return filepath.Join("/proc", strconv.Itoa(p.PID), "fd", strconv.Itoa(n))
}
