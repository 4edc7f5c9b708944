package ondemand_test

import (
	"testing"

	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
)

// TestWhatWouldHaveBeenDoneInstead: a decision has a counterfactual if there was another choice, and
// none if there was not.
func TestWhatWouldHaveBeenDoneInstead(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		objective job.Objective
		where     job.Place
		nodes     int  // of the yard, all in use for six hours
		offers    int  // how many there are
		deferred  bool // it was said before
		kind      place.DecisionKind
		what      string // "" if nothing is said
	}{
		"provisions, or would wait": {
			objective: job.ObjectiveTime, nodes: 1, offers: 1, kind: place.Placement, what: "wait for node own0 (1× A100 80GB)",
		},
		"provisions, or would provision another": {
			objective: job.ObjectiveTime, nodes: 1, offers: 2, kind: place.Placement,
			what: "provision aws/a100x8 (8× A100 80GB)",
		},
		"has no other choice": {objective: job.ObjectiveTime, where: job.PlaceCloud, nodes: 1, offers: 1},
		"waits, or would provision": {
			objective: job.ObjectiveCost, nodes: 1, offers: 2, kind: place.Waiting, what: "provision aws/a100 (1× A100 80GB)",
		},
		"would wait either way":    {objective: job.ObjectiveCost, nodes: 2, offers: 2, kind: place.Waiting},
		"waits, as was said":       {objective: job.ObjectiveCost, nodes: 1, offers: 2, deferred: true},
		"cannot but wait":          {objective: job.ObjectiveCost, nodes: 1},
		"may not leave, and waits": {objective: job.ObjectiveTime, where: job.PlaceLocal, nodes: 1, offers: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c := placetest.NewCluster()
			for i := range tc.nodes {
				c.Box("own"+string(rune('0'+i)), 1)
			}

			for i := range tc.nodes {
				holder := c.Add(placetest.Lasting(6*hour, 1))
				n := c.View().Rooms[i].Node.ID
				c.Book(place.Start{Item: holder, Allocations: []place.Allocation{{Node: n, GPUs: 1}}})
			}

			w := placetest.Lasting(hour, 1)
			if w.Place = tc.where; tc.where == "" {
				w.Place = job.PlaceAny
			}

			it := c.Add(w)
			it.Since, it.Spec, it.Deferred = c.Now, &job.Spec{Objective: tc.objective}, tc.deferred

			v := c.View()
			v.Offers = offers()[:tc.offers]
			plan := fifo().Plan(v)

			var got *place.Counterfactual
			switch {
			case tc.kind == place.Waiting && (len(plan.Deferrals) != 1 || plan.Deferrals[0].Item != it):
				t.Fatalf("defers %+v, want the job", plan.Deferrals)
			case tc.kind == place.Waiting:
				got = plan.Deferrals[0].Counterfactual
			case len(plan.Deferrals) > 0:
				t.Errorf("defers %+v, want nothing", plan.Deferrals)
			}

			if len(plan.Provisions) > 0 {
				got = plan.Provisions[0].Counterfactual
			}

			if (got != nil) != (tc.what != "") || got != nil && (got.What != tc.what || got.Kind != tc.kind) {
				t.Errorf("would have done %+v, want %q", got, tc.what)
			}
		})
	}
}
