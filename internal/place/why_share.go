package place

import (
	"fmt"
	"math/bits"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/share"
)

// hasPart reports whether a job could share a GPU of a node with those that share it already.
func hasPart(m *fleet.Matcher, r *fleet.Room, c *share.Cut) bool {
	if c.Share == 0 {
		return false
	}

	_, _, ok := m.FitsPart(r, c)

	return ok
}

// undivided says that the nodes that could run a job that wants a part of a GPU do not divide theirs, or not as it
// wants, or have none with as much memory as it may have.
func undivided(v *View, need fleet.Need) Why {
	whole := remedy("remove gpu_share, so that the job gets a whole GPU")

	apart := need
	apart.MPS = false

	if need.MPS && couldRun(v, apart) {
		return Why{
			Blocker:  BlockNoFit,
			Sentence: "needs a node on which jobs share GPUs through MPS, and none that could run it has that",
			Remedies: []Remedy{
				remedy("remove share_mps, so that the job takes turns with others"),
				remedy("install nvidia-cuda-mps-control on a node whose programs do not run as users of their own"),
			},
		}
	}

	smaller := need
	smaller.Cap = 0

	if need.Cap > 0 && couldRun(v, smaller) {
		return Why{
			Blocker: BlockNoFit,
			Sentence: fmt.Sprintf(
				"may have %s of the memory of a GPU, and no GPU has that for jobs: %s of each is left to the driver",
				humanize.Size(need.Cap), humanize.Size(share.Reserve)),
			Remedies: []Remedy{remedy("lower gpu_memory"), whole},
		}
	}

	return Why{
		Blocker:  BlockNoFit,
		Sentence: "needs a node that divides its GPUs among jobs, and none that could run it does",
		Remedies: []Remedy{remedy("upgrade the agent of a node that could run the job"), whole},
	}
}

// besideNobody says why a job that wants a part of a GPU cannot stand beside those that share the one of which most is
// left, "" if no GPU that it could use is shared.
func besideNobody(m *fleet.Matcher, open []*fleet.Room, c *share.Cut) string {
	var best *fleet.Room

	at := -1
	for _, r := range open {
		usable := m.MatchingGPUs(r)
		for i := range r.Parts {
			if p := &r.Parts[i]; p.GPU&usable != 0 && (best == nil || p.Held < best.Parts[at].Held) {
				best, at = r, i
			}
		}
	}

	if best == nil {
		return ""
	}

	g := best.Shared(at)
	why := g.Explain(c)

	if why == "" { // CPUs or memory of the node are short
		return ""
	}

	return fmt.Sprintf("; GPU %d of %s: %s", bits.TrailingZeros64(best.Parts[at].GPU), best.Node.ID, why)
}
