package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/clock"
	"trainyard/internal/job"
)

// Group is the cgroup of one rank. A nil Group has no processes and no limits.
type Group struct {
	V2     bool   `json:"v2,omitempty"`
	Memory string `json:"memory"`
	CPU    string `json:"cpu,omitempty"`
	PIDs   string `json:"pids,omitempty"`
	IO     string `json:"io,omitempty"`
	// Limit is the memory limit in bytes, 0 for none.
	Limit job.Bytes `json:"limit,omitempty"`
}

// Limits are those of one rank. CPUs are a share, not a cap: a run may use CPUs that are idle, and its share of the
// disks' time follows them. Zero is no limit.
type Limits struct {
	Memory job.Bytes
	CPUs   job.CPUs
	PIDs   int
}

// Create creates a cgroup with these limits.
func (c Place) Create(name string, l Limits) (*Group, error) {
	g := &Group{V2: c.V2, Memory: filepath.Join(c.Memory, name), Limit: l.Memory}
	for _, more := range []struct {
		parent string
		to     *string
	}{{c.CPU, &g.CPU}, {c.PIDs, &g.PIDs}, {c.IO, &g.IO}} {
		if more.parent != "" {
			*more.to = filepath.Join(more.parent, name)
		}
	}

	for _, dir := range g.dirs() {
		if err := mkdir(dir); err != nil {
			return nil, errors.Join(err, g.Remove())
		}
	}

	set := g.limitV1
	if g.V2 {
		set = g.limitV2
	}

	if err := set(l); err != nil {
		return nil, errors.Join(err, g.Remove())
	}

	return g, nil
}

// dirs lists the directories of the group, one for each controller that has its own tree.
func (g *Group) dirs() []string {
	return slices.DeleteFunc([]string{g.Memory, g.CPU, g.PIDs, g.IO}, func(dir string) bool { return dir == "" })
}

func (g *Group) limitV1(l Limits) error {
	if l.Memory > 0 {
		bytes := strconv.FormatInt(int64(l.Memory), 10)
		if err := setKnob(g.Memory, "memory.limit_in_bytes", bytes); err != nil {
			return err
		}

		// Without swap accounting the file does not exist, and swap is not limited.
		err := setKnob(g.Memory, "memory.memsw.limit_in_bytes", bytes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	if l.PIDs > 0 && g.PIDs != "" {
		if err := setKnob(g.PIDs, "pids.max", strconv.Itoa(l.PIDs)); err != nil {
			return err
		}
	}

	if l.CPUs > 0 && g.IO != "" {
		weight := strconv.FormatInt(min(max(int64(l.CPUs)/10, 1), 1000), 10)
		if err := setIfThere(g.IO, "blkio.bfq.weight", weight); err != nil {
			return err
		}
	}

	if l.CPUs > 0 && g.CPU != "" {
		shares := min(max(int64(l.CPUs)*1024/1000, 2), 262144)
		return setKnob(g.CPU, "cpu.shares", strconv.FormatInt(shares, 10))
	}

	return nil
}

// setIfThere writes a control file that not every kernel has.
func setIfThere(dir, name, value string) error {
	if err := setKnob(dir, name, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}

func (g *Group) limitV2(l Limits) error {
	if l.Memory > 0 {
		if err := setKnob(g.Memory, "memory.max", strconv.FormatInt(int64(l.Memory), 10)); err != nil {
			return err
		}

		for name, value := range map[string]string{"memory.swap.max": "0", "memory.oom.group": "1"} {
			if err := setIfThere(g.Memory, name, value); err != nil {
				return err
			}
		}
	}

	if l.PIDs > 0 {
		if err := setIfThere(g.Memory, "pids.max", strconv.Itoa(l.PIDs)); err != nil {
			return err
		}
	}

	if l.CPUs > 0 {
		weight := strconv.FormatInt(min(max(int64(l.CPUs)/10, 1), 10000), 10)
		return errors.Join(setKnob(g.Memory, "cpu.weight", weight), setIfThere(g.Memory, "io.weight", weight))
	}

	return nil
}

// SetLimit changes the memory limit of a cgroup that has one. It fails if more than that is in use and cannot be freed.
func (g *Group) SetLimit(memory job.Bytes) error {
	if g == nil || g.Limit == 0 {
		return nil
	}

	bytes := strconv.FormatInt(int64(memory), 10)
	if g.V2 {
		return setKnob(g.Memory, "memory.max", bytes)
	}

	// The limit of memory and swap together is never the smaller one.
	first, second := "memory.memsw.limit_in_bytes", "memory.limit_in_bytes"
	if memory <= g.Limit {
		first, second = second, first
	}

	for _, name := range []string{first, second} {
		if err := setKnob(g.Memory, name, bytes); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}

// Add moves processes into the cgroup. It is not an error if a process has ended.
func (g *Group) Add(pids []int) error {
	for _, dir := range g.dirs() {
		for _, pid := range pids {
			err := setKnob(dir, "cgroup.procs", strconv.Itoa(pid))
			if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("move process %d into its cgroup: %w", pid, err)
			}
		}
	}

	return nil
}

// Procs lists the processes in the cgroup.
func (g *Group) Procs() map[int]bool {
	if g == nil {
		return nil
	}

	data, err := os.ReadFile(filepath.Join(g.Memory, "cgroup.procs"))
	if err != nil {
		return nil // the group was removed, so it has no processes
	}

	pids := map[int]bool{}
	for word := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(word); err == nil {
			pids[pid] = true
		}
	}

	return pids
}

// Kill kills all processes of the cgroup at once, if the kernel supports that. Otherwise the caller
// has to signal them one by one.
func (g *Group) Kill() {
	if g != nil && g.V2 {
		_ = setKnob(g.Memory, "cgroup.kill", "1")
	}
}

// OOMKills returns how many processes of the cgroup the kernel killed for lack of memory.
func (g *Group) OOMKills() int64 {
	if g == nil {
		return 0
	}

	file := "memory.oom_control"
	if g.V2 {
		file = "memory.events"
	}

	n, _ := process.ReadCounter(filepath.Join(g.Memory, file), "oom_kill")

	return n
}

// Remove removes the cgroup. It retries for a moment, because the last process may linger.
func (g *Group) Remove() error {
	if g == nil {
		return nil
	}

	var errs []error
	for _, dir := range g.dirs() {
		err := os.Remove(dir)
		for try := 0; errors.Is(err, unix.EBUSY) && try < 20; try++ {
			clock.Sleep(context.Background(), time.Duration(try)*time.Millisecond)
			err = os.Remove(dir)
		}

		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}
