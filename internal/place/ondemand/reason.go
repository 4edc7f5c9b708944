package ondemand

import (
	"fmt"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/provision"
	"trainyard/internal/queue"
)

// Describe names the nodes of an option: 2 of aws/p4d (8× A100 40GB).
func Describe(o *provision.Option) string {
	name := o.Offer.Name
	if o.Offer.GPUs > 0 {
		name = fmt.Sprintf("%s (%s)", name, humanize.GPUs(o.Offer.GPUs, o.Offer.GPU, o.Offer.GPUMemory))
	}

	if o.Nodes > 1 {
		return fmt.Sprintf("%d of %s", o.Nodes, name)
	}

	return name
}

// Reason says why nodes are provisioned for a job.
func Reason(v *place.View, it *queue.Item, o *provision.Option) string {
	text := fmt.Sprintf("provisions %s: est. finish %s, est. cost %s",
		Describe(o), humanize.Time(o.Finish, v.Now.UTC()), humanize.Dollars(o.Money))
	if o.Guessed {
		text = fmt.Sprintf("provisions %s: run time unknown, %s", Describe(o),
			humanize.Rate(o.Offer.PerHour().Times(float64(o.Nodes))))
	}

	need := &it.Shape.Need
	switch n := suitable(v, need); {
	case n == 0:
		return text + "; no node of the yard can run it"
	case n < need.Nodes:
		return fmt.Sprintf("%s; %d nodes needed, the yard has %d that could run it", text, need.Nodes, n)
	}

	return fmt.Sprintf("%s; waiting for a node of the yard would cost more (%s job)", text, Objective(it))
}

// suitable counts the nodes of the yard that could run a rank of a job, up to as many as it needs.
func suitable(v *place.View, need *fleet.Need) int {
	m := fleet.NewMatcher(*need)
	found := 0

	for i := range v.Rooms {
		if r := &v.Rooms[i]; r.Open && m.Eligible(r) {
			found++
			if found == need.Nodes {
				break
			}
		}
	}

	return found
}

// Objective is how a job is called by what it cares about.
func Objective(it *queue.Item) string {
	if it.Spec == nil {
		return "balanced"
	}

	switch it.Spec.Objective {
	case job.ObjectiveTime:
		return "time-sensitive"
	case job.ObjectiveCost:
		return "cost-sensitive"
	case job.ObjectiveBalanced:
	}

	return "balanced"
}
