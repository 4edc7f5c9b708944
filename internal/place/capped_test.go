package place_test

import (
	"fmt"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
)

// TestACappedNeedStaysWithinTheLimit: the whole range if it is within it, otherwise what is, and
// never less than the minimum.
func TestACappedNeedStaysWithinTheLimit(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		gpus, maxGPUs, nodes, maxNodes int
		limit                          int
		want                           string // GPUs of each node, nodes
	}{
		{1, 4, 1, 1, tenant.NoLimit, "1..4 × 1..1"},
		{1, 4, 1, 1, 4, "1..4 × 1..1"},
		{1, 4, 1, 1, 3, "1..3 × 1..1"},
		{1, 4, 1, 1, 0, "1..1 × 1..1"},
		{2, 4, 1, 1, -1, "2..2 × 1..1"},
		{1, 2, 2, 2, 3, "1..1 × 2..2"},
		{1, 1, 1, 4, 2, "1..1 × 1..2"},
		{1, 2, 1, 2, 3, "1..2 × 1..1"},
		{4, 4, 2, 2, 1, "4..4 × 2..2"},
		{0, 0, 1, 4, 0, "0..0 × 1..4"},
	} {
		n := fleet.Need{GPUs: tc.gpus, MaxGPUs: tc.maxGPUs, Nodes: tc.nodes, MaxNodes: tc.maxNodes}
		n = place.Capped(n, tc.limit)
		if got := fmt.Sprintf("%d..%d × %d..%d", n.GPUs, n.MaxGPUs, n.Nodes, n.MaxNodes); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

func TestACappedStartKeepsTheMinimum(t *testing.T) {
	t.Parallel()

	s := &place.Start{
		Item:        &queue.Item{Shape: &queue.Shape{Need: fleet.Need{GPUs: 1, MaxGPUs: 2, Nodes: 2, MaxNodes: 3}}},
		Allocations: []place.Allocation{{Node: "a", GPUs: 0b11}, {Node: "b", GPUs: 0b110}, {Node: "c", GPUs: 0b1}},
	}

	for limit, want := range map[int]string{5: "[{a 3 0} {b 6 0} {c 1 0}]", 4: "[{a 3 0} {b 6 0}]",
		3: "[{a 1 0} {b 2 0} {c 1 0}]", 2: "[{a 1 0} {b 2 0}]", 0: "[{a 1 0} {b 2 0}]"} {
		if got := fmt.Sprint(s.Capped(limit).Allocations); got != want {
			t.Errorf("on %d GPUs: %s, want %s", limit, got, want)
		}
	}

	if s.GPUs() != 5 {
		t.Errorf("the start itself was changed: %v", s.Allocations)
	}
}
