package place

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Blocker says in one word what a waiting job waits for.
type Blocker string

// The blockers.
const (
	BlockNone      Blocker = "none"      // nothing: it starts with the next round
	BlockNeeds     Blocker = "needs"     // jobs it needs
	BlockBackoff   Blocker = "backoff"   // the wait before it is tried again
	BlockPaused    Blocker = "paused"    // someone paused it
	BlockResources Blocker = "resources" // others hold what it needs
	BlockReserved  Blocker = "reserved"  // room is kept for a job ahead of it
	BlockClosed    Blocker = "closed"    // the nodes that fit are drained or silent
	BlockNoNode    Blocker = "no_node"   // the yard has no node
	BlockNoFit     Blocker = "no_fit"    // no node could ever run it
)

// Why is why a job waits and what would change that.
type Why struct {
	Blocker  Blocker
	Sentence string
	Holders  []fleet.Hold // who holds what it waits for, by expected end
	Nodes    []id.Node    // of each holder
	Start    time.Time    // estimated; zero if unknown
	Remedies []string
}

// maxHolders bounds how many holders are listed.
const maxHolders = 20

// Explain says why a job with this need does not run, as of this view. held is
// the job that nodes are kept for, if there is one.
func Explain(v *View, need fleet.Need, lasts time.Duration, self id.Job, held *Reservation) Why {
	m := fleet.NewMatcher(need)
	var eligible, open, fit []*fleet.Room
	for i := range v.Rooms {
		r := &v.Rooms[i]
		if !m.Eligible(r) {
			continue
		}
		eligible = append(eligible, r)
		if !r.Open {
			continue
		}
		open = append(open, r)
		if _, ok := m.Fits(r); ok {
			fit = append(fit, r)
		}
	}
	switch {
	case len(v.Rooms) == 0:
		return Why{Blocker: BlockNoNode, Sentence: "no node has joined the yard",
			Remedies: []string{"join a node: trainyard tokens create --join, then trainyard agent join on the machine"}}
	case len(eligible) < need.Nodes:
		return noFit(v, m, len(eligible))
	case len(open) < need.Nodes:
		return closed(eligible, need)
	}
	free := slices.DeleteFunc(slices.Clone(fit), func(r *fleet.Room) bool { return keptFor(held, self, r.Node.ID) })
	if len(free) >= need.Nodes {
		return Why{Blocker: BlockNone, Sentence: fmt.Sprintf("it can start on %s now", free[0].Node.ID), Start: v.Now}
	}
	if len(fit) >= need.Nodes {
		return reserved(v, held, fit[0].Node.ID, lasts)
	}
	return busy(v, m, open, self, held)
}

func keptFor(held *Reservation, self id.Job, n id.Node) bool {
	return held != nil && held.Job != self && slices.Contains(held.Nodes, n)
}

// noFit says what no node has, and what the best one has.
func noFit(v *View, m *fleet.Matcher, found int) Why {
	need := m.Need
	w := Why{Blocker: BlockNoFit}
	if found > 0 {
		w.Sentence = fmt.Sprintf("it needs %d nodes with %s each and the yard has %d", need.Nodes, needWords(need), found)
		w.Remedies = []string{fmt.Sprintf("ask for at most %d nodes, or add nodes", found)}
		return w
	}
	w.Sentence = "no node of the yard has " + needWords(need)
	gpus, cpus, memory := 0, job.CPUs(0), job.Bytes(0)
	allowed := false
	for i := range v.Rooms {
		r := &v.Rooms[i]
		if !r.Node.Class.Allows(need.Place) {
			continue
		}
		allowed = true
		gpus = max(gpus, bits.OnesCount64(r.Sound))
		cpus, memory = max(cpus, r.Node.Inventory.CPUs), max(memory, r.Node.Inventory.Memory)
	}
	if !allowed {
		w.Sentence = fmt.Sprintf("its place is %s and the yard has no such node", need.Place)
		w.Remedies = []string{"set place: any, or add such a node"}
		return w
	}
	w.Remedies = []string{fmt.Sprintf("the most that one node has is %s, %s CPUs and %s of memory: ask for less, or add a node",
		plural(gpus, "GPU"), cpus, memory.Short())}
	if need.Kinds != "" || need.GPUMin > 0 {
		w.Remedies = append(w.Remedies, "allow other GPUs: see trainyard nodes for what there is")
	}
	return w
}

func closed(eligible []*fleet.Room, need fleet.Need) Why {
	w := Why{Blocker: BlockClosed}
	var parts []string
	for _, r := range eligible {
		if r.Open || len(parts) == 3 {
			continue
		}
		state := string(r.Node.State)
		if r.Node.State == fleet.Ready {
			state = "drained"
			w.Remedies = append(w.Remedies, "trainyard undrain "+string(r.Node.ID))
		}
		parts = append(parts, fmt.Sprintf("%s is %s", r.Node.ID, state))
	}
	w.Sentence = fmt.Sprintf("%s could run it, but %s", plural(len(eligible), "node"), strings.Join(parts, ", "))
	if need.Nodes > 1 {
		w.Sentence = fmt.Sprintf("it needs %d nodes; ", need.Nodes) + w.Sentence
	}
	return w
}

func reserved(v *View, held *Reservation, n id.Node, lasts time.Duration) Why {
	w := Why{Blocker: BlockReserved, Sentence: fmt.Sprintf("%s has room but is kept for %s, which is ahead of it", n, held.Job)}
	if held.At.IsZero() {
		w.Remedies = []string{"give the jobs that run there an expect, so that gaps can be used"}
		return w
	}
	w.Sentence += fmt.Sprintf(" and starts at about %s", held.At.UTC().Format(time.RFC3339))
	if gap := held.At.Sub(v.Now); gap > 0 && (lasts == 0 || lasts > gap) {
		w.Remedies = []string{fmt.Sprintf("set expect or max_duration to at most %s, if it is that short", job.Duration(gap.Truncate(time.Second)))}
	}
	return w
}

// busy names those who hold what the job waits for.
func busy(v *View, m *fleet.Matcher, open []*fleet.Room, self id.Job, held *Reservation) Why {
	need := m.Need
	w := Why{Blocker: BlockResources}
	type held1 struct {
		hold fleet.Hold
		node id.Node
	}
	var all []held1
	for _, r := range open {
		if _, ok := m.Fits(r); ok {
			continue
		}
		for _, h := range r.Holds {
			if need.GPUs == 0 || h.GPUs != 0 || r.CPUs < need.CPUs || r.Memory < need.Memory {
				all = append(all, held1{h, r.Node.ID})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b held1) int {
		if a.hold.Ends.IsZero() != b.hold.Ends.IsZero() {
			if a.hold.Ends.IsZero() {
				return 1
			}
			return -1
		}
		return a.hold.Ends.Compare(b.hold.Ends)
	})
	for _, h := range all[:min(len(all), maxHolders)] {
		w.Holders = append(w.Holders, h.hold)
		w.Nodes = append(w.Nodes, h.node)
	}
	w.Sentence = fmt.Sprintf("it needs %s; %s could run it and none has that much free", needWords(need), plural(len(open), "node"))
	if need.Nodes > 1 {
		w.Sentence = fmt.Sprintf("it needs %d nodes with %s each, free at the same time", need.Nodes, needWords(need))
	}
	if held != nil && held.Job == self {
		if w.Start = held.At; !held.At.IsZero() {
			w.Sentence += fmt.Sprintf("; it is next and expected to start at about %s", held.At.UTC().Format(time.RFC3339))
		} else {
			w.Sentence += "; it is next, and " + nodeList(held.Nodes) + " is kept for it"
		}
	}
	if most := mostFree(m, open); need.GPUs > 1 && need.Nodes == 1 && most > 0 {
		w.Remedies = append(w.Remedies, fmt.Sprintf("with gpus: %d it could start now", most))
	}
	if len(w.Holders) > 0 {
		w.Remedies = append(w.Remedies, fmt.Sprintf("it starts when jobs like %s (%s, on %s) end", w.Holders[0].Job, w.Holders[0].Owner, w.Nodes[0]))
	}
	return w
}

func nodeList(nodes []id.Node) string {
	if len(nodes) == 1 {
		return string(nodes[0])
	}
	return fmt.Sprintf("%s with %s", nodes[0], plural(len(nodes)-1, "other node"))
}

// mostFree returns the greatest number of GPUs with which the job would fit now.
func mostFree(m *fleet.Matcher, open []*fleet.Room) int {
	less := m.Need
	less.GPUs = 1
	lm := fleet.NewMatcher(less)
	most := 0
	for _, r := range open {
		if gpus, ok := lm.Fits(r); ok {
			most = max(most, bits.OnesCount64(gpus))
		}
	}
	return most
}

// needWords says what one node must have.
func needWords(n fleet.Need) string {
	var parts []string
	if n.GPUs > 0 {
		what := plural(n.GPUs, "GPU")
		if n.Kinds != "" {
			what = fmt.Sprintf("%dx %s", n.GPUs, strings.ReplaceAll(n.Kinds, "|", " or "))
		}
		if n.GPUMin > 0 {
			what += " of at least " + n.GPUMin.String()
		}
		if n.GPUOver > 0 {
			what += " with more than " + n.GPUOver.Short() + " of memory"
		}
		parts = append(parts, what)
	}
	cpus := n.CPUs.String() + " CPUs"
	if n.CPUs == 1000 {
		cpus = "1 CPU"
	}
	parts = append(parts, cpus)
	if n.Memory > 0 {
		parts = append(parts, n.Memory.Short()+" of memory")
	}
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
