package place

import (
	"fmt"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// NeedWords says what one node must have.
func NeedWords(n fleet.Need) string {
	var parts []string
	if n.GPUs > 0 {
		what := plural(n.GPUs, "GPU")
		if n.Kinds != "" {
			what = fmt.Sprintf("%dx %s", n.GPUs, strings.ReplaceAll(n.Kinds, "|", " or "))
		}
		switch {
		case n.GPUMin > 0 && n.GPUMax > 0:
			what += fmt.Sprintf(" of %s to %s", n.GPUMin, n.GPUMax)
		case n.GPUMin > 0:
			what += " of at least " + n.GPUMin.String()
		case n.GPUMax > 0:
			what += " of at most " + n.GPUMax.String()
		}
		if n.GPUOver > 0 {
			what += " with more than " + n.GPUOver.Short() + " of memory"
		}
		parts = append(parts, what)
	}
	if n.CPUs == 1000 {
		parts = append(parts, "1 CPU")
	} else if n.CPUs > 0 || n.GPUs == 0 && n.Memory == 0 {
		parts = append(parts, n.CPUs.String()+" CPUs")
	}
	if n.Memory > 0 {
		parts = append(parts, n.Memory.Short()+" of memory")
	}
	return list(parts)
}

// list joins parts as in a sentence.
func list(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Largest says what the largest node would be that a job with this place could have.
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
		return "nothing that it may use is there"
	}
	if len(best.Inventory.GPUs) == 0 {
		return fmt.Sprintf("the largest that would fit is %s with %s CPUs and %s of memory", best.ID, best.Inventory.CPUs, best.Inventory.Memory.Short())
	}
	g := &best.Inventory.GPUs[0]
	return fmt.Sprintf("the largest that would fit is %s with %dx %s of %s", best.ID, len(best.Inventory.GPUs), g.Model, g.Memory.Short())
}
