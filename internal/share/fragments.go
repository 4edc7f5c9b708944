package share

import (
	"cmp"
	"slices"

	"trainyard/internal/job"
)

// Demand is what some jobs ask of one node.
type Demand struct {
	GPUs   float64 // less than 1 is a share of one GPU
	CPUs   job.CPUs
	Memory job.Bytes
}

// Workload is what the jobs of a yard ask for, with how many ask for it. It says of what use the rest of a GPU is: half
// a GPU is worth nothing where all jobs want whole ones.
type Workload struct {
	demands []weighted
	total   float64
}

type weighted struct {
	Demand
	weight float64
}

// maxDemands is how many kinds of demand count, those of the most jobs: the long tail decides nothing and costs time.
const maxDemands = 48

// NewWorkload makes a workload of the number of jobs by demand. Jobs without GPUs do not count: they can use
// what is left of no GPU.
func NewWorkload(jobs map[Demand]int) *Workload {
	w := &Workload{}
	for d, n := range jobs {
		if d.GPUs > 0 && n > 0 {
			w.demands = append(w.demands, weighted{d, float64(n)})
		}
	}

	slices.SortFunc(w.demands, func(a, b weighted) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.CPUs, b.CPUs),
			cmp.Compare(a.Memory, b.Memory))
	})

	if len(w.demands) > maxDemands {
		w.demands = w.demands[:maxDemands]
	}

	for i := range w.demands {
		w.total += w.demands[i].weight
	}

	return w
}

// Host is what a node has left.
type Host struct {
	Left   []float64 // of each of its GPUs that is usable, from 0 to 1
	CPUs   job.CPUs
	Memory job.Bytes
}

// Free returns how many whole GPUs are free.
func (h *Host) Free() int {
	n := 0
	for _, part := range h.Left {
		if part >= 1 {
			n++
		}
	}

	return n
}

// take takes whole GPUs, CPUs and memory.
func (h *Host) take(gpus int, cpus job.CPUs, memory job.Bytes) {
	for i := 0; i < len(h.Left) && gpus > 0; i++ {
		if h.Left[i] >= 1 {
			h.Left[i] = 0
			gpus--
		}
	}

	h.CPUs -= cpus
	h.Memory -= memory
}

// Fragments returns how many GPUs of what a node has left the average job of the workload could not use: those of which
// less is left than it asks for, and all if the node cannot run it. It is the measure of Weng et al. (FGD, ATC
// 2023) for the jobs with GPUs.
func (w *Workload) Fragments(h *Host) float64 {
	if w.total == 0 {
		return 0
	}

	left := 0.0
	for _, part := range h.Left {
		left += part
	}

	sum := 0.0
	for i := range w.demands {
		d := &w.demands[i]
		if h.CPUs < d.CPUs || h.Memory < d.Memory {
			sum += d.weight * left
			continue
		}

		useless, usable, each := 0.0, 0, min(d.GPUs, 1)
		for _, part := range h.Left {
			if part+tiny < each {
				useless += part
			} else {
				usable++
			}
		}

		if float64(usable)*each+tiny < d.GPUs || usable == 0 {
			useless = left
		}

		sum += d.weight * useless
	}

	return sum / w.total
}

// emptiness is how much each free GPU of a node counts, in GPUs that become useless: nodes that are in use are filled
// first, so that others stay free for wide jobs and can be switched off. From 0.1 to 0.5 all is about as good.
const emptiness = 0.3

// Cost is what it costs others to give a job a part of a GPU. Less is better.
type Cost struct {
	Waste float64 // GPUs of the node that become useless, and how empty it is
	Watts float64 // that are drawn more: a GPU that is in use already draws little more
	Left  float64 // of the GPU
}

// Whole returns what it costs others, as Waste, to give a job whole GPUs of a node, or none. It changes the host.
func (w *Workload) Whole(h *Host, gpus int, cpus job.CPUs, memory job.Bytes) float64 {
	empty, before := emptiness*float64(h.Free()), w.Fragments(h)
	h.take(gpus, cpus, memory)

	return empty + w.Fragments(h) - before
}

// Cost returns what it costs to give a job so much of the GPU with an index. It changes the host for a while.
func (w *Workload) Cost(h *Host, before float64, gpu int, d *Demand) Cost {
	old, empty := *h, emptiness*float64(h.Free())
	part := h.Left[gpu]
	h.Left[gpu], h.CPUs, h.Memory = max(part-d.GPUs, 0), h.CPUs-d.CPUs, h.Memory-d.Memory

	cost := Cost{Waste: empty + w.Fragments(h) - before, Left: h.Left[gpu]}

	h.Left[gpu] = part
	h.CPUs, h.Memory = old.CPUs, old.Memory

	return cost
}

// Compare orders by waste, then by energy, then by how tight the fit is.
func (c Cost) Compare(o Cost) int {
	return cmp.Or(CompareWaste(c.Waste, o.Waste), cmp.Compare(c.Watts, o.Watts), cmp.Compare(c.Left, o.Left))
}

// CompareWaste orders by waste, of which tiny differences come from the order of sums.
func CompareWaste(a, b float64) int {
	const same = 1e-9
	if d := a - b; d >= -same && d <= same {
		return 0
	}

	return cmp.Compare(a, b)
}
