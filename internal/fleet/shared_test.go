package fleet_test

import (
	"slices"
	"testing"

	"trainyard/internal/fleet"
)

func TestSharedFileSystemsOfAPool(t *testing.T) {
	t.Parallel()
	all := fleet.SharedFolders{
		{Name: "lab", Path: "/mnt/lab"}, {Name: "lab", Path: "/lab", Pool: "a100"}, {Name: "fast", Path: "/fast", Pool: "a100"},
	}

	tests := map[string][]string{"": {"/mnt/lab"}, "cpu": {"/mnt/lab"}, "a100": {"/lab", "/fast"}}
	for pool, want := range tests {
		var got []string
		for _, f := range all.For(pool) {
			got = append(got, f.Path)
		}

		if !slices.Equal(got, want) {
			t.Errorf("pool %q has %v, want %v", pool, got, want)
		}
	}

	o := fleet.Offer{Provider: "a100"}
	o.Shared = all.Offered(&o)
	room := fleet.Room{Node: o.Node(), Open: true, Kind: -1}

	for name, sees := range map[string]bool{"lab": true, "fast": true, "other": false, "": true} {
		if got := fleet.NewMatcher(fleet.Need{Nodes: 1, Place: "any", Shared: name}).Eligible(&room); got != sees {
			t.Errorf("a node of the offer sees %q: %t, want %t", name, got, sees)
		}
	}
}
