package server

import (
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/ledger"
	"trainyard/internal/yardmaster"
)

func TestTheSummaryCountsGPUsAndJobs(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")

	empty, err := ada.Summary(t.Context())
	y.must(err)
	if len(empty.Classes) != 0 || empty.Queued != 0 || empty.Running != 0 {
		t.Errorf("an empty yard: %+v", empty)
	}

	n := y.join("n1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{
		{Index: 0, UUID: "GPU-a", Model: "L4", Memory: 24 << 30},
		{Index: 1, UUID: "GPU-b", Model: "L4", Memory: 24 << 30},
		{Index: 2, UUID: "GPU-c", Model: "L4", Memory: 24 << 30, Error: "uncorrectable ECC error"},
	}

	_, err = n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	y.must(err)
	y.accept("n1")
	n.listen()
	n.started(ada, "resources: {gpus: 1}")
	y.submit(ada, "run: b\nresources: {memory: 900GB}")
	y.advance(2 * time.Second)

	got, err := ada.Summary(t.Context())
	y.must(err)
	if got.Queued != 1 || got.Running != 1 || len(got.Classes) != 1 {
		t.Fatalf("one job runs and one cannot: %+v", got)
	}

	want := api.ClassSummary{
		Class: fleet.Local, Nodes: 1, GPUs: api.GPUSummary{Total: 3, Running: 1, Idle: 1, Error: 1},
	}
	if got.Classes[0] != want {
		t.Errorf("got %+v, want %+v", got.Classes[0], want)
	}
}

func TestGPUsOfANodeThatDoesNotReportAreAway(t *testing.T) {
	t.Parallel()

	n := yardmaster.NodeInfo{
		Node: fleet.Node{State: fleet.Suspect, Class: fleet.OnDemand}, Price: &ledger.Price{NodeCost: 3},
	}
	n.Inventory.GPUs = make([]fleet.GPU, 2)

	var got api.ClassSummary
	addNode(&got, &n)

	if want := (api.ClassSummary{Nodes: 1, Away: 1, GPUs: api.GPUSummary{Total: 2, Away: 2}, Hourly: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Everyone who has the portal open asks for it: the loop is asked once a second. But nobody who was told of an
// event gets what was there before it.
func TestASummaryIsMadeOnceASecondAndAfterEvents(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	defer y.clock.hold()()

	first, err := ada.Summary(t.Context())
	y.must(err)
	second, err := ada.Summary(t.Context())
	y.must(err)
	if !second.At.Equal(first.At) {
		t.Errorf("nothing has happened, and it is made anew: %s after %s", second.At, first.At)
	}

	y.join("n1")

	third, err := ada.Summary(t.Context())
	y.must(err)
	if len(third.Classes) != 1 {
		t.Errorf("a node has joined: %+v", third)
	}

	y.advance(summaryFor)

	fourth, err := ada.Summary(t.Context())
	y.must(err)
	if fourth.At.Equal(third.At) {
		t.Error("it is never made anew")
	}
}

func TestTheLastHoursSayHowMuchWasUsed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{
		{Index: 0, UUID: "GPU-a", Model: "L4", Memory: 24 << 30}, {Index: 1, UUID: "GPU-b", Model: "L4", Memory: 24 << 30},
	}

	_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	y.must(err)
	y.accept("n1")
	n.listen()

	before, err := ada.UseHours(t.Context())
	y.must(err)

	if len(before.Hours) != 24 || before.Hours[23].Busy != 0 {
		t.Errorf("the hours before are %+v, want 24 without use", before.Hours)
	}

	n.started(ada, "resources: {gpus: 1}")
	y.advance(10 * time.Minute)

	got, err := ada.UseHours(t.Context())
	y.must(err)

	// The ten minutes may lie in two hours.
	var busy, available float64
	for _, h := range got.Hours {
		busy, available = busy+h.Busy, available+h.Available
	}

	if len(got.Hours) != 24 || busy < 599 || busy > 700 || available < 2*busy-1 {
		t.Errorf("%d hours, busy for %.0f s of %.0f s, want 24, 600 and at least 1200", len(got.Hours), busy, available)
	}
}
