package place

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Blocker is the reason why a job is queued, as one word for programs.
type Blocker string

// The blockers.
const (
	BlockNone         Blocker = "none"         // nothing: it starts with the next plan
	BlockNeeds        Blocker = "needs"        // jobs it needs
	BlockBackoff      Blocker = "backoff"      // the delay before it is retried
	BlockPaused       Blocker = "paused"       // someone paused it
	BlockResources    Blocker = "resources"    // other jobs hold what it needs
	BlockReserved     Blocker = "reserved"     // nodes are reserved for a job ahead of it
	BlockClosed       Blocker = "closed"       // the nodes that fit are cordoned or silent
	BlockNoNode       Blocker = "no_node"      // the yard has no node
	BlockNoFit        Blocker = "no_fit"       // no node could ever run it
	BlockProvisioning Blocker = "provisioning" // a node is being provisioned for it
	BlockLimit        Blocker = "limit"        // a quota or budget is used up
	BlockData         Blocker = "data"         // its data may not be used where it could run
)

// blockers is every blocker, in the order in which they are documented.
var blockers = []Blocker{
	BlockNone, BlockNeeds, BlockBackoff, BlockPaused, BlockResources, BlockReserved,
	BlockClosed, BlockNoNode, BlockNoFit, BlockProvisioning, BlockLimit, BlockData,
}

// Blockers lists every blocker.
func Blockers() []Blocker { return slices.Clone(blockers) }

// Why is why a job is queued and what would let it start.
type Why struct {
	Blocker  Blocker
	Sentence string
	Holders  []fleet.Hold // runs that hold what it needs, by expected end
	Nodes    []id.Node    // of each holder
	Start    time.Time    // estimated; zero if unknown
	Remedies []string
}

// maxHolders bounds how many holders are listed.
const maxHolders = 20

// QueuedJob is what Explain needs to know of a queued job.
type QueuedJob struct {
	Job   id.Job // "" if it has not been submitted
	Need  fleet.Need
	Lasts time.Duration // how long it will run, 0 if unknown
	Rule  string        // the rule of a dataset that restricts where it may run, as a clause; "" if there is none
}

// Explain says why a job does not run, as of this view. reservation is that of the last plan,
// nil if it made none.
func Explain(v *View, j QueuedJob, reservation *Reservation) Why {
	w := explain(v, j.Need, j.Lasts, j.Job, reservation)

	if j.Rule == "" || w.Blocker == BlockNone || w.Blocker == BlockNoNode {
		return w
	}

	return applyDataRule(v, j.Need, w, j.Rule)
}

// applyDataRule adds what the rule of a dataset has to do with it.
func applyDataRule(v *View, need fleet.Need, w Why, rule string) Why {
	elsewhere := need
	elsewhere.Place = job.PlaceAny
	m := fleet.NewMatcher(elsewhere)

	allowed, room := false, id.Node("")
	for i := range v.Rooms {
		r := &v.Rooms[i]
		if r.Node.Class.Allows(need.Place) {
			allowed = true
		} else if _, ok := m.Fits(r); ok && room == "" {
			room = r.Node.ID
		}
	}

	remedies := []string{"ask the owner of the data to change its rule, or an admin to override it for this job"}
	switch {
	case need.Place == job.PlaceNowhere:
		return Why{Blocker: BlockData, Sentence: rule, Remedies: remedies}
	case !allowed:
		return Why{
			Blocker:  BlockData,
			Sentence: fmt.Sprintf("%s, and the yard has no %s node", rule, need.Place),
			Remedies: append([]string{"add such a node"}, remedies...),
		}
	case room != "":
		w.Sentence += fmt.Sprintf("; %s has room, but %s", room, rule)
		w.Remedies = append(w.Remedies, remedies...)
	case w.Blocker == BlockNoFit:
		w.Sentence += "; " + rule
	}

	return w
}

func explain(v *View, need fleet.Need, lasts time.Duration, self id.Job, reservation *Reservation) Why {
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
	case len(eligible) < need.Nodes && need.Avoid != "" && couldRun(v, need):
		return avoided(need)
	case len(eligible) < need.Nodes:
		return noFit(v, m, len(eligible))
	case len(open) < need.Nodes:
		return closed(eligible, need)
	}

	isReserved := func(r *fleet.Room) bool { return reservation.blocks(self, r.Node.ID) }
	free := slices.DeleteFunc(slices.Clone(fit), isReserved)
	if len(free) >= need.Nodes {
		return Why{Blocker: BlockNone, Sentence: fmt.Sprintf("can start on %s now", free[0].Node.ID), Start: v.Now}
	}

	if len(fit) >= need.Nodes {
		at := slices.IndexFunc(fit, isReserved)
		return reserved(v, reservation, fit[at].Node.ID, lasts)
	}

	return occupied(v, m, open, len(fit), self, reservation)
}

// blocks reports whether a node is reserved for another job than this one.
func (r *Reservation) blocks(self id.Job, n id.Node) bool {
	return r != nil && r.Job != self && slices.Contains(r.Nodes, n)
}

// couldRun reports whether the nodes could meet the need if the job avoided none of them.
func couldRun(v *View, need fleet.Need) bool {
	need.Avoid = ""
	m, found := fleet.NewMatcher(need), 0
	for i := range v.Rooms {
		if m.Eligible(&v.Rooms[i]) {
			found++
		}
	}

	return found >= need.Nodes
}

// avoided says that only nodes remain on which the job failed before.
func avoided(need fleet.Need) Why {
	names := strings.Split(strings.Trim(need.Avoid, "|"), "|")
	return Why{
		Blocker: BlockBackoff,
		Sentence: fmt.Sprintf(
			"failed on %s and no other node could run it; it may run there again after a delay",
			humanize.List(names...),
		),
		Remedies: []string{"add a node that could run it"},
	}
}

// noFit says what no node has, and what the largest has.
func noFit(v *View, m *fleet.Matcher, found int) Why {
	need := m.Need
	w := Why{Blocker: BlockNoFit}

	if found > 0 {
		w.Sentence = fmt.Sprintf("%d nodes with %s each needed, the yard has %d", need.Nodes, NeedWords(need), found)

		w.Remedies = []string{fmt.Sprintf("request at most %s, or add nodes", humanize.Count(found, "node"))}

		return w
	}

	w.Sentence = "no node has " + NeedWords(need)
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
		w.Sentence = fmt.Sprintf("place is %s, but the yard has no %s node", need.Place, need.Place)
		w.Remedies = []string{"set place: any, or add such a node"}
		return w
	}

	w.Remedies = []string{
		fmt.Sprintf("request at most %s, %s CPUs and %s of memory per node, or add a node",
			humanize.Count(gpus, "GPU"), cpus, humanize.Size(memory)),
	}

	if need.Kinds != "" || need.GPUMin > 0 {
		w.Remedies = append(w.Remedies, "allow other GPU models; trainyard nodes lists those of the yard")
	}

	return w
}

// closed says that the nodes that could run the job are cordoned or silent.
func closed(eligible []*fleet.Room, need fleet.Need) Why {
	w := Why{Blocker: BlockClosed}
	const maxListed = 3
	var parts []string
	more := 0

	for _, r := range eligible {
		if r.Open {
			continue
		}

		if len(parts) == maxListed {
			more++
			continue
		}

		state := string(r.Node.State)
		if r.Node.State == fleet.Ready {
			state = "cordoned"
			w.Remedies = append(w.Remedies, "trainyard uncordon "+string(r.Node.ID))
		}

		parts = append(parts, fmt.Sprintf("%s is %s", r.Node.ID, state))
	}

	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more are unavailable", more))
	}

	w.Sentence = fmt.Sprintf("%s could run it, but %s", humanize.Count(len(eligible), "node"), humanize.List(parts...))
	if need.Nodes > 1 {
		w.Sentence = fmt.Sprintf("%d nodes needed; ", need.Nodes) + w.Sentence
	}

	return w
}

// reserved says that a node has room for the job but is reserved for another one.
func reserved(v *View, reservation *Reservation, n id.Node, lasts time.Duration) Why {
	w := Why{
		Blocker:  BlockReserved,
		Sentence: fmt.Sprintf("%s has room but is reserved for %s, which is ahead in the queue", n, reservation.Job),
	}

	if reservation.At.IsZero() {
		w.Remedies = []string{"set expect for the jobs running there, so that gaps can be filled"}
		return w
	}

	w.Sentence += " and is expected to start at " + humanize.Time(reservation.At, v.Now.UTC())
	if gap := reservation.At.Sub(v.Now); gap > 0 && (lasts == 0 || lasts > gap) {
		w.Remedies = []string{
			fmt.Sprintf(
				"set expect or max_duration to at most %s, if it is that short",
				job.Duration(gap.Truncate(time.Second)),
			),
		}
	}

	return w
}

// occupied says that other runs hold what the job needs, which they are, and what would let it
// start. fit is how many of the open nodes have enough free.
func occupied(
	v *View,
	m *fleet.Matcher,
	open []*fleet.Room,
	fit int,
	self id.Job,
	reservation *Reservation,
) Why {
	w := Why{Blocker: BlockResources, Sentence: shortage(m, open, fit)}

	for _, h := range holders(m, open) {
		w.Holders = append(w.Holders, h.hold)
		w.Nodes = append(w.Nodes, h.node)
	}

	if len(w.Holders) > 0 && !w.Holders[0].Ends.IsZero() {
		w.Sentence += "; " + release(&w.Holders[0], w.Nodes[0], v.Now.UTC())
	}

	if reservation != nil && reservation.Job == self {
		w.Start = reservation.At
		if reservation.At.IsZero() {
			w.Sentence += "; next in the queue, " + reservedNodes(reservation.Nodes) + " for it"
		} else {
			w.Sentence += "; next in the queue, expected to start at " + humanize.Time(reservation.At, v.Now.UTC())
		}
	}

	unreserved := slices.DeleteFunc(slices.Clone(open), func(r *fleet.Room) bool {
		return reservation.blocks(self, r.Node.ID)
	})
	if m.Need.GPUs > 1 && m.Need.Nodes == 1 {
		if gpus := maxFreeGPUs(m, unreserved); gpus > 0 {
			w.Remedies = append(w.Remedies, fmt.Sprintf("with gpus: %d it could start now", gpus))
		}
	}

	if len(w.Holders) > 0 {
		first := &w.Holders[0]
		w.Remedies = append(w.Remedies,
			fmt.Sprintf("it can start when jobs such as %s (%s, on %s) end", first.Job, first.Owner, w.Nodes[0]))
	}

	return w
}

// release says when a run is expected to release what it holds.
func release(h *fleet.Hold, node id.Node, now time.Time) string {
	what := "its part of " + string(node)
	if gpus := bits.OnesCount64(h.GPUs); gpus > 0 && h.Share == 0 {
		what = humanize.Count(gpus, "GPU") + " on " + string(node)
	}

	return fmt.Sprintf("%s (%s) is expected to release %s at %s", h.Job, h.Owner, what, humanize.Time(h.Ends, now))
}

// shortage says what the job needs and how much of it is free on the nodes that could run it.
func shortage(m *fleet.Matcher, open []*fleet.Room, fit int) string {
	need := m.Need
	words := NeedWords(need)

	switch {
	case need.Nodes > 1:
		return fmt.Sprintf("%d nodes with %s each needed, free on %d of %d suitable nodes", need.Nodes, words, fit, len(open))
	case len(open) == 1:
		return fmt.Sprintf("%s needed, %s on %s, the only suitable node", words, freeWords(m, open), open[0].Node.ID)
	}

	return fmt.Sprintf("%s needed, %s on any of %d suitable nodes", words, freeWords(m, open), len(open))
}

// freeWords says how many GPUs are free on one node, or just that the need is not.
func freeWords(m *fleet.Matcher, open []*fleet.Room) string {
	gpus := maxFreeGPUs(m, open)
	if m.Need.GPUs < 2 || gpus == 0 || gpus >= m.Need.GPUs {
		return "not free"
	}

	return fmt.Sprintf("at most %d free", gpus)
}

// nodeHold is a hold and the node that it is on.
type nodeHold struct {
	hold fleet.Hold
	node id.Node
}

// holders lists the runs that hold something that the job needs, by expected end with unknown
// ends last, at most maxHolders.
func holders(m *fleet.Matcher, open []*fleet.Room) []nodeHold {
	need := &m.Need
	var all []nodeHold

	for _, r := range open {
		if _, fits := m.Fits(r); fits {
			continue
		}

		lacksHost := r.CPUs < need.CPUs || r.Memory < need.Memory
		for _, h := range r.Holds {
			if need.GPUs == 0 || h.GPUs != 0 || lacksHost {
				all = append(all, nodeHold{h, r.Node.ID})
			}
		}
	}

	slices.SortStableFunc(all, func(a, b nodeHold) int {
		switch {
		case a.hold.Ends.IsZero() && b.hold.Ends.IsZero():
			return 0
		case a.hold.Ends.IsZero():
			return 1
		case b.hold.Ends.IsZero():
			return -1
		}

		return a.hold.Ends.Compare(b.hold.Ends)
	})

	return all[:min(len(all), maxHolders)]
}

// reservedNodes says which nodes are reserved.
func reservedNodes(nodes []id.Node) string {
	if len(nodes) == 1 {
		return string(nodes[0]) + " is reserved"
	}

	return fmt.Sprintf("%s and %s are reserved", nodes[0], humanize.Count(len(nodes)-1, "other node"))
}

// mostFree returns the greatest number of GPUs with which the job would fit now.
func maxFreeGPUs(m *fleet.Matcher, open []*fleet.Room) int {
	need := m.Need
	need.GPUs = 1
	smaller := fleet.NewMatcher(need)

	free := 0
	for _, r := range open {
		if gpus, ok := smaller.Fits(r); ok {
			free = max(free, bits.OnesCount64(gpus))
		}
	}

	return free
}
