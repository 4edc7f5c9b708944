package fleet_test

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

func TestLifeOfANode(t *testing.T) {
	t.Parallel()
	reached := map[fleet.State]bool{}
	reached[fleet.Ready] = true
	for range fleet.States() {
		for _, s := range fleet.States() {
			for _, ev := range fleet.Events() {
				to, err := s.After(ev)
				switch {
				case err == nil && !slices.Contains(fleet.States(), to):
					t.Fatalf("%s, %s leads to %q, which is no state", s, ev, to)
				case err != nil && (fault.KindOf(err) != fault.Conflict || to != s):
					t.Fatalf("%s, %s gives %q and %v", s, ev, to, err)
				case err == nil && reached[s]:
					reached[to] = true
				}
			}
		}
	}

	for _, s := range fleet.States() {
		if !reached[s] {
			t.Errorf("%s is never reached", s)
		}

		if to, err := s.After(fleet.EventRemove); s != fleet.Removed && (err != nil || to != fleet.Removed) {
			t.Errorf("a node that is %s cannot be removed: %v", s, err)
		}

		if to, err := s.After(fleet.EventReport); s != fleet.Removed && (err != nil || to != fleet.Ready) {
			t.Errorf("a node that is %s and reports is %s: %v", s, to, err)
		}

		for _, ev := range fleet.Events() {
			if to, err := fleet.Removed.After(ev); err == nil {
				t.Errorf("a node that was removed goes on to %s by %s", to, ev)
			}
		}
	}

	if to, err := fleet.Ready.After(fleet.EventLose); err == nil {
		t.Errorf("a node that was just heard is %s at once: it must be suspect first", to)
	}
}

func TestDiagramShowsTheTable(t *testing.T) {
	t.Parallel()
	want := "stateDiagram-v2\n    [*] --> ready: join\n    ready --> ready: report\n    ready --> suspect: silent\n    ready --> lost: gone\n    ready --> removed: remove\n" +
		"    suspect --> ready: report\n    suspect --> lost: lose\n    suspect --> lost: gone\n    suspect --> removed: remove\n" +
		"    lost --> ready: report\n    lost --> removed: remove\n    removed --> [*]\n"
	if diff := cmp.Diff(want, fleet.Diagram()); diff != "" {
		t.Error(diff)
	}
}

func TestClassAllowsPlace(t *testing.T) {
	t.Parallel()

	for place, want := range map[job.Place]string{job.PlaceAny: "local reserved ondemand", job.PlaceLocal: "local", job.PlaceCloud: "reserved ondemand", "": "", job.PlaceNowhere: "", "moon": ""} {
		var got []string
		for _, c := range fleet.Classes() {
			if c.Allows(place) {
				got = append(got, string(c))
			}
		}

		if strings.Join(got, " ") != want {
			t.Errorf("place %q lets jobs onto %v, want %q", place, got, want)
		}
	}
}

func TestNeedOfASpec(t *testing.T) {
	t.Parallel()
	res := func(change func(*job.Resources)) *job.Spec {
		s := &job.Spec{Place: job.PlaceAny}
		change(&s.Resources)
		return s
	}

	for name, tc := range map[string]struct {
		spec  *job.Spec
		floor job.Floor
		avoid []id.Node
		want  fleet.Need
	}{
		"nothing asked for": {spec: res(func(*job.Resources) {}), want: fleet.Need{Nodes: 1, MaxNodes: 1, Place: job.PlaceAny}},
		"ranges without an end": {spec: res(func(r *job.Resources) { r.GPUs, r.Nodes = job.Range{Min: 2}, job.Range{Min: 3} }),
			want: fleet.Need{Nodes: 3, MaxNodes: 1024, GPUs: 2, MaxGPUs: fleet.MaxGPUs, Place: job.PlaceAny}},
		"kinds in any order, once each": {spec: res(func(r *job.Resources) {
			r.GPUs, r.GPU = job.Range{Min: 1, Max: 1}, []job.GPUKind{{Model: "H100"}, {Model: "A100", Memory: 80 << 30}, {Model: "H100"}}
		}), want: fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 1, Kinds: "A100:80GB|H100", Place: job.PlaceAny}},
		"a floor above and below what is asked for": {spec: res(func(r *job.Resources) { r.Memory = 8 << 30 }), floor: job.Floor{Memory: 16 << 30, GPUMemory: 1},
			want: fleet.Need{Nodes: 1, MaxNodes: 1, Memory: 16 << 30, GPUOver: 1, Place: job.PlaceAny}},
		"nodes to avoid": {spec: res(func(*job.Resources) {}), avoid: []id.Node{"b", "a"}, want: fleet.Need{Nodes: 1, MaxNodes: 1, Place: job.PlaceAny, Avoid: "|a|b|"}},
	} {
		if diff := cmp.Diff(tc.want, fleet.NeedOf(tc.spec, tc.floor, tc.avoid)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestSetsOfGPUs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.Uint64().Draw(t, "set")
		n := rapid.IntRange(0, 70).Draw(t, "n")

		if got := fleet.Mask(fleet.Indices(set)); got != set {
			t.Fatalf("%b lists as %v, which is %b", set, fleet.Indices(set), got)
		}

		taken := fleet.LowestGPUs(set, n)
		if taken&^set != 0 || bits.OnesCount64(taken) != min(n, bits.OnesCount64(set)) ||
			bits.Len64(taken) > bits.TrailingZeros64(set&^taken) {
			t.Fatalf("the %d lowest of %b are said to be %b", n, set, taken)
		}
	})

	if got := fleet.Mask([]int{-1, 0, 63, 64, 1 << 40}); got != 1|1<<63 {
		t.Errorf("mask = %b, want those that a node can have", got)
	}
}

func TestMatcherSurvivesAbsurdInventories(t *testing.T) {
	t.Parallel()
	table := fleet.NewTable()
	table.Put(&fleet.Node{ID: "a", Class: fleet.Local, State: fleet.Ready, Inventory: fleet.Inventory{GPUs: []fleet.GPU{
		{
			Index: -1,
			Model: "A100",
		},
		{Index: 64, Model: "L4"},
		{Index: 2, Model: "A100"},
		{Index: 2, Model: "L4"},
		{Index: 3, Model: "A100", Error: "Xid 79"},
	}}}, 0)

	room, _ := table.Get("a")
	if room.Sound != 1<<2 {
		t.Errorf("sound GPUs are %b, want only number 2", room.Sound)
	}

	m := fleet.NewMatcher(fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 8, Kinds: "A100", Place: job.PlaceAny})
	if gpus, ok := m.Fits(room); !ok || gpus != 1<<2 {
		t.Errorf("fits with %b, %v, want GPU 2", gpus, ok)
	}
}

func TestMoreMemoryMeansAnotherSizeOfGPU(t *testing.T) {
	t.Parallel()

	for memory, want := range map[job.Bytes]bool{80 << 30: false, 81559 << 20: false, 94 << 30: true, 40 << 30: false} {
		table := fleet.NewTable()
		table.Put(
			&fleet.Node{
				ID:        "a",
				Class:     fleet.Local,
				State:     fleet.Ready,
				Inventory: fleet.Inventory{GPUs: []fleet.GPU{{Model: "x", Memory: memory}}},
			},
			0,
		)

		room, _ := table.Get("a")
		_, got := fleet.NewMatcher(fleet.Need{GPUs: 1, MaxGPUs: 1, GPUOver: 79 << 30, Place: job.PlaceAny}).Fits(room)
		if got != want {
			t.Errorf("more than 79GB: %s will do: %v, want %v", memory, got, want)
		}
	}
}

// TestTableKeepsTheBooks books, releases, changes and removes at random and
// works out each time from scratch what should be free.
func TestTableKeepsTheBooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := fleet.NewTable()
		nodes := map[id.Node]*fleet.Node{}
		foreign := map[id.Node]uint64{}
		holds := map[id.Node]map[id.Run]fleet.Hold{}

		names := []id.Node{"d", "a", "c", "b"}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			n := rapid.SampledFrom(names).Draw(t, "node")
			run := id.NewRun("j1", rapid.IntRange(1, 4).Draw(t, "run"))
			switch op := rapid.IntRange(0, 9).Draw(t, "operation"); {
			case op < 3:
				node := &fleet.Node{
					ID:        n,
					State:     rapid.SampledFrom(fleet.States()).Draw(t, "state"),
					Cordoned:  rapid.Bool().Draw(t, "drained"),
					Inventory: fleet.Inventory{CPUs: 64000, Memory: 1 << 40},
				}

				for i := range rapid.IntRange(0, 4).Draw(t, "gpus") {
					node.Inventory.GPUs = append(node.Inventory.GPUs, fleet.GPU{Index: i, Model: "x"})
				}

				if rapid.Bool().Draw(t, "full disk") {
					node.Inventory.Problem = &fleet.Problem{Cause: "no_space"}
				}

				nodes[n], foreign[n] = node, uint64(rapid.IntRange(0, 3).Draw(t, "foreign"))
				table.Put(node, foreign[n])

				if holds[n] == nil {
					holds[n] = map[id.Run]fleet.Hold{}
				}
			case op < 7:
				h := fleet.Hold{Run: run, GPUs: uint64(rapid.IntRange(0, 15).Draw(t, "mask")), CPUs: 1000, Memory: 1 << 30}
				if ends := rapid.IntRange(0, 3).Draw(t, "ends"); ends > 0 {
					h.Ends = time.Unix(int64(ends), 0)
				}

				table.Book(n, h)

				if nodes[n] != nil {
					holds[n][run] = h
				}
			case op < 9:
				table.Release(n, run)
				delete(holds[n], run)
			default:
				table.Remove(n)
				delete(nodes, n)
				delete(holds, n)
			}

			compareRooms(t, table, nodes, foreign, holds)
		}
	})
}

func compareRooms(
	t *rapid.T,
	table *fleet.Table,
	nodes map[id.Node]*fleet.Node,
	foreign map[id.Node]uint64,
	holds map[id.Node]map[id.Run]fleet.Hold,
) {
	rooms := table.Rooms()
	if len(rooms) != len(nodes) || table.Len() != len(nodes) {
		t.Fatalf("the table has %d rooms, want %d", len(rooms), len(nodes))
	}

	if !slices.IsSortedFunc(
		rooms,
		func(a, b fleet.Room) int { return strings.Compare(string(a.Node.ID), string(b.Node.ID)) },
	) {
		t.Fatal("rooms are not sorted")
	}

	for i := range rooms {
		r := &rooms[i]
		n := nodes[r.Node.ID]
		sound := uint64(1)<<len(n.Inventory.GPUs) - 1
		sound &^= foreign[n.ID]
		free := sound
		cpus := n.Inventory.CPUs

		memory := n.Inventory.Memory
		for _, h := range holds[n.ID] {
			free &^= h.GPUs
			cpus -= h.CPUs
			memory -= h.Memory
		}

		if r.Node != n || r.Sound != sound || r.Free != free || r.CPUs != cpus || r.Memory != memory ||
			len(r.Holds) != len(holds[n.ID]) ||
			r.Open != (n.State == fleet.Ready && !n.Cordoned && n.Inventory.Problem == nil) {
			t.Fatalf("room %+v, want sound %b, free %b, %s CPUs, %s, %d holds", r, sound, free, cpus, memory, len(holds[n.ID]))
		}

		if !slices.IsSortedFunc(r.Holds, fleet.CompareHolds) {
			t.Fatalf("holds are not by their ends: %+v", r.Holds)
		}

		if got, ok := table.Get(n.ID); !ok || !cmp.Equal(*got, *r) {
			t.Fatalf("Get(%s) = %+v, %v", n.ID, got, ok)
		}
	}
}

func TestHoldsWithoutAnEndComeLast(t *testing.T) {
	t.Parallel()
	table := fleet.NewTable()
	table.Put(&fleet.Node{ID: "a", State: fleet.Ready}, 0)

	for i, ends := range []int64{0, 30, 10, 0, 20} {
		h := fleet.Hold{Run: id.NewRun("j1", i+1)}
		if ends > 0 {
			h.Ends = time.Unix(ends, 0)
		}

		table.Book("a", h)
	}

	room, _ := table.Get("a")

	var got []string
	for _, h := range room.Holds {
		got = append(got, fmt.Sprint(h.Run))
	}

	if want := "j1.3 j1.5 j1.2 j1.1 j1.4"; strings.Join(got, " ") != want {
		t.Errorf("holds are in the order %v, want %s", got, want)
	}
}
