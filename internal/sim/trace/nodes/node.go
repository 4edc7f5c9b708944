package nodes

import (
	"fmt"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// New returns a node with so many GPUs of a kind and more CPUs and memory than
// the jobs of traces ask for, since most traces know only GPUs.
func New(name id.Node, gpu string, gpus int, memory job.Bytes) fleet.Node {
	n := fleet.Node{
		ID: name, Class: fleet.Local, State: fleet.Ready,
		Inventory: fleet.Inventory{
			OS: "linux", Arch: "amd64", CPUs: 1 << 20 * 1000, Memory: 1 << 50, Disk: 1 << 50, Shares: "simulated",
		},
	}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{
			Index: i, UUID: fmt.Sprintf("%s-%d", name, i), Model: gpu, Memory: memory, Fake: true,
		})
	}

	return n
}

// Name returns the name of the i-th of n nodes, with as many digits as the last one needs.
func Name(prefix string, i, n int) id.Node {
	return id.Node(fmt.Sprintf("%s%0*d", prefix, len(fmt.Sprint(n)), i))
}
