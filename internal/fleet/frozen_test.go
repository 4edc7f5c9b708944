package fleet_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
)

// text writes rooms with everything that is in them.
func text(t *rapid.T, rooms []fleet.Room) string {
	data, err := json.Marshal(rooms)
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}

// TestFrozenRoomsStayAsTheyWere: whatever is done to a table later, what was frozen does not change, and what is frozen
// is what the table has.
func TestFrozenRoomsStayAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := fleet.NewTable()
		name := rapid.Map(rapid.IntRange(0, 99), func(n int) id.Node { return id.Node(fmt.Sprintf("n%02d", n)) })
		type kept struct {
			frozen *fleet.Frozen
			want   string
		}

		var all []kept

		for range rapid.IntRange(1, 120).Draw(t, "changes") {
			n := name.Draw(t, "node")
			_, there := table.Get(n)
			run := id.Run(fmt.Sprint("j", rapid.IntRange(1, 6).Draw(t, "run"), ".1"))
			share := rapid.SampledFrom([]float64{0, 0.25}).Draw(t, "share")

			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what < 2 || !there:
				table.Put(&fleet.Node{ID: n, State: fleet.Ready, Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Model: "A100"}}}}, 0)
			case what < 5:
				table.Book(n, fleet.Hold{Run: run, GPUs: 1, Share: share,
					Ends: time.Unix(int64(rapid.IntRange(0, 9).Draw(t, "ends")), 0)})
			case what < 7:
				table.Release(n, run)
			case what < 8:
				table.Remove(n)
			default:
				frozen := table.Freeze()
				if table.Freeze() != frozen {
					t.Fatal("nothing has changed, and it was frozen again")
				}

				all = append(all, kept{frozen, text(t, table.SharedRooms())})
			}
		}

		for i, k := range all {
			if got := text(t, k.frozen.Rooms()); got != k.want {
				t.Fatalf("%d of %d has changed:\n%s\nwas\n%s", i, len(all), got, k.want)
			}
		}
	})
}

// TestFreezingCostsWhatHasChanged: a change of one node copies few others.
func TestFreezingCostsWhatHasChanged(t *testing.T) {
	table := fleet.NewTable()
	for i := range 10_000 {
		n := id.Node(fmt.Sprintf("n%05d", i))
		table.Put(&fleet.Node{ID: n, State: fleet.Ready, Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Model: "A100"}}}}, 0)
	}

	table.Freeze()

	allocs := testing.AllocsPerRun(100, func() {
		table.Book("n05000", fleet.Hold{Run: "j1.1", GPUs: 1})
		table.Freeze()
	})

	if allocs > 6 { // a mark, holds, rooms, a list of parts and what is returned
		t.Errorf("a change and a copy take %v allocations", allocs)
	}
}
