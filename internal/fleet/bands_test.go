package fleet_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestRoomsAreArrangedByClassThenSizeThenFullest(t *testing.T) {
	t.Parallel()
	table := fleet.NewTable()
	put := func(name string, class fleet.Class, gpus int, memory job.Bytes) {
		n := &fleet.Node{ID: id.Node(name), Class: class, State: fleet.Ready}
		for i := range gpus {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "G", Memory: memory})
		}

		table.Put(n, 0)
	}

	put("a", fleet.OnDemand, 2, 16<<30)
	put("b", fleet.Local, 2, 80<<30)
	put("c", fleet.Local, 0, 0)
	put("d", fleet.Local, 2, 16<<30)
	put("e", fleet.Local, 2, 16<<30)
	table.Book("e", fleet.Hold{Run: "j1.1", GPUs: 1})

	var order []id.Node
	for _, b := range table.Bands() {
		for _, at := range b.Rooms {
			order = append(order, table.SharedRooms()[at].Node.ID)
		}
	}

	if diff := cmp.Diff([]id.Node{"c", "e", "d", "b", "a"}, order); diff != "" {
		t.Error(diff)
	}
}

func TestATableKeepsItsRoomsArranged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := fleet.NewTable()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := id.Node(fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "node")))

			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				table.Remove(name)
			case 1, 2:
				n := &fleet.Node{
					ID:       name,
					Class:    rapid.SampledFrom(fleet.Classes()).Draw(t, "class"),
					State:    fleet.Ready,
					Cordoned: rapid.Bool().Draw(t, "drained"),
				}

				for i := range rapid.IntRange(0, 4).Draw(t, "gpus") {
					n.Inventory.GPUs = append(
						n.Inventory.GPUs,
						fleet.GPU{Index: i, Model: "G", Memory: job.Bytes(16+64*rapid.IntRange(0, 1).Draw(t, "size")) << 30},
					)
				}

				table.Put(n, uint64(rapid.IntRange(0, 3).Draw(t, "foreign")))
			case 3, 4:
				table.Book(
					name,
					fleet.Hold{
						Run:  id.Run(fmt.Sprintf("j%d.1", rapid.IntRange(0, 5).Draw(t, "run"))),
						GPUs: uint64(rapid.IntRange(0, 15).Draw(t, "mask")),
					},
				)
			case 5:
				table.Release(name, id.Run(fmt.Sprintf("j%d.1", rapid.IntRange(0, 5).Draw(t, "run"))))
			}

			if diff := cmp.Diff(
				append([]fleet.Band{}, fleet.Arrange(table.Rooms())...),
				append([]fleet.Band{}, table.Bands()...),
			); diff != "" {
				t.Fatalf("the table's order is not that of its rooms: %s", diff)
			}
		}
	})
}
