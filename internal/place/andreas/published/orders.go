package published

import (
	"cmp"
	"slices"

	"trainyard/internal/place"
	"trainyard/internal/place/andreas/problem"
	"trainyard/internal/place/ordered"
)

// Order is the order in which a first-principle rule serves queued jobs.
type Order string

// The orders.
const (
	FIFO     Order = "fifo" // by submission
	EDF      Order = "edf"  // by deadline
	Priority Order = "ps"   // by the cost of being late, the largest first
)

// FirstPrinciple is one of the first-principle rules with which the published schedulers are
// compared: jobs are served in a fixed order, and running jobs are left alone. A job takes the
// configuration that the published rule would choose now, or its next one if there is no room; jobs
// behind one that does not fit may start.
type FirstPrinciple struct{ by Order }

var _ place.Policy = FirstPrinciple{}

// NewFirstPrinciple returns the rule with this order.
func NewFirstPrinciple(by Order) FirstPrinciple { return FirstPrinciple{by} }

// Name returns the name of the policy in the configuration.
func (p FirstPrinciple) Name() string { return "andreas-" + string(p.by) }

// Revises reports that the policy leaves running jobs alone.
func (FirstPrinciple) Revises() bool { return false }

// Plan starts the queued jobs that fit.
func (p FirstPrinciple) Plan(v *place.View) place.Plan {
	y := problem.NewYard(v, noRestartCost(), true)
	if !y.HasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.ListCandidates()

	r := newRule(y)
	for i := range r.order {
		r.order[i] = int32(i)
	}

	slices.SortStableFunc(r.order, func(a, b int32) int {
		s, t := &y.Tasks[a], &y.Tasks[b]

		switch p.by {
		case EDF:
			return cmp.Or(cmp.Compare(s.Slack, t.Slack), cmp.Compare(s.Item.Number, t.Item.Number))
		case Priority:
			return cmp.Or(cmp.Compare(t.LateCost, s.LateCost), cmp.Compare(s.Item.Number, t.Item.Number))
		case FIFO:
		}

		return cmp.Compare(s.Item.Number, t.Item.Number)
	})

	r.assign(nil)
	r.relabel()

	return y.Plan(r.reason)
}
