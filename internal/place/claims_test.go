package place_test

import (
	"math"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

func TestClaimsAreTakenOffWhatIsAllowed(t *testing.T) {
	t.Parallel()

	allowance := tenant.Unlimited()
	allowance.GPUs, allowance.Ceiling, allowance.Nodes, allowance.Money = 4, 6, 3, 10

	payer := func(u id.User, p id.Project) queue.Payer { return queue.Payer{User: u, Project: p} }
	v := &place.View{
		Limits: &place.Limits{Payers: map[queue.Payer]place.PayerLimit{
			payer("ada", "vision"): {Allowance: allowance},
			payer("ada", "speech"): {Allowance: allowance},
			payer("ben", "vision"): {Allowance: allowance},
			payer("ben", ""):       {Allowance: allowance},
		}},
		NodeLimit: place.NodeLimit{Max: 5, InUse: 1},
	}

	item := func(u id.User, p id.Project) *queue.Item {
		return &queue.Item{User: u, Project: p, Shape: &queue.Shape{Need: fleet.Need{GPUs: 1, Nodes: 1}}}
	}
	c := place.NewClaims(v)
	offer := &fleet.Offer{Name: "a", MaxNodes: 3}

	if c.Any() || c.Limit(offer, 3) != "" {
		t.Errorf("an empty plan has claims: %q", c.Limit(offer, 3))
	}

	c.Start(item("ada", "vision"), 2)
	c.Provision(&place.Provision{Item: item("ada", "vision"), Offer: "a", Count: 2, Cost: 4})

	for _, tc := range []struct {
		it    *queue.Item
		gpus  int
		nodes int
		money money.Amount
	}{
		{item("ada", "speech"), 1, 1, 6}, {item("ben", "vision"), 1, 1, 6}, {item("ben", ""), 4, 3, 10},
		{item("eve", ""), tenant.NoLimit, tenant.NoLimit, money.Amount(math.Inf(1))},
	} {
		a := c.Allow(tc.it)
		if a.GPUs != tc.gpus || a.Nodes != tc.nodes || a.Money != tc.money {
			t.Errorf("%s of %q may use %d GPUs, %d nodes and $%g", tc.it.User, tc.it.Project, a.GPUs, a.Nodes, a.Money)
		}
	}

	for want, o := range map[string]*fleet.Offer{
		"its limit (max_nodes) allows 1 more, 2 needed": offer,
		"": {Name: "b"},
		"limit of 5 provisioned nodes (max_nodes): 3 in use, 3 needed": nil,
	} {
		nodes := 2
		if o == nil {
			o, nodes = &fleet.Offer{Name: "b"}, 3
		}

		if got := c.Limit(o, nodes); got != want {
			t.Errorf("%d of %s: %q, want %q", nodes, o.Name, got, want)
		}
	}
}

// TestGPUsThatAreKeptForAJobAreClaimedOnce: to others they count as used while its nodes boot.
func TestGPUsThatAreKeptForAJobAreClaimedOnce(t *testing.T) {
	t.Parallel()

	allowance := tenant.Unlimited()
	allowance.GPUs, allowance.Ceiling = 2, 2
	v := &place.View{
		Limits: &place.Limits{Payers: map[queue.Payer]place.PayerLimit{{User: "ada"}: {Allowance: allowance}}},
		Leases: []*fleet.Lease{{ID: "l1", Job: "j1", State: fleet.LeaseActive}},
	}

	it := &queue.Item{Job: "j1", User: "ada", Shape: &queue.Shape{Need: fleet.Need{GPUs: 1, Nodes: 2}}}
	c := place.NewClaims(v)
	c.Start(it, 3)

	if a := c.Allow(&queue.Item{Job: "j2", User: "ada"}); a.Ceiling != 1 {
		t.Errorf("%d GPUs are left, want 1", a.Ceiling)
	}
}
