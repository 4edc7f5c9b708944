package main

import (
	"testing"

	"trainyard/internal/fleet"
)

// Nodes that are provisioned run this binary: they divide their GPUs if the library is in it, and GPUs that are only
// declared cannot be divided.
func TestOffersDivideTheirGPUsWithTheLibrary(t *testing.T) {
	t.Parallel()
	given := []fleet.Offer{{Name: "p/gpu", GPUs: 1}, {Name: "p/fake", GPUs: 1, Fake: true}, {Name: "p/cpu"}}

	for _, library := range []string{"", "1"} {
		list := offersOn(given, nil, library)
		if list[0].Shares != library || list[1].Shares != "" || list[2].Shares != "" || given[0].Shares != "" {
			t.Errorf("with library %q: %+v", library, list)
		}
	}
}
