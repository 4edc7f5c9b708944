package andreas

import (
	"cmp"
	"slices"

	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
)

// Order is the order in which a first-principle rule serves the jobs that are queued.
type Order string

// The orders.
const (
	FIFO     Order = "fifo" // by submission
	EDF      Order = "edf"  // by deadline
	Priority Order = "ps"   // by what being late costs, the greatest first
)

// First is a first-principle rule, as the published schedulers are measured
// against: jobs are served in a fixed order and what runs is left alone. A job
// takes the configuration that the published rule would choose now, or its next if
// there is no room; jobs behind one that does not fit may start.
type First struct{ by Order }

var _ place.Policy = First{}

// NewFirst returns the rule with this order.
func NewFirst(by Order) First { return First{by} }

// Name is what the policy is called in the configuration.
func (p First) Name() string { return "andreas-" + string(p.by) }

// Revises reports that it leaves alone what runs.
func (First) Revises() bool { return false }

// Plan starts what can start.
func (p First) Plan(v *place.View) place.Plan {
	y := newYard(v, noRestartCost(), true)
	if !y.hasEstimates {
		return ordered.FIFO{}.Plan(v)
	}

	y.listCandidates()

	r := newRule(y)
	for i := range r.order {
		r.order[i] = int32(i)
	}

	slices.SortStableFunc(r.order, func(a, b int32) int {
		s, t := &y.tasks[a], &y.tasks[b]

		switch p.by {
		case EDF:
			return cmp.Or(cmp.Compare(s.slack, t.slack), cmp.Compare(s.item.Number, t.item.Number))
		case Priority:
			return cmp.Or(cmp.Compare(t.lateCost, s.lateCost), cmp.Compare(s.item.Number, t.item.Number))
		case FIFO:
		}

		return cmp.Compare(s.item.Number, t.item.Number)
	})

	r.assign(nil)
	y.relabel()

	return y.plan(func(t *task) string { return r.reason(t) })
}
