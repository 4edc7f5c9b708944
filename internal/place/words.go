package place

import (
	"fmt"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// NeedWords names what one node must have: "4× A100 and 64 GB of memory".
func NeedWords(n fleet.Need) string {
	var parts []string

	if n.GPUs > 0 {
		what := humanize.Count(n.GPUs, "GPU")
		if n.Share > 0 {
			what = humanize.Percent(n.Share) + " of a GPU"
		}

		if n.Kinds != "" {
			kinds := strings.NewReplacer("|", " or ", ":", " ").Replace(n.Kinds)
			what = humanize.Times(n.GPUs, kinds)
			if n.Share > 0 {
				what = humanize.Percent(n.Share) + " of a GPU of kind " + kinds
			}
		}

		switch {
		case n.Cap > 0:
			what += " with " + humanize.Size(n.Cap) + " of its memory"
		case n.GPUMin > 0 && n.GPUMax > 0:
			what += fmt.Sprintf(" with %s to %s", humanize.Size(n.GPUMin), humanize.Size(n.GPUMax))
		case n.GPUMin > 0:
			what += " with at least " + humanize.Size(n.GPUMin)
		case n.GPUMax > 0:
			what += " with at most " + humanize.Size(n.GPUMax)
		}

		if n.GPUOver > 0 {
			what += " with more than " + humanize.Size(n.GPUOver) + " of memory"
		}

		parts = append(parts, what)
	}

	if n.CPUs == 1000 {
		parts = append(parts, "1 CPU")
	} else if n.CPUs > 0 || n.GPUs == 0 && n.Memory == 0 {
		parts = append(parts, n.CPUs.String()+" CPUs")
	}

	if n.Memory > 0 {
		parts = append(parts, humanize.Size(n.Memory)+" of memory")
	}

	return humanize.List(parts...)
}

// Largest names the largest node or offer that a job with this place could use.
func Largest(v *View, offers []fleet.Offer, p job.Place) string {
	var best *fleet.Node
	size := func(n *fleet.Node) job.Bytes { return n.GPUSize() * job.Bytes(len(n.Inventory.GPUs)) }
	for i := range v.Rooms {
		if n := v.Rooms[i].Node; n.Class.Allows(p) && (best == nil || size(n) > size(best)) {
			best = n
		}
	}

	for i := range offers {
		if n := offers[i].Node(); n.Class.Allows(p) && (best == nil || size(n) > size(best)) {
			best = n
		}
	}

	if best == nil {
		return "there is no node that it may use"
	}

	if len(best.Inventory.GPUs) == 0 {
		return fmt.Sprintf(
			"the largest node is %s with %s CPUs and %s of memory",
			best.ID,
			best.Inventory.CPUs,
			humanize.Size(best.Inventory.Memory),
		)
	}

	g := &best.Inventory.GPUs[0]

	return fmt.Sprintf(
		"the largest node is %s with %s",
		best.ID,
		humanize.GPUs(len(best.Inventory.GPUs), g.Model, g.Memory),
	)
}
