package leases_test

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
)

// greedy starts what fits, first come first served, and provisions for every job that waits
// and for which nothing is provisioned. It takes the offers in turn, so that all are used.
type greedy struct{}

func (greedy) Name() string  { return "greedy" }
func (greedy) Revises() bool { return false }

func (greedy) Plan(v *place.View) place.Plan {
	plan := ordered.FIFO{}.Plan(v)
	busy := map[id.Job]bool{}
	for i := range plan.Starts {
		busy[plan.Starts[i].Item.Job] = true
	}

	for _, l := range v.Leases {
		busy[l.Job] = busy[l.Job] || l.Live()
	}

	for _, it := range v.Queue.Items() {
		switch {
		case busy[it.Job]:
		case len(v.Offers) == 0:
			plan.WakeAt = v.Now.Add(time.Minute)
		default:
			o := &v.Offers[int(it.Number+uint64(v.Now.Unix()/60))%len(v.Offers)]
			plan.Provisions = append(
				plan.Provisions,
				place.Provision{Item: it, Offer: o.Name, Count: it.Shape.Need.Nodes, Reason: "it waits and nothing is free"},
			)
		}
	}

	return plan
}
