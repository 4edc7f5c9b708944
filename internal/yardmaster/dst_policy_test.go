package yardmaster_test

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
)

// restless is a policy that stops, moves, shrinks and swaps what runs by chance,
// often in ways that cannot be carried out: the yard must drop those and survive
// the rest.
type restless struct{}

func (restless) Name() string  { return "restless" }
func (restless) Revises() bool { return true }
func (restless) Shares() bool  { return true }

func (restless) Plan(v *place.View) (plan place.Plan) {
	plan = ordered.FIFO{}.Plan(v)
	rng := rand.New(rand.NewPCG(uint64(v.Now.UnixNano()), uint64(len(v.Running))))

	plan.WakeAt = v.Now.Add(1 + v.Now.Sub(start)%7e9)
	defer func() { compare(v, &plan, rng) }()

	if len(v.Running) == 0 {
		return plan
	}

	for range rng.IntN(3) {
		r := v.Running[rng.IntN(len(v.Running))]
		plan.Stops = append(plan.Stops, place.Stop{Running: r, Reason: "by chance"})

		switch rng.IntN(5) {
		case 0: // moves to some node, whatever is there
			plan.Starts = append(
				plan.Starts,
				place.Start{Item: r.Item, Allocations: anywhere(v, r.Item, rng), Reason: "moves by chance"},
			)
		case 1: // stays with what it has, or with less
			plan.Starts = append(plan.Starts, place.Start{Item: r.Item, Allocations: shrink(r), Reason: "shrinks by chance"})
		case 4: // shares a GPU with whoever is there
			seats := anywhere(v, r.Item, rng)[:1]
			seats[0].GPUs, seats[0].Share = fleet.LowestGPUs(seats[0].GPUs, 1), partOf(r.Item)
			plan.Starts = append(plan.Starts, place.Start{Item: r.Item, Allocations: seats, Reason: "shares by chance"})
		case 2: // gives its seats to one that waits
			if items := v.Queue.Items(); len(items) > 0 {
				it := items[rng.IntN(len(items))]
				plan.Starts = append(plan.Starts, place.Start{Item: it, Allocations: r.Allocations, Reason: "takes over by chance"})
			}
		}
	}

	// And some that wait share the first GPU of some node.
	items := slices.DeleteFunc(
		v.Queue.Items(),
		func(it *queue.Item) bool {
			return it.Outlook.Speed == nil && it.Shape.Need.Share == 0 || it.Shape.Need.MaxGPUs == 0
		},
	)

	if len(items) > 0 && rng.IntN(2) == 0 {
		plan.Starts = nil
		room := &v.Rooms[rng.IntN(len(v.Rooms))]
		for _, it := range items {
			plan.Starts = append(
				plan.Starts,
				place.Start{
					Item: it,
					Allocations: []place.Allocation{{
						Node: room.Node.ID, GPUs: fleet.LowestGPUs(room.Sound, 1), Share: partOf(it),
					}},
					Reason: "shares by chance",
				},
			)
		}
	}

	return plan
}

// compare says of some decisions what would have been done instead.
func compare(v *place.View, plan *place.Plan, rng *rand.Rand) {
	for i := range plan.Stops {
		if rng.IntN(2) == 0 {
			plan.Stops[i].Kind = place.Power
		}
	}

	for i := range plan.Starts {
		if s := &plan.Starts[i]; rng.IntN(2) == 0 {
			s.Counterfactual = &place.Counterfactual{
				Kind: place.Placement, What: "start elsewhere", Allocations: anywhere(v, s.Item, rng), Ratio: 2,
			}
		}
	}

	for _, it := range v.Queue.Items() {
		if !it.Deferred && rng.IntN(2) == 0 {
			plan.Deferrals = append(plan.Deferrals, place.Deferral{Item: it, Counterfactual: &place.Counterfactual{
				Kind: place.Waiting, What: "start elsewhere", Allocations: anywhere(v, it, rng), Ratio: 1,
			}})
		}
	}
}

func anywhere(v *place.View, it *queue.Item, rng *rand.Rand) []place.Allocation {
	var seats []place.Allocation
	for _, at := range rng.Perm(len(v.Rooms))[:min(len(v.Rooms), it.Shape.Need.Nodes)] {
		room := &v.Rooms[at]
		seats = append(seats, place.Allocation{Node: room.Node.ID, GPUs: fleet.LowestGPUs(room.Sound, it.Shape.Need.GPUs)})
	}

	return seats
}

func shrink(r *place.Running) []place.Allocation {
	seats := make([]place.Allocation, len(r.Allocations))
	for i, s := range r.Allocations {
		seats[i] = place.Allocation{Node: s.Node, GPUs: fleet.LowestGPUs(s.GPUs, r.Shape.Need.GPUs)}
	}

	return seats
}

// partOf returns the part of a GPU that a job asks for, or on which it was measured.
func partOf(it *queue.Item) float64 { return cmp.Or(it.Shape.Need.Share, 0.5) }

// lending is a policy under which queued jobs take the GPUs of others.
type lending struct{}

func (lending) Name() string  { return "lending" }
func (lending) Revises() bool { return true }

func (lending) Plan(v *place.View) place.Plan {
	plan := ordered.FIFO{}.Plan(v)
	borrow(v, &plan)

	return plan
}

// borrow lets a queued job whose run time is known have the GPU of one that runs.
func borrow(v *place.View, plan *place.Plan) {
	for _, it := range v.Queue.Items() {
		match := fleet.NewMatcher(it.Shape.Need)
		placed := slices.ContainsFunc(plan.Starts, func(s place.Start) bool { return s.Item == it })
		if n := &match.Need; placed || it.Lasts == 0 || n.Nodes != 1 || n.GPUs > 1 || n.MaxGPUs == 0 {
			continue
		}

		for _, r := range v.Running {
			at := slices.IndexFunc(v.Rooms, func(o fleet.Room) bool { return o.Node.ID == r.Allocations[0].Node })
			if r.GPUs != 1 || r.Began.IsZero() || !r.Stoppable() || at < 0 || !match.Eligible(&v.Rooms[at]) {
				continue
			}

			plan.Stops = append(plan.Stops, place.Stop{Running: r, Reason: "lends by chance"})
			plan.Starts = append(plan.Starts, place.Start{Item: it, Allocations: r.Allocations, Reason: "borrows by chance"})

			return
		}
	}
}
