package inventory

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

const (
	// maxGPUs bounds the number of devices accepted from a driver, in case it answers nonsense.
	maxGPUs = 256
	// maxWord bounds the length of each text taken from a driver.
	maxWord = 200
	// silentMemory is the amount of GPU memory in use without a visible process from which on the
	// GPU counts as in use. Processes of other containers are invisible, and an idle driver keeps
	// less than this.
	silentMemory job.Bytes = 1 << 30
	// paintMemory is the amount of GPU memory from which on a graphics process counts as use. The
	// windows of a desktop need less and do not disturb training.
	paintMemory job.Bytes = 1 << 30
)

// driver reads the GPUs of this machine. On a machine without a GPU driver it lists none.
type driver interface {
	// devices lists the GPUs in their present state, in the order of the driver.
	devices(ctx context.Context) ([]device, error)
	// xids returns the Xid errors reported since the last call.
	xids() []xid
	close() error
}

// device is the state of one GPU at one moment.
type device struct {
	// gpu holds the properties that do not change: name, memory and power limit. gpu.Error says why
	// the device is unusable at present.
	gpu   fleet.GPU
	bus   string    // PCI address without function, such as 0000:3b:00; "" if unknown
	procs []Process // without graphics processes that use little memory
	// silent is set if memory is in use but no process is visible that uses it.
	silent bool
	draw   float64 // watts, -1 if unknown
	// utilization is the share of the time in which the device worked lately, -1 if unknown, and used its memory in use.
	utilization float64
	used        job.Bytes
	// uncorrected counts the uncorrectable memory errors over the life of the device, -1 if
	// unknown.
	uncorrected int64
	// recovery is the action that the driver recommends after an error, "" for none.
	recovery string
	celsius  float64 // its temperature, 0 if unknown
	// hot says at which temperature the device slows itself down, "" if it is not that hot.
	hot string
}

// reading returns what people are shown of the device at present.
func (d *device) reading() fleet.GPUReading {
	r := fleet.GPUReading{GPU: d.gpu.Index, Memory: d.used}
	if d.utilization >= 0 {
		r.Busy = &d.utilization
	}

	if d.draw >= 0 {
		r.Watts = &d.draw
	}

	if d.celsius > 0 {
		r.Celsius = &d.celsius
	}

	return r
}

// busy reports whether anyone uses the device.
func (d *device) busy() bool { return len(d.procs) > 0 || d.silent }

// named reports whether the driver returned the UUID of this device.
func (d *device) named() bool { return !strings.HasPrefix(d.gpu.UUID, unnamed) }

// unnamed starts the placeholder for the UUID of a device that does not report one.
const unnamed = "index-"

func unnamedID(index int) string { return unnamed + strconv.Itoa(index) }

// use records the processes of a device and how much of its memory is used.
func (d *device) use(procs []Process, used job.Bytes, sliced bool) {
	d.used = used
	d.procs = slices.DeleteFunc(procs, func(p Process) bool { return p.paints && p.Memory < paintMemory })
	// A partitioned device (MIG) reserves memory for each partition, so used memory proves nothing
	// there.
	d.silent = len(procs) == 0 && used >= silentMemory && !sliced
}

// busName normalises a PCI address: the driver writes 00000000:3B:00.0, the kernel 0000:3b:00.
func busName(s string) string {
	s, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(s)), ".")
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return ""
	}

	for i, width := range []int{4, 2, 2} {
		n, err := strconv.ParseUint(parts[i], 16, 32)
		if err != nil {
			return ""
		}

		parts[i] = strconv.FormatUint(n, 16)
		parts[i] = strings.Repeat("0", max(0, width-len(parts[i]))) + parts[i]
	}

	return strings.Join(parts, ":")
}

// word shortens a text from outside to maxWord and to one line.
func word(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxWord {
		s = strings.ToValidUTF8(s[:maxWord], "")
	}

	return s
}
