// Package sampler measures what the runs of a machine use of its CPUs, memory, disks and network.
//
// A rank with a cgroup is measured by a few files of that; one without by the files of its processes in /proc.
// What cannot be measured is said to be unmeasured, with the reason, and is never shown as zero. The agent calls
// it every few seconds and adds what the GPU driver says.
package sampler

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/job"
)

// Target is one rank.
type Target struct {
	Group *cgroup.Group // nil if it has none
	PID   int           // of its program; 0 if that does not run
}

// ticksPerSecond is the unit of CPU times in /proc. The kernel has used 100 on all platforms for decades.
const ticksPerSecond = 100

// Sampler measures ranks. It remembers what it measured before, because a process that ends takes its counters with it.
// It is not safe for concurrent use.
type Sampler struct {
	root string // "/" outside of tests
	last map[string]job.Use
	// alive is the CPU time of the processes that were alive then. It shrinks when one ends.
	alive map[string]float64
}

// New returns a sampler.
func New() *Sampler { return &Sampler{root: "/", last: map[string]job.Use{}} }

// Sample measures all ranks at once, by name. Those that were measured before and are not among them are forgotten.
func (s *Sampler) Sample(now time.Time, targets map[string]Target) map[string]job.Use {
	var procs []process.Process
	out, alive := make(map[string]job.Use, len(targets)), make(map[string]float64, len(targets))

	for name, t := range targets {
		u := job.Use{At: now}
		measured := false

		if t.Group != nil {
			measured = s.ofGroup(&u, t.Group)
		}

		if !measured {
			if procs == nil {
				procs, _ = process.All() // without a list nothing of it is measured
			}

			s.ofProcesses(&u, family(procs, t.PID))
		}

		s.ofNetwork(&u, t.PID)

		before := s.last[name]
		u.CPUSeconds, alive[name] = before.CPUSeconds, u.CPUSeconds
		if u.Measures(job.ResourceCPU) {
			// What is used after a process has ended counts, although all together have used less than before.
			u.CPUSeconds += max(alive[name]-s.alive[name], 0)
		} else {
			alive[name] = s.alive[name]
		}

		u.Read, u.Written = max(u.Read, before.Read), max(u.Written, before.Written)
		u.Received, u.Sent = max(u.Received, before.Received), max(u.Sent, before.Sent)
		u.MemoryPeak = max(u.Memory, before.MemoryPeak)
		out[name] = u
	}

	s.last, s.alive = out, alive

	return out
}

// family is a program with all its descendants.
func family(procs []process.Process, pid int) []int {
	if pid == 0 {
		return nil
	}

	pids := []int{pid}
	for _, p := range process.Descendants(procs, map[int]bool{pid: true}) {
		pids = append(pids, p.PID)
	}

	return pids
}

// lacks notes that a resource is not measured.
func lacks(u *job.Use, r job.Resource, why string) {
	u.Unmeasured = append(u.Unmeasured, job.Unmeasured{Resource: r, Why: why})
}

// ofGroup reads the files of a cgroup, and reports whether the group is there.
func (s *Sampler) ofGroup(u *job.Use, g *cgroup.Group) bool {
	if g.V2 {
		return s.ofGroupV2(u, g)
	}

	memory, ok := number(filepath.Join(g.Memory, "memory.usage_in_bytes"))
	if !ok {
		return false
	}

	cache, _ := process.ReadCounter(filepath.Join(g.Memory, "memory.stat"), "total_inactive_file")
	u.Memory = max(memory-cache, 0)

	if nanos, ok := number(filepath.Join(g.CPU, "cpuacct.usage")); ok && g.CPU != "" {
		u.CPUSeconds = float64(nanos) / 1e9
	} else if !s.cpuOfMembers(u, g) { // the CPU accounting of cgroups is mounted elsewhere
		lacks(u, job.ResourceCPU, "the CPU accounting of cgroups is not mounted with the CPU controller")
	}

	if g.IO == "" {
		lacks(u, job.ResourceDisk, "the run has no cgroup for disks")
	} else {
		s.readDisks(u, filepath.Join(g.IO, "blkio.throttle.io_service_bytes"), readServiceBytes)
	}

	return true
}

// cpuOfMembers adds up the CPU time of the processes of a cgroup, and reports whether it has some.
func (s *Sampler) cpuOfMembers(u *job.Use, g *cgroup.Group) bool {
	text, err := os.ReadFile(filepath.Join(g.Memory, "cgroup.procs"))
	if err != nil {
		return false
	}

	found := false
	for pid := range strings.FieldsSeq(string(text)) {
		stat, err := os.ReadFile(filepath.Join(s.root, "proc", filepath.Base(pid), "stat"))
		if err != nil {
			continue // it has ended
		}

		if seconds, _, ok := parseStat(string(stat)); ok {
			u.CPUSeconds += seconds
			found = true
		}
	}

	return found
}

func (s *Sampler) ofGroupV2(u *job.Use, g *cgroup.Group) bool {
	memory, ok := number(filepath.Join(g.Memory, "memory.current"))
	if !ok {
		return false
	}

	cache, _ := process.ReadCounter(filepath.Join(g.Memory, "memory.stat"), "inactive_file")
	u.Memory = max(memory-cache, 0)

	if micros, ok := process.ReadCounter(filepath.Join(g.Memory, "cpu.stat"), "usage_usec"); ok {
		u.CPUSeconds = float64(micros) / 1e6
	} else {
		lacks(u, job.ResourceCPU, "the cgroup of the run does not count CPU time")
	}

	s.readDisks(u, filepath.Join(g.Memory, "io.stat"), readIOStat)

	return true
}

func (s *Sampler) readDisks(u *job.Use, path string, parse func(text string) (read, written int64)) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		lacks(u, job.ResourceDisk, "the cgroup of the run does not count what it reads and writes")
		return
	}

	u.Read, u.Written = parse(string(text))
}

// readIOStat reads lines such as "8:0 rbytes=90 wbytes=7 rios=1 …".
func readIOStat(text string) (read, written int64) {
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue // the number of the device
		}

		switch key {
		case "rbytes":
			read += n
		case "wbytes":
			written += n
		}
	}

	return read, written
}

// readServiceBytes reads lines such as "8:0 Read 90".
func readServiceBytes(text string) (read, written int64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue // the total
		}

		n, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			continue
		}

		switch fields[1] {
		case "Read":
			read += n
		case "Write":
			written += n
		}
	}

	return read, written
}

// number reads a file that holds one number.
func number(path string) (int64, bool) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return 0, false
	}

	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)

	return n, err == nil
}

// ofProcesses adds up the processes of a rank. Pages that they share are counted for each of them.
func (s *Sampler) ofProcesses(u *job.Use, pids []int) {
	found, disks := 0, 0

	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join(s.root, "proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			continue // it has ended
		}

		seconds, resident, ok := parseStat(string(text))
		if !ok {
			continue
		}

		found++
		u.CPUSeconds += seconds
		u.Memory += resident

		if read, written, ok := s.diskOf(pid); ok {
			disks++
			u.Read += read
			u.Written += written
		}
	}

	if found == 0 {
		for _, r := range []job.Resource{job.ResourceCPU, job.ResourceMemory, job.ResourceDisk} {
			lacks(u, r, "no process of the run can be seen")
		}
	} else if disks < found {
		lacks(u, job.ResourceDisk, "the run has no cgroup, and the agent may not see what its processes read and write")
	}
}

// parseStat returns the CPU time of a process with that of the children that it has waited for, and its resident
// memory.
func parseStat(text string) (seconds float64, resident int64, ok bool) {
	_, rest, found := cutLast(text, ")")
	fields := strings.Fields(rest)
	if !found || len(fields) < 22 {
		return 0, 0, false
	}

	ticks := int64(0)
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, false
		}

		ticks += n
	}

	pages, err := strconv.ParseInt(fields[21], 10, 64)

	return float64(ticks) / ticksPerSecond, pages * int64(os.Getpagesize()), err == nil
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}

	return text[:i], text[i+len(sep):], true
}

// diskOf reads what a process has read from disks and written to them.
func (s *Sampler) diskOf(pid int) (read, written int64, ok bool) {
	text, err := os.ReadFile(filepath.Join(s.root, "proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0, 0, false
	}

	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")

		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, 0, false
		}

		switch key {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}

	return read, written, true
}

// ofNetwork reads the interfaces of a program that has a network namespace of its own.
func (s *Sampler) ofNetwork(u *job.Use, pid int) {
	dir := filepath.Join(s.root, "proc", strconv.Itoa(pid))
	theirs, err1 := os.Readlink(filepath.Join(dir, "ns/net"))
	ours, err2 := os.Readlink(filepath.Join(s.root, "proc/self/ns/net"))

	switch {
	case pid == 0 || err1 != nil || err2 != nil:
		lacks(u, job.ResourceNetwork, "no process of the run can be seen")
		return
	case theirs == ours:
		lacks(u, job.ResourceNetwork, "the run shares the network of its node with everything else there")
		return
	}

	text, err := os.ReadFile(filepath.Join(dir, "net/dev"))
	if err != nil {
		lacks(u, job.ResourceNetwork, "the interfaces of the run cannot be read")
		return
	}

	u.Received, u.Sent = readInterfaces(string(text))
}

// readInterfaces adds up /proc/net/dev without loopback.
func readInterfaces(text string) (received, sent int64) {
	for line := range strings.Lines(text) {
		name, counters, ok := strings.Cut(line, ":")
		fields := strings.Fields(counters)
		if !ok || len(fields) < 9 || strings.TrimSpace(name) == "lo" {
			continue
		}

		in, err1 := strconv.ParseInt(fields[0], 10, 64)
		out, err2 := strconv.ParseInt(fields[8], 10, 64)
		if err1 == nil && err2 == nil {
			received += in
			sent += out
		}
	}

	return received, sent
}

// Spent is what processes have used that have ended: all CPU time, and the memory of the largest of them.
type Spent struct {
	CPU    time.Duration
	Memory job.Bytes
}

// Add adds what the kernel says of a process that has been waited for.
func (s *Spent) Add(u *syscall.Rusage) {
	s.CPU += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	s.Memory = max(s.Memory, job.Bytes(u.Maxrss)<<10) // kilobytes
}

// Final measures a rank of which no process is left, by its cgroup if it has one and by what its supervisor has waited
// for.
func Final(now time.Time, g *cgroup.Group, spent Spent) job.Use {
	u := job.Use{At: now}
	s := New()

	if g == nil || !s.ofGroup(&u, g) {
		u = job.Use{At: now}
		lacks(&u, job.ResourceDisk, "the run has no cgroup")
	}

	lacks(&u, job.ResourceNetwork, "no process of the run is left")

	u.CPUSeconds = max(u.CPUSeconds, spent.CPU.Seconds())
	u.Memory, u.MemoryPeak = 0, int64(spent.Memory)
	u.Unmeasured = slices.DeleteFunc(u.Unmeasured, func(x job.Unmeasured) bool { return x.Resource == job.ResourceCPU })

	return u
}
