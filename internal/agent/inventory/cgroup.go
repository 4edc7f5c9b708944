package inventory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trainyard/internal/job"
)

// cpus returns the number of processors that this process may use: those of its affinity, or fewer
// if a cgroup grants fewer.
func cpus(root string, affinity int) job.CPUs {
	most := job.CPUs(affinity) * 1000
	for _, dir := range cgroupDirs(root, "cpu") {
		if granted, ok := cpuQuota(dir); ok && granted < most {
			most = granted
		}
	}

	return max(most, 1)
}

// cpuQuota reads the CPU quota of a cgroup. It returns false if the cgroup sets none.
func cpuQuota(dir string) (job.CPUs, bool) {
	var quota, period string
	if fields := strings.Fields(readText(filepath.Join(dir, "cpu.max"))); len(fields) == 2 { // version 2
		quota, period = fields[0], fields[1]
	} else { // version 1
		quota = strings.TrimSpace(readText(filepath.Join(dir, "cpu.cfs_quota_us")))
		period = strings.TrimSpace(readText(filepath.Join(dir, "cpu.cfs_period_us")))
	}

	q, err1 := strconv.ParseFloat(quota, 64)

	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 || q/p > 1e6 {
		return 0, false
	}

	return job.CPUs(math.Floor(q / p * 1000)), true
}

// memory returns the bytes of memory that this process may use: those of the machine, or fewer if a
// cgroup grants fewer.
func memory(root string) (job.Bytes, error) {
	most, err := memTotal(readText(filepath.Join(root, "proc/meminfo")))
	if err != nil {
		return 0, err
	}

	for _, dir := range cgroupDirs(root, "memory") {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			if n, err := strconv.ParseInt(strings.TrimSpace(readText(filepath.Join(dir, name))), 10, 64); err == nil && n > 0 {
				most = min(most, job.Bytes(n))
			}
		}
	}

	return most, nil
}

func memTotal(meminfo string) (job.Bytes, error) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kb, err := strconv.ParseInt(fields[1], 10, 54)
			if err != nil || kb <= 0 {
				return 0, fmt.Errorf("read MemTotal: %q", line)
			}

			return job.Bytes(kb) << 10, nil
		}
	}

	return 0, errors.New("no MemTotal in /proc/meminfo")
}

// cgroupDirs returns the directories of the cgroups whose limits apply to this process for a
// controller: its own cgroup and all above it, in version 2 and version 1.
func cgroupDirs(root, controller string) []string {
	mount := filepath.Join(root, "sys/fs/cgroup")
	var dirs []string

	for line := range strings.Lines(readText(filepath.Join(root, "proc/self/cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}

		base := mount

		if parts[0] != "0" || parts[1] != "" { // version 1: one hierarchy for each controller
			named := false
			for name := range strings.SplitSeq(parts[1], ",") {
				named = named || name == controller
			}

			if !named {
				continue
			}

			base = filepath.Join(mount, parts[1])
			if _, err := os.Stat(base); err != nil {
				base = filepath.Join(mount, controller)
			}
		}

		dirs = append(dirs, upwards(base, parts[2])...)
	}

	return dirs
}

// upwards lists base/path and the directories above it up to base. In a container the path may be
// that of the host and not exist; base is then the cgroup of the container itself.
func upwards(base, path string) []string {
	dirs := []string{base}
	at := base
	for element := range strings.SplitSeq(strings.Trim(filepath.Clean("/"+path), "/"), "/") {
		if element == "" || element == ".." {
			continue
		}

		at = filepath.Join(at, element)
		dirs = append(dirs, at)
	}

	return dirs
}

// readText returns the text of a file, "" if it does not exist: each kernel has only some of these
// files.
func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}

	return string(text)
}
