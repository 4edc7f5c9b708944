// Package cgroup limits what the processes of a run may use.
//
// It knows both kinds of the kernel's control groups: v2, and v1 with its
// separate trees for memory and CPU. Every run has a group of its own under a
// common parent. Where groups cannot be made, Find says why in a sentence and runs
// go on without limits. The package runtime calls it. It never moves a process that
// it was not given, and touches no group but those that it made.
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

// parentName is the group that holds those of all ranks.
const parentName = "trainyard"

// Place says where the ranks' cgroups are made. Its zero value means nowhere.
type Place struct {
	V2     bool   `json:"v2,omitempty"`
	Memory string `json:"memory,omitempty"` // the parent folder; with v2 for everything
	CPU    string `json:"cpu,omitempty"`    // v1 only; "" if that controller is not to be had
}

// Usable reports whether limits can be enforced at all.
func (c Place) Usable() bool { return c.Memory != "" }

// String is what the inventory says about limits that are enforced.
func (c Place) String() string {
	if c.V2 {
		return "cgroup v2"
	}

	return "cgroup v1"
}

// Find looks for a place where cgroups can be made, and tries it. The
// error says in one sentence why there is none.
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

// mounted is where the controllers are: for v1 this process's own cgroup, so
// that ranks stay within what bounds the agent; for v2 the root, because a cgroup that
// has processes of its own may not have limited children.
type mounted struct{ v2, memory, cpu string }

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
				p = strings.TrimPrefix(p, root) // a container sees its own part only
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
		}
	}

	return m
}

func makeParentV1(m mounted) (Place, error) {
	c := Place{Memory: filepath.Join(m.memory, parentName)}
	if err := tryCgroup(c.Memory); err != nil {
		return Place{}, fmt.Errorf("limits are not enforced: cannot create a cgroup: %w", err)
	}

	if m.cpu != "" {
		cpu := filepath.Join(m.cpu, parentName)
		if tryCgroup(cpu) == nil { // memory alone is still worth having
			c.CPU = cpu
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
	}

	if err := tryCgroup(c.Memory); err != nil {
		return Place{}, fmt.Errorf("limits are not enforced: cannot create a cgroup: %w", err)
	}

	return c, nil
}

// tryCgroup makes the parent and, to see that it works, a child that goes again.
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

// setKnob writes a control file of a cgroup, which must exist.
func setKnob(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = f.WriteString(value)

	return errors.Join(err, f.Close())
}

// hasWord reports whether a file of words has this one.
func hasWord(path, word string) bool {
	data, err := os.ReadFile(filepath.Clean(path))
	return err == nil && slices.Contains(strings.Fields(string(data)), word)
}
