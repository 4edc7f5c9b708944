package fleet_test

import (
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// What the job file says about nodes by their names holds for nodes with room and for those without, and for offers,
// which have no names.
func TestNodesAreAllowedByName(t *testing.T) {
	t.Parallel()

	rooms := map[string]*fleet.Room{}
	for name, pool := range map[string]string{"a": "lab", "b": "lab", "gpu-1": "", "": ""} {
		n := fleet.Node{
			ID: id.Node(name), Pool: pool, Class: fleet.Local, Inventory: fleet.Inventory{CPUs: 8000, Memory: 1 << 30},
		}
		rooms[name] = &fleet.Room{Node: &n, Open: true, CPUs: 8000, Memory: 1 << 30, Kind: -1}
	}

	for name, tt := range map[string]struct {
		spec job.Spec
		want map[string]bool
	}{
		"anything":                     {job.Spec{}, map[string]bool{"a": true, "b": true, "gpu-1": true, "": true}},
		"a pool":                       {job.Spec{Pools: []string{"lab", "attic"}}, map[string]bool{"a": true, "b": true}},
		"nodes":                        {job.Spec{Nodes: []string{"gpu-1", "a"}}, map[string]bool{"a": true, "gpu-1": true}},
		"part of a name is not a name": {job.Spec{Nodes: []string{"gpu-11", "gpu"}}, map[string]bool{}},
		"avoid":                        {job.Spec{Avoid: []string{"a"}}, map[string]bool{"b": true, "gpu-1": true, "": true}},
		"all of it": {
			job.Spec{Pools: []string{"lab"}, Nodes: []string{"a", "b", "gpu-1"}, Avoid: []string{"b"}}, map[string]bool{"a": true},
		},
	} {
		tt.spec.Place = job.PlaceAny
		need := fleet.NeedOf(&tt.spec, job.Floor{}, nil)
		m := fleet.NewMatcher(need)

		if need.Particular() != (name != "anything") {
			t.Errorf("%s: nodes with the same hardware are alike: %t", name, !need.Particular())
		}

		for node, room := range rooms {
			if _, fits := m.Fits(room); fits != tt.want[node] || m.Eligible(room) != tt.want[node] {
				t.Errorf("%s: node %q fits: %t, is eligible: %t; want %t", name, node, fits, m.Eligible(room), tt.want[node])
			}
		}
	}
}
