package place_test

import (
	"strings"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/placetest"
)

// TestAPlanCannotMoveAJobAwayFromWhatItSaved has a job on node a. The agent of node c is too old to restore checkpoints.
func TestAPlanCannotMoveAJobAwayFromWhatItSaved(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		saved job.Saved
		to    id.Node
		lost  bool
	}{
		"nothing is saved yet":                {to: "b"},
		"its checkpoint travels":              {saved: job.Saved{Travels: true}, to: "b"},
		"but not to an old agent":             {saved: job.Saved{Travels: true}, to: "c", lost: true},
		"what it saved stays":                 {saved: job.Saved{Stays: true}, to: "b", lost: true},
		"it stays with it":                    {saved: job.Saved{Stays: true}, to: "a"},
		"it gets other GPUs of its old agent": {saved: job.Saved{Travels: true}, to: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placetest.NewCluster()
			for _, n := range []string{"a", "b", "c"} {
				c.Node(n, fleet.Local, 64000, 1<<40, fleet.GPU{Model: "A100"}, fleet.GPU{Model: "A100"})
			}

			old, _ := c.Table.Get("c")
			old.Node.Inventory.Restores = false

			it := c.Add(placetest.Job{Spec: job.Resources{
				GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1000,
			}})
			c.Book(place.Start{Item: it, Allocations: []place.Allocation{{Node: "a", GPUs: 1}}})

			v := c.View()
			r := v.Running[0]
			r.Outlook.Resumes, r.Outlook.Saved = true, tc.saved

			checked, bad := place.Check(v, place.Plan{
				Stops: []place.Stop{{Running: r, Reason: "faster"}},
				Starts: []place.Start{
					{Item: r.Item, Allocations: []place.Allocation{{Node: tc.to, GPUs: 2}}, Reason: "faster"},
				},
			})

			if lost := len(bad) == 1 && strings.Contains(bad[0].Error(), "would lose its work"); lost != tc.lost ||
				len(checked.Stops) == 0 != tc.lost || len(checked.Starts) == 0 != tc.lost {
				t.Errorf("checked %+v, refused %v", checked, bad)
			}
		})
	}
}
