package ondemand_test

import (
	"strings"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
)

// half adds a job that wants half a GPU.
func half(c *placetest.Cluster) *queue.Item {
	w := placetest.Lasting(hour, 1)
	w.Spec.GPUShare = 0.5

	return c.Add(w)
}

// TestPartsAreProvisioned: under a policy that leaves that to the common rule, too, one node is provisioned for two
// jobs that want half a GPU.
func TestPartsAreProvisioned(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	first, second := half(c), half(c)
	policy := ondemand.Wrap(andreas.New(andreas.Defaults()), ondemand.Standard())

	v := view(c)
	plan := policy.Plan(v)

	if len(plan.Provisions) != 1 || plan.Provisions[0].Item != first || plan.Provisions[0].Offer != "aws/a100" {
		t.Fatalf("%+v are provisioned, want one node with one GPU", plan.Provisions)
	}
	if len(plan.Waits) != 1 || plan.Waits[0].Job != second.Job || !strings.Contains(plan.Waits[0].Reason, "provisioned for "+string(first.Job)) {
		t.Errorf("the plan says %+v", plan.Waits)
	}

	v.Leases = []*fleet.Lease{{ID: "l1", Job: first.Job, State: fleet.LeaseBooting, Offer: offers()[0]}}
	if plan = policy.Plan(v); len(plan.Provisions) > 0 {
		t.Errorf("while it boots %+v are provisioned", plan.Provisions)
	}

	// It has joined: the first starts there on its half.
	n := offers()[0].Node()
	n.ID, n.Lease = "cloud-l1", "l1"
	c.Table.Put(n, 0)

	v = view(c)
	v.Leases = []*fleet.Lease{{ID: "l1", Job: first.Job, State: fleet.LeaseActive, Node: "cloud-l1", Offer: offers()[0]}}
	plan = policy.Plan(v)

	if len(plan.Starts) != 1 || plan.Starts[0].Item != first || plan.Starts[0].Allocations[0] != (place.Allocation{Node: "cloud-l1", GPUs: 1, Share: 0.5}) ||
		!strings.Contains(plan.Starts[0].Reason, "provisioned for this job): 50% of 1× A100 80GB") {
		t.Fatalf("starts %+v", plan.Starts)
	}
	if len(plan.Provisions) > 0 {
		t.Errorf("%+v are provisioned", plan.Provisions)
	}
	if _, bad := place.Check(v, plan); len(bad) > 0 {
		t.Error(bad)
	}
}

// TestWhoFitsOnANodeThatIsComing checks all that must fit: time, memory, CPUs and who keeps apart from whom.
func TestWhoFitsOnANodeThatIsComing(t *testing.T) {
	t.Parallel()
	c := placetest.NewCluster()
	parts := ondemand.NewParts(view(c))
	parts.Add(half(c), &offers()[0])

	for name, tc := range map[string]struct {
		change func(*fleet.Need)
		want   id.Job
	}{
		"another half":            {func(*fleet.Need) {}, "j1"},
		"more than is left":       {func(n *fleet.Need) { n.Share = 0.6 }, ""},
		"more memory":             {func(n *fleet.Need) { n.Cap = 60 << 30 }, ""},
		"more CPUs":               {func(n *fleet.Need) { n.CPUs = 64000 }, ""},
		"another GPU":             {func(n *fleet.Need) { n.Kinds = "T4" }, ""},
		"a whole GPU":             {func(n *fleet.Need) { n.Share = 0 }, ""},
		"where it failed before":  {func(n *fleet.Need) { n.Avoid = "|n1|" }, "j1"},
		"a guaranteed one":        {func(n *fleet.Need) { n.Class = "guaranteed" }, ""},
		"only on the yard's own":  {func(n *fleet.Need) { n.Place = "local" }, ""},
		"with all that they have": {func(n *fleet.Need) { n.Class, n.Limit = "guaranteed", 0.5 }, "j1"},
	} {
		it := half(c)
		shape := *it.Shape
		it.Shape = &shape
		tc.change(&it.Shape.Need)

		if parts.Fits(it) != (tc.want != "") {
			t.Errorf("%s: fits %t", name, parts.Fits(it))
		}
	}

	if first, second := parts.Take(half(c)), parts.Take(half(c)); first != "j1" || second != "" {
		t.Errorf("two more halves are on the nodes of %q and %q", first, second)
	}
}
