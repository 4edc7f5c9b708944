package server

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// standing is a job and its position.
type standing struct {
	Job      id.Job
	Position int
}

func positionsOf(page *api.QueuePage) []standing {
	list := []standing{}
	for i := range page.Jobs {
		list = append(list, standing{page.Jobs[i].ID, page.Jobs[i].Position})
	}

	return list
}

func TestTheQueueIsListedInItsOrder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root, ada, bob, lea := y.admin(), y.researcher("ada"), y.researcher("bob"), y.researcher("lea")
	y.do(yardmaster.PutProject{Project: "vision", By: "root"})

	for _, m := range []tenant.Member{{Project: "vision", User: "ada"}, {Project: "vision", User: "lea", Lead: true}} {
		y.do(yardmaster.PutMember{Member: m, By: "root"})
	}

	n := y.join("n1")
	n.listen()
	n.started(ada)                                                                   // j1
	y.submit(ada, "run: a\nresources: {memory: 900GB}")                              // j2
	y.submit(ada, "run: a\nproject: vision\nresources: {memory: 900GB}")             // j3
	y.submit(bob, "run: b\nresources: {memory: 900GB}")                              // j4
	y.submit(root, "run: b\nname: urgent\npriority: 90\nresources: {memory: 900GB}") // j5
	y.submit(bob, "run: c\nneeds: [\"j4\"]\nresources: {memory: 900GB}")             // j6

	for name, tt := range map[string]struct {
		c    *api.Client
		f    api.QueueFilter
		want []standing
		all  int
		held int
	}{
		"all":             {root, api.QueueFilter{}, []standing{{"j5", 1}, {"j4", 2}, {"j2", 3}, {"j3", 4}}, 4, 1},
		"a page":          {root, api.QueueFilter{Page: api.Page{Limit: 2}}, []standing{{"j5", 1}, {"j4", 2}}, 4, 1},
		"the next page":   {root, api.QueueFilter{Page: api.Page{Cursor: "2", Limit: 5}}, []standing{{"j2", 3}, {"j3", 4}}, 4, 1},
		"past the end":    {root, api.QueueFilter{Page: api.Page{Cursor: "9"}}, []standing{}, 4, 1},
		"of one owner":    {root, api.QueueFilter{Owner: "bob"}, []standing{{"j4", 2}}, 1, 1},
		"one's own":       {bob, api.QueueFilter{}, []standing{{"j4", 2}}, 1, 1},
		"of one's own":    {ada, api.QueueFilter{Page: api.Page{Cursor: "1"}}, []standing{{"j3", 4}}, 2, 0},
		"of the projects": {lea, api.QueueFilter{}, []standing{{"j3", 4}}, 1, 0},
	} {
		page, err := tt.c.Queue(t.Context(), tt.f)
		y.must(err)

		if diff := cmp.Diff(tt.want, positionsOf(&page)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if page.Queued != tt.all || page.Held != tt.held {
			t.Errorf("%s: %d are queued and %d held, want %d and %d", name, page.Queued, page.Held, tt.all, tt.held)
		}
		if (page.Next != "") != (name == "a page") {
			t.Errorf("%s: the next page is %q", name, page.Next)
		}

		for i := range page.Jobs {
			if j := &page.Jobs[i]; j.Why.Sentence == "" || j.Queued.IsZero() {
				t.Errorf("%s: %s waits since %s for %+v", name, j.ID, j.Queued, j.Why)
			}
		}
	}

	_, err := root.Queue(t.Context(), api.QueueFilter{Page: api.Page{Cursor: "j2"}})
	wantFault(t, err, fault.Invalid, "bad_cursor")
}

func TestAnEditIsShownBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	root, ada, bob := y.admin(), y.researcher("ada"), y.researcher("bob")
	n := y.join("n1")
	n.listen()
	n.started(ada, "expect: 2h\nresources: {cpus: 6}") // j1

	for range 2 { // j2 and j3
		y.submit(ada, "run: a\nexpect: 10m\nresources: {cpus: 6}")
	}

	y.submit(bob, "run: b\nexpect: 10m\nresources: {cpus: 6}") // j4: bob has used less
	y.do(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, MaxPriority: new(50), By: "root"})

	last, err := root.PreviewEdit(t.Context(), "j3", "priority=80")
	y.must(err)

	if last.Before.Position != 3 || last.After.Position != 1 || last.Starts {
		t.Errorf("from %+v to %+v, starts %t", last.Before, last.After, last.Starts)
	}

	want := api.PassedJobs{Count: 2, Jobs: []api.AffectedJob{{Job: "j4", Owner: "bob"}, {Job: "j2", Owner: "ada"}}}
	if diff := cmp.Diff(want, last.Passed); diff != "" {
		t.Errorf("what it passes (-want +got):\n%s", diff)
	}

	starts, err := root.PreviewEdit(t.Context(), "j2", "resources.cpus=1")
	y.must(err)

	if !starts.Starts || starts.Before.Why == nil || starts.Before.Why.Sentence == "" {
		t.Errorf("a job that needs less starts at once: %+v", starts)
	}

	first, err := root.PreviewEdit(t.Context(), "j4", "priority=-1")
	if err == nil {
		t.Errorf("a priority that is out of range: %+v", first)
	}

	_, err = bob.PreviewEdit(t.Context(), "j4", "priority=99")
	wantFault(t, err, fault.Denied, "priority_too_high")

	_, err = root.PreviewEdit(t.Context(), "j1", "priority=80")
	wantFault(t, err, fault.Conflict, "job_state")

	unchanged, err := root.Job(t.Context(), "j3")
	y.must(err)
	if unchanged.Priority != 0 {
		t.Errorf("the preview has changed the priority to %d", unchanged.Priority)
	}
}

func TestTheRunsOfANodeAreListed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	n := y.join("n1")
	n.listen()
	j, _ := n.started(ada, "name: secret-plan")

	for name, c := range map[string]*api.Client{"secret-plan": ada, "": bob} {
		list, err := c.NodeRuns(t.Context(), "n1", y.clock.Now().Add(-1))
		y.must(err)

		if len(list.Runs) != 1 || list.Runs[0].Job != j || list.Runs[0].Name != name || list.Runs[0].Owner != "ada" ||
			list.Runs[0].To != nil || list.Partial {
			t.Errorf("%+v, want the run of %s with the name %q", list, j, name)
		}
	}

	_, err := ada.NodeRuns(t.Context(), "n2", y.clock.Now())
	wantFault(t, err, fault.NotFound, "node_not_found")
}

func TestWhatWasReadFromGPUsIsShown(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{{Index: 0, UUID: "GPU-a", Model: "L4"}, {Index: 1, UUID: "GPU-b", Model: "L4"}}
	busy, watts, celsius := 0.9, 61.5, 48.0
	reading := fleet.GPUReading{GPU: 1, Busy: &busy, Memory: 5 << 30, Watts: &watts, Celsius: &celsius}

	_, err := n.Report(t.Context(), api.Report{
		Capability: api.Capability, Boot: "b", Inventory: &inv, GPUs: []fleet.GPUReading{reading},
	})
	y.must(err)

	got, err := ada.Node(t.Context(), "n1")
	y.must(err)

	if got.GPUs[0].Use != nil {
		t.Errorf("the first GPU was not read: %+v", got.GPUs[0].Use)
	}

	if diff := cmp.Diff(&reading, got.GPUs[1].Use); diff != "" {
		t.Errorf("the second (-want +got):\n%s", diff)
	}
}

func TestTheQueueSaysWhenJobsStartOneAfterTheOther(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, n := y.researcher("ada"), y.join("n1")
	n.listen()
	n.started(ada, "expect: 2h\nresources: {cpus: 6}")
	began := y.clock.Now()

	for range 2 {
		y.submit(ada, "run: a\nexpect: 1h\nresources: {cpus: 6}")
	}

	page, err := ada.Queue(t.Context(), api.QueueFilter{})
	y.must(err)

	for i, want := range []time.Duration{2 * time.Hour, 3 * time.Hour} {
		at := page.Jobs[i].Start
		if at == nil || at.Sub(began).Round(10*time.Minute) != want {
			t.Errorf("%s starts at %v, want %s after %s", page.Jobs[i].ID, at, want, began)
		}
	}
}
