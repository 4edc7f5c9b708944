package place

import (
	"fmt"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// couldRunUnbuilt reports whether the nodes could meet the need if they need not make a Python environment.
func couldRunUnbuilt(v *View, need fleet.Need) bool {
	need.Builder, need.Python = job.BuilderNone, ""
	return couldRun(v, need)
}

// noBuilder says that the nodes that could run the job cannot make its Python environment, and why the first of them
// cannot.
func noBuilder(v *View, need fleet.Need) Why {
	plain := need
	plain.Builder, plain.Python = job.BuilderNone, ""
	m := fleet.NewMatcher(plain)
	reason := ""

	for i := range v.Rooms {
		n := v.Rooms[i].Node
		if can := n.Inventory.Builds(need.Builder, need.Python); !can.OK && m.Eligible(&v.Rooms[i]) {
			reason = fmt.Sprintf("%s: %s", n.ID, can.Reason)
			break
		}
	}

	what := "its Python environment"
	if need.Builder == job.BuilderPython && need.Python != "" {
		what = "an environment with Python " + need.Python
	}

	tool := "uv"
	if need.Builder == job.BuilderConda {
		tool = "micromamba"
	}

	return Why{
		Blocker:  BlockNoFit,
		Sentence: "needs a node that can build " + what + ", and none that could run it can; " + reason,
		Remedies: []Remedy{remedy("install " + tool + " on a node where all its users can run it")},
	}
}
