package relocate_test

import (
	"slices"
	"testing"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
	"trainyard/internal/relocate"
)

// yard is a small yard with provisioned nodes.
type yard struct {
	*placetest.Cluster
	leases  []*fleet.Lease
	network dataset.Network
	policy  place.Policy
	limits  *place.Limits // nil if there are none
	offers  []fleet.Offer

	nodeLimit place.NodeLimit
}

func newYard() *yard {
	return &yard{
		Cluster: placetest.NewCluster(), network: dataset.DefaultNetwork(),
		policy: relocate.Wrap(ordered.FIFO{}, relocate.Standard()),
	}
}

// provisioned adds a provisioned node with so many A100s at $3 an hour each.
func (y *yard) provisioned(name string, gpus int) *fleet.Lease {
	y.Node(name, fleet.OnDemand, 64000, 1<<40, slices.Repeat(
		[]fleet.GPU{{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 << 30}}, gpus)...)

	l := &fleet.Lease{
		ID: id.NewLease(uint64(len(y.leases) + 1)), State: fleet.LeaseActive, Node: id.Node(name), Granted: y.Now,
	}
	l.Offer.Hourly = job.Money(3e6 * gpus)
	y.leases = append(y.leases, l)

	return l
}

// begin lets a job run on a GPU of each of some nodes.
func (y *yard) begin(w placetest.Job, nodes ...id.Node) *place.Running {
	it := y.Add(w)
	it.Spec = &job.Spec{Objective: job.ObjectiveBalanced, Resources: w.Spec}
	s := place.Start{Item: it}

	for _, n := range nodes {
		room, _ := y.Table.Get(n)
		gpus := fleet.LowestGPUs(room.Free, it.Shape.Need.GPUs)
		s.Allocations = append(s.Allocations, place.Allocation{Node: n, GPUs: gpus})
	}

	y.Book(s)
	r := y.running(it)
	save(y, r, 4<<30, true)

	return r
}

func (y *yard) running(it *queue.Item) *place.Running {
	at := slices.IndexFunc(y.Runs, func(r *place.Running) bool { return r.Item == it })
	return y.Runs[at]
}

// forecast sets the forecast of a run.
func (y *yard) forecast(r *place.Running, low, mid, high time.Duration) {
	r.Outlook.Forecast = &job.Forecast{
		At: y.Now, Basis: job.BasisSteps,
		Remaining: job.Band{Low: low.Seconds(), Mid: mid.Seconds(), High: high.Seconds()},
	}
}

func (y *yard) view() *place.View {
	v := y.View()
	v.Leases, v.Network, v.Limits, v.Offers, v.NodeLimit = y.leases, y.network, y.limits, y.offers, y.nodeLimit

	return v
}

// plan returns the plan of the policy, which must be one that can be carried out.
func (y *yard) plan(t *testing.T) place.Plan {
	t.Helper()

	v := y.view()
	plan := y.policy.Plan(v)

	if _, bad := place.Check(v, plan); len(bad) > 0 {
		t.Fatalf("the plan cannot be carried out: %v", bad)
	}

	return plan
}
