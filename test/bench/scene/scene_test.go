package scene

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

func TestScenesAreTheSameEachTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a, b := New(now), New(now)
	for n := range 50 {
		x, err := a.Spec(n)
		if err != nil {
			t.Fatal(err)
		}

		z, err := b.Spec(n)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(x, z); diff != "" {
			t.Fatalf("job %d differs:\n%s", n, diff)
		}
	}

	if diff := cmp.Diff(a.People(), b.People()); diff != "" {
		t.Errorf("people differ:\n%s", diff)
	}
}

func TestEveryShapeFitsSomeOfTheNodes(t *testing.T) {
	t.Parallel()
	s := New(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	nodes := s.Nodes(10)

	table := fleet.NewTable()
	for i := range nodes {
		table.Put(&nodes[i], 0)
	}

	for _, shape := range shapes {
		sp, err := s.parse(file(0, shape, ""))
		if err != nil {
			t.Fatalf("%s: %v", shape, err)
		}

		m, fits := fleet.NewMatcher(fleet.NeedOf(sp, job.Floor{}, nil)), 0
		for _, r := range table.Rooms() {
			if m.Eligible(&r) {
				fits++
			}
		}

		if fits < m.Need.Nodes {
			t.Errorf("%s fits %d of 10 nodes, want at least %d", shape, fits, m.Need.Nodes)
		}
	}
}
