package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Image is what the snapshot of a program needs of the node that continues it: what the node had that took it. The
// zero Image needs nothing. It is comparable, as a Need is.
type Image struct {
	Arch string `json:"arch,omitempty"`
	// Kernel and CRIU may be newer than these: both know what was there before them.
	Kernel string `json:"kernel,omitempty"`
	CRIU   string `json:"criu,omitempty"`
	// GPU is the model of the program's GPU, "" if it has none, and Driver the version of its driver. Both must be the
	// same: the driver restores GPU memory on the same model alone, and the program has mapped the driver's libraries.
	GPU    string `json:"gpu,omitempty"`
	Driver string `json:"driver,omitempty"`
}

// ImageOf returns what a snapshot needs of a program that runs on some GPUs of a node.
func ImageOf(inv *Inventory, gpus []int) Image {
	i := Image{Arch: inv.Arch, Kernel: inv.Kernel}
	if inv.Snapshots != nil {
		i.CRIU = inv.Snapshots.CRIU
	}

	if len(gpus) > 0 {
		if g := inv.GPU(gpus[0]); g != nil {
			i.GPU, i.Driver = g.Model, g.Driver
		}
	}

	return i
}

// Misfit says why a node cannot continue the snapshot, "" if nothing is known against it.
func (i Image) Misfit(inv *Inventory) string {
	switch {
	case i.Arch != "" && inv.Arch != "" && i.Arch != inv.Arch:
		return fmt.Sprintf("it was taken on %s, the node is %s", i.Arch, inv.Arch)
	case older(inv.Kernel, i.Kernel):
		return fmt.Sprintf("it was taken under kernel %s, the node has the older %s", i.Kernel, inv.Kernel)
	case inv.Snapshots != nil && older(inv.Snapshots.CRIU, i.CRIU):
		return fmt.Sprintf("it was taken with CRIU %s, the node has the older %s", i.CRIU, inv.Snapshots.CRIU)
	case i.GPU == "":
		return ""
	}

	at := slices.IndexFunc(inv.GPUs, func(g GPU) bool { return g.Model == i.GPU })
	switch {
	case len(inv.GPUs) == 0:
		return fmt.Sprintf("it needs a GPU %s, the node has none", i.GPU)
	case at < 0:
		return fmt.Sprintf("it needs a GPU %s, the node has %s", i.GPU, inv.GPUs[0].Model)
	case inv.GPUs[at].Driver != i.Driver:
		return fmt.Sprintf("it needs GPU driver %s, the node has %s", i.Driver, cmp.Or(inv.GPUs[at].Driver, "an unknown one"))
	}

	return ""
}

// older reports whether one version is older than another by its first two numbers; false if one of them is unknown.
func older(a, b string) bool {
	x, okX := leading(a)
	y, okY := leading(b)

	return okX && okY && slices.Compare(x, y) < 0
}

// leading returns the first two numbers of a version such as "6.18.5-200.fc43".
func leading(version string) ([]int, bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return nil, false
	}

	minor, _, _ := strings.Cut(parts[1], "-")
	numbers := make([]int, 2)

	for i, text := range []string{parts[0], minor} {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, false
		}

		numbers[i] = n
	}

	return numbers, true
}
