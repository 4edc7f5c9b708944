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
	// maxGPUs bounds how many devices are believed.
	maxGPUs = 256
	// maxWord bounds each text that is taken over.
	maxWord = 200
	// silentMemory is from which amount on memory without a process to it counts as
	// use: processes of other containers cannot be seen, and an idle driver keeps less.
	silentMemory job.Bytes = 1 << 30
	// paintMemory is from which amount on a process that only draws counts as use.
	// The windows of a desktop take less and stop nobody from training.
	paintMemory job.Bytes = 1 << 30
)

// driver tells what a GPU driver knows. It has no GPUs where there is no driver.
type driver interface {
	// devices lists the GPUs as they are now, in the driver's order.
	devices(ctx context.Context) ([]device, error)
	// xids returns the errors that the driver has told of since the last call.
	xids() []xid
	close() error
}

// device is one GPU at one moment.
type device struct {
	// gpu is what stays the same: its name, memory and power limit. Its Error says
	// what makes it unusable right now.
	gpu   fleet.GPU
	bus   string    // its PCI address without function, as in 0000:3b:00; "" if not told
	procs []Process // without those that only draw a little
	// silent says that its memory is in use and no process can be seen to use it.
	silent bool
	draw   float64 // watts, -1 if not told
	// uncorrected counts the memory errors of its life that could not be corrected, -1 if not told.
	uncorrected int64
	// recovery is what the driver asks for after an error, "" for nothing.
	recovery string
	// hot says at which temperature it slows itself down, if it is that hot; "" if not.
	hot string
}

// busy reports whether anyone uses the device.
func (d *device) busy() bool { return len(d.procs) > 0 || d.silent }

// named reports whether the driver could tell which device this is.
func (d *device) named() bool { return !strings.HasPrefix(d.gpu.UUID, unnamed) }

// unnamed begins what stands in for the UUID of a device that does not tell it.
const unnamed = "index-"

func unnamedID(index int) string { return unnamed + strconv.Itoa(index) }

// use notes the processes of a device and how much of its memory is used.
func (d *device) use(procs []Process, used job.Bytes, sliced bool) {
	d.procs = slices.DeleteFunc(procs, func(p Process) bool { return p.paints && p.Memory < paintMemory })
	// A device that is cut into slices keeps memory for each of them.
	d.silent = len(procs) == 0 && used >= silentMemory && !sliced
}

// busName brings the ways to write a PCI address to one: the driver writes
// 00000000:3B:00.0 and the kernel 0000:3b:00.
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

// word makes a text from outside short, and one line.
func word(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxWord {
		s = strings.ToValidUTF8(s[:maxWord], "")
	}

	return s
}
