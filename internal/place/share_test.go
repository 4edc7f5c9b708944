package place_test

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// sharing is a yard of one node with two GPUs, the first of which a job has half of.
func sharing(t *testing.T) (*place.View, *place.Running, func(number uint64) *queue.Item) {
	t.Helper()
	table := fleet.NewTable()
	table.Put(
		&fleet.Node{ID: "a", Class: fleet.Local, State: fleet.Ready, Inventory: fleet.Inventory{CPUs: 8000, Memory: 1 << 40, Shares: "1",
			GPUs: []fleet.GPU{{Index: 0, Model: "M60", Memory: 8 << 30}, {Index: 1, Model: "M60", Memory: 8 << 30}}}},
		0,
	)

	table.Book("a", fleet.Hold{Run: "j1.1", Job: "j1", GPUs: 1, Share: 0.5, CPUs: 1000})

	item := func(number uint64) *queue.Item {
		return &queue.Item{Job: id.NewJob(number), Number: number,
			Shape: &queue.Shape{Need: fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 1, MaxGPUs: 1, CPUs: 1000, Place: job.PlaceAny}},
			Outlook: &job.Outlook{Resumes: true, Speed: job.NewSpeed(10, 0, 0, job.Rate{GPUs: 1, PerSecond: 2},
				job.Rate{GPUs: 1, Share: 0.5, PerSecond: 1}, job.Rate{GPUs: 1, Share: 0.25, PerSecond: 0.5})}}
	}

	first := &place.Running{
		Item:        item(1),
		Run:         "j1.1",
		Allocations: []place.Allocation{{Node: "a", GPUs: 1, Share: 0.5}},
		GPUs:        1,
		Rate:        1,
	}

	return &place.View{Now: time.Unix(0, 0), Rooms: table.Rooms(), Running: []*place.Running{first}}, first, item
}

func TestCheckOfShares(t *testing.T) {
	t.Parallel()
	start := func(it *queue.Item, gpus uint64, share float64) place.Start {
		return place.Start{
			Item:        it,
			Allocations: []place.Allocation{{Node: "a", GPUs: gpus, Share: share}},
			Reason:      "the test wants it",
		}
	}

	for name, tc := range map[string]struct {
		plan func(first *place.Running, item func(uint64) *queue.Item) place.Plan
		good int
		says string // why the last is refused
	}{
		"the other half": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Starts: []place.Start{start(item(2), 1, 0.5)}}
		}, 1, ""},
		"more than is left": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Starts: []place.Start{start(item(2), 1, 0.25), start(item(3), 1, 0.25), start(item(4), 1, 0.25)}}
		}, 2, "a share of 0.25 of GPU [0]"},
		"the whole of a GPU that is shared": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Starts: []place.Start{start(item(2), 1, 0)}}
		}, 0, "GPUs [0] of node a are not available"},
		"a share of a GPU that is given away whole": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Starts: []place.Start{start(item(2), 2, 0), start(item(3), 2, 0.5)}}
		}, 1, "a share of 0.5 of GPU [1]"},
		"a share that it cannot do with": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Starts: []place.Start{start(item(2), 2, 0.3)}}
		}, 0, "declares no speed"},
		"the whole GPU when the sharer is stopped": {func(first *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Stops: []place.Stop{{Running: first, Reason: "gives way"}}, Starts: []place.Start{start(item(2), 1, 0)}}
		}, 1, ""},
		"a share that it asks for": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			it := item(2)
			it.Shape.Need.Share, it.Outlook = 0.3, &job.Outlook{}

			return place.Plan{Starts: []place.Start{start(it, 1, 0.3)}}
		}, 1, ""},
		"more memory than is left": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			it := item(2)
			it.Shape.Need.Share, it.Shape.Need.Cap = 0.3, 4<<30

			return place.Plan{Starts: []place.Start{start(it, 1, 0.3)}}
		}, 0, "a share of 0.3 of GPU [0]"},
		"a share of two GPUs": {func(_ *place.Running, item func(uint64) *queue.Item) place.Plan {
			return place.Plan{Starts: []place.Start{start(item(2), 3, 0.5)}}
		}, 0, "a share of 0.5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, first, item := sharing(t)
			got, bad := place.Check(v, tc.plan(first, item))
			if len(got.Starts) != tc.good || (tc.says != "") != (len(bad) > 0) {
				t.Fatalf("%d starts are good, faults %v; want %d and %q", len(got.Starts), bad, tc.good, tc.says)
			}

			if tc.says != "" && !strings.Contains(bad[len(bad)-1].Error(), tc.says) {
				t.Errorf("refused with %v, want %q", bad, tc.says)
			}
		})
	}
}

func TestWhoSharesIsServedByHisShare(t *testing.T) {
	t.Parallel()
	_, first, _ := sharing(t)
	first.Began = time.Unix(0, 0)
	if got := first.Served(time.Unix(100, 0)); got != 50 {
		t.Errorf("a hundred seconds of half a GPU are %g GPU-seconds, want 50", got)
	}
}

func TestWhyAJobCannotStandBesideAnother(t *testing.T) {
	t.Parallel()
	v, _, item := sharing(t)
	v.Rooms[0].Free = 0 // the second GPU is held, too
	need := item(2).Shape.Need
	need.Share = 0.7

	why := place.Explain(v, place.QueuedJob{Job: "j2", Need: need}, place.Verdict{Policy: "rules"})
	for _, words := range []string{"70% of a GPU and 1 CPU needed", "GPU 0 of a: 70% needed, 50% left beside j1"} {
		if !strings.Contains(why.Sentence, words) {
			t.Errorf("%q does not say %q", why.Sentence, words)
		}
	}

	need.Share = 0.5
	why = place.Explain(v, place.QueuedJob{Job: "j2", Need: need}, place.Verdict{Policy: "rules", Due: true})
	if why.Blocker != place.BlockNone {
		t.Errorf("half of GPU 0 is left, and %s: %s", why.Blocker, why.Sentence)
	}

	// Under a policy that does not share, it waits for a whole GPU.
	why = place.Explain(v, place.QueuedJob{Job: "j2", Need: need.Whole()}, place.Verdict{Policy: "fifo"})
	if why.Blocker != place.BlockResources || strings.Contains(why.Sentence, "beside") {
		t.Errorf("%s: %s", why.Blocker, why.Sentence)
	}
}
