package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

var start = time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)

// drawTable draws a few nodes of 4 A100.
func drawTable(t *rapid.T) *fleet.Table {
	table := fleet.NewTable()
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := &fleet.Node{ID: id.Node(fmt.Sprint("n", i)), Class: fleet.Local, State: fleet.Ready}
		n.Inventory = fleet.Inventory{CPUs: 64000, Memory: 1 << 40}
		for g := range 4 {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: g, Model: "A100"})
		}

		table.Put(n, 0)
	}

	return table
}

// drawHold lets a job run on a node, if GPUs are free there.
func drawHold(t *rapid.T, table *fleet.Table, number int) {
	n := id.Node(fmt.Sprint("n", rapid.IntRange(0, 4).Draw(t, "node")))
	room, ok := table.Get(n)

	gpus := rapid.IntRange(1, 4).Draw(t, "gpus")
	if !ok || fleet.LowestGPUs(room.Free, gpus) == 0 {
		return
	}

	h := fleet.Hold{Run: id.Run(fmt.Sprint("r", number)), Job: id.Job(fmt.Sprint("j", number)), Since: start}
	h.GPUs = fleet.LowestGPUs(room.Free, gpus)
	if rapid.IntRange(0, 3).Draw(t, "known") > 0 {
		h.Ends = start.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "ends")) * time.Minute)
	}

	table.Book(n, h)
}

func request(tl *Timeline, gpus, nodes int, lasts time.Duration) *Request {
	s := &Shape{}
	tl.Compare(s, &fleet.Need{
		GPUs: gpus, MaxGPUs: gpus, Nodes: nodes, MaxNodes: nodes, Place: job.PlaceAny,
	})

	return &Request{Shape: s, Job: "new", Lasts: lasts}
}

// TestAKeptTimelineAnswersAsANewOne: what is kept from round to round changes no answer, and
// no answer overbooks a node.
func TestAKeptTimelineAnswersAsANewOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := drawTable(t)
		kept := &Timeline{}

		for round := range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for i := range rapid.IntRange(0, 3).Draw(t, "holds") {
				drawHold(t, table, 10*round+i)
			}

			if room, ok := table.Get("n0"); ok && len(room.Holds) > 0 && rapid.Bool().Draw(t, "ends") {
				table.Release("n0", room.Holds[0].Run)
			}

			now := start.Add(time.Duration(round*rapid.IntRange(0, 17).Draw(t, "minutes")) * time.Minute)
			fresh := &Timeline{}
			both := []*Timeline{kept, fresh}
			fresh.Update(Snapshot{Now: now, Rooms: table.Rooms(), Guess: time.Hour})

			if rapid.IntRange(0, 3).Draw(t, "tracked") > 0 {
				kept.Update(Snapshot{Now: now, Rooms: table.SharedRooms(), Changes: table.Changes(), Guess: time.Hour})
			} else {
				kept.Update(Snapshot{Now: now, Rooms: table.Rooms(), Guess: time.Hour})
			}

			for range rapid.IntRange(1, 4).Draw(t, "jobs") {
				gpus, nodes := rapid.IntRange(1, 4).Draw(t, "needs"), rapid.IntRange(1, 2).Draw(t, "on")
				lasts := time.Duration(rapid.IntRange(1, 120).Draw(t, "lasts")) * time.Minute
				var rooms [2][]int32

				var at [2]time.Duration
				for i, tl := range both {
					rooms[i], at[i] = place(t, tl, request(tl, gpus, nodes, lasts))
				}

				if !slices.Equal(rooms[0], rooms[1]) || at[0] != at[1] {
					t.Fatalf("kept: %v in %s; new: %v in %s", rooms[0], at[0], rooms[1], at[1])
				}
			}
		}
	})
}

// place starts a job or reserves for it, and checks that its rooms have what it takes.
func place(t *rapid.T, tl *Timeline, q *Request) ([]int32, time.Duration) {
	need := &q.Shape.Match.Need
	for _, p := range q.Shape.Able {
		if rooms := tl.FitNow(q, p); rooms != nil {
			for _, at := range rooms {
				free := tl.Free(at).GPUs
				gpus := fleet.LowestGPUs(free, need.GPUs)
				if gpus == 0 {
					t.Fatalf("room %d has %b free, not %d", at, free, need.GPUs)
				}

				tl.Start(at, gpus, need, q.Lasts)
			}

			return rooms, 0
		}

		rooms, when := tl.Earliest(q, p, Never)
		for _, at := range rooms {
			if !tl.profileOf(tl.plan(at)).fits(when, q.Shape.Takes, q.Lasts) {
				t.Fatalf("room %d does not have %+v in %s", at, q.Shape.Takes, when)
			}

			tl.Reserve(at, when, q.Shape.Takes, q.Lasts)
		}

		if rooms != nil {
			return rooms, when
		}
	}

	return nil, Never
}

// TestARoomOfAnotherJobIsClosed: a dedicated room is for its job alone, until it is for all.
func TestARoomOfAnotherJobIsClosed(t *testing.T) {
	t.Parallel()
	table := fleet.NewTable()
	n := &fleet.Node{ID: "a", Class: fleet.Local, State: fleet.Ready}
	n.Inventory = fleet.Inventory{CPUs: 1000, Memory: 1 << 30, GPUs: []fleet.GPU{{Model: "A100"}}}
	table.Put(n, 0)
	tl := &Timeline{}
	tl.Update(Snapshot{Now: start, Rooms: table.Rooms()})
	q := request(tl, 1, 1, time.Hour)

	tl.Dedicate(0, "other")

	if got := tl.FitNow(q, q.Shape.Able[0]); got != nil {
		t.Errorf("the room of another job is given: %v", got)
	}

	tl.Undedicate(0)

	if got := tl.FitNow(q, q.Shape.Able[0]); len(got) != 1 {
		t.Errorf("the room is not given: %v", got)
	}
}

// TestAcrossPoolsIsAsInOnePool: a gang that may use all pools starts when it would if all nodes
// were of one pool.
func TestAcrossPoolsIsAsInOnePool(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		alike := drawTable(t)
		for i := range rapid.IntRange(0, 6).Draw(t, "holds") {
			drawHold(t, alike, i)
		}

		unlike := fleet.NewTable()
		rooms := alike.Rooms()
		for i := range rooms {
			n := *rooms[i].Node
			n.Inventory.GPUs = slices.Clone(n.Inventory.GPUs)
			model := rapid.SampledFrom([]string{"A100", "H100", "T4"}).Draw(t, "model")
			for k := range n.Inventory.GPUs {
				n.Inventory.GPUs[k].Model = model
			}

			unlike.Put(&n, 0)
			for _, h := range rooms[i].Holds {
				unlike.Book(n.ID, h)
			}
		}

		one, several := &Timeline{}, &Timeline{}
		one.Update(Snapshot{Now: start, Rooms: alike.Rooms(), Guess: time.Hour})
		several.Update(Snapshot{Now: start, Rooms: unlike.Rooms(), Guess: time.Hour})

		for range rapid.IntRange(1, 4).Draw(t, "gangs") {
			gpus, nodes := rapid.IntRange(1, 4).Draw(t, "needs"), rapid.IntRange(2, 3).Draw(t, "on")
			lasts := time.Duration(rapid.IntRange(1, 120).Draw(t, "lasts")) * time.Minute
			a, b := request(one, gpus, nodes, lasts), request(several, gpus, nodes, lasts)
			if len(a.Shape.Able) == 0 {
				continue
			}

			alikeNow, unlikeNow := one.FitNow(a, a.Shape.Able[0]), several.FitNowAcross(b, b.Shape.Able...)
			if (alikeNow == nil) != (unlikeNow == nil) {
				t.Fatalf("in one pool it fits now on %v, across pools on %v", alikeNow, unlikeNow)
			}

			want, when := one.Earliest(a, a.Shape.Able[0], Never)
			got, at := several.EarliestAcross(b, Never, b.Shape.Able...)
			if len(want) != len(got) || when != at {
				t.Fatalf("in one pool it starts on %v in %s, across pools on %v in %s", want, when, got, at)
			}

			for _, room := range want { // the plan must be the same in both
				one.Reserve(room, when, a.Shape.Takes, lasts)
				several.Reserve(room, when, b.Shape.Takes, lasts)
			}
		}
	})
}

// earliestSorted is EarliestAcross by sorting all candidates.
func earliestSorted(t *Timeline, q *Request, latest time.Duration, pools ...*Pool) ([]int32, time.Duration) {
	nodes, takes := q.Shape.Match.Need.Nodes, q.Shape.Takes

	t.candidates = t.candidates[:0]
	for i, p := range pools {
		first := len(t.candidates)
		t.nearest(q, p, latest, nodes)
		for k := first; k < len(t.candidates); k++ {
			t.candidates[k].pool = i
		}
	}

	list := t.candidates
	if len(list) < nodes {
		return nil, Never
	}

	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.at, b.at))
	})
	when := max(list[nodes-1].when, time.Nanosecond)
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.pool, b.pool) })

	for range maxGangTries {
		var rooms []int32
		next := Never
		for i := range list {
			c := &list[i]
			if c.when > when {
				next = min(next, c.when)
				continue
			}

			if c.profile.fits(when, takes, q.Lasts) {
				rooms = append(rooms, c.at)
				if len(rooms) == nodes {
					return rooms, when
				}

				continue
			}

			if at := c.profile.earliestFrom(when+1, takes, q.Lasts, Never); at != Never {
				next = min(next, at)
			}
		}

		if next == Never || next > latest {
			break
		}

		when = next
	}

	return nil, Never
}

// TestGangsGetTheRoomsThatTheyWouldIfAllWereSorted: only the rooms that are free at a time are sorted for it.
func TestGangsGetTheRoomsThatTheyWouldIfAllWereSorted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := fleet.NewTable()
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			n := &fleet.Node{ID: id.Node(fmt.Sprint("n", i)), Class: fleet.Local, State: fleet.Ready}
			n.Inventory = fleet.Inventory{CPUs: 64000, Memory: 1 << 40}
			model := rapid.SampledFrom([]string{"A100", "H100"}).Draw(t, "model")
			for g := range 4 {
				n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: g, Model: model})
			}

			table.Put(n, 0)
		}

		for i := range rapid.IntRange(0, 20).Draw(t, "holds") {
			drawHold(t, table, i)
		}

		tl := &Timeline{}
		tl.Update(Snapshot{Now: start, Rooms: table.Rooms(), Guess: time.Hour})

		for range rapid.IntRange(1, 6).Draw(t, "gangs") {
			gpus, nodes := rapid.IntRange(1, 4).Draw(t, "needs"), rapid.IntRange(2, 5).Draw(t, "on")
			lasts := time.Duration(rapid.IntRange(1, 120).Draw(t, "lasts")) * time.Minute
			latest := rapid.SampledFrom([]time.Duration{Never, time.Hour, 10 * time.Minute}).Draw(t, "latest")
			q := request(tl, gpus, nodes, lasts)
			pools := q.Shape.Able
			if len(pools) > 1 && rapid.Bool().Draw(t, "other pool first") {
				pools = []*Pool{pools[1], pools[0]}
			}

			want, when := earliestSorted(tl, q, latest, pools...)

			got, at := tl.EarliestAcross(q, latest, pools...)
			if !slices.Equal(want, got) || when != at {
				t.Fatalf("it starts on %v in %s, want %v in %s", got, at, want, when)
			}

			for _, room := range got {
				tl.Reserve(room, at, q.Shape.Takes, lasts)
			}
		}
	})
}
