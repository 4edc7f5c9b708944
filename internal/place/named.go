package place

import (
	"fmt"
	"slices"
	"strings"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// unnamed returns a need without what the job file says about nodes by their names.
func unnamed(need fleet.Need) fleet.Need {
	need.Pools, need.Only, need.Except, need.Labels = "", "", "", ""
	return need
}

// namedNodes says that too few of the nodes that the job file allows by name could run the job, while others could.
func namedNodes(v *View, need fleet.Need, eligible int) Why {
	plain := unnamed(need)
	w := Why{Blocker: BlockNoFit, Sentence: "the job file allows " + allowedNodes(need)}

	switch {
	case need.Nodes > 1:
		w.Sentence += fmt.Sprintf(", and %d of them could run it, %d needed", eligible, need.Nodes)
	default:
		w.Sentence += ", and none of them could run it"
	}

	if missing := missingNames(v, need); missing != "" {
		w.Sentence += "; " + missing
	}

	fields := "pool, nodes and avoid"
	if need.Labels != "" {
		fields = "pool, nodes, labels and avoid"
	}

	m := fleet.NewMatcher(plain)
	for i := range v.Rooms {
		if m.Eligible(&v.Rooms[i]) {
			w.Remedies = []Remedy{{
				Text: fmt.Sprintf("change %s of the job: without them %s could run it", fields, v.Rooms[i].Node.ID),
				Need: &plain,
			}}

			break
		}
	}

	return w
}

// allowedNodes says which nodes the job file allows: "nodes a and b of pool x, without c".
func allowedNodes(need fleet.Need) string {
	text := "all nodes"
	if names := fleet.Names(need.Only); len(names) > 0 {
		text = "only " + humanize.Plural(len(names), "node") + " " + humanize.List(names...)
	}

	if pools := fleet.Names(need.Pools); len(pools) > 0 {
		if need.Only == "" {
			text = "only nodes"
		}

		text += " of " + humanize.Plural(len(pools), "pool") + " " + humanize.Or(pools...)
	}

	if labels := fleet.Names(need.Labels); len(labels) > 0 {
		if text == "all nodes" {
			text = "only nodes"
		}

		text += " with " + humanize.Plural(len(labels), "label") + " " + humanize.List(labels...)
	}

	if names := fleet.Names(need.Except); len(names) > 0 {
		text += " without " + humanize.List(names...)
	}

	return text
}

// missingNames says which of the nodes and pools that the job file names are not there.
func missingNames(v *View, need fleet.Need) string {
	nodes, pools, labels := fleet.Names(need.Only), fleet.Names(need.Pools), fleet.Names(need.Labels)
	for i := range v.Rooms {
		n := v.Rooms[i].Node
		nodes = slices.DeleteFunc(nodes, func(name string) bool { return name == string(n.ID) })
		pools = slices.DeleteFunc(pools, func(name string) bool { return name == n.Pool })
		labels = slices.DeleteFunc(labels, func(label string) bool { return slices.Contains(n.Inventory.Labels, label) })
	}

	var parts []string
	if len(nodes) > 0 {
		parts = append(parts, humanize.Plural(len(nodes), "node")+" "+humanize.List(nodes...)+" not found")
	}

	if len(pools) > 0 {
		parts = append(parts, "no node is in "+humanize.Plural(len(pools), "pool")+" "+humanize.Or(pools...))
	}

	if len(labels) > 0 {
		parts = append(parts, "no node has "+humanize.Plural(len(labels), "label")+" "+humanize.Or(labels...))
	}

	return strings.Join(parts, ", ")
}

// roomElsewhere says that a node has room for the job but is not allowed by the job file, "" if there is none.
func roomElsewhere(v *View, need fleet.Need) string {
	if !need.Named() {
		return ""
	}

	allowed, other := fleet.NewMatcher(need), fleet.NewMatcher(unnamed(need))
	for i := range v.Rooms {
		r := &v.Rooms[i]
		if _, fits := other.Fits(r); !fits {
			continue
		}

		if _, fits := allowed.Fits(r); !fits {
			return fmt.Sprintf("; %s has room, but the job file allows %s", r.Node.ID, allowedNodes(need))
		}
	}

	return ""
}

// reservedForUsers says that nodes that could run the job are reserved for other users, if there are any.
func reservedForUsers(v *View, need fleet.Need) (Why, bool) {
	anyone := need
	anyone.Owner = ""
	m := fleet.NewMatcher(anyone)
	w := Why{Blocker: BlockReserved}

	const maxNodes = 3
	var parts []string

	for i := range v.Rooms {
		r := &v.Rooms[i]
		by, words := reservationOf(r, need.Owner, need.Length)
		if by == nil || !m.Eligible(r) {
			continue
		}

		if w.NotBefore.IsZero() || by.Until.Before(w.NotBefore) {
			w.NotBefore = by.Until
		}

		parts = append(parts, fmt.Sprintf("%s is %s", r.Node.ID, words))
	}

	if len(parts) == 0 {
		return w, false
	}

	w.Sentence = humanize.ListUpTo(maxNodes, parts...)
	w.Remedies = []Remedy{remedy("ask an operator to end the reservation: trainyard reservations")}

	return w, true
}

// reservationOf returns the reservation for another user that keeps a job off a node, and says so as a clause; nil if
// none does.
func reservationOf(r *fleet.Room, owner id.User, length job.Duration) (*fleet.Reservation, string) {
	switch {
	case r.ReservedForOther(owner):
		return r.Node.Reserved, r.Node.Reserved.Words()
	case r.ClosesBefore(length, owner):
		by := r.Node.Upcoming.Reservation

		return by, fmt.Sprintf("%s, from %s on, before the job would have ended",
			by.Words(), by.From.UTC().Format("2006-01-02 15:04 UTC"))
	}

	return nil, ""
}
