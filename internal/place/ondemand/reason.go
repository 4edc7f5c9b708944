package ondemand

import (
	"fmt"
	"time"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
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

// Reason says why nodes are provisioned for a job. alone says that no node of the yard can run it.
func Reason(now time.Time, it *queue.Item, o *provision.Option, alone bool) string {
	text := fmt.Sprintf("provisions %s: est. finish %s, est. cost %s",
		Describe(o), humanize.Time(o.Finish, now.UTC()), humanize.Dollars(o.Money))
	if alone {
		return text + "; no node of the yard can run it"
	}

	return fmt.Sprintf("%s; waiting for a node of the yard would cost more (%s job)", text, Objective(it))
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
