package utilization

import (
	"fmt"
	"math"

	"trainyard/internal/api"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// What advice needs and where it begins.
const (
	minElapsed   = 60.0 // seconds: a shorter run says little about the next
	minSamples   = 6
	headroom     = 1.25 // of memory and CPUs over the most that was seen
	little       = 0.5  // of what was asked for: less is too much asked for
	nearly       = 0.9  // of a memory limit: more is in danger
	minSaving    = 1 << 30
	smallestRoom = 256 << 20
	idleBusy     = 0.3 // of the time: GPUs that work less wait for something
)

// TooShort reports whether a run was measured too briefly to say anything about the next.
func TooShort(u *api.Utilization) bool { return u.Elapsed < minElapsed || u.Samples < minSamples }

// advise says what to ask for the next time, like seff does. It says nothing where the run was as it should be.
func advise(u *api.Utilization, idle int) []string {
	if TooShort(u) {
		return []string{fmt.Sprintf("no recommendation: measured for %s, which is too short",
			humanize.Duration(int64(u.Elapsed*1e9)))}
	}

	var list []string
	list = append(list, adviseMemory(u)...)
	list = append(list, adviseCPUs(u)...)
	list = append(list, adviseGPUs(u, idle)...)

	return list
}

func adviseMemory(u *api.Utilization) []string {
	if u.Peak.Memory == nil || *u.Peak.Memory == 0 {
		return nil
	}

	peak := float64(*u.Peak.Memory)
	limit := float64(u.Asked.Memory)
	enough := roundMemory(peak * headroom)
	seen := job.Bytes(*u.Peak.Memory).Short()

	switch {
	case limit == 0:
		return []string{fmt.Sprintf("memory: %s (it used %s at most and had no limit)", enough, seen)}
	case peak > nearly*limit:
		return []string{fmt.Sprintf("memory: %s (it used %s of %s)", enough, seen, u.Asked.Memory)}
	case peak < little*limit && limit-float64(enough) >= minSaving:
		return []string{fmt.Sprintf("memory: %s (it used %s of %s at most)", enough, seen, u.Asked.Memory)}
	}

	return nil
}

// roundMemory rounds up to an amount that people write.
func roundMemory(bytes float64) job.Bytes {
	step := float64(256 << 20)
	if bytes > 4<<30 {
		step = 1 << 30
	}

	return max(job.Bytes(math.Ceil(bytes/step)*step), smallestRoom)
}

func adviseCPUs(u *api.Utilization) []string {
	if u.Mean.CPUs == nil || u.Peak.CPUs == nil || u.Asked.CPUs == 0 {
		return nil
	}

	nodes := float64(max(u.Asked.Nodes, 1))
	mean, peak := *u.Mean.CPUs/nodes, *u.Peak.CPUs/nodes
	had := float64(u.Asked.CPUs) / 1000
	enough := math.Ceil(peak * headroom)
	seen := fmt.Sprintf("it used %.1f on average and %.1f at most, and asked for %s", mean, peak, u.Asked.CPUs)

	switch {
	case mean > had*1.1:
		return []string{fmt.Sprintf("cpus: %.0f (%s)", math.Ceil(mean), seen)}
	case peak < little*had && had-enough >= 1:
		return []string{fmt.Sprintf("cpus: %.0f (%s)", max(enough, 1), seen)}
	}

	return nil
}

func adviseGPUs(u *api.Utilization, idle int) []string {
	total := u.Asked.GPUs * max(u.Asked.Nodes, 1)
	if u.Mean.GPUBusy == nil || total == 0 {
		return nil
	}

	switch {
	case idle >= total:
		return []string{fmt.Sprintf("gpus: 0 (none of its %s did anything)", humanize.Count(total, "GPU"))}
	case idle > 0:
		return []string{fmt.Sprintf("gpus: %d (%d of %d did nothing)", total-idle, idle, total)}
	case *u.Mean.GPUBusy < idleBusy:
		return []string{fmt.Sprintf("gpus: they worked %s of the time; is the program waiting for data? "+
			"Try more cpus or workers, or gpu_share", humanize.Percent(*u.Mean.GPUBusy))}
	}

	return nil
}
