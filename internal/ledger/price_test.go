package ledger_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

func node(name string) *fleet.Node {
	n := (&fleet.Offer{Name: name, GPU: "L4", GPUs: 2}).Node()
	n.Class = fleet.Local
	return n
}

func TestWhatRunsUpIsSeenBeforeItIsPosted(t *testing.T) {
	t.Parallel()
	tariff := &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{2}}}}
	start := time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)
	b := ledger.New(tariff, func(*ledger.Posting) {})
	b.Node(start, node("box1"), 0, []ledger.Holder{{Job: "j1", Run: "j1.1", Owner: "ada", GPUs: 0b11}}, nil)
	b.Node(start, node("box2"), 0, nil, nil)

	half := start.Add(30 * time.Minute)
	if got := b.PeekNode(half, "box1"); len(got) != 1 || got[0].Job != "j1" || got[0].Cost().Dollars() != 1 ||
		b.Posted() != 0 {
		t.Errorf("half an hour of $2 is %+v, after posting %d", got, b.Posted())
	}

	if got := b.PeekNode(half, "box9"); got != nil {
		t.Errorf("a node that is not there has %+v", got)
	}

	if got := b.Peek(half); len(got) != 2 {
		t.Errorf("all nodes have %+v", got)
	}

	b.Gone(half, "box1")

	if got := b.PeekNode(half, "box1"); got != nil || b.Posted() != 1 {
		t.Errorf("when all is posted there is %+v left, after posting %d", got, b.Posted())
	}

	if out := b.Take(); len(out.Postings) != 1 || out.Postings[0].Seq != b.Posted() {
		t.Errorf("posted was %+v", out.Postings)
	}
}

func TestThePriceOfANode(t *testing.T) {
	t.Parallel()
	tariff := &fleet.Tariff{
		Energy: 0.5,
		PUE:    2,
		Nodes:  []fleet.NodePrice{{Class: fleet.Local, GPU: "L4", Watts: []float64{100, 400, 700}, Hourly: []money.PerHour{1}}},
	}

	b := ledger.New(tariff, func(*ledger.Posting) {})
	other := node("box1")
	other.Class = fleet.Reserved
	for name, tt := range map[string]struct {
		node  *fleet.Node
		lease *fleet.Lease
		want  *ledger.Price
	}{
		"by the tariff": {node("box1"), nil, &ledger.Price{NodeCost: 1, EnergyCost: 0.7, IdleCost: 1.1, Watts: 1400}},
		"provisioned":   {node("box1"), &fleet.Lease{Offer: fleet.Offer{Hourly: 3_000_000}}, &ledger.Price{NodeCost: 3, IdleCost: 3}},
		"nobody told":   {other, nil, nil},
	} {
		if diff := cmp.Diff(tt.want, b.Price(tt.node, tt.lease)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestEachDecisionIsStoredAsItIs: also if several are stored together, and not as it is changed later.
func TestEachDecisionIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	b := ledger.New(nil, func(*ledger.Posting) {})
	b.Decide("j1", "ada", "", ledger.Decision{Kind: "first"})
	b.Decide("j2", "ada", "", ledger.Decision{Kind: "second"})

	got := b.Take().Decisions
	b.Decision("j1").Kind = "changed"

	if len(got) != 2 || got[0].Open.Kind != "first" || got[1].Open.Kind != "second" {
		t.Errorf("stored are %+v, want both as they were", got)
	}
}
