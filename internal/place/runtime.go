package place

import (
	"math/bits"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// HardwareOf returns so many GPUs of a kind as the rule for run times sees them; gpu is nil without GPUs.
func HardwareOf(gpu *fleet.GPU, gpus int) job.Hardware {
	h := job.Hardware{GPUs: gpus}
	if gpu != nil {
		h.GPU = gpu.Model
		h.TFLOPS, _ = gpu.TFLOPS()
	}

	return h
}

// RunTime returns how long a job runs with so many GPUs of a kind on so many nodes, 0 if that is unknown:
// by its speed if it was measured or declared, else by the rule for expected run times (job.Outlook.RunTime).
func RunTime(it *queue.Item, gpu *fleet.GPU, gpus, nodes int) time.Duration {
	return RunTimeOf(it, it.Lasts, gpu, gpus, nodes)
}

// RunTimeOf is RunTime for a job that is assumed to last so long on its reference.
func RunTimeOf(it *queue.Item, lasts time.Duration, gpu *fleet.GPU, gpus, nodes int) time.Duration {
	if d, known := measuredTime(it, gpu, gpus, nodes); known {
		return d
	}

	return it.Outlook.RunTime(it.Spec, lasts, asked(it), HardwareOf(gpu, gpus))
}

// measuredTime returns how long the rest of a job takes at the speed that was measured or declared there.
func measuredTime(it *queue.Item, gpu *fleet.GPU, gpus, nodes int) (time.Duration, bool) {
	o := it.Outlook
	if o == nil || o.Speed == nil {
		return 0, false
	}

	var model string

	var memory job.Bytes
	if gpu != nil {
		model, memory = gpu.Model, gpu.Memory
	}

	d, known := o.RemainingTime(o.Speed.On(model, memory).Rate(gpus, nodes))

	return it.Spec.Capped(d), known
}

// PartRate returns the units per second on a part of a GPU: as measured, or else the same part of what the whole GPU
// gives, which is what a job gets that uses all of its time.
func PartRate(c *job.Curve, part float64) float64 {
	if rate := c.OnPart(part); rate > 0 {
		return rate
	}

	return part * c.Rate(1, 1)
}

// RunTimeOnPart is RunTimeOf for a part of one GPU. What its owner expects is for the part that it asks for.
func RunTimeOnPart(it *queue.Item, lasts time.Duration, gpu *fleet.GPU, part float64) time.Duration {
	if o := it.Outlook; o != nil && o.Speed != nil && gpu != nil {
		if d, known := o.RemainingTime(PartRate(o.Speed.On(gpu.Model, gpu.Memory), part)); known {
			return it.Spec.Capped(d)
		}
	}

	return RunTimeOf(it, lasts, gpu, 1, 1)
}

// RunTimeIn returns how long a job runs on as many GPUs of a set as it asks for, on each of its nodes.
func RunTimeIn(it *queue.Item, n *fleet.Node, set uint64) time.Duration {
	need := &it.Shape.Need
	return RunTime(it, FirstGPU(n, set), need.GPUs*need.Nodes, need.Nodes)
}

// Pace returns how many seconds of its expected run time a job gets done in a second on allocations. On
// GPUs of different kinds the slowest decides.
func Pace(it *queue.Item, allocations []Allocation, node func(id.Node) *fleet.Node) float64 {
	if it.Outlook == nil || asked(it) == 0 {
		return 1
	}

	gpus := 0
	for _, a := range allocations {
		gpus += bits.OnesCount64(a.GPUs)
	}

	slowest := 0.0

	for _, a := range allocations {
		n := node(a.Node)
		if n == nil {
			continue
		}

		pace := it.Outlook.Reference.Pace(asked(it), HardwareOf(FirstGPU(n, a.GPUs), gpus))
		if slowest == 0 || pace < slowest {
			slowest = pace
		}
	}

	if slowest == 0 {
		return 1
	}

	return slowest
}

// RunTimeOn returns how long a job runs on allocations, 0 if that is unknown.
func RunTimeOn(it *queue.Item, allocations []Allocation, node func(id.Node) *fleet.Node) time.Duration {
	gpus := 0
	for _, a := range allocations {
		gpus += bits.OnesCount64(a.GPUs)
	}

	var longest time.Duration

	for _, a := range allocations {
		n := node(a.Node)

		switch {
		case n == nil:
		case a.Share > 0:
			longest = max(longest, RunTimeOnPart(it, it.Lasts, FirstGPU(n, a.GPUs), a.Share))
		default:
			longest = max(longest, RunTime(it, FirstGPU(n, a.GPUs), gpus, len(allocations)))
		}
	}

	return longest
}

// asked returns how many GPUs a job asks for at least, of all nodes together.
func asked(it *queue.Item) int {
	if it.Shape == nil || it.Shape.Need.MaxGPUs == 0 {
		return 0
	}

	need := &it.Shape.Need

	return max(need.GPUs*need.Nodes, 1)
}

// FirstGPU returns the first of a set of GPUs of a node, nil if there is none.
func FirstGPU(n *fleet.Node, set uint64) *fleet.GPU {
	if set == 0 {
		return nil
	}

	return n.Inventory.GPU(bits.TrailingZeros64(set))
}
