package nodes_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/contact"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/nodes"
	"trainyard/internal/yardmaster/timers"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// yard is all nodes with a clock, and what it told.
type yard struct {
	*nodes.Nodes
	now    time.Time
	feed   batch.Feed
	timers timers.Timers
	lost   []string
}

func newYard() *yard {
	y := &yard{now: start}
	y.Nodes = nodes.New(
		contact.Patience{SuspectAfter: 30 * time.Second, LostAfter: 5 * time.Minute},
		&y.feed,
		&y.timers,
		nodes.Watcher{
			Changed: func(id.Node) {},
			Lost: func(n *nodes.Node, silent job.Duration) {
				y.lost = append(y.lost, fmt.Sprintf("%s after %s", n.ID, silent))
				y.Move(y.now, n, fleet.EventLose, batch.Yard, "given up")
			},
		},
	)

	return y
}

func inventory(gpus int) fleet.Inventory {
	inv := fleet.Inventory{CPUs: 8000, Memory: 64 << 30}
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, fleet.GPU{Index: i, UUID: fmt.Sprint("gpu", i), Model: "A100", Memory: 40 << 30})
	}

	return inv
}

func (y *yard) join(name id.Node, gpus int) *nodes.Node {
	return y.Join(y.now, fleet.Node{ID: name, Class: fleet.Local, Inventory: inventory(gpus)})
}

// pass lets time pass in steps of a second.
func (y *yard) pass(d time.Duration) {
	for end := y.now.Add(d); y.now.Before(end); {
		y.now = y.now.Add(time.Second)
		for due, ok := y.timers.Due(y.now); ok; due, ok = y.timers.Due(y.now) {
			due(y.now)
		}
	}
}

// told lists the kinds of event since the last call.
func (y *yard) told() []string {
	var b batch.Batch
	y.feed.Take(&b)

	var kinds []string
	for _, e := range b.Events {
		kinds = append(kinds, e.Kind)
	}

	return kinds
}

func TestASilentNodeIsSuspectedAndThenGivenUp(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	y.pass(29 * time.Second)

	if n.State != fleet.Ready {
		t.Fatalf("after 29 s it is %s", n.State)
	}

	y.pass(time.Second)

	if room, _ := y.Rooms.Get("a"); n.State != fleet.Suspect || room.Open {
		t.Fatalf("after 30 s it is %s, open %v", n.State, room.Open)
	}

	y.Report(y.now, n, nil, nil)

	if room, _ := y.Rooms.Get("a"); n.State != fleet.Ready || !room.Open {
		t.Fatalf("when it is heard again it is %s, open %v", n.State, room.Open)
	}

	y.pass(time.Hour)

	if diff := cmp.Diff([]string{"a after 5m"}, y.lost); diff != "" || n.State != fleet.Lost {
		t.Errorf("given up, and it is %s:\n%s", n.State, diff)
	}

	if diff := cmp.Diff([]string{"node.suspect", "node.ready", "node.suspect", "node.lost"}, y.told()); diff != "" {
		t.Errorf("told:\n%s", diff)
	}
}

func TestAYardThatSleptSuspectsNobody(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	y.now = y.now.Add(time.Hour)
	y.ResetSilence(y.now)
	y.pass(29 * time.Second)

	if n.State != fleet.Ready || len(y.lost) > 0 {
		t.Errorf("it is %s, given up %v", n.State, y.lost)
	}
}

// Nobody could report to a server that was down, or to a standby.
func TestAServerThatStartsGivesNodesItsFullPatience(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.pass(time.Hour)
	y.Load(y.now, fleet.Node{ID: "a", State: fleet.Suspect, Inventory: inventory(1)})
	y.pass(5*time.Minute - time.Second)

	if n, _ := y.Get("a"); n.State != fleet.Suspect || len(y.lost) > 0 {
		t.Errorf("it is %s, given up %v", n.State, y.lost)
	}

	y.pass(time.Second)

	if diff := cmp.Diff([]string{"a after 5m"}, y.lost); diff != "" {
		t.Errorf("given up:\n%s", diff)
	}
}

func TestNamesThatAreTakenGetANumber(t *testing.T) {
	t.Parallel()
	y := newYard()
	long := "a234567890123456789012345678901234567890123456789012345678901234567890"[:id.MaxName]

	for _, want := range []id.Node{"box", "box-2", "box-3"} {
		if got := y.FreeName("box"); got != want {
			t.Fatalf("the name is %s, want %s", got, want)
		}

		y.join(want, 0)
	}

	y.join(id.Node(long), 0)

	if got := y.FreeName(long); len(got) != id.MaxName || !id.Name(string(got)) {
		t.Errorf("the name is %s", got)
	}
}

func TestAProblemOfANodeOrGPUAndItsEndAreEvents(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 2)
	broken, warm := inventory(2), inventory(2)
	broken.GPUs[1].Error = "Xid 79: fell off the bus"
	warm.Draw = []float64{300, 50}
	updated, full := inventory(2), inventory(2)
	updated.Kernel = "6.12"
	full.Problem = &fleet.Problem{Cause: "no_space", Reason: "less than 256 MB free on the disk that holds /data"}

	free := func() int {
		room, _ := y.Rooms.Get("a")
		return len(fleet.Indices(room.Free))
	}

	for _, step := range []struct {
		name  string
		found fleet.Inventory
		told  []string
		free  int
	}{
		{"nothing new", inventory(2), nil, 2},
		{"broken", broken, []string{"gpu.error"}, 1},
		{"still broken", broken, nil, 1},
		{"well", inventory(2), []string{"gpu.recovered"}, 2},
		{"draws power", warm, nil, 2},
		{"another kernel", updated, []string{"node.inventory"}, 2},
		{"a full disk", full, []string{"node.problem"}, 2},
		{"still full", full, nil, 2},
		{"space again", inventory(2), []string{"node.recovered"}, 2},
	} {
		y.Report(y.now, n, nil, &step.found)

		if room, _ := y.Rooms.Get("a"); room.Open != (step.found.Problem == nil) {
			t.Errorf("%s: open = %v", step.name, room.Open)
		}

		if diff := cmp.Diff(step.told, y.told()); diff != "" || free() != step.free {
			t.Errorf("%s: %d GPUs are free, want %d; told:\n%s", step.name, free(), step.free, diff)
		}
	}
}

func TestRunsOnANodeListenOnDifferentPorts(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 0)
	first, second := n.Port("j1.1", 2999), n.Port("j2.1", 2999)
	if first == second || second != 29500 {
		t.Errorf("the ports are %d and %d", first, second)
	}

	n.Leave("j2.1", first) // which is not its own

	if third := n.Port("j3.1", 2999); third == first || third == second {
		t.Errorf("the third port is %d", third)
	}

	n.Leave("j1.1", first)

	if again := n.Port("j4.1", 2999); again != first {
		t.Errorf("a port that was left is not used: %d", again)
	}
}

func TestSeatsAreWaitedForUntilRunsHaveLeftThem(t *testing.T) {
	t.Parallel()
	need := fleet.Need{GPUs: 1, Nodes: 1, CPUs: 4000, Place: job.PlaceAny}
	for _, c := range []struct {
		name            string
		seat            place.Allocation
		hold            fleet.Hold
		at              job.Place
		ready, possible bool
		stays           bool
	}{
		{"free", place.Allocation{GPUs: 1}, fleet.Hold{GPUs: 2}, job.PlaceAny, true, true, false},
		{"held", place.Allocation{GPUs: 1}, fleet.Hold{GPUs: 1}, job.PlaceAny, false, true, false},
		{"held by another promise", place.Allocation{GPUs: 1}, fleet.Hold{Run: "j9.1", GPUs: 1}, job.PlaceAny, true,
			true, false},
		{"no CPUs left", place.Allocation{GPUs: 1}, fleet.Hold{GPUs: 2, CPUs: 5000}, job.PlaceAny, false, true, false},
		{"the other half", place.Allocation{GPUs: 1, Share: 0.5}, fleet.Hold{GPUs: 1, Share: 0.5}, job.PlaceAny, true,
			true, false},
		{"more than is left", place.Allocation{GPUs: 1, Share: 0.6}, fleet.Hold{GPUs: 1, Share: 0.5}, job.PlaceAny,
			false, true, false},
		{"more of its memory than is left", place.Allocation{GPUs: 1, Share: 0.5},
			fleet.Hold{GPUs: 1, Share: 0.2, Cap: 20 << 30}, job.PlaceAny, false, true, false},
		{"beside a guaranteed one without a limit", place.Allocation{GPUs: 1, Share: 0.5},
			fleet.Hold{GPUs: 1, Share: 0.2, Class: job.ShareGuaranteed}, job.PlaceAny, false, true, false},
		{"held by one that stays", place.Allocation{GPUs: 1}, fleet.Hold{GPUs: 1}, job.PlaceAny, false, false, true},
		{"beside one that stays", place.Allocation{GPUs: 1}, fleet.Hold{GPUs: 2}, job.PlaceAny, true, true, true},
		{"no such GPU", place.Allocation{GPUs: 4}, fleet.Hold{GPUs: 2}, job.PlaceAny, false, false, false},
		{"not where it may run", place.Allocation{GPUs: 1}, fleet.Hold{GPUs: 2}, job.PlaceCloud, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.join("a", 2)

			if c.hold.Run == "" {
				c.hold.Run = "j1.1"
			}

			y.Rooms.Book("a", c.hold)
			c.seat.Node = "a"
			s := &place.Start{Item: &queue.Item{Shape: &queue.Shape{Need: need}}, Allocations: []place.Allocation{c.seat}}
			ready, possible := y.CheckPromise(s, c.at, func(run id.Run) (live, leaving bool) { return run == "j1.1", !c.stays })
			if ready != c.ready || possible != c.possible {
				t.Errorf("ready %v, possible %v", ready, possible)
			}
		})
	}
}

func TestARemovedNodeIsKnownAndHasNoRoom(t *testing.T) {
	t.Parallel()
	y := newYard()
	n := y.join("a", 1)
	y.join("b", 1)
	y.Move(y.now, n, fleet.EventRemove, "root", "removed")

	if _, err := y.Find("a"); err == nil {
		t.Error("it is found")
	}

	if _, ok := y.Get("a"); !ok {
		t.Error("it is not known")
	}

	if _, ok := y.Rooms.Get("a"); ok {
		t.Error("it has a room")
	}

	if y.Fits(fleet.Need{GPUs: 1, MaxGPUs: 1, Nodes: 2, Place: job.PlaceAny}) ||
		!y.Fits(fleet.Need{GPUs: 1, MaxGPUs: 1, Nodes: 1, Place: job.PlaceAny}) {
		t.Error("what fits is wrong")
	}

	names := []id.Node{}
	for _, o := range y.All() {
		names = append(names, o.ID)
	}

	if !slices.Equal(names, []id.Node{"a", "b"}) {
		t.Errorf("all are %v", names)
	}
}
