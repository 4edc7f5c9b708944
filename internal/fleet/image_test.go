package fleet_test

import (
	"strings"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// h200 returns what a machine with one GPU reports.
func h200() fleet.Inventory {
	return fleet.Inventory{
		Arch: "x86_64", Kernel: "6.12.63+deb13-amd64", CPUs: 8000, Memory: 64 << 30,
		GPUs:      []fleet.GPU{{Model: "NVIDIA H200", Memory: 141 << 30, Driver: "580.159.04"}},
		Snapshots: &fleet.Snapshots{CRIU: "4.1.1", GPU: fleet.Ability{OK: true}, Process: fleet.Ability{OK: true}},
	}
}

func TestASnapshotFitsOnlyNodesLikeTheOneThatTookIt(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		change func(inv *fleet.Inventory)
		why    string // "" if it fits
	}{
		"the same":            {func(*fleet.Inventory) {}, ""},
		"a newer kernel":      {func(inv *fleet.Inventory) { inv.Kernel = "6.18.5" }, ""},
		"an older kernel":     {func(inv *fleet.Inventory) { inv.Kernel = "6.8.0-60-generic" }, "kernel 6.12.63+deb13-amd64"},
		"a kernel of no name": {func(inv *fleet.Inventory) { inv.Kernel = "custom" }, ""},
		"a newer CRIU":        {func(inv *fleet.Inventory) { inv.Snapshots.CRIU = "4.2" }, ""},
		"an older CRIU":       {func(inv *fleet.Inventory) { inv.Snapshots.CRIU = "4.0" }, "CRIU 4.1.1, the node has the older 4.0"},
		"another processor":   {func(inv *fleet.Inventory) { inv.Arch = "aarch64" }, "taken on x86_64, the node is aarch64"},
		"another GPU":         {func(inv *fleet.Inventory) { inv.GPUs[0].Model = "NVIDIA H100" }, "the node has NVIDIA H100"},
		"no GPU":              {func(inv *fleet.Inventory) { inv.GPUs = nil }, "the node has none"},
		"a newer driver": {
			func(inv *fleet.Inventory) { inv.GPUs[0].Driver = "580.160.01" },
			"needs GPU driver 580.159.04, the node has 580.160.01",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin, other := h200(), h200()
			tc.change(&other)
			image := fleet.ImageOf(&origin, []int{0})

			if got := image.Misfit(&other); (got == "") != (tc.why == "") || !strings.Contains(got, tc.why) {
				t.Errorf("Misfit says %q, want %q", got, tc.why)
			}

			table := fleet.NewTable()
			table.Put(&fleet.Node{ID: id.Node("n"), State: fleet.Ready, Class: fleet.Local, Inventory: other}, 0)
			m := fleet.NewMatcher(fleet.Need{
				Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 1, Place: job.PlaceAny, Snapshot: true, Image: image,
			})

			if _, fits := m.Fits(&table.SharedRooms()[0]); fits != (tc.why == "") {
				t.Errorf("the matcher says %v", fits)
			}
		})
	}
}

func TestAProgramWithoutAGPUNeedsNone(t *testing.T) {
	t.Parallel()
	origin, other := h200(), h200()
	other.GPUs = nil

	if why := fleet.ImageOf(&origin, nil).Misfit(&other); why != "" {
		t.Error(why)
	}
}
