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
// affair, until All. What is started after the first look is part of the saving and is never told.
type Stopping struct {
	there map[name]bool // at the first look; true for those that have been told
}

// name is one process.
type name struct {
	pid   int
	begun uint64
}

// Next returns who is to be told now. procs are all processes of the program that live; shell says whether one is
// a shell. With all everyone who was there and has not been told is.
func (s *Stopping) Next(procs []Process, shell func(Process) bool, all bool) []Process {
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
		if all || unattended(p, parents, shell) {
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
