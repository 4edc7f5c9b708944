package ledger

import (
	"iter"
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// NodeRecord is a node's own side of the ledger.
type NodeRecord struct {
	Node    id.Node
	Present []Present
	Read    *Amounts // total reading of its meters, nil if unknown
}

// Present is a period in which a node was in the yard, and its number of GPUs.
type Present struct {
	From, To time.Time
	GPUs     int
}

// Check compares the two sides of the ledger: what was posted to researchers and to the yard's
// accounts must equal what the nodes used, for each node and in total, to the last unit. Time is
// checked for any period; money and energy are compared with the readings of the meters if the
// period is unbounded. Postings come in the order of the ledger, and nodes are all that have
// postings in the period. It returns nil if the ledger balances, otherwise the first difference.
func Check(postings iter.Seq[*Posting], nodes []NodeRecord, from, to time.Time) error {
	byNode, err := NewSummary(Query{From: from, To: to, Group: []Key{ByNode}})
	if err != nil {
		return err
	}

	byPayer, err := NewSummary(Query{From: from, To: to, Group: []Key{ByResearcher, ByAccount}})
	if err != nil {
		return err
	}

	for p := range postings {
		if err := p.check(); err != nil {
			return err
		}

		byNode.Add(p)
		byPayer.Add(p)
	}

	sums, err := byNode.Report()
	if err != nil {
		return err
	}

	payers, err := byPayer.Report()
	if err != nil {
		return err
	}

	all, err := checkNodes(sums, nodes)
	if err != nil {
		return err
	}

	var paid vector
	for i := range payers.Rows {
		paid, _ = paid.plus(payers.Rows[i].vector())
	}

	if paid != all {
		return unbalanced("all nodes", paid.amounts(), all.amounts())
	}

	return nil
}

// checkNodes compares what was posted for each node with what it used, and returns the total.
// Where readings of money and energy are unknown, what was posted is taken as right.
func checkNodes(sums *Report, nodes []NodeRecord) (all vector, err error) {
	posted := map[id.Node]vector{}
	for i := range sums.Rows {
		posted[id.Node(sums.Rows[i].Keys[0])] = sums.Rows[i].vector()
	}

	for i := range nodes {
		n := &nodes[i]
		got := posted[n.Node]
		want := got
		want[inNodeTime], want[inGPUTime] = 0, 0
		for _, p := range n.Present {
			ms := overlap(p, sums.From, sums.To)
			want[inNodeTime] += ms
			want[inGPUTime] += ms * int64(p.GPUs)
		}

		if n.Read != nil && sums.From.IsZero() && sums.To.IsZero() {
			read := n.Read.vector()
			want[inNodeCost], want[inEnergyCost], want[inEnergy] = read[inNodeCost], read[inEnergyCost], read[inEnergy]
		}

		if got != want {
			return all, unbalanced("node "+string(n.Node), got.amounts(), want.amounts())
		}

		all, _ = all.plus(want)
		delete(posted, n.Node)
	}

	for node := range posted {
		if posted[node] == (vector{}) {
			delete(posted, node)
		}
	}

	if len(posted) > 0 {
		names := make([]id.Node, 0, len(posted))
		for node := range posted {
			names = append(names, node)
		}

		return all, fault.New(
			fault.Internal,
			"ledger_unbalanced",
			"the ledger does not balance: postings of node %q, which did not exist",
			slices.Min(names),
		)
	}

	return all, nil
}

// overlap returns how many milliseconds of a presence lie in a period.
func overlap(p Present, from, to time.Time) int64 {
	begin, end := wholeMillis(p.From), wholeMillis(p.To)
	if begin.Before(from) {
		begin = from
	}

	if !to.IsZero() && to.Before(end) {
		end = to
	}

	return millis(end.Sub(begin))
}

// check refuses an invalid posting.
func (p *Posting) check() error {
	switch {
	case p.To.Before(p.From):
		return p.invalid("ends before it begins")
	case !slices.Contains(Accounts(), p.Account):
		return p.invalid("has an unknown account")
	case p.Account == Use && (p.Owner == "" || p.Run == ""):
		return p.invalid("is of account use but has no owner or no run")
	case p.Account != Use && p.Run != "":
		return p.invalid("has a run but is not of account use")
	case p.From.Equal(p.To) && (p.NodeTime != 0 || p.GPUTime != 0):
		return p.invalid("has node or GPU time but no duration")
	}

	for _, x := range p.vector() {
		if x < 0 {
			return p.invalid("has a negative amount")
		}
	}

	return nil
}

func (p *Posting) invalid(what string) error {
	return fault.New(
		fault.Internal,
		"ledger_unbalanced",
		"the ledger does not balance: posting %d of node %s %s",
		p.Seq,
		p.Node,
		what,
	)
}

func unbalanced(whose string, got, want Amounts) error {
	return fault.New(
		fault.Internal,
		"ledger_unbalanced",
		"the ledger does not balance: %s: posted %+v, metered %+v",
		whose,
		got,
		want,
	)
}
