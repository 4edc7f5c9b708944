package server

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

func idUser(name string) id.User { return id.User(name) }

// findings lists what was found, by kind and subject.
func findings(w *api.Waste) []string {
	var list []string
	for _, f := range w.Findings {
		list = append(list, f.Kind+" "+f.Subject)
	}

	slices.Sort(list)

	return list
}

func (y *yard) waste(c *api.Client, owner id.User) api.Waste {
	y.t.Helper()
	w, err := c.Waste(y.t.Context(), time.Time{}, time.Time{}, owner)
	y.must(err)

	return w
}

// find returns the finding of a kind.
func find(t *testing.T, w *api.Waste, kind string) api.Finding {
	t.Helper()

	for _, f := range w.Findings {
		if f.Kind == kind {
			return f
		}
	}

	t.Fatalf("no %s among %v", kind, findings(w))

	return api.Finding{}
}

func TestWasteHasEvidence(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	ada, bob, root := y.researcher("ada"), y.researcher("bob"), y.admin()

	n := y.join("box1")
	inv := someInventory()
	inv.GPUs = []fleet.GPU{{Index: 0, UUID: "GPU-a", Model: "L4", Memory: 24 << 30}}
	_, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Inventory: &inv})
	y.must(err)
	y.accept("box1")
	n.listen()

	if w := y.waste(root, ""); len(w.Findings) != 0 || w.JobsChecked != 0 {
		t.Errorf("a new yard wastes %+v", w)
	}

	// Two jobs of one name fail, a third asks for four times the memory that it uses.
	for range 2 {
		_, run := n.started(ada, "name: broken", "retry: 0", "resources: {gpus: 1}")
		y.advance(time.Hour)
		n.ends(run, 0, 1)
	}

	_, run := n.started(ada, "name: large", "resources: {memory: 16GB}")
	began := y.clock.Now()

	for i := range 10 {
		n.tell(api.RankReport{Run: run, State: job.RunRunning, Started: began, Use: &job.Use{
			At: began.Add(time.Duration(10*i) * time.Second), CPUSeconds: float64(5 * i), Memory: 3 << 30, MemoryPeak: 3 << 30,
		}})
	}

	n.tell(api.RankReport{
		Run: run, State: job.RunEnded, Started: began, Ended: began.Add(100 * time.Second),
		Use: &job.Use{At: began.Add(100 * time.Second), CPUSeconds: 51, MemoryPeak: 4 << 30},
	})

	y.advance(48 * time.Hour) // nothing runs
	y.do(yardmaster.Cordon{Node: "box1", By: "root", On: true})
	y.advance(36 * time.Hour) // and nothing can

	all := y.waste(root, "")
	want := []string{"failures broken", "idle_node box1", "out_of_service box1", "requests large"}

	if got := findings(&all); !slices.Equal(got, want) {
		t.Fatalf("found %v, want %v", got, want)
	}

	byCost := func(a, b api.Finding) int { return cmp.Compare(b.Cost, a.Cost) }
	if !slices.IsSortedFunc(all.Findings, byCost) || all.JobsChecked != 3 {
		t.Errorf("of %d jobs: %+v", all.JobsChecked, all.Findings)
	}

	idle := find(t, &all, api.WasteIdleNode)
	if idle.Cost < 48 || idle.GPUSeconds < 48*time.Hour.Seconds() || idle.GPUSeconds > 50*time.Hour.Seconds() ||
		idle.Evidence != "local node, used 4% of 50 GPU-hours" {
		t.Errorf("the idle node: %+v", idle)
	}

	if f := find(t, &all, api.WasteBrokenNode); !strings.Contains(f.Evidence, "0 GPU-hours in error and 36 cordoned") {
		t.Errorf("the cordoned node: %+v", f)
	}

	failures := find(t, &all, api.WasteFailures)
	if failures.Owner != "ada" || !slices.Equal(failures.Jobs, []id.Job{"j2", "j1"}) || failures.JobCount != 2 ||
		failures.Cost < 2 || failures.Evidence != "2 of 2 jobs failed" {
		t.Errorf("the failures: %+v", failures)
	}

	if f := find(t, &all, api.WasteRequests); !strings.Contains(f.Remedy, "memory: 5GB (it used 4GB of 16GB at most)") {
		t.Errorf("the requests: %+v", f)
	}

	// Others see what concerns them.
	mine := y.waste(ada, "")
	if got := findings(&mine); !slices.Equal(got, []string{"failures broken", "requests large"}) {
		t.Errorf("ada sees %v", got)
	}

	if w := y.waste(bob, ""); len(w.Findings) != 0 || w.JobsChecked != 0 {
		t.Errorf("bob sees %+v", w)
	}

	_, err = bob.Waste(t.Context(), time.Time{}, time.Time{}, "ada")
	wantFault(t, err, fault.Denied, "not_allowed")

	// What ended before the period is not in it.
	late, err := root.Waste(t.Context(), y.clock.Now().Add(-time.Hour), time.Time{}, "")
	y.must(err)

	if len(late.Findings) != 0 || late.JobsChecked != 0 {
		t.Errorf("in the last hour: %+v", late)
	}
}

func TestWasteOfOnDemandNodes(t *testing.T) {
	t.Parallel()
	y := newYard(t, provisioning)
	bob, root := y.researcher("bob"), y.admin()
	y.submit(bob, "run: b\nresources: {memory: 900GB}")
	y.grant("l1")
	y.advance(3 * time.Hour) // it boots and boots

	for _, c := range []*api.Client{root, bob} {
		w := y.waste(c, "")

		f := find(t, &w, api.WasteProvisioning)
		if f.Cost < 3 || !strings.Contains(f.Evidence, "boot") || !strings.Contains(f.Remedy, "boots faster") {
			t.Errorf("%+v", f)
		}
	}

	if w := y.waste(y.researcher("ada"), ""); len(w.Findings) != 0 {
		t.Errorf("ada sees %v", findings(&w))
	}
}
