package place

import (
	"fmt"

	"trainyard/internal/fleet"
)

// couldRunOutside reports whether the nodes could meet the need if the job needed no container.
func couldRunOutside(v *View, need fleet.Need) bool {
	need.Container = false
	return couldRun(v, need)
}

// noContainers says that the nodes that could run the job do not run containers, and why the first of them does not.
func noContainers(v *View, need fleet.Need) Why {
	plain := need
	plain.Container = false
	m := fleet.NewMatcher(plain)
	several := need.MaxNodes > 1
	reason, remedies := "", "install podman or Docker on a node, or remove image from the job"

	for i := range v.Rooms {
		n := v.Rooms[i].Node
		if can := n.Inventory.Contains(several); !can.OK && m.Eligible(&v.Rooms[i]) {
			reason = fmt.Sprintf("%s: %s", n.ID, can.Reason)

			if n.Inventory.Contains(false).OK {
				remedies = "start the agents of nodes with --container-network host, or ask for one node"
			}

			break
		}
	}

	return Why{
		Blocker:  BlockNoFit,
		Sentence: "needs a node that runs containers, and none that could run it does; " + reason,
		Remedies: []Remedy{remedy(remedies)},
	}
}
