package ondemand_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/baseline"
	"trainyard/internal/place/ondemand"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/placetest"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

const hour = time.Hour

// offers are one of each GPU that the nodes of a placetest.Cluster have, and a large one.
func offers() []fleet.Offer {
	a100 := fleet.Offer{
		Name: "aws/a100", Provider: "aws", Type: "a100", GPU: "NVIDIA A100-SXM4-80GB", GPUs: 1, GPUMemory: 80 << 30,
		CPUs: 64000, Memory: 1 << 40, Hourly: 3e6, Boot: job.Duration(4 * time.Minute), Shares: "1",
	}

	large := a100
	large.Name, large.Type, large.GPUs, large.Hourly = "aws/a100x8", "a100x8", 8, 24e6

	return []fleet.Offer{a100, large}
}

// fifo is first come first served with the common rule.
func fifo() place.Policy { return ondemand.Wrap(ordered.FIFO{}, ondemand.Standard()) }

// busy is a yard whose one node is in use for six hours, with a job that waits.
func busy(objective job.Objective, where job.Place) (*placetest.Cluster, *queue.Item) {
	c := placetest.NewCluster()
	c.Box("own", 1)
	holder := c.Add(placetest.Lasting(6*hour, 1))
	c.Book(place.Start{Item: holder, Allocations: []place.Allocation{{Node: "own", GPUs: 1}}})

	w := placetest.Lasting(hour, 1)
	w.Place = where
	it := c.Add(w)
	it.Since = c.Now
	it.Spec = &job.Spec{Objective: objective}

	return c, it
}

func view(c *placetest.Cluster) *place.View {
	v := c.View()
	v.Offers = offers()

	return v
}

func TestWhoGetsANode(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		objective job.Objective
		where     job.Place
		waited    time.Duration
		limit     func(*tenant.Allowance)
		change    func(*place.View)
		want      string // what the reason says at the end; "" if nothing is provisioned
	}{
		"a time-sensitive job":                      {objective: job.ObjectiveTime, want: "would cost more (time-sensitive job)"},
		"a balanced job":                            {objective: job.ObjectiveBalanced, want: "would cost more (balanced job)"},
		"a cost-sensitive job waits":                {objective: job.ObjectiveCost},
		"a cost-sensitive job that has waited":      {objective: job.ObjectiveCost, waited: 19 * hour, want: "would cost more (cost-sensitive job)"},
		"a cost-sensitive job that may run nowhere": {objective: job.ObjectiveCost, where: job.PlaceCloud, want: "no node of the yard can run it"},
		"a job that may not leave":                  {objective: job.ObjectiveTime, where: job.PlaceLocal},
		"no offer":                                  {objective: job.ObjectiveTime, change: func(v *place.View) { v.Offers = nil }},
		"nodes used up":                             {objective: job.ObjectiveTime, limit: func(a *tenant.Allowance) { a.Nodes = 0 }},
		"too little money":                          {objective: job.ObjectiveTime, limit: func(a *tenant.Allowance) { a.Money = 1 }},
		"nothing may be spent on nodes":             {objective: job.ObjectiveTime, limit: func(a *tenant.Allowance) { a.NoProvisioning = true }},
		"held by a quota":                           {objective: job.ObjectiveTime, limit: func(a *tenant.Allowance) { a.HoldReason = "used up" }},
		"a job for which a node is being provisioned": {objective: job.ObjectiveTime, change: func(v *place.View) {
			v.Leases = []*fleet.Lease{{ID: "l1", Job: "j2", State: fleet.LeaseBooting, Offer: offers()[0]}}
		}},
		"a job for which a node was refused": {objective: job.ObjectiveTime, change: func(v *place.View) {
			v.Leases = []*fleet.Lease{{ID: "l1", Job: "j2", State: fleet.LeaseRefused, Offer: offers()[0]}}
		}, want: "would cost more (time-sensitive job)"},
		"a node that will be free in a minute is best": {objective: job.ObjectiveBalanced, change: func(v *place.View) { v.Now = v.Now.Add(6*hour - time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if tc.where == "" {
				tc.where = job.PlaceAny
			}

			c, it := busy(tc.objective, tc.where)
			it.Since = c.Now.Add(-tc.waited)
			it.Outlook.Submitted = it.Since

			v := view(c)
			if strings.Contains(name, "in a minute") { // it came just now
				it.Since = c.Now.Add(6*hour - time.Minute)
				it.Outlook.Submitted = it.Since
			}

			if tc.limit != nil {
				a := tenant.Unlimited()
				tc.limit(&a)
				v.Limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{it.Job: a}}
			}

			if tc.change != nil {
				tc.change(v)
			}

			plan := fifo().Plan(v)
			if (len(plan.Provisions) > 0) != (tc.want != "") {
				t.Fatalf("provisions %+v, want %q", plan.Provisions, tc.want)
			}

			if tc.want == "" {
				return
			}

			p := plan.Provisions[0]
			if len(plan.Provisions) != 1 || p.Item != it || p.Offer != "aws/a100" || p.Count != 1 ||
				!strings.HasSuffix(p.Reason, tc.want) {
				t.Errorf("provisions %+v, want %q", plan.Provisions, tc.want)
			}
		})
	}
}

// TestThePatienceOfAWaitingJobWakesThePolicy: a cost-sensitive job gets a node when its patience is
// over, although nothing else happens then.
func TestThePatienceOfAWaitingJobWakesThePolicy(t *testing.T) {
	t.Parallel()

	c, it := busy(job.ObjectiveCost, job.PlaceAny)
	plan := fifo().Plan(view(c))

	if want := it.Since.Add(24 * hour); !plan.WakeAt.Equal(want) {
		t.Errorf("plans again at %s, want %s", plan.WakeAt, want)
	}
}

// TestAHeldBackJobGetsANodeInTheEnd: under a strict order a job may wait although a node is free.
func TestAHeldBackJobGetsANodeInTheEnd(t *testing.T) {
	t.Parallel()

	c := placetest.NewCluster()
	c.Box("large", 2)
	c.Box("small", 1)
	c.Book(place.Start{Item: c.Add(placetest.Lasting(6*hour, 2)), Allocations: []place.Allocation{{Node: "large", GPUs: 3}}})

	first := c.Add(placetest.Lasting(hour, 2))
	first.Spec = &job.Spec{Objective: job.ObjectiveCost}
	second := c.Add(placetest.Lasting(hour, 1))
	second.Spec = &job.Spec{Objective: job.ObjectiveBalanced}

	make, err := baseline.Policies().Make("fifo-strict")
	if err != nil {
		t.Fatal(err)
	}

	p := ondemand.Wrap(make(), ondemand.Standard())
	if plan := p.Plan(view(c)); len(plan.Provisions)+len(plan.Starts) > 0 || plan.WakeAt.IsZero() {
		t.Fatalf("at once: %+v", plan)
	}

	c.Now = c.Now.Add(30 * time.Minute)
	if plan := p.Plan(view(c)); len(plan.Provisions) != 1 || plan.Provisions[0].Item != second {
		t.Errorf("after half an hour: %+v", plan)
	}
}

// kept is a yard with a node that was provisioned for the second of two jobs that could use it.
func kept() (*placetest.Cluster, *place.View, *queue.Item, *queue.Item) {
	c := placetest.NewCluster()
	other := c.Add(placetest.Lasting(hour, 1))
	it := c.Add(placetest.Lasting(hour, 1))

	n := offers()[0].Node()
	n.ID, n.Lease = "cloud-l1", "l1"
	c.Table.Put(n, 0)

	v := view(c)
	v.Leases = []*fleet.Lease{{ID: "l1", Job: it.Job, State: fleet.LeaseActive, Node: "cloud-l1", Offer: offers()[0]}}

	return c, v, other, it
}

func TestANodeIsKeptForItsJob(t *testing.T) {
	t.Parallel()

	_, v, other, it := kept()
	plan := fifo().Plan(v)

	if len(plan.Starts) != 1 || plan.Starts[0].Item != it || plan.Starts[0].Allocations[0].Node != "cloud-l1" {
		t.Fatalf("starts %+v, want %s on its node", plan.Starts, it.Job)
	}

	if want := "cloud-l1 (on-demand, provisioned for this job): 1× A100 80GB"; !strings.HasPrefix(plan.Starts[0].Reason, want) {
		t.Errorf("reason %q, want %q", plan.Starts[0].Reason, want)
	}

	if len(plan.Provisions) != 1 || plan.Provisions[0].Item != other {
		t.Errorf("provisions %+v, want a node for %s", plan.Provisions, other.Job)
	}

	if _, bad := place.Check(v, plan); len(bad) > 0 {
		t.Error(bad)
	}
}

// TestAnIncompleteGangIsWaitedFor: the first of two nodes is kept, and nothing starts.
func TestAnIncompleteGangIsWaitedFor(t *testing.T) {
	t.Parallel()

	_, v, _, it := kept()
	v.Leases = append(v.Leases, &fleet.Lease{ID: "l2", Job: it.Job, State: fleet.LeaseBooting, Offer: offers()[0]})

	if plan := fifo().Plan(v); len(plan.Starts) > 0 {
		t.Errorf("starts %+v", plan.Starts)
	}
}

// TestJobsThatMayNotSpendAvoidProvisionedNodes: a used-up budget with downgrade leaves the yard's own nodes.
func TestJobsThatMayNotSpendAvoidProvisionedNodes(t *testing.T) {
	t.Parallel()

	_, v, other, it := kept()
	v.Leases[0].Job = "" // the node is idle, and for anybody

	a := tenant.Unlimited()
	a.NoProvisioning = true
	v.Limits = &place.Limits{Jobs: map[id.Job]tenant.Allowance{other.Job: a}}

	plan := fifo().Plan(v)
	if len(plan.Starts) != 1 || plan.Starts[0].Item != it {
		t.Errorf("starts %+v, want %s alone", plan.Starts, it.Job)
	}
}

// TestWrappedPolicies draws yards with offers, leases and limits, and plans with all baselines: what
// is planned can be carried out, and the rules of provisioning hold.
func TestWrappedPolicies(t *testing.T) {
	t.Parallel()

	names := baseline.Policies().Names()

	rapid.Check(t, func(t *rapid.T) {
		make, err := baseline.Policies().Make(rapid.SampledFrom(names).Draw(t, "policy"))
		if err != nil {
			t.Fatal(err)
		}

		p := ondemand.Wrap(make(), ondemand.Standard())
		c := placetest.DrawCluster(t)
		for range rapid.IntRange(1, 8).Draw(t, "jobs") {
			it := c.Add(placetest.DrawJob(t, rapid.Bool().Draw(t, "exact")))
			it.Since = c.Now
			it.Spec = &job.Spec{Objective: rapid.SampledFrom(
				[]job.Objective{job.ObjectiveTime, job.ObjectiveBalanced, job.ObjectiveCost}).Draw(t, "objective")}
		}

		leases, dedicated := drawLeases(t, c)
		for range 3 {
			v := view(c)
			v.Leases = leases
			a := drawAllowance(t)
			v.Limits = &place.Limits{Payers: map[queue.Payer]place.PayerLimit{{User: "ada"}: {Allowance: a}}}

			plan := p.Plan(v)
			checkPlan(t, v, plan, &a, dedicated)

			for _, s := range plan.Starts {
				if slices.Contains(c.Queue.Items(), s.Item) {
					c.Book(s)
				}
			}

			c.Now = c.Now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "minutes")) * time.Minute)
		}
	})
}

// drawLeases provisions nodes for some of the jobs; some have joined.
func drawLeases(t *rapid.T, c *placetest.Cluster) (list []*fleet.Lease, dedicated map[id.Node]id.Job) {
	dedicated = map[id.Node]id.Job{}
	for i, it := range c.Queue.Items() {
		if rapid.IntRange(0, 3).Draw(t, "leased") > 0 {
			continue
		}

		o := rapid.SampledFrom(offers()).Draw(t, "offer")
		l := &fleet.Lease{ID: id.NewLease(uint64(i + 1)), Job: it.Job, Offer: o, State: fleet.LeaseBooting, Requested: c.Now}
		list = append(list, l)

		if rapid.Bool().Draw(t, "joined") {
			n := o.Node()
			n.ID, n.Lease = id.Node("cloud-"+string(l.ID)), l.ID
			l.State, l.Node = fleet.LeaseActive, n.ID
			dedicated[n.ID] = it.Job
			c.Table.Put(n, 0)
		}
	}

	return list, dedicated
}

func drawAllowance(t *rapid.T) tenant.Allowance {
	a := tenant.Unlimited()
	switch rapid.IntRange(0, 4).Draw(t, "limit") {
	case 0:
		a.Nodes = rapid.IntRange(0, 2).Draw(t, "nodes left")
	case 1:
		a.Money = 5
	case 2:
		a.NoProvisioning = true
	}

	return a
}

func checkPlan(t *rapid.T, v *place.View, plan place.Plan, a *tenant.Allowance, dedicated map[id.Node]id.Job) {
	t.Helper()

	if _, bad := place.Check(v, plan); len(bad) > 0 {
		t.Fatalf("cannot be carried out: %v", bad)
	}

	for _, s := range plan.Starts {
		for _, n := range s.Allocations {
			at := slices.IndexFunc(v.Rooms, func(r fleet.Room) bool { return r.Node.ID == n.Node })
			room := &v.Rooms[at]
			owner, is := dedicated[n.Node]
			queued := slices.ContainsFunc(v.Queue.Items(), func(it *queue.Item) bool { return it.Job == owner })

			if is && owner != s.Item.Job && queued && len(room.Holds) == 0 {
				t.Fatalf("%s starts on %s, which is kept for %s", s.Item.Job, n.Node, owner)
			}

			if a.NoProvisioning && room.Node.Class == fleet.OnDemand {
				t.Fatalf("%s starts on %s, and may not spend on nodes", s.Item.Job, n.Node)
			}
		}
	}

	nodes := 0
	provisioned := map[id.Job]bool{}

	for _, p := range plan.Provisions {
		started := slices.ContainsFunc(plan.Starts, func(s place.Start) bool { return s.Item == p.Item })
		leased := slices.ContainsFunc(v.Leases, func(l *fleet.Lease) bool { return l.Job == p.Item.Job && l.Live() })

		if provisioned[p.Item.Job] || started || leased || p.Reason == "" || !fleet.OnDemand.Allows(p.Item.Shape.Need.Place) {
			t.Fatalf("a second way for %s, or none that it may go: %+v", p.Item.Job, plan)
		}

		provisioned[p.Item.Job] = true
		nodes += p.Count
	}

	if nodes > a.Nodes || nodes > 0 && a.NoProvisioning {
		t.Fatalf("%d nodes are provisioned, %d may be", nodes, a.Nodes)
	}
}

// slow is a policy that plans outside the server's loop.
type slow struct{ ordered.FIFO }

func (slow) Slow() bool { return true }

func (s slow) Search(v *place.View, _ func() bool) place.Plan { return s.Plan(v) }

// TestARehearsalKnowsEarlierJobs: how patient a job is depends on what those before it cost, under a
// slow policy too.
func TestARehearsalKnowsEarlierJobs(t *testing.T) {
	t.Parallel()

	for name, inner := range map[string]place.Policy{"quick": ordered.FIFO{}, "slow": slow{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := ondemand.Wrap(inner, ondemand.Standard())
			_, seen := busy(job.ObjectiveBalanced, job.PlaceAny)
			c, _ := busy(job.ObjectiveBalanced, job.PlaceAny)
			p.Plan(view(c))

			if ondemand.KnowsPatience(place.Rehearsal(p), seen) != ondemand.KnowsPatience(p, seen) ||
				!ondemand.KnowsPatience(p, seen) {
				t.Error("the rehearsal has forgotten an earlier job")
			}
		})
	}
}
