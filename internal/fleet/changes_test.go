package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// TestChangesTellWhichRoomsHaveChanged: who follows the changes of a table and looks at those rooms alone has the same
// as who looks at all of them.
func TestChangesTellWhichRoomsHaveChanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := fleet.NewTable()
		node := func(n int) *fleet.Node {
			return &fleet.Node{ID: id.Node(fmt.Sprint("n", n)), State: fleet.Ready, Inventory: fleet.Inventory{
				GPUs: []fleet.GPU{{Index: 0, Model: "A100"}, {Index: 1, Model: "A100"}},
			}}
		}

		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			table.Put(node(i), 0)
		}

		var free []uint64 // of each room
		var seen fleet.Position

		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				n := rapid.IntRange(0, 6).Draw(t, "node")
				run := id.Run(fmt.Sprint("r", rapid.IntRange(0, 3).Draw(t, "run")))

				switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
				case what < 5:
					table.Book(node(n).ID, fleet.Hold{Run: run, GPUs: 1 << (n % 2)})
				case what < 8:
					table.Release(node(n).ID, run)
				case what == 8:
					table.Put(node(n), 0)
				default:
					table.Remove(node(n).ID)
				}
			}

			rooms := table.SharedRooms()
			changed, ok := table.Changes().Since(seen, rooms)
			seen = table.Changes().Position()

			if _, known := table.Changes().Since(seen, slices.Clone(rooms)); known {
				t.Fatal("the changes are told of a copy")
			}

			if !ok {
				free = make([]uint64, len(rooms))
				for i := range rooms {
					free[i] = rooms[i].Free
				}
			}

			for _, at := range changed {
				free[at] = rooms[at].Free
			}

			for i := range rooms {
				if free[i] != rooms[i].Free {
					t.Fatalf("room %d has changed, and %v have by the changes", i, changed)
				}
			}
		}
	})
}

// TestTooManyChangesOfRooms: who looks too late has to look at all rooms, and who does not is told of the last change.
func TestTooManyChangesOfRooms(t *testing.T) {
	t.Parallel()
	table := fleet.NewTable()
	table.Put(&fleet.Node{ID: "a"}, 0)
	table.Put(&fleet.Node{ID: "b"}, 0)
	rooms := table.SharedRooms()
	first := table.Changes().Position()

	for range 5000 {
		table.Release("a", "r1")
	}

	if _, ok := table.Changes().Since(first, rooms); ok {
		t.Error("5,000 changes are listed")
	}

	now := table.Changes().Position()
	table.Release("b", "r1")

	if got, ok := table.Changes().Since(now, rooms); !ok || !slices.Equal(got, []int32{1}) {
		t.Errorf("%v have changed (%v), want room 1", got, ok)
	}
}
