package place_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// TestCheckRefusesWhatCannotBeCarriedOut has plans of a policy that is wrong in every way.
func TestCheckRefusesWhatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	two := func(s *job.Spec) { s.Resources.Nodes = job.Range{Min: 2, Max: 2} }
	seat := func(node string, gpus uint64) place.Allocation {
		return place.Allocation{Node: id.Node(node), GPUs: gpus}
	}

	starts := func(need fleet.Need, lists ...[]place.Allocation) []place.Start {
		var p []place.Start
		shape := &queue.Shape{Need: need}
		for i, seats := range lists {
			p = append(
				p,
				place.Start{Item: &queue.Item{Job: id.NewJob(uint64(i + 1)), Shape: shape}, Allocations: seats, Reason: "why not"},
			)
		}

		return p
	}

	one := func(node string, gpus uint64) []place.Allocation { return []place.Allocation{seat(node, gpus)} }

	const cannot = "the plan for job j1 cannot be carried out: "
	for name, tc := range map[string]struct {
		plan []place.Start
		want []string
	}{
		"all is well":         {starts(need(1, nil), one("a", 1), one("a", 2), one("b", 1)), nil},
		"no reason":           {[]place.Start{{Item: &queue.Item{Job: "j1", Shape: &queue.Shape{Need: need(1, nil)}}, Allocations: one("a", 1)}}, []string{cannot + "the plan gives no reason"}},
		"no seat":             {starts(need(1, nil), nil), []string{cannot + "it is given 0 nodes and needs 1 to 1"}},
		"too many seats":      {starts(need(1, nil), []place.Allocation{seat("a", 1), seat("b", 1)}), []string{cannot + "it is given 2 nodes and needs 1 to 1"}},
		"unknown node":        {starts(need(1, nil), one("x", 1)), []string{cannot + "there is no node x"}},
		"same node twice":     {starts(need(1, two), []place.Allocation{seat("a", 1), seat("a", 2)}), []string{cannot + "it is given two ranks on node a"}},
		"drained node":        {starts(need(1, nil), one("closed", 1)), []string{cannot + "it does not fit on node closed"}},
		"GPU held by another": {starts(need(1, nil), one("a", 8)), []string{cannot + "GPUs [3] of node a are not available to it"}},
		"GPU that is not":     {starts(need(1, nil), one("b", 1<<40)), []string{cannot + "GPUs [40] of node b are not available to it"}},
		"too few GPUs":        {starts(need(2, nil), one("a", 1)), []string{cannot + "GPUs [0] of node a are not available to it"}},
		"too many GPUs":       {starts(need(1, nil), one("a", 3)), []string{cannot + "GPUs [0 1] of node a are not available to it"}},
		"GPUs not asked for":  {starts(need(0, nil), one("a", 1)), []string{cannot + "GPUs [0] of node a are not available to it"}},
		"the same GPU for two": {starts(need(1, nil), one("a", 1), one("a", 1)),
			[]string{"the plan for job j2 cannot be carried out: GPUs [0] of node a are not available to it"}},
		"more CPUs than there are": {starts(need(0, func(s *job.Spec) { s.Resources.CPUs = 9000 }), one("a", 0), one("a", 0)),
			[]string{"the plan for job j2 cannot be carried out: it does not fit on node a"}},
		"a node outside its place": {starts(need(1, func(s *job.Spec) { s.Place = job.PlaceCloud }), one("a", 1)), []string{cannot + "it does not fit on node a"}},
		"data that may be nowhere": {starts(need(1, func(s *job.Spec) { s.Place = job.PlaceNowhere }), one("a", 1)), []string{cannot + "it does not fit on node a"}},
		"unlike nodes for a job with same_gpu": {
			starts(need(1, func(s *job.Spec) {
				two(s)
				s.Resources.SameGPU = true
			}), []place.Allocation{seat("a", 1), seat("t4", 1)}),
			[]string{cannot + "it asks for one GPU model (same_gpu), and node t4 has another than the first"}},
		"a gang of which half fits takes nothing": {
			append(starts(need(2, two), []place.Allocation{seat("a", 3), seat("b", 3)}), starts(need(1, nil), nil,
				one("a", 1))[1:]...),
			[]string{cannot + "it does not fit on node b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			y.node("a", 4, nil)
			y.hold("a", "j99", 8, 1000, 0)
			y.node("b", 1, nil)
			y.node("closed", 4, func(n *fleet.Node) { n.Cordoned = true })
			y.node("t4", 1, func(n *fleet.Node) { n.Inventory.GPUs[0] = fleet.GPU{Model: "Tesla T4", Memory: 16 << 30} })
			good, bad := place.Check(y.view(), place.Plan{Starts: tc.plan})

			var got []string
			for _, err := range bad {
				got = append(got, err.Error())
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}

			if len(good.Starts)+len(bad) != len(tc.plan) {
				t.Errorf("%d starts are good and %d bad, of %d", len(good.Starts), len(bad), len(tc.plan))
			}
		})
	}

	t.Run("a job placed twice", func(t *testing.T) {
		t.Parallel()
		y := newYard()
		y.node("a", 4, nil)
		p := starts(need(1, nil), one("a", 1), one("a", 2))
		p[1].Item = p[0].Item
		if _, bad := place.Check(
			y.view(),
			place.Plan{Starts: p},
		); len(bad) != 1 ||
			bad[0].Error() != cannot+"it is placed twice" {
			t.Errorf("refused: %v", bad)
		}
	})
}

// TestCheckOfManyStarts books every GPU of many nodes twice: as long as a plan
// is, each GPU is given once.
func TestCheckOfManyStarts(t *testing.T) {
	t.Parallel()
	y := newYard()
	shape := &queue.Shape{Need: need(1, func(s *job.Spec) { s.Resources.CPUs = 0 })}

	var p place.Plan
	for twice := range 2 {
		for n := range 60 {
			node := fmt.Sprintf("n%02d", n)
			y.node(node, 8, nil)

			for g := range 8 {
				it := &queue.Item{Job: id.NewJob(uint64(len(p.Starts) + 1)), Shape: shape}
				p.Starts = append(
					p.Starts,
					place.Start{
						Item:        it,
						Allocations: []place.Allocation{{Node: id.Node(node), GPUs: 1 << g}},
						Reason:      fmt.Sprint("try ", twice),
					},
				)
			}
		}
	}

	p.Starts = append(
		p.Starts,
		place.Start{
			Item:        &queue.Item{Job: "j9999", Shape: shape},
			Allocations: []place.Allocation{{Node: "x", GPUs: 1}},
			Reason:      "no such node",
		},
	)

	v := y.view()
	good, bad := place.Check(v, p)
	if len(good.Starts) != 480 || len(bad) != 481 {
		t.Fatalf("%d starts are good and %d bad, want 480 and 481", len(good.Starts), len(bad))
	}

	for i, s := range good.Starts {
		if s.Reason != "try 0" || s.Item.Job != id.NewJob(uint64(i+1)) {
			t.Fatalf("start %d is %+v, want the first for each GPU", i, s)
		}
	}

	if v.Rooms[0].Free != 0xff {
		t.Errorf("the check changed its view: %b is free", v.Rooms[0].Free)
	}
}

// TestANodeThatDoesNotIsolateUsersIsDedicatedToOne has starts of two users on nodes for one user at a time.
func TestANodeThatDoesNotIsolateUsersIsDedicatedToOne(t *testing.T) {
	t.Parallel()
	alone := func(n *fleet.Node) { n.Inventory.SingleUser = true }
	start := func(number uint64, user id.User, node id.Node, gpus uint64) place.Start {
		return place.Start{
			Item: &queue.Item{Job: id.NewJob(number), Number: number, User: user,
				Shape: &queue.Shape{Need: need(1, nil)}},
			Allocations: []place.Allocation{{Node: node, GPUs: gpus}}, Reason: "why not",
		}
	}

	y := newYard()
	y.node("empty", 4, alone)
	y.node("mixing", 4, nil)
	y.node("taken", 4, alone)
	y.Book("taken", fleet.Hold{Run: "j9.1", Job: "j9", Owner: "ada", GPUs: 1})
	y.Book("mixing", fleet.Hold{Run: "j8.1", Job: "j8", Owner: "ada", GPUs: 1})

	good, bad := place.Check(y.view(), place.Plan{Starts: []place.Start{
		start(1, "ben", "taken", 2), start(2, "ada", "taken", 2), start(3, "ben", "mixing", 2),
		start(4, "ben", "empty", 1), start(5, "ada", "empty", 2), start(6, "ben", "empty", 4),
	}})

	var started []id.Job
	for i := range good.Starts {
		started = append(started, good.Starts[i].Item.Job)
	}

	if diff := cmp.Diff([]id.Job{"j2", "j3", "j4", "j6"}, started); diff != "" {
		t.Errorf("started (-want +got):\n%s", diff)
	}

	want := []string{
		"the plan for job j1 cannot be carried out: node taken runs jobs of one user at a time and has one of ada",
		"the plan for job j5 cannot be carried out: node empty runs jobs of one user at a time and gets one of ben",
	}
	for i, err := range bad {
		if i >= len(want) || err.Error() != want[i] || place.Again(err) != (i == 1) {
			t.Errorf("error %d: %v, another plan is due: %v", i, err, place.Again(err))
		}
	}

	if len(bad) != len(want) {
		t.Errorf("%d errors, want %d", len(bad), len(want))
	}
}
