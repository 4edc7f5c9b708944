package job

import (
	"fmt"
	"slices"
	"strings"
)

// Probe is what the agent of a rank has found out about the network between the nodes of its run.
type Probe struct {
	Port int `json:"port" minimum:"-1" maximum:"65535" doc:"where the agent answers the other ranks until the program starts; -1 if it cannot"`
	// Reached has one element for each rank. Bit i is set if that rank answered at the i-th of its addresses.
	Reached []uint64 `json:"reached,omitempty" maxItems:"4096" doc:"for each rank at which of its addresses it answered, as bits"`
}

// GangStart lets the programs of a run on several nodes start.
type GangStart struct {
	Nodes  []string `json:"nodes" doc:"addresses of the run's nodes in rank order"`
	Remark string   `json:"remark,omitempty" doc:"for the output of the run: which ranks did not reach each other"`
}

// Unreached says that one rank of a run did not reach another.
type Unreached struct{ From, To int }

// GangAddresses is what is known about the network between the nodes of a run.
type GangAddresses struct {
	Default    []string   // one for each rank, where nothing was probed
	Candidates [][]string // all addresses of each rank's node, the preferred ones first
	// Probes are those of the ranks, nil for a rank of which there is none: it does not probe, and is not probed.
	Probes []*Probe
}

// Choose returns an address for each rank: the first at which all other ranks reached it, otherwise the first at which
// most did. The second result lists who did not reach whom at that address.
func (g *GangAddresses) Choose() ([]string, []Unreached) {
	chosen := slices.Clone(g.Default)
	var missing []Unreached

	for to := range chosen {
		if p := g.Probes[to]; p == nil || p.Port <= 0 {
			continue
		}

		best, most := 0, -1
		for i := range g.Candidates[to] {
			if n := g.reaching(to, i); n > most {
				best, most = i, n
			}
		}

		if most > 0 {
			chosen[to] = g.Candidates[to][best]
		}

		for from, p := range g.Probes {
			if from != to && p != nil && !p.reached(to, best) {
				missing = append(missing, Unreached{From: from, To: to})
			}
		}
	}

	return chosen, missing
}

// reaching counts the ranks that reached one at its i-th address.
func (g *GangAddresses) reaching(to, i int) (n int) {
	for from, p := range g.Probes {
		if from != to && p != nil && p.reached(to, i) {
			n++
		}
	}

	return n
}

// MaxAddresses is how many addresses a node may have: they are the bits of a number.
const MaxAddresses = 64

func (p *Probe) reached(rank, i int) bool {
	return rank < len(p.Reached) && i < MaxAddresses && p.Reached[rank]&(1<<i) != 0
}

// lostPeer are words with which programs report that they lost the connection to another rank, in lower case.
var lostPeer = []string{
	"connection closed by peer",
	"connection reset by peer",
	"connection refused",
	"broken pipe",
	"socket closed",
	"socket timeout",
	"remote process exited",
	"remote error",
	"ncclremoteerror",
	"ncclsystemerror",
	"watchdog caught collective operation timeout",
	"timed out waiting",
	"connectionerror",
	"rendezvousconnectionerror",
}

// LostPeer reports whether what a rank said of its failure is that it lost another rank: then the other one failed
// first.
func LostPeer(text string) bool {
	text = strings.ToLower(text)

	return slices.ContainsFunc(lostPeer, func(words string) bool { return strings.Contains(text, words) })
}

// failedFirst returns the rank that failed first, nil if none failed by itself. Where connections between ranks break,
// those who notice may report that before the one whose fault it is: torchrun looks every few seconds. So a rank whose
// output says that it lost another one comes after one that failed for a reason of its own, and after one
// that was stopped when its output had such a reason already.
func (r *Run) failedFirst() *Rank {
	var first, stopped *Rank

	for i := range r.Ranks {
		k := &r.Ranks[i]

		switch {
		case k.Signalled && k.Error != "" && !LostPeer(k.Error):
			if stopped == nil {
				stopped = k
			}
		case k.Signalled || k.Cause == CauseNone:
		case first == nil, k.before(first):
			first = k
		}
	}

	if first != nil && stopped != nil && first.consequence() {
		return stopped
	}

	return first
}

// before reports whether a rank failed before another.
func (k *Rank) before(other *Rank) bool {
	if a, b := k.consequence(), other.consequence(); a != b {
		return b
	}

	return k.Ended.Before(other.Ended)
}

// consequence reports whether a rank failed because it lost another.
func (k *Rank) consequence() bool {
	return k.Cause == CauseUserCode && LostPeer(k.Error+"\n"+k.Reason)
}

// FailedRank returns the rank of a run on several nodes by whose failure it ended, nil if it ended for another reason.
func (r *Run) FailedRank() *Rank {
	cause, k := r.Verdict()
	first := r.failedFirst()

	if len(r.Ranks) < 2 || cause == CauseNone || cause == CauseNodeLost || k != first {
		return nil
	}

	return k
}

// DescribeFailure says in a sentence why a run ended; k is the rank that decided it. Of a run on several nodes it names
// the rank.
func (r *Run) DescribeFailure(c Cause, k *Rank) string {
	text := k.Describe(c)
	if r.FailedRank() != k {
		return text
	}

	if k.Signalled { // because of the others, who failed because of it
		text = k.Error
	}

	return fmt.Sprintf("rank %d of %d on %s failed first: %s", k.Rank, len(r.Ranks), k.Node, text)
}
