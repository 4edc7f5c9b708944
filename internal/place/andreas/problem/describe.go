package problem

import (
	"fmt"

	"trainyard/internal/humanize"
)

// Where describes the assignment of a task.
func (y *Yard) Where(t *Task) string {
	gpus := y.Describe(&t.Candidates[t.Assigned])
	if len(t.Seats) == 1 {
		return string(t.Seats[0].Node) + ": " + gpus
	}

	return fmt.Sprintf("%d nodes: %s", len(t.Seats), gpus)
}

// Describe describes the GPUs of a candidate.
func (y *Yard) Describe(o *Candidate) string {
	g := y.Kinds[o.Kind].gpu
	if o.GPUs == 0 || g == nil {
		return "CPUs"
	}
	if o.Share > 0 {
		return fmt.Sprintf("%g of a %s", o.Share, humanize.GPU(g.Model, g.Memory))
	}

	return humanize.GPUs(int(o.GPUs), g.Model, g.Memory)
}
