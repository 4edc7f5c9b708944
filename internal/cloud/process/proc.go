package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/clock"
)

const (
	// machineVar is set in the environment of a machine's process and of its agent.
	machineVar = "TRAINYARD_MACHINE"
	// rankVar is set in the environment of every program that the agent runs.
	rankVar = "TRAINYARD_RANK_DIR"

	killLook = 20 * time.Millisecond // how often to check whether processes have ended
	killMost = 10 * time.Second      // a process that survives SIGKILL for this long will not end
)

// pids lists the PIDs of all processes.
func pids() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}

	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}

	return all, nil
}

// procFile reads a file about a process, "" if the process has ended or belongs to another user.
func procFile(pid int, name string) string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	if err != nil {
		return ""
	}

	return string(text)
}

// belongs reports whether a process belongs to the machine in this directory, by the variables that
// the machine and the agent set for the processes they start.
func belongs(pid int, dir string) bool {
	for entry := range strings.SplitSeq(procFile(pid, "environ"), "\x00") {
		if entry == machineVar+"="+dir || strings.HasPrefix(entry, rankVar+"="+dir+"/") {
			return true
		}
	}

	// The supervisor of a run has its own environment, but the run directory is one of its
	// arguments.
	args := strings.Split(procFile(pid, "cmdline"), "\x00")

	return len(args) > 2 && args[0] == "trainyard" && strings.HasPrefix(args[2], dir+"/")
}

// killAll kills the remaining processes of a dead machine until none is left.
func killAll(dir string) error {
	for began := time.Duration(0); began < killMost; began += killLook {
		all, err := pids()
		if err != nil {
			return err
		}

		left := 0
		for _, pid := range all {
			if pid != os.Getpid() && belongs(pid, dir) {
				left++
				kill(pid, unix.SIGKILL)
			}
		}

		if left == 0 {
			return nil
		}

		clock.Sleep(context.Background(), killLook)
	}

	return errors.New("processes do not exit")
}

// kill signals a process that was just listed. It may have ended since.
func kill(pid int, sig unix.Signal) {
	_ = unix.Kill(pid, sig) // survivors are listed and signalled again
}

// descendants lists all descendants of this process.
func descendants() ([]int, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}

	children := map[int][]int{}
	for _, pid := range all {
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}

	var found []int
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		below := children[queue[0]]
		found = append(found, below...)
		queue = append(queue, below...)
	}

	return found, nil
}

// parentOf returns the parent of a process that is not a zombie. The name in parentheses may
// contain anything, so the fields are counted from its end.
func parentOf(pid int) (int, bool) {
	stat := []byte(procFile(pid, "stat"))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 || string(fields[0]) == "Z" || string(fields[0]) == "X" {
		return 0, false
	}

	parent, err := strconv.Atoi(string(fields[1]))

	return parent, err == nil
}
