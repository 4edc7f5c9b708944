package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// TestMarksTellWhichRoomsHaveChanged: whatever is done to a node, its room has a mark
// that it never had, in copies too, and those of all others stay.
func TestMarksTellWhichRoomsHaveChanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := fleet.NewTable()
		name := rapid.Map(rapid.IntRange(0, 5), func(n int) id.Node { return id.Node(fmt.Sprint("n", n)) })
		seen := map[*byte]bool{}
		last := map[id.Node]*byte{}

		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			n := name.Draw(t, "node")
			_, there := table.Get(n)

			run := id.Run(fmt.Sprint("j", rapid.IntRange(1, 3).Draw(t, "run"), ".1"))
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what == 0 || !there:
				table.Put(&fleet.Node{ID: n, State: fleet.Ready, Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Model: "A100"}}}}, 0)
			case what == 1:
				table.Book(n, fleet.Hold{Run: run, GPUs: 1, Ends: time.Unix(int64(rapid.IntRange(0, 9).Draw(t, "ends")), 0)})
			case what == 2:
				table.Release(n, run)
			default:
				table.Remove(n)
				delete(last, n)
			}

			for _, r := range table.Rooms() {
				switch {
				case r.Node.ID == n && (r.Mark == nil || seen[r.Mark]):
					t.Fatalf("%s has changed and has an old mark", n)
				case r.Node.ID != n && r.Mark != last[r.Node.ID]:
					t.Fatalf("%s has changed and the mark of %s is another", n, r.Node.ID)
				}

				seen[r.Mark], last[r.Node.ID] = true, r.Mark
			}
		}
	})
}
