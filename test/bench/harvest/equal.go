package harvest

import (
	"fmt"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/place"
	"trainyard/internal/place/allocate"
	"trainyard/internal/queue"
)

// equalShare is the rule that the published replay compares with: every job gets
// as many nodes as every other, what is left over goes to the first in the queue. In the
// public code a job whose share is just its least gets nothing; here it gets that.
type equalShare struct{ parallel int }

// Name is what the policy is called.
func (equalShare) Name() string { return "equal share" }

// Revises reports that it also changes what runs.
func (equalShare) Revises() bool { return true }

// Plan gives everyone as much.
func (e equalShare) Plan(v *place.View) place.Plan {
	var wants []allocate.Request
	for _, r := range v.Running {
		if allocate.Movable(r) {
			wants = append(wants, allocate.Request{Item: r.Item, Running: r})
		}
	}

	walk := v.Queue.Walk(v.UsageOf)
	for len(wants) < e.parallel {
		it := walk.Next(func(*queue.Shape) bool { return true })
		if it == nil {
			break
		}

		wants = append(wants, allocate.Request{Item: it})
	}

	slices.SortStableFunc(wants, func(a, b allocate.Request) int { return int(a.Item.Number) - int(b.Item.Number) })
	wants = wants[:min(len(wants), e.parallel)]

	left := 0
	for _, k := range allocate.Kinds(v) {
		left += k.GPUs
	}

	if len(wants) == 0 {
		return place.Plan{}
	}

	share := left / len(wants)
	for i := range wants {
		n := &wants[i].Item.Shape.Need
		if share >= n.Nodes {
			wants[i].GPUs = min(share, n.MaxNodes)
			left -= wants[i].GPUs
		}
	}

	for i := range wants {
		n := &wants[i].Item.Shape.Need
		if more := min(left, n.MaxNodes-wants[i].GPUs); more > 0 && wants[i].GPUs+more >= n.Nodes {
			wants[i].GPUs += more
			left -= more
		}
	}

	given := allocate.Assign(v, wants, allocate.Options{})

	return allocate.Plan(wants, given, func(int, []id.Job) string {
		return fmt.Sprintf("every job gets %d nodes", share)
	})
}
