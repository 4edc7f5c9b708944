package place

import (
	"cmp"
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
	BlockNone         Blocker = "none"         // nothing that is known: the next plan decides
	BlockNeeds        Blocker = "needs"        // jobs it needs
	BlockBackoff      Blocker = "backoff"      // the delay before it is retried
	BlockPaused       Blocker = "paused"       // someone paused it
	BlockResources    Blocker = "resources"    // other jobs hold what it needs
	BlockReserved     Blocker = "reserved"     // nodes are reserved for a job ahead of it, or for another user
	BlockClosed       Blocker = "closed"       // the nodes that fit are cordoned, silent or have a problem
	BlockNoNode       Blocker = "no_node"      // the yard has no node
	BlockNoFit        Blocker = "no_fit"       // no node could ever run it
	BlockProvisioning Blocker = "provisioning" // a node is being provisioned for it
	BlockLimit        Blocker = "limit"        // a quota or budget is used up
	BlockData         Blocker = "data"         // its data may not be used where it could run
	BlockSecret       Blocker = "secret"       // a secret that it asks for is not there or cannot be decrypted
	BlockPolicy       Blocker = "policy"       // there is room, and the policy lets it wait
)

// blockers is every blocker, in the order in which they are documented.
var blockers = []Blocker{
	BlockNone, BlockNeeds, BlockBackoff, BlockPaused, BlockResources, BlockReserved,
	BlockClosed, BlockNoNode, BlockNoFit, BlockProvisioning, BlockLimit, BlockData, BlockSecret,
	BlockPolicy,
}

// Blockers lists every blocker.
func Blockers() []Blocker { return slices.Clone(blockers) }

// Why is why a job is queued and what would let it start.
type Why struct {
	Blocker  Blocker
	Sentence string
	Holders  []fleet.Hold // runs that hold what it needs, by expected end
	Nodes    []id.Node    // of each holder
	Start    time.Time    // expected; zero if unknown
	Remedies []Remedy
	// NotBefore is before which time it surely does not start unless something changes; zero if
	// there is no such time.
	NotBefore time.Time
}

// Outside reports whether the job is not a candidate for a start: how long others like it were
// queued says nothing about when it starts.
func (w *Why) Outside() bool {
	switch w.Blocker {
	case BlockNone, BlockResources, BlockReserved, BlockPolicy:
		return false
	case BlockNeeds, BlockBackoff, BlockPaused, BlockClosed, BlockNoNode, BlockNoFit, BlockProvisioning, BlockLimit,
		BlockData, BlockSecret:
	}

	return true
}

// Remedy is a change that would let a job start or would make room for it. The fields say the
// same as the text, as far as it can be said without words.
type Remedy struct {
	Text     string
	Need     *fleet.Need // the need that nodes of the yard could meet
	RoomNow  bool        // they have room for that need now
	Uncordon id.Node
	Ended    []id.Job // jobs that must have ended
}

// remedy is one that only words describe.
func remedy(text string) Remedy { return Remedy{Text: text} }

// Texts returns the remedies as people read them.
func Texts(list []Remedy) []string {
	var texts []string
	for i := range list {
		texts = append(texts, list[i].Text)
	}

	return texts
}

// maxHolders bounds how many holders are listed.
const maxHolders = 20

// QueuedJob is what Explain needs to know of a queued job.
type QueuedJob struct {
	Job   id.Job // "" if it has not been submitted
	Need  fleet.Need
	Short bool   // if it started now, it would have ended before the reservation of the plan begins
	Rule  string // the rule of a dataset that restricts where it may run, as a clause; "" if there is none
}

// Verdict is what the last plan came to for a job that it did not start.
type Verdict struct {
	Policy      string       // name
	Reservation *Reservation // of the plan, nil if it made none
	Said        bool         // the policy says why it lets the job wait; the sentence is left to it
	// Due says that the yard has changed since, or that the job is new: the next plan decides.
	Due bool
}

// Explain says why a job does not run, as of this view and of the last plan.
//
// What is free does not decide whether a job starts: the policy does. So where there is room
// Explain never promises a start. It says what the policy decided, or that it has yet to decide.
func Explain(v *View, j QueuedJob, verdict Verdict) Why {
	if verdict.Due {
		verdict.Reservation, verdict.Said = nil, false
	}

	w := explain(v, &j, &verdict)

	if j.Rule == "" || w.Blocker == BlockNone || w.Blocker == BlockPolicy || w.Blocker == BlockNoNode {
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

	change := remedy("ask the owner of the data to change its rule, or an admin to override it for this job")
	switch {
	case need.Place == job.PlaceNowhere:
		return Why{Blocker: BlockData, Sentence: rule, Remedies: []Remedy{change}}
	case !allowed:
		return Why{
			Blocker:  BlockData,
			Sentence: fmt.Sprintf("%s, and the yard has no %s node", rule, need.Place),
			Remedies: []Remedy{remedy("add such a node"), change},
		}
	case room != "":
		w.Sentence += fmt.Sprintf("; %s has room, but %s", room, rule)
		w.Remedies = append(w.Remedies, change)
	case w.Blocker == BlockNoFit:
		w.Sentence += "; " + rule
	}

	return w
}

func explain(v *View, j *QueuedJob, verdict *Verdict) Why {
	need := j.Need
	m := fleet.NewMatcher(need)
	cut := need.Cut(need.Share)
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

		if _, ok := m.Fits(r); ok || hasPart(m, r, &cut) {
			fit = append(fit, r)
		}
	}

	if need.SameGPU && len(eligible) >= need.Nodes {
		if need.MostAlike(eligible) < need.Nodes {
			return unlike(need, eligible)
		}

		eligible, open, fit = oneKind(need, eligible, open, fit)
	}

	switch {
	case len(v.Rooms) == 0:
		return Why{Blocker: BlockNoNode, Sentence: "no node has joined the yard", Remedies: []Remedy{
			remedy("join a node: trainyard tokens create --join, then trainyard agent join on the machine")}}
	case len(eligible) < need.Nodes && need.Named() && couldRun(v, unnamed(need)):
		return namedNodes(v, need, len(eligible))
	case len(eligible) < need.Nodes && need.Owner != "" && couldRunAlone(v, need):
		if w, found := reservedForUsers(v, need); found {
			return w
		}

		return dedicatedNodes(v, need, eligible)
	case len(eligible) < need.Nodes && need.Avoid != "" && couldRun(v, need):
		return avoided(need)
	case len(eligible) < need.Nodes && need.Snapshot && couldRunUnsaved(v, need):
		return unsaved(v, need)
	case len(eligible) < need.Nodes && need.Container && couldRunOutside(v, need):
		return noContainers(v, need)
	case len(eligible) < need.Nodes && need.Share > 0 && couldRun(v, need.Whole()):
		return undivided(v, need)
	case len(eligible) < need.Nodes && need.Builder != job.BuilderNone && couldRunUnbuilt(v, need):
		return noBuilder(v, need)
	case len(eligible) < need.Nodes && need.Shared != "" && couldRunUnshared(v, need):
		return unshared(v, need)
	case len(eligible) < need.Nodes && need.Secrets && couldRunWithoutSecrets(v, need):
		return Why{
			Blocker:  BlockNoFit,
			Sentence: "needs a node whose agent passes secrets on, and the agents of those that could run it are too old",
			Remedies: []Remedy{remedy("upgrade the agent of a node that could run the job")},
		}
	case len(eligible) < need.Nodes:
		return noFit(v, m, len(eligible))
	case len(open) < need.Nodes:
		return closed(eligible, need, len(open))
	}

	if len(fit) < need.Nodes {
		w := occupied(v, m, open, fit, j.Job, verdict.Reservation)
		w.Sentence += dedicatedRoom(v, need) + roomElsewhere(v, need)
		if need.Share > 0 {
			w.Sentence += besideNobody(m, open, &cut)
		}

		return w
	}

	isReserved := func(r *fleet.Room) bool { return verdict.Reservation.blocks(j.Job, r.Node.ID) }
	free := slices.DeleteFunc(slices.Clone(fit), isReserved)

	switch {
	case verdict.Due:
		return Why{Blocker: BlockNone, Sentence: roomOn(fit, need.Nodes) + "; considered in the next scheduling round"}
	case verdict.Said:
		return Why{Blocker: BlockPolicy}
	case len(free) < need.Nodes:
		at := slices.IndexFunc(fit, isReserved)
		return reserved(v, verdict.Reservation, fit[at].Node.ID, j.Short)
	}

	return Why{
		Blocker:  BlockPolicy,
		Sentence: fmt.Sprintf("%s, but policy %s lets the job wait", roomOn(free, need.Nodes), verdict.Policy),
	}
}

// oneKind returns those of the rooms that have one kind of GPU: the kind with most room for the job, of those of which
// there are enough.
func oneKind(need fleet.Need, eligible, open, fit []*fleet.Room) (ofEligible, ofOpen, ofFit []*fleet.Room) {
	of := func(list []*fleet.Room, kind int32) []*fleet.Room {
		return slices.DeleteFunc(slices.Clone(list), func(r *fleet.Room) bool { return r.Kind != kind })
	}

	for _, r := range eligible {
		if r.Kind < 0 {
			continue
		}

		e, o, f := of(eligible, r.Kind), of(open, r.Kind), of(fit, r.Kind)
		if len(e) < need.Nodes {
			continue
		}

		if ofEligible == nil || len(f) > len(ofFit) || len(f) == len(ofFit) && len(o) > len(ofOpen) {
			ofEligible, ofOpen, ofFit = e, o, f
		}
	}

	return ofEligible, ofOpen, ofFit
}

// unlike says that the nodes that could run a job with same_gpu have too many GPU models.
func unlike(need fleet.Need, eligible []*fleet.Room) Why {
	mixed := need
	mixed.SameGPU = false

	var models []string
	for _, r := range eligible {
		if g := FirstGPU(r.Node, r.Sound); g != nil {
			models = append(models, humanize.GPU(g.Model, g.Memory)+" on "+string(r.Node.ID))
		}
	}

	return Why{
		Blocker: BlockNoFit,
		Sentence: fmt.Sprintf("%d nodes with the same GPU model needed (same_gpu), the yard has at most %d: %s",
			need.Nodes, need.MostAlike(eligible), humanize.ListUpTo(4, models...)),
		Remedies: []Remedy{{Text: "remove same_gpu, or add a node", Need: &mixed}},
	}
}

// roomOn says which nodes have room for a job that needs so many.
func roomOn(fit []*fleet.Room, nodes int) string {
	first := string(fit[0].Node.ID)
	if nodes > 1 {
		return fmt.Sprintf("%s and %s have room", first, humanize.Count(nodes-1, "other node"))
	}

	return first + " has room"
}

// blocks reports whether a node is reserved for another job than this one.
func (r *Reservation) blocks(self id.Job, n id.Node) bool {
	return r != nil && r.Job != self && slices.Contains(r.Nodes, n)
}

// gap returns how long it is until a reservation begins.
func (r *Reservation) gap(now time.Time) time.Duration { return r.At.Sub(now).Truncate(time.Second) }

// EndsBefore reports whether a job that lasts so long, 0 if that is unknown, would have ended before a reservation
// begins. It reports false if there is no reservation, or if it has no time.
func (r *Reservation) EndsBefore(now time.Time, lasts time.Duration) bool {
	return r != nil && !r.At.IsZero() && lasts > 0 && lasts <= r.gap(now)
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

// couldRunUnsaved reports whether the nodes could meet the need if they need not save the program.
func couldRunUnsaved(v *View, need fleet.Need) bool {
	need.Snapshot = false
	return couldRun(v, need)
}

// couldRunUnshared reports whether the nodes could meet the need if they need not see a shared file system.
func couldRunUnshared(v *View, need fleet.Need) bool {
	need.Shared = ""
	return couldRun(v, need)
}

// couldRunWithoutSecrets reports whether the nodes could meet the need if their agents need not pass secrets on.
func couldRunWithoutSecrets(v *View, need fleet.Need) bool {
	need.Secrets = false
	return couldRun(v, need)
}

// couldRunAlone reports whether the nodes could meet the need if they were not dedicated to other users.
func couldRunAlone(v *View, need fleet.Need) bool {
	need.Owner = ""

	return eligible(v, need)
}

// dedicatedNodes says that nodes that could run the job are dedicated to other users, until which runs have ended.
// eligible are those that are not.
func dedicatedNodes(v *View, need fleet.Need, eligible []*fleet.Room) Why {
	plain := need
	plain.Owner = ""
	m := fleet.NewMatcher(plain)
	w := Why{Blocker: BlockResources}

	const maxListed = 3
	var nodes []string
	more := 0

	for i := range v.Rooms {
		r := &v.Rooms[i]
		if !m.Eligible(r) || !r.DedicatedToOther(need.Owner) {
			continue
		}

		if len(nodes) < maxListed {
			nodes = append(nodes, fmt.Sprintf("%s (in use by %s)", r.Node.ID, tenants(r)))
		} else {
			more++
		}

		for _, h := range r.Holds[:min(len(r.Holds), maxHolders-len(w.Holders))] {
			w.Holders = append(w.Holders, h)
			w.Nodes = append(w.Nodes, r.Node.ID)
		}
	}

	if more > 0 {
		nodes = append(nodes, humanize.Count(more, "other node"))
	}

	w.Sentence = fmt.Sprintf(
		"jobs of different users are not isolated from each other on %s, so it waits until their jobs there have ended",
		humanize.List(nodes...))
	if need.Nodes > 1 {
		w.Sentence = fmt.Sprintf("%d nodes needed, %d suitable; ", need.Nodes, len(eligible)) + w.Sentence
	}

	w.Remedies = []Remedy{remedy(
		"ask an operator to run the agent there as root, so that each user's jobs run under a user id of their own, " +
			"or to allow jobs of several users with --mix-users yes")}

	return w
}

// dedicatedRoom says that a node has room for the job but is dedicated to another user, "" if there is none.
func dedicatedRoom(v *View, need fleet.Need) string {
	if need.Owner == "" {
		return ""
	}

	owner := need.Owner
	need.Owner = ""
	m := fleet.NewMatcher(need)

	for i := range v.Rooms {
		r := &v.Rooms[i]
		_, ok := m.Fits(r)
		if by, words := reservationOf(r, owner, need.Length); ok && by != nil {
			return fmt.Sprintf("; %s has room, but is %s", r.Node.ID, words)
		}
		if ok && r.DedicatedToOther(owner) {
			return fmt.Sprintf("; %s has room, but does not isolate users and is dedicated to %s until it is empty",
				r.Node.ID, tenants(r))
		}
	}

	return ""
}

// tenants names the users who have jobs on a node.
func tenants(r *fleet.Room) string {
	var names []string
	for i := range r.Holds {
		if name := string(r.Holds[i].Owner); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return humanize.List(names...)
}

// unshared says that the nodes that could run the job do not see its checkpoint, and why the first of them does not.
func unshared(v *View, need fleet.Need) Why {
	plain := need
	plain.Shared = ""
	m := fleet.NewMatcher(plain)
	sentence := fmt.Sprintf(
		"its checkpoint is on the shared file system %s, which no node that could run it has", need.Shared)

	for i := range v.Rooms {
		n := v.Rooms[i].Node
		if s := n.Inventory.SharedOf(need.Shared); s.Reason != "" && m.Eligible(&v.Rooms[i]) {
			sentence += fmt.Sprintf("; %s: %s", n.ID, s.Reason)
			break
		}
	}

	return Why{
		Blocker: BlockNoFit, Sentence: sentence,
		Remedies: []Remedy{remedy("mount it on a node that could run the job")},
	}
}

// unsaved says that the nodes that could run the job cannot take snapshots, and why the first of them cannot.
func unsaved(v *View, need fleet.Need) Why {
	plain := need
	plain.Snapshot = false
	m := fleet.NewMatcher(plain)
	reason := ""

	for i := range v.Rooms {
		n := v.Rooms[i].Node
		if can := n.Inventory.Saves(need.MaxGPUs > 0); !can.OK && m.Eligible(&v.Rooms[i]) {
			reason = fmt.Sprintf("%s: %s", n.ID, can.Reason)
			break
		}
	}

	return Why{
		Blocker:  BlockNoFit,
		Sentence: "needs a node that can take snapshots, and none that could run it can; " + reason,
		Remedies: []Remedy{remedy("install CRIU 4.0 or newer on a node, or remove checkpoint.snapshot from the job")},
	}
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
		Remedies: []Remedy{remedy("add a node that could run it")},
	}
}

// closed says that the nodes that could run the job are cordoned, silent or have a problem. open
// is how many have none of that.
func closed(eligible []*fleet.Room, need fleet.Need, open int) Why {
	w := Why{Blocker: BlockClosed}
	const maxListed = 3
	var parts []string
	var uncordon []Remedy
	more := 0

	for _, r := range eligible {
		if r.Open {
			continue
		}

		state := "is " + string(r.Node.State)
		problem := r.Node.Inventory.Problem

		switch {
		case r.Node.State != fleet.Ready:
		case problem != nil:
			state = "takes no jobs (" + problem.Reason + ")"
		default:
			state = "is cordoned"
			uncordon = append(uncordon, Remedy{Text: "trainyard uncordon " + string(r.Node.ID), Uncordon: r.Node.ID})
		}

		if len(parts) == maxListed {
			more++
			continue
		}

		parts = append(parts, fmt.Sprintf("%s %s", r.Node.ID, state))
	}

	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more are unavailable", more))
	}

	// As many as it takes; where that is not enough, because others are silent, it helps nobody.
	if missing := need.Nodes - open; missing <= len(uncordon) {
		w.Remedies = uncordon[:missing]
	}

	w.Sentence = fmt.Sprintf("%s could run it, but %s", humanize.Count(len(eligible), "node"), humanize.List(parts...))
	if need.Nodes > 1 {
		w.Sentence = fmt.Sprintf("%d nodes needed; ", need.Nodes) + w.Sentence
	}

	return w
}

// reserved says that a node has room for the job but is reserved for another one.
func reserved(v *View, reservation *Reservation, n id.Node, short bool) Why {
	w := Why{
		Blocker:  BlockReserved,
		Sentence: fmt.Sprintf("%s has room but is reserved for %s, which is ahead in the queue", n, reservation.Job),
	}

	if reservation.At.IsZero() {
		w.Remedies = []Remedy{remedy("set expect for the jobs running there, so that gaps can be filled")}
		return w
	}

	w.Sentence += " and is expected to start at " + humanize.Time(reservation.At, v.Now.UTC())
	if gap := reservation.gap(v.Now); gap > 0 && !short {
		w.Remedies = []Remedy{remedy(fmt.Sprintf(
			"only a job that has ended by then may start there: set expect or max_duration to at most %s, if it is that short",
			job.Duration(gap),
		))}
	}

	return w
}

// occupied says that other runs hold what the job needs, which they are, and what would make
// room for it. fit are those of the open nodes that have enough free.
func occupied(
	v *View,
	m *fleet.Matcher,
	open, fit []*fleet.Room,
	self id.Job,
	reservation *Reservation,
) Why {
	w := Why{Blocker: BlockResources, Sentence: shortage(m, open, len(fit))}

	for _, h := range holders(m, open) {
		w.Holders = append(w.Holders, h.hold)
		w.Nodes = append(w.Nodes, h.node)
	}

	if len(w.Holders) > 0 && w.Holders[0].Ends.After(v.Now) {
		w.Sentence += "; " + release(&w.Holders[0], w.Nodes[0], v.Now.UTC())
	}

	if reservation != nil && reservation.Job == self {
		if reservation.At.After(v.Now) {
			w.Start = reservation.At
			w.Sentence += fmt.Sprintf("; next in the queue, expected to start at %s if no job overtakes it",
				humanize.Time(reservation.At, v.Now.UTC()))
		} else {
			w.Sentence += "; next in the queue, " + reservedNodes(reservation.Nodes) + " for it"
		}
	}

	unreserved := slices.DeleteFunc(slices.Clone(open), func(r *fleet.Room) bool {
		return reservation.blocks(self, r.Node.ID)
	})

	w.Remedies = append(smaller(m, unreserved), afterEnds(m, open, fit)...)

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
// ends last, at most maxHolders. No more than those are kept on the way: a yard has very many.
func holders(m *fleet.Matcher, open []*fleet.Room) []nodeHold {
	need := &m.Need
	list := make([]nodeHold, 0, maxHolders)

	for _, r := range open {
		if _, fits := m.Fits(r); fits {
			continue
		}

		lacksHost := r.CPUs < need.CPUs || r.Memory < need.Memory
		for i := range r.Holds {
			h := &r.Holds[i]
			if len(list) == maxHolders && compareEnds(h.Ends, list[maxHolders-1].hold.Ends) >= 0 {
				break // those after it end later still
			}

			if need.GPUs > 0 && h.GPUs == 0 && !lacksHost {
				continue
			}

			// After those with the same end, which are on nodes that come before.
			at, _ := slices.BinarySearchFunc(list, h.Ends, func(o nodeHold, ends time.Time) int {
				return cmp.Or(compareEnds(o.hold.Ends, ends), -1)
			})
			list = slices.Insert(list[:min(len(list), maxHolders-1)], at, nodeHold{*h, r.Node.ID})
		}
	}

	return list
}

// compareEnds orders expected ends, unknown ones last.
func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}

	return a.Compare(b)
}

// reservedNodes says which nodes are reserved.
func reservedNodes(nodes []id.Node) string {
	if len(nodes) == 1 {
		return string(nodes[0]) + " is reserved"
	}

	return fmt.Sprintf("%s and %s are reserved", nodes[0], humanize.Count(len(nodes)-1, "other node"))
}

// maxFreeGPUs returns the greatest number of GPUs with which the job would fit now.
func maxFreeGPUs(m *fleet.Matcher, open []*fleet.Room) int {
	gpus, _ := mostFree(m, open)
	return gpus
}

// mostFree returns the greatest number of GPUs with which the job would fit now, and where.
func mostFree(m *fleet.Matcher, open []*fleet.Room) (int, id.Node) {
	need := m.Need
	need.GPUs = 1
	one := fleet.NewMatcher(need)

	most, node := 0, id.Node("")
	for _, r := range open {
		if gpus, ok := one.Fits(r); ok && bits.OnesCount64(gpus) > most {
			most, node = bits.OnesCount64(gpus), r.Node.ID
		}
	}

	return most, node
}
