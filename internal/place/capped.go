package place

import (
	"math/bits"

	"trainyard/internal/fleet"
)

// Capped returns a need that asks for at most so many GPUs in all, as far as its minimum allows:
// what a job with a range of GPUs or nodes may have within a quota.
func Capped(need fleet.Need, gpus int) fleet.Need {
	if need.MaxGPUs == 0 || need.MaxNodes == 0 || need.MaxGPUs <= gpus/need.MaxNodes {
		return need
	}

	need.MaxGPUs = max(min(need.MaxGPUs, gpus/max(need.Nodes, 1)), need.GPUs, 1)
	need.MaxNodes = max(min(need.MaxNodes, gpus/need.MaxGPUs), need.Nodes)

	return need
}

// Capped returns the start on at most so many GPUs, as far as the minimum of the job allows.
func (s *Start) Capped(gpus int) *Start {
	if s.GPUs() <= max(gpus, 0) || s.Allocations[0].Share > 0 {
		return s
	}

	need := Capped(s.Item.Shape.Need, gpus)
	out := *s
	out.Allocations = nil

	for _, a := range s.Allocations[:min(len(s.Allocations), need.MaxNodes)] {
		a.GPUs = fleet.LowestGPUs(a.GPUs, min(bits.OnesCount64(a.GPUs), need.MaxGPUs))
		out.Allocations = append(out.Allocations, a)
	}

	return &out
}

// GPUs counts the GPUs of a start.
func (s *Start) GPUs() int {
	n := 0
	for _, a := range s.Allocations {
		n += bits.OnesCount64(a.GPUs)
	}

	return n
}
