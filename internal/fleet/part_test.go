package fleet_test

import (
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/share"
)

func TestPartsOfAGPUComeAndGo(t *testing.T) {
	t.Parallel()
	table := fleet.NewTable()
	table.Put(&fleet.Node{ID: "a", Class: fleet.Local, State: fleet.Ready, Inventory: fleet.Inventory{CPUs: 8000, Memory: 1 << 40, Shares: "1",
		GPUs: []fleet.GPU{{Index: 0, Model: "T4", Memory: 16 << 30}, {Index: 1, Model: "T4", Memory: 16 << 30}}}}, 0)
	table.Book("a", fleet.Hold{Run: "j1.1", Job: "j1", Owner: "ada", GPUs: 1, Share: 0.5, Cap: 10 << 30})

	room, _ := table.Get("a")
	m := fleet.NewMatcher(fleet.Need{Nodes: 1, GPUs: 1, MaxGPUs: 1, Place: job.PlaceAny})

	for name, tc := range map[string]struct {
		cut          share.Cut
		shared, free uint64
	}{
		"what is left":           {share.Cut{Share: 0.3}, 1, 2},
		"more time than is left": {share.Cut{Share: 0.6}, 0, 2},
		"more memory":            {share.Cut{Share: 0.3, Cap: 6 << 30}, 0, 2},
		"more than a GPU has":    {share.Cut{Share: 0.3, Cap: 16 << 30}, 0, 0},
	} {
		if shared, free, ok := m.FitsPart(room, &tc.cut); shared != tc.shared || free != tc.free || ok != (shared|free != 0) {
			t.Errorf("%s: %b of shared and %b of free GPUs, %t", name, shared, free, ok)
		}
	}

	// A job with several GPUs, or on several nodes, shares none.
	for name, need := range map[string]fleet.Need{
		"two GPUs": {Nodes: 1, GPUs: 2, MaxGPUs: 2, Place: job.PlaceAny}, "two nodes": {Nodes: 2, GPUs: 1, MaxGPUs: 1, Place: job.PlaceAny},
	} {
		if shared, free, ok := fleet.NewMatcher(need).FitsPart(room, &share.Cut{Share: 0.3}); ok || shared|free != 0 {
			t.Errorf("%s: a part of %b or %b", name, shared, free)
		}
	}

	before := room.Parts
	r := *room
	r.Cut(1, share.Cut{Job: "j2", Share: 0.25})
	r.Cut(1, share.Cut{Job: "j1", Share: 0.25})
	if got := r.Shared(0); got.Held() != 1 || r.Parts[0].Held != 1 || len(before[0].Cuts) != 1 {
		t.Errorf("%g of the GPU is held, as the table has it %+v", got.Held(), before)
	}

	r.Uncut(1, "j1", 0.5)
	if r.Parts[0].Held != 0.5 || r.Free != 2 {
		t.Errorf("after one has gone: %+v", r.Parts)
	}

	r.Uncut(1, "j1", 0.25)
	r.Uncut(1, "j2", 0.25)
	r.Uncut(2, "j2", 0.25) // nobody shares it
	if len(r.Parts) != 0 || r.Free != 3 {
		t.Errorf("after all have gone: %+v, GPUs %b are free", r.Parts, r.Free)
	}
}

func TestNeedOfAPart(t *testing.T) {
	t.Parallel()
	one := job.Range{Min: 1, Max: 1}
	for name, tc := range map[string]struct {
		asks job.Resources
		want float64
	}{
		"half":             {job.Resources{GPUs: one, Nodes: one, GPUShare: 0.5}, 0.5},
		"all of it":        {job.Resources{GPUs: one, Nodes: one, GPUShare: 1}, 0},
		"of several GPUs":  {job.Resources{GPUs: job.Range{Min: 1, Max: 4}, Nodes: one, GPUShare: 0.5}, 0},
		"of several nodes": {job.Resources{GPUs: one, Nodes: job.Range{Min: 2, Max: 2}, GPUShare: 0.5}, 0},
	} {
		tc.asks.GPUMemory.Min = 8 << 30
		n := fleet.NeedOf(&job.Spec{Resources: tc.asks}, job.Floor{}, nil)
		if n.Share != tc.want || (n.Cap > 0) != (tc.want > 0) {
			t.Errorf("%s: a share of %g with %s of memory, want %g", name, n.Share, n.Cap, tc.want)
		}
	}
}

func TestPartsAreCutOnNodesThatDivideTheirGPUs(t *testing.T) {
	t.Parallel()
	one := job.Range{Min: 1, Max: 1}
	asks := job.Resources{
		GPUs: one, Nodes: one, GPUShare: 0.5, GPUMemory: job.ByteRange{Min: 15 << 30},
		ShareClass: job.ShareGuaranteed, ShareLimit: 0.6,
	}
	need := fleet.NeedOf(&job.Spec{Resources: asks, Place: job.PlaceAny}, job.Floor{}, nil)

	cut := need.Cut(0.5)
	if want := (share.Cut{Share: 0.5, Limit: 0.6, Class: job.ShareGuaranteed, Cap: 15 << 30}); cut != want {
		t.Errorf("the job gets %+v, want %+v", cut, want)
	}

	if !need.Particular() {
		t.Error("nodes with the same hardware may differ in whether they divide their GPUs")
	}

	for name, tc := range map[string]struct {
		shares      string
		memory      job.Bytes
		part, whole bool
	}{
		"a node that does":                   {"1", 16 << 30, true, true},
		"one that does not":                  {"", 16 << 30, false, true},
		"a GPU with no memory but the job's": {"1", 15 << 30, false, true},
	} {
		table := fleet.NewTable()
		table.Put(&fleet.Node{ID: "a", Class: fleet.Local, State: fleet.Ready, Inventory: fleet.Inventory{
			CPUs: 8000, Memory: 1 << 40, Shares: tc.shares, GPUs: []fleet.GPU{{Model: "T4", Memory: tc.memory}},
		}}, 0)

		room, _ := table.Get("a")
		m, whole := fleet.NewMatcher(need), fleet.NewMatcher(need.Whole())
		_, _, fits := m.FitsPart(room, &cut)

		if fits != tc.part || m.Eligible(room) != tc.part || whole.Eligible(room) != tc.whole {
			t.Errorf("%s: a part %t, ever %t, a whole one %t", name, fits, m.Eligible(room), whole.Eligible(room))
		}
	}

	// Who ran out of his part of the memory gets more of it, not a larger GPU.
	again := fleet.NeedOf(&job.Spec{Resources: asks}, job.Floor{GPUMemory: 12 << 30}, nil)
	if again.Cap != 18<<30 || again.GPUOver != 0 {
		t.Errorf("after 12 GB were too few the job gets %s on GPUs with more than %s", again.Cap, again.GPUOver)
	}
}
