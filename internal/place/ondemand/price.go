package ondemand

import (
	"maps"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// Terms are what the decision to provision depends on, apart from the yard and the job.
type Terms struct {
	// Value is what an hour of a job's time is worth in money, by objective.
	Value map[job.Objective]money.PerHour
	// Patience is how long a cost-sensitive job waits for a node that is paid for anyway before
	// one is provisioned for it.
	Patience time.Duration
	// Guess is how long a job is assumed to last if nothing is known of it.
	Guess time.Duration
	// Setup is how long it takes to make a new node ready for a job, beyond its boot.
	Setup time.Duration
}

// Standard returns the terms that are used where nothing is set.
func Standard() Terms {
	return Terms{
		Value:    map[job.Objective]money.PerHour{job.ObjectiveTime: 50, job.ObjectiveBalanced: 2, job.ObjectiveCost: 0.05},
		Patience: 24 * time.Hour, Guess: time.Hour,
	}
}

func (t *Terms) equal(o Terms) bool {
	return maps.Equal(t.Value, o.Value) && t.Patience == o.Patience && t.Guess == o.Guess && t.Setup == o.Setup
}

// ValueOf returns what an hour of a job's time is worth.
func (t *Terms) ValueOf(it *queue.Item) money.PerHour {
	if it.Spec != nil {
		if v, ok := t.Value[it.Spec.Objective]; ok {
			return v
		}
	}

	return t.Value[job.ObjectiveBalanced]
}

// Length is how long a job lasts, and what its time is worth.
type Length struct {
	Lasts     time.Duration
	HourValue money.PerHour
	Setup     time.Duration // of a new node
}

// Query describes a job to package provision.
func Query(v *place.View, it *queue.Item, l Length) provision.Query {
	q := provision.Query{
		Now: v.Now, Objective: job.ObjectiveBalanced, HourValue: l.HourValue, Setup: l.Setup,
		Run: l.Lasts, Spec: it.Spec,
	}

	if o := it.Outlook; o != nil {
		q.Reference = o.Reference
		q.CheckpointEvery = o.Every
		q.NoSpot = !o.Resumes && l.Lasts > 2*time.Hour
		if o.Speed != nil {
			q.Restore = time.Duration(o.Speed.Start)
			q.RunTime = func(of *fleet.Offer, nodes, gpus int) (time.Duration, bool) {
				curve := o.Speed.On(of.GPU, of.GPUMemory)
				if part := it.Shape.Need.Share; part > 0 { // others may have the rest
					return o.RemainingTime(place.PartRate(curve, part))
				}

				return o.RemainingTime(curve.Rate(nodes*gpus, nodes))
			}
		}
	}

	if v.Data != nil && it.Spec != nil && len(it.Spec.Data) > 0 {
		q.Stage = func(of *fleet.Offer) (time.Duration, money.Amount) { return v.Stage(it, of.Node()) }
	}

	return q
}

// Barred says which quota, budget or limit on nodes forbids to provision an option at a cost for a
// job with a need, beside what the plan claims already; "" if none does.
func Barred(
	c *place.Claims, a *tenant.Allowance, need *fleet.Need, o *provision.Option, cost money.Amount,
) string {
	limit := c.Limit(o.Offer, o.Nodes)

	switch {
	case limit != "":
		return limit
	case need.GPUs*need.Nodes > a.Ceiling:
		return "quota reached: " + a.LimitedBy.GPUs
	case a.NoProvisioning:
		return a.LimitedBy.Money + " allows no spending on nodes"
	case o.Nodes > a.Nodes:
		return a.LimitedBy.Nodes + " allows no more on-demand nodes"
	case cost > a.Money:
		return a.LimitedBy.Money + " has " + humanize.Dollars(max(a.Money, 0)) + " left"
	}

	return ""
}

// LateCost returns what it costs a job to be done at a time: nothing before its deadline, and
// after that the job's late cost, or ten times as much as waiting.
func LateCost(it *queue.Item, hourValue money.PerHour, done time.Time) money.Amount {
	l := it.Outlook
	if l == nil || l.Deadline.IsZero() {
		return 0
	}

	if late := done.Sub(l.Deadline); late > 0 {
		return max(l.LateCost.PerHour(), 10*hourValue).For(late)
	}

	return 0
}

// EnergyRate returns what an hour of one GPU of a node costs beyond the idle node. The rent of a
// provisioned node includes it: else another machine would look cheaper than the one that is there.
func EnergyRate(t *fleet.Tariff, n *fleet.Node) money.PerGPUHour {
	price := t.Of(n)
	if price == nil || n.Class == fleet.OnDemand {
		return 0
	}

	all := len(n.Inventory.GPUs)
	if len(price.Watts) == 0 && all > 0 { // its draw is not configured: what its GPUs may draw
		return t.Energy.Drawing(n.Inventory.GPUs[0].Watts).PerGPU(1)
	}

	return t.Energy.Drawing(t.Power(price, all) - t.Power(price, 0)).PerGPU(all)
}
