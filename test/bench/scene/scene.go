// Package scene makes up yards of any size for measurements: nodes of several
// kinds, users, and jobs in a mix as research teams submit it.
//
// It is deterministic, so that two runs measure the same, and pure: it makes
// values and does nothing. The sections of the benchmark call it.
package scene

import (
	"fmt"
	"math/rand/v2"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/spec"
	"trainyard/internal/tenant"
)

// Users is how many people share a yard.
const Users = 100

// Scene makes up the parts of a yard. It is not safe for concurrent use.
type Scene struct {
	now    time.Time
	chance *rand.Rand
	small  *job.Spec
	mixed  []*job.Spec
}

// New returns a scene at this time.
func New(now time.Time) *Scene {
	return &Scene{now: now, chance: rand.New(rand.NewPCG(7, 11))}
}

// People returns the users.
func (s *Scene) People() []tenant.User {
	list := make([]tenant.User, Users)
	for i := range list {
		list[i] = tenant.User{
			ID:      user(i),
			Seq:     1,
			Role:    tenant.Researcher,
			Created: s.now,
			UsageAt: s.now,
			Usage:   s.chance.Float64() * 1e6,
		}
	}

	return list
}

func user(i int) id.User { return id.User(fmt.Sprintf("user-%02d", i)) }

// kinds are the machines: three in ten have older, five newer GPUs, one in ten the
// newest, and one in ten none.
var kinds = [10]struct {
	model  string
	memory job.Bytes
	class  fleet.Class
}{
	{
		"NVIDIA A100-SXM4-40GB",
		40 << 30,
		fleet.Local,
	},
	{"NVIDIA A100-SXM4-40GB", 40 << 30, fleet.Local},
	{"NVIDIA A100-SXM4-40GB", 40 << 30, fleet.Reserved},
	{
		"NVIDIA A100-SXM4-80GB",
		80 << 30,
		fleet.Local,
	},
	{"NVIDIA A100-SXM4-80GB", 80 << 30, fleet.Local},
	{"NVIDIA A100-SXM4-80GB", 80 << 30, fleet.Local},
	{"NVIDIA A100-SXM4-80GB", 80 << 30, fleet.Reserved},
	{"NVIDIA A100-SXM4-80GB", 80 << 30, fleet.Reserved},
	{"NVIDIA H100 80GB HBM3", 80 << 30, fleet.Local},
	{"", 0, fleet.Local},
}

// Nodes returns so many machines that are ready, most with eight GPUs.
func (s *Scene) Nodes(n int) []fleet.Node {
	list := make([]fleet.Node, n)
	for i := range list {
		k := kinds[i%len(kinds)]
		node := fleet.Node{
			ID:     id.Node(fmt.Sprintf("node-%05d", i)),
			Seq:    1,
			Class:  k.class,
			State:  fleet.Ready,
			Since:  s.now,
			Joined: s.now,
			Reason: "joined",
			Inventory: fleet.Inventory{
				Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), OS: "Debian 12", Arch: "amd64", Version: "bench",
				CPUs: 128_000, Memory: 1 << 40, Disk: 4 << 40,
			},
		}

		for g := 0; g < 8 && k.model != ""; g++ {
			node.Inventory.GPUs = append(node.Inventory.GPUs, fleet.GPU{
				Index: g, UUID: fmt.Sprintf("GPU-%05d-%d", i, g), Model: k.model, Memory: k.memory, Driver: "550.54",
			})
		}

		list[i] = node
	}

	return list
}

// shapes are what jobs ask for: mostly one GPU, some whole nodes, a few two or
// four nodes, and some none.
var shapes = [20]string{
	"{gpus: 1, cpus: 8, memory: 32GB}",
	"{gpus: 1, cpus: 8, memory: 32GB}",
	"{gpus: 1, cpus: 8, memory: 64GB}",
	"{gpus: 1, gpu: A100, cpus: 8, memory: 32GB}",
	"{gpus: 1, gpu: H100, cpus: 8, memory: 32GB}",
	"{gpus: 1, gpu_memory: 60GB.., cpus: 12, memory: 64GB}",
	"{gpus: 1, gpu: [A100:80GB, H100], cpus: 8, memory: 32GB}",
	"{gpus: 1..2, cpus: 8, memory: 32GB}",
	"{gpus: 2, cpus: 16, memory: 128GB}",
	"{gpus: 2, gpu: A100:80GB, cpus: 16, memory: 128GB}",
	"{gpus: 2, cpus: 16, memory: 64GB}",
	"{gpus: 4, cpus: 32, memory: 256GB}",
	"{gpus: 4, gpu: A100, cpus: 32, memory: 256GB}",
	"{gpus: 4..8, cpus: 32, memory: 256GB}",
	"{gpus: 8, cpus: 64, memory: 512GB}",
	"{gpus: 8, gpu: H100, cpus: 64, memory: 512GB}",
	"{gpus: 8, gpu: A100:80GB, cpus: 64, memory: 512GB}",
	"{gpus: 8, nodes: 2, cpus: 64, memory: 512GB}",
	"{gpus: 8, nodes: 4, gpu: A100:80GB, cpus: 64, memory: 512GB}",
	"{cpus: 16, memory: 64GB}",
}

// File makes up a job file of usual size. Seven in ten jobs say how long they expect to run, one in ten has a priority.
func (s *Scene) File(n int) string {
	expect, priority := "", 0
	if s.chance.IntN(10) < 7 {
		expect = fmt.Sprintf("expect: %dm\n", 10+s.chance.IntN(48*60))
	}

	if s.chance.IntN(10) == 0 {
		priority = 10 * (1 + s.chance.IntN(3))
	}

	return file(n, shapes[s.chance.IntN(len(shapes))], fmt.Sprintf("%spriority: %d\n", expect, priority))
}

// Spec makes up a job: the file that File makes up, parsed as the server does.
func (s *Scene) Spec(n int) (*job.Spec, error) { return s.parse(s.File(n)) }

// pool is how many different jobs Any draws from.
const pool = 2_000

// Any draws one of a pool of jobs as Spec makes them. Parsing is work of the
// server's handlers; what is measured is not to wait for it, nor for the
// collection of what it leaves behind.
func (s *Scene) Any(n int) (*job.Spec, error) {
	for len(s.mixed) < pool {
		sp, err := s.Spec(len(s.mixed))
		if err != nil {
			return nil, err
		}

		s.mixed = append(s.mixed, sp)
	}

	return s.mixed[n%pool], nil
}

// Small returns the most usual job, which needs one GPU of any kind.
func (s *Scene) Small(int) (*job.Spec, error) {
	if s.small != nil {
		return s.small, nil
	}

	var err error
	s.small, err = s.parse(file(0, "{gpus: 1, cpus: 8, memory: 32GB}", ""))

	return s.small, err
}

// file is the text of a job file.
func file(n int, resources, rest string) string {
	return fmt.Sprintf(`name: resnet50-cifar-%d
run: python train.py --lr 0.1 --batch-size 128 --epochs 90 --seed %d --output results/%d
framework: pytorch
model: {kind: cnn, task: vision, params: 25.6M}
params: {lr: 0.1, batch_size: 128, seed: %d}
resources: %s
checkpoint: {dir: ckpt, every: 10m}
retry: 3
env: {OMP_NUM_THREADS: "8"}
%s`, n, n, n, n, resources, rest)
}

func (s *Scene) parse(text string) (*job.Spec, error) {
	parsed, err := spec.Parse([]byte(text), spec.Options{
		Env: func(string) (string, bool) { return "", false }, Now: s.now, Location: time.UTC,
	})
	if err != nil {
		return nil, fmt.Errorf("make up a job: %w", err)
	}

	return &parsed.Jobs[0].Spec, nil
}

// Owner draws one of the users.
func (s *Scene) Owner() id.User { return user(s.chance.IntN(Users)) }

// Draw draws a number below n.
func (s *Scene) Draw(n int) int { return s.chance.IntN(n) }
