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

// Blocker says in one word what a waiting job waits for.
type Blocker string

// The blockers.
const (
	BlockNone         Blocker = "none"         // nothing: it starts with the next round
	BlockNeeds        Blocker = "needs"        // jobs it needs
	BlockBackoff      Blocker = "backoff"      // the wait before it is tried again
	BlockPaused       Blocker = "paused"       // someone paused it
	BlockResources    Blocker = "resources"    // others hold what it needs
	BlockReserved     Blocker = "reserved"     // room is kept for a job ahead of it
	BlockClosed       Blocker = "closed"       // the nodes that fit are drained or silent
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

// Waiting is a job that does not run, as far as Explain has to know it.
type Waiting struct {
	Job   id.Job // "" if it has not been submitted
	Need  fleet.Need
	Lasts time.Duration // how long it will run, 0 if unknown
	Rule  string        // which dataset keeps it from running elsewhere, in words; "" if none does
}

// Explain says why a job does not run, as of this view. held is the job that nodes are
// kept for, if there is one.
func Explain(v *View, j Waiting, held *Reservation) Why {
	w := explain(v, j.Need, j.Lasts, j.Job, held)

	if j.Rule == "" || w.Blocker == BlockNone || w.Blocker == BlockNoNode {
		return w
	}

	return ruled(v, j.Need, w, j.Rule)
}

// ruled says what the rule of a dataset has to do with it.
func ruled(v *View, need fleet.Need, w Why, rule string) Why {
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

func explain(v *View, need fleet.Need, lasts time.Duration, self id.Job, held *Reservation) Why {
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

	free := slices.DeleteFunc(slices.Clone(fit), func(r *fleet.Room) bool { return keptFor(held, self, r.Node.ID) })
	if len(free) >= need.Nodes {
		return Why{Blocker: BlockNone, Sentence: fmt.Sprintf("it can start on %s now", free[0].Node.ID), Start: v.Now}
	}

	if len(fit) >= need.Nodes {
		kept := slices.IndexFunc(fit, func(r *fleet.Room) bool { return keptFor(held, self, r.Node.ID) })
		return reserved(v, held, fit[kept].Node.ID, lasts)
	}

	return occupied(m, open, len(fit), self, held)
}

func keptFor(held *Reservation, self id.Job, n id.Node) bool {
	return held != nil && held.Job != self && slices.Contains(held.Nodes, n)
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

// avoided says that only nodes are left on which the job failed before.
func avoided(need fleet.Need) Why {
	names := strings.Split(strings.Trim(need.Avoid, "|"), "|")
	return Why{
		Blocker: BlockBackoff,
		Sentence: fmt.Sprintf(
			"it failed on %s and no other node could run it; it will be let back there after a while",
			humanize.List(names...),
		),
		Remedies: []string{"add a node that could run it"},
	}
}

// noFit says what no node has, and what the best one has.
func noFit(v *View, m *fleet.Matcher, found int) Why {
	need := m.Need
	w := Why{Blocker: BlockNoFit}

	if found > 0 {
		w.Sentence = fmt.Sprintf(
			"it needs %d nodes with %s each, and the yard has %d of them",
			need.Nodes,
			NeedWords(need),
			found,
		)

		w.Remedies = []string{fmt.Sprintf("ask for at most %s, or add nodes", humanize.Count(found, "node"))}

		return w
	}

	w.Sentence = "no node of the yard has " + NeedWords(need)
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
		w.Sentence = fmt.Sprintf("its place is %s, and the yard has no %s node", need.Place, need.Place)
		w.Remedies = []string{"set place: any, or add such a node"}
		return w
	}

	w.Remedies = []string{
		fmt.Sprintf("the most that one node has is %s, %s CPUs and %s of memory: ask for less, or add a node",
			humanize.Count(gpus, "GPU"), cpus, humanize.Size(memory)),
	}

	if need.Kinds != "" || need.GPUMin > 0 {
		w.Remedies = append(w.Remedies, "allow other GPUs: see trainyard nodes for what there is")
	}

	return w
}

func closed(eligible []*fleet.Room, need fleet.Need) Why {
	w := Why{Blocker: BlockClosed}
	const most = 3
	var parts []string
	more := 0

	for _, r := range eligible {
		if r.Open {
			continue
		}

		if len(parts) == most {
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
		parts = append(parts, fmt.Sprintf("%d more are closed too", more))
	}

	w.Sentence = fmt.Sprintf("%s could run it, but %s", humanize.Count(len(eligible), "node"), humanize.List(parts...))
	if need.Nodes > 1 {
		w.Sentence = fmt.Sprintf("it needs %d nodes; ", need.Nodes) + w.Sentence
	}

	return w
}

func reserved(v *View, held *Reservation, n id.Node, lasts time.Duration) Why {
	w := Why{
		Blocker:  BlockReserved,
		Sentence: fmt.Sprintf("%s has room but is kept for %s, which is ahead of it", n, held.Job),
	}

	if held.At.IsZero() {
		w.Remedies = []string{"set expect for the jobs that run there, so that gaps can be used"}
		return w
	}

	w.Sentence += fmt.Sprintf(" and is expected to start at %s", held.At.UTC().Format(time.RFC3339))
	if gap := held.At.Sub(v.Now); gap > 0 && (lasts == 0 || lasts > gap) {
		w.Remedies = []string{
			fmt.Sprintf(
				"set expect or max_duration to at most %s, if it is that short",
				job.Duration(gap.Truncate(time.Second)),
			),
		}
	}

	return w
}

// occupied says that others hold what the job waits for, who they are, and what would
// let it start. fit is how many of the open nodes have enough free.
func occupied(m *fleet.Matcher, open []*fleet.Room, fit int, self id.Job, held *Reservation) Why {
	w := Why{Blocker: BlockResources, Sentence: shortage(m.Need, open, fit)}

	for _, h := range holders(m, open) {
		w.Holders = append(w.Holders, h.hold)
		w.Nodes = append(w.Nodes, h.node)
	}

	if held != nil && held.Job == self {
		w.Start = held.At
		if held.At.IsZero() {
			w.Sentence += "; it is next, and " + kept(held.Nodes) + " for it"
		} else {
			w.Sentence += fmt.Sprintf("; it is next and expected to start at %s", held.At.UTC().Format(time.RFC3339))
		}
	}

	unkept := slices.DeleteFunc(slices.Clone(open), func(r *fleet.Room) bool { return keptFor(held, self, r.Node.ID) })
	if m.Need.GPUs > 1 && m.Need.Nodes == 1 {
		if gpus := mostFree(m, unkept); gpus > 0 {
			w.Remedies = append(w.Remedies, fmt.Sprintf("with gpus: %d it could start now", gpus))
		}
	}

	if len(w.Holders) > 0 {
		first := &w.Holders[0]
		w.Remedies = append(w.Remedies,
			fmt.Sprintf("it starts when jobs like %s (%s, on %s) end", first.Job, first.Owner, w.Nodes[0]))
	}

	return w
}

// shortage says what the job needs and how many of the nodes that could run it have that free.
func shortage(need fleet.Need, open []*fleet.Room, fit int) string {
	words := NeedWords(need)

	switch {
	case need.Nodes > 1:
		return fmt.Sprintf("it needs %d nodes with %s each, free at the same time; %d of %d have that much free",
			need.Nodes, words, fit, len(open))
	case len(open) == 1:
		return fmt.Sprintf("it needs %s; only %s could run it and does not have that much free", words, open[0].Node.ID)
	}

	return fmt.Sprintf("it needs %s; %d nodes could run it and none has that much free", words, len(open))
}

// nodeHold is a hold and the node that it is on.
type nodeHold struct {
	hold fleet.Hold
	node id.Node
}

// holders lists who holds something that the job lacks, by expected end with unknown
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

func kept(nodes []id.Node) string {
	if len(nodes) == 1 {
		return string(nodes[0]) + " is kept"
	}

	return fmt.Sprintf("%s and %s are kept", nodes[0], humanize.Count(len(nodes)-1, "other node"))
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
