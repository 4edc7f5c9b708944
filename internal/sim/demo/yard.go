package demo

import (
	"fmt"
	"hash/fnv"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/sim"
	"trainyard/internal/tenant"
)

const (
	gb = job.Bytes(1 << 30)
	tb = 1 << 10 * gb
)

// network is how data and checkpoints travel.
func network() *sim.Network {
	return &sim.Network{Storage: gb, Inside: gb, Across: gb / 8, Price: 0.05, Disk: 2 * gb}
}

// person is somebody of the group.
type person struct {
	name     id.User
	role     tenant.Role
	projects []id.Project
	leads    id.Project
}

// people are the group. Whoever looks at the demo is the first.
var people = []person{
	{You, tenant.Admin, []id.Project{"vision", "language", "speech"}, "vision"},
	{"researcher-2", tenant.Researcher, []id.Project{"vision", "medical"}, "medical"},
	{"researcher-3", tenant.Researcher, []id.Project{"language"}, "language"},
	{"researcher-4", tenant.Researcher, []id.Project{"speech", "language"}, "speech"},
	{"researcher-5", tenant.Researcher, []id.Project{"vision"}, ""},
	{"researcher-6", tenant.Researcher, []id.Project{"medical", "chemistry"}, "chemistry"},
	{"operator-1", tenant.Operator, nil, ""},
	{"viewer-1", tenant.Viewer, []id.Project{"vision"}, ""},
}

// addressOf is where a person sits: an address of a block that is reserved for documentation.
func addressOf(u id.User) string {
	for i := range people {
		if people[i].name == u {
			return fmt.Sprintf("192.0.2.%d", 10+i)
		}
	}

	return "192.0.2.9"
}

// quotas are what projects and people may use.
func quotas() []tenant.Quota {
	return []tenant.Quota{
		{Subject: tenant.Subject{Project: "vision"}, Budget: dollars(900), Period: tenant.Month,
			OnExceeded: tenant.ExceededWarn},
		{Subject: tenant.Subject{Project: "language"}, Budget: dollars(2500), Period: tenant.Month,
			OnExceeded: tenant.ExceededDowngrade},
		{Subject: tenant.Subject{Project: "speech"}, GPUHours: 900, Period: tenant.Month, OnExceeded: tenant.ExceededWarn},
		{Subject: tenant.Subject{User: "researcher-5"}, GPUs: 4, Borrow: true},
		{Subject: tenant.Subject{Each: "user"}, Nodes: 2},
	}
}

func dollars(n int) job.Money { return job.Money(n) * 1_000_000 }

// datasets are what jobs train on.
func datasets() []dataset.Dataset {
	return []dataset.Dataset{
		{ID: "imagenet", Size: 150 * gb, Rule: job.PlaceAny,
			Copies: []dataset.Copy{{At: job.PlaceLocal, Path: "/data/imagenet"}}},
		{ID: "cifar10", Size: gb / 5, Rule: job.PlaceAny},
		{ID: "web-text", Size: 40 * gb, Rule: job.PlaceAny, Copies: []dataset.Copy{
			{At: job.PlaceLocal, Path: "/data/web-text"}, {At: job.PlaceCloud, Path: "/data/web-text"},
		}},
		{ID: "speech-960h", Size: 60 * gb, Rule: job.PlaceAny,
			Copies: []dataset.Copy{{At: job.PlaceLocal, Path: "/data/speech"}}},
		{ID: "scans", Size: 80 * gb, Rule: job.PlaceLocal, Readers: []dataset.Reader{"project/medical"},
			Copies: []dataset.Copy{{At: job.PlaceLocal, Path: "/data/scans"}}},
		{ID: "molecules", Size: 4 * gb, Rule: job.PlaceAny},
	}
}

// shared is the file system on which jobs save their checkpoints.
const shared = "checkpoints"

func sharedFolders() fleet.SharedFolders {
	return fleet.SharedFolders{{Name: shared, Path: "/mnt/checkpoints"}}
}

// describe adds to an inventory what all nodes of the demo have in common.
func describe(inv *fleet.Inventory) {
	inv.OS, inv.Kernel, inv.Arch, inv.Version = "simulated", "", "amd64", "demo"
	inv.Disk = 4 * tb
	inv.Limits = "cgroup v2"
	inv.Restores, inv.Secrets = true, true
	inv.Isolation = fleet.IsolationUsers
	inv.Metadata = "blocked"
	inv.Shared = []fleet.Shared{{Name: shared, Path: "/mnt/checkpoints", OK: true, Known: true}}

	for i := range inv.GPUs {
		g := gpuspec.Describe(inv.GPUs[i])
		g.Fake = true
		g.Driver = "simulated"
		inv.GPUs[i] = g
	}
}

// machine describes a node.
func machine(
	name id.Node, class fleet.Class, cpus int, memory job.Bytes, gpus int, model string, size job.Bytes,
) fleet.Node {
	n := fleet.Node{ID: name, Class: class, Inventory: fleet.Inventory{
		Address: "198.51.100." + fmt.Sprint(1+int(number(string(name))%250)), CPUs: job.CPUs(cpus) * 1000, Memory: memory,
	}}

	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{
			Index: i, UUID: fmt.Sprintf("GPU-demo-%s-%d", name, i), Model: model, Memory: size,
		})
	}

	describe(&n.Inventory)

	return n
}

// The names of the GPUs, as their driver would give them.
const (
	a100  = "NVIDIA A100-SXM4-80GB"
	a6000 = "NVIDIA RTX A6000"
	v100  = "Tesla V100-SXM2-32GB"
	h100  = "NVIDIA H100 80GB HBM3"
	a10g  = "NVIDIA A10G"
)

// failing is the node with a GPU that goes bad.
const failing id.Node = "lab-3"

// machines are the nodes that the group has.
func machines() []fleet.Node {
	return []fleet.Node{
		machine("lab-1", fleet.Local, 64, 512*gb, 4, a100, 80*gb),
		machine("lab-2", fleet.Local, 48, 256*gb, 4, a6000, 48*gb),
		machine(failing, fleet.Local, 40, 256*gb, 4, v100, 32*gb),
		machine("reserved-1", fleet.Reserved, 96, 1000*gb, 8, h100, 80*gb),
	}
}

// tariff is what they cost. Prices are invented, of the order of what such machines cost.
func tariff() *fleet.Tariff {
	watts := func(idle, each float64, gpus int) (list []float64) {
		for n := range gpus + 1 {
			list = append(list, idle+each*float64(n))
		}

		return list
	}

	return &fleet.Tariff{Energy: 0.25, PUE: 1.3, Nodes: []fleet.NodePrice{
		{Class: fleet.Reserved, Hourly: []money.PerHour{16}},
		{Class: fleet.Local, GPU: "A100", Hourly: []money.PerHour{1.6}, Watts: watts(420, 390, 4)},
		{Class: fleet.Local, GPU: "A6000", Hourly: []money.PerHour{0.6}, Watts: watts(260, 290, 4)},
		{Class: fleet.Local, GPU: "V100", Hourly: []money.PerHour{0.3}, Watts: watts(300, 280, 4)},
	}}
}

// offers are what can be provisioned.
func offers() []fleet.Offer {
	list := []fleet.Offer{
		{Type: "a10g-1", GPU: a10g, GPUs: 1, GPUMemory: 24 * gb, CPUs: 8000, Memory: 32 * gb, Hourly: 1_200_000},
		{Type: "a10g-1", GPU: a10g, GPUs: 1, GPUMemory: 24 * gb, CPUs: 8000, Memory: 32 * gb, Hourly: 480_000, Spot: true,
			LossRate: 0.04},
		{Type: "a100-1", GPU: a100, GPUs: 1, GPUMemory: 80 * gb, CPUs: 16000, Memory: 128 * gb, Hourly: 3_700_000},
		{Type: "a100-4", GPU: a100, GPUs: 4, GPUMemory: 80 * gb, CPUs: 64000, Memory: 512 * gb, Hourly: 14_500_000},
	}

	for i := range list {
		o := &list[i]
		o.Provider, o.Region = "demo-cloud", "region-1"
		o.Boot = job.Duration(4 * time.Minute)
		o.BillingIncrement, o.MinBilling = job.Duration(time.Second), job.Duration(time.Minute)
		o.MaxNodes, o.Fake, o.Shared = 3, true, shared
		o.TFLOPS = gpuspec.Describe(fleet.GPU{Model: o.GPU, Memory: o.GPUMemory}).Peak
		o.Name = o.NameOf()
	}

	return list
}

// number is a number that a text always gives: chance that can be repeated.
func number(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	x := h.Sum64()
	x ^= x >> 33 // texts that differ in their last letter shall differ everywhere
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33

	return x
}

// share is number as a share between 0 and 1.
func share(text string) float64 { return float64(number(text)>>11) / (1 << 53) }
