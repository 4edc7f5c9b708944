// Package cgroup limits the resources of the processes of a run.
//
// It supports both versions of the kernel's control groups: v2, and v1 with its separate trees for
// memory, CPU, processes and I/O. Every run has its own group under a common parent. Where groups cannot be
// created, Find says why in a sentence and runs continue without limits. Package runtime calls it.
// It moves only the processes that it is given, and changes only groups that it created.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// parentName is the group that contains those of all ranks.
const parentName = "trainyard"

// Place says where the cgroups of ranks are created. The zero value means nowhere.
type Place struct {
	V2     bool   `json:"v2,omitempty"`
	Memory string `json:"memory,omitempty"` // parent directory; with v2 for all controllers
	CPU    string `json:"cpu,omitempty"`    // v1 only; "" if that controller is not available
	PIDs   string `json:"pids,omitempty"`   // likewise
	IO     string `json:"io,omitempty"`     // likewise
}

// Usable reports whether limits can be enforced at all.
func (c Place) Usable() bool { return c.Memory != "" }

// String describes for the inventory how limits are enforced.
func (c Place) String() string {
	if c.V2 {
		return "cgroup v2"
	}

	return "cgroup v1"
}

// Find looks for a place where cgroups can be created, and tests it. The error says in one sentence
// why there is none.
func Find() (Place, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Place{}, fmt.Errorf("limits are not enforced: %w", err)
	}

	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Place{}, fmt.Errorf("limits are not enforced: %w", err)
	}

	found := parseMounts(string(mounts), string(own))
	if found.v2 != "" && hasWord(filepath.Join(found.v2, "cgroup.controllers"), "memory") {
		return makeParentV2(found.v2)
	}
	if found.memory == "" {
		return Place{}, errors.New("limits are not enforced: no cgroup memory controller is mounted")
	}

	return makeParentV1(found)
}

// mounted is where the controllers are mounted. For v1 it is the cgroup of this process, so that
// ranks stay within the limits of the agent; for v2 it is the root, because a cgroup with processes
// of its own cannot have limited children.
type mounted struct{ v2, memory, cpu, pids, io string }

func parseMounts(mountinfo, own string) mounted {
	path := map[string]string{}
	for line := range strings.Lines(own) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 {
			for c := range strings.SplitSeq(parts[1], ",") {
				path[c] = parts[2]
			}
		}
	}

	var m mounted

	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}

		root := left[3]
		point := left[4]
		options := strings.Split(right[2], ",")

		at := func(controller string) string {
			p := path[controller]
			if root != "/" {
				p = strings.TrimPrefix(p, root) // a container sees only its own part of the tree
			}

			return filepath.Join(point, p)
		}

		switch {
		case right[0] == "cgroup2" && m.v2 == "":
			m.v2 = point
		case right[0] == "cgroup" && m.memory == "" && slices.Contains(options, "memory"):
			m.memory = at("memory")
		case right[0] == "cgroup" && m.cpu == "" && slices.Contains(options, "cpu"):
			m.cpu = at("cpu")
		case right[0] == "cgroup" && m.pids == "" && slices.Contains(options, "pids"):
			m.pids = at("pids")
		case right[0] == "cgroup" && m.io == "" && slices.Contains(options, "blkio"):
			m.io = at("blkio")
		}
	}

	return m
}

func makeParentV1(m mounted) (Place, error) {
	c := Place{Memory: filepath.Join(m.memory, parentName)}
	if err := tryCgroup(c.Memory); err != nil {
		return Place{}, fmt.Errorf("limits are not enforced: cannot create a cgroup: %w", err)
	}

	for _, more := range []struct {
		at string
		to *string
	}{{m.cpu, &c.CPU}, {m.pids, &c.PIDs}, {m.io, &c.IO}} {
		if more.at == "" {
			continue
		}

		parent := filepath.Join(more.at, parentName)
		if tryCgroup(parent) == nil { // a memory limit alone is still useful
			*more.to = parent
		}
	}

	return c, nil
}

func makeParentV2(root string) (Place, error) {
	c := Place{V2: true, Memory: filepath.Join(root, parentName)}
	for _, dir := range []string{root, c.Memory} {
		if err := mkdir(dir); err != nil {
			return Place{}, fmt.Errorf("limits are not enforced: cannot create a cgroup: %w", err)
		}
		if err := setKnob(dir, "cgroup.subtree_control", "+memory +cpu"); err != nil {
			return Place{}, fmt.Errorf("limits are not enforced: cannot enable the cgroup controllers: %w", err)
		}

		for _, more := range []string{"+pids", "+io"} { // the others are useful without
			_ = setKnob(dir, "cgroup.subtree_control", more)
		}
	}

	if err := tryCgroup(c.Memory); err != nil {
		return Place{}, fmt.Errorf("limits are not enforced: cannot create a cgroup: %w", err)
	}

	return c, nil
}

// tryCgroup creates the parent and, as a test, a child that it removes again.
func tryCgroup(parent string) error {
	if err := mkdir(parent); err != nil {
		return err
	}

	try, err := os.MkdirTemp(parent, "try-")
	if err != nil {
		return err
	}

	return os.Remove(try)
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	return nil
}

// setKnob writes an existing control file of a cgroup.
func setKnob(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = f.WriteString(value)

	return errors.Join(err, f.Close())
}

// hasWord reports whether a file contains a word.
func hasWord(path, word string) bool {
	data, err := os.ReadFile(filepath.Clean(path))
	return err == nil && slices.Contains(strings.Fields(string(data)), word)
}
