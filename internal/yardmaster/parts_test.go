package yardmaster_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/place/rules"
	"trainyard/internal/relocate"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// sharingYard is a yard in which jobs share GPUs, as the server makes it.
func sharingYard(t *testing.T) *yard {
	t.Helper()

	return newYardOf(t, yardmaster.Defaults(relocate.Wrap(rules.New(rules.Defaults()), relocate.Standard())))
}

// divided adds a node with GPUs that it divides among jobs.
func (y *yard) divided(name string, gpus int, shares string) {
	y.t.Helper()
	inv := fleet.Inventory{Address: name, CPUs: 64000, Memory: 256 << 30, Restores: true, Shares: shares}
	for i := range gpus {
		inv.GPUs = append(inv.GPUs, fleet.GPU{Index: i, UUID: fmt.Sprint(name, i), Model: "NVIDIA H200", Memory: 141 << 30})
	}

	y.ok(yardmaster.Join{Token: "join", Name: name, Inventory: inv})
}

// half asks for half a GPU.
func half() *job.Spec {
	s := spec(1)
	s.Resources.GPUShare = 0.5

	return s
}

func TestJobsShareAGPU(t *testing.T) {
	t.Parallel()
	y := sharingYard(t)
	y.divided("a", 1, "1")

	first := half()
	first.Resources.GPUMemory.Min = 20 << 30
	first.Resources.ShareClass, first.Resources.ShareLimit = job.ShareGuaranteed, 0.5
	y.submit("alice", first)
	y.submit("alice", half())
	third := y.submit("alice", half())
	y.round()

	orders := y.Take().Orders
	if len(orders) != 2 {
		t.Fatalf("%d runs on one GPU, want 2", len(orders))
	}

	one, two := &orders[0].Launch, &orders[1].Launch
	if one.Share != 0.5 || one.ShareCap != 20<<30 || one.ShareClass != job.ShareGuaranteed || one.ShareLimit != 0.5 {
		t.Errorf("the first launch is %g with %s, %s, at most %g", one.Share, one.ShareCap, one.ShareClass, one.ShareLimit)
	}

	// Without a cap the memory is cut like the time, and 1 GiB is left to the driver.
	if two.Share != 0.5 || two.ShareCap != 70<<30 || two.ShareClass != "" || two.ShareLimit != 0 {
		t.Errorf("the second launch is %g with %s, %s, at most %g", two.Share, two.ShareCap, two.ShareClass, two.ShareLimit)
	}

	why, _ := y.Why(y.now, third)
	if words := "GPU 0 of a: 50% needed, 0% left beside j1 (alice, 50%) and j2 (alice, 50%)"; !strings.Contains(why.Sentence, words) {
		t.Errorf("why: %q does not say %q", why.Sentence, words)
	}

	y.check()
}

func TestNodesThatDoNotDivideTheirGPUsRunNoParts(t *testing.T) {
	t.Parallel()
	y := sharingYard(t)
	y.divided("old", 1, "")
	y.submit("alice", spec(0)) // so that the queue is planned
	j := y.submit("alice", half())
	y.round()

	why, _ := y.Why(y.now, j)
	if why.Blocker != place.BlockNoFit || !strings.Contains(why.Sentence, "a node that divides its GPUs") {
		t.Errorf("%s: %s", why.Blocker, why.Sentence)
	}

	inv := fleet.Inventory{CPUs: 64000, Memory: 256 << 30, Shares: "1", GPUs: []fleet.GPU{{Model: "NVIDIA H200", Memory: 141 << 30}}}
	y.ok(yardmaster.NodeReport{Node: "old", Inventory: &inv})
	y.round()

	if got, _ := y.Why(y.now, j); got.Blocker != "" {
		t.Errorf("after its agent was upgraded it waits: %s", got.Sentence)
	}

	large := half()
	large.Resources.GPUMemory.Min = 141 << 30
	j = y.submit("alice", large)
	y.round()

	why, _ = y.Why(y.now, j)
	if why.Blocker != place.BlockNoFit || !strings.Contains(why.Sentence, "no GPU has that for jobs: 1 GB of each is left") {
		t.Errorf("%s: %s", why.Blocker, why.Sentence)
	}
}

// withMPS asks for a part of a GPU that jobs of one owner share through MPS.
func withMPS(part float64) *job.Spec {
	s := spec(1)
	s.Resources.GPUShare, s.Resources.ShareMPS = part, true

	return s
}

func TestJobsOfOneOwnerShareAGPUThroughMPS(t *testing.T) {
	t.Parallel()
	y := sharingYard(t)
	y.divided("plain", 1, "1")
	y.submit("alice", spec(0)) // so that the queue is planned

	first := y.submit("alice", withMPS(0.25))
	y.round()

	why, _ := y.Why(y.now, first)
	if why.Blocker != place.BlockNoFit || !strings.Contains(why.Sentence, "a node on which jobs share GPUs through MPS") {
		t.Errorf("on a node without MPS: %s: %s", why.Blocker, why.Sentence)
	}

	inv := fleet.Inventory{
		Address: "both", CPUs: 64000, Memory: 256 << 30, Shares: "1", MPS: true,
		GPUs: []fleet.GPU{{UUID: "both0", Model: "NVIDIA H200", Memory: 141 << 30}},
	}
	y.ok(yardmaster.Join{Token: "join", Name: "both", Inventory: inv})
	y.submit("alice", withMPS(0.25))
	y.submit("alice", withMPS(0.25))
	y.round()

	orders := slices.DeleteFunc(y.Take().Orders, func(o yardmaster.Order) bool { return o.Launch.Share == 0 })
	if len(orders) != 3 {
		t.Fatalf("%d jobs of one owner share a GPU, want 3", len(orders))
	}

	for _, o := range orders {
		if o.Node != "both" || !o.Launch.ShareMPS {
			t.Errorf("%s runs on %s, with MPS: %t", o.Job, o.Node, o.Launch.ShareMPS)
		}
	}

	// Neither a job of somebody else nor one that takes turns comes to that GPU, though there is room.
	y.ok(yardmaster.Cordon{Node: "plain", On: true})
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})
	other, turns := y.submit("bob", withMPS(0.25)), half()
	turns.Resources.GPUShare = 0.25
	apart := y.submit("alice", turns)
	large := y.submit("alice", withMPS(0.5))
	y.round()

	for j, words := range map[id.Job]string{
		other: "GPU 0 of both: with MPS the fault of one job ends the others",
		apart: "GPU 0 of both: with MPS the fault of one job ends the others",
		large: "GPU 0 of both: 50% needed, 25% left",
	} {
		if why, _ := y.Why(y.now, j); !strings.Contains(why.Sentence, words) {
			t.Errorf("%s: %q does not say %q", j, why.Sentence, words)
		}
	}

	y.check()
}

func TestWithoutSharingAPartIsAWholeGPU(t *testing.T) {
	t.Parallel()
	y := newYardOf(t, yardmaster.Defaults(ordered.FIFO{}))
	y.divided("a", 1, "")
	y.submit("alice", half())
	second := y.submit("alice", half())
	y.round()

	orders := y.Take().Orders
	if len(orders) != 1 || orders[0].Launch.Share != 0 || orders[0].Launch.ShareCap != 0 {
		t.Errorf("%d runs, the first with a share of %g", len(orders), orders[0].Launch.Share)
	}

	why, _ := y.Why(y.now, second)
	words := "policy fifo does not share GPUs, so the job gets a whole one"
	if !strings.Contains(why.Sentence, words) {
		t.Errorf("why: %q does not say %q", why.Sentence, words)
	}

	if p := y.preview("alice", half()); !strings.Contains(p.Why.Sentence, words) {
		t.Errorf("a dry run: %q does not say %q", p.Why.Sentence, words)
	}
}

func TestMemoryOfAPartIsWhatAJobRanOutOf(t *testing.T) {
	t.Parallel()
	y := sharingYard(t)
	y.divided("a", 1, "1")

	s := half()
	s.Resources.GPUMemory.Min, s.Retry = 20<<30, 3
	j := y.submit("alice", s)
	y.round()
	y.Take()
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseGPUOOM})
	y.round()

	orders := y.Take().Orders
	if len(orders) != 1 || orders[0].Launch.ShareCap != 30<<30 {
		why, _ := y.Why(y.now, j)
		t.Fatalf("%d runs after it ran out of memory: %s", len(orders), why.Sentence)
	}
}

// cloudOffer is a node with one GPU that can be provisioned, and that will divide it.
func cloudOffer() fleet.Offer {
	return fleet.Offer{
		Name: "p/h200/north", Provider: "p", Type: "h200", Region: "north", GPU: "NVIDIA H200", GPUs: 1, GPUMemory: 141 << 30,
		CPUs: 64000, Memory: 256 << 30, Hourly: 4e6, Boot: job.Duration(4 * time.Minute), Shares: "1",
	}
}

// TestPartsOfProvisionedNodes: one node is provisioned for two halves, who start there together and divide its price.
func TestPartsOfProvisionedNodes(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(relocate.Wrap(rules.New(rules.Defaults()), relocate.Standard()))
	cfg.Offers = []fleet.Offer{cloudOffer()}
	y := newYardOf(t, cfg)

	jobs := []id.Job{y.submit("alice", half()), y.submit("alice", half())}
	y.round()

	if got := y.leases(); got != "l1 requested" {
		t.Fatalf("the leases are %q", got)
	}

	why, _ := y.Why(y.now, jobs[1])
	if !strings.Contains(why.Sentence, "will share a GPU of the node that is being provisioned for j1") ||
		strings.Contains(why.Sentence, "has not provisioned") {
		t.Errorf("why: %s", why.Sentence)
	}

	y.joins("l1")
	y.round()
	y.pass(2*time.Second, "cloud-l1")
	y.round()

	for _, j := range jobs {
		y.running(j, 0)
	}

	y.Take()
	y.pass(10*time.Minute, "cloud-l1")

	for _, j := range jobs {
		y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseNone})
	}

	sum := map[id.Job]ledger.Nanos{}
	for _, p := range y.Take().Ledger.Postings {
		if p.Account == ledger.Use {
			sum[p.Job] += p.NodeCost
		}
	}

	// Ten minutes of the node cost two thirds of a dollar.
	for _, j := range jobs {
		if got := float64(sum[j]) / 1e9; math.Abs(got-1.0/3) > 0.01 {
			t.Errorf("%s pays $%g, want half of the price", j, got)
		}
	}
}

// TestNoNodesAreProvisionedInVain: when the first one turns out not to divide its GPU, no other is provisioned for a
// part, and the owner is not left in the dark.
func TestNoNodesAreProvisionedInVain(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(relocate.Wrap(rules.New(rules.Defaults()), relocate.Standard()))
	cfg.Offers = []fleet.Offer{cloudOffer()}
	y := newYardOf(t, cfg)
	j := y.submit("alice", half())
	y.round()

	offer := y.Lease("l1").Offer
	offer.Shares = ""
	y.joinsAs("l1", offer.Node().Inventory)

	for range 30 {
		y.pass(time.Minute, "cloud-l1")
		y.round()
	}

	if got := y.leases(); strings.Contains(got, "requested") {
		t.Errorf("the leases are %q", got)
	}

	why, _ := y.Why(y.now, j)
	if !strings.Contains(why.Sentence, "needs a node that divides its GPUs") || strings.Contains(why.Sentence, "could run it, but") {
		t.Errorf("why: %s", why.Sentence)
	}
}

// A job that finds no more memory asks its owner. What he is offered has the price of the part.
func TestOwnersAreOfferedAPartOfALargerGPU(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(rules.New(rules.Defaults()))
	cfg.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{6, 6}}}}
	y := newYardOf(t, cfg)
	y.divided("a", 1, "1")
	y.ok(yardmaster.Join{Token: "join", Name: "b", Inventory: fleet.Inventory{
		Address: "b", CPUs: 64000, Memory: 256 << 30, Shares: "1",
		GPUs: []fleet.GPU{{UUID: "b0", Model: "NVIDIA B300", Memory: 288 << 30}},
	}})

	s := half()
	s.Resources.GPUMemory.Min, s.Expect = 100<<30, job.Duration(2*time.Hour)
	s.Resources.GPU = []job.GPUKind{{Model: "H200"}}
	j := y.submit("alice", s)
	y.round()
	y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseGPUOOM})

	questions := yardmaster.OpenQuestions(y.Yard)
	if len(questions) != 1 || len(questions[0].Options) == 0 {
		t.Fatalf("the questions are %+v", questions)
	}

	o := &questions[0].Options[0]
	if !strings.Contains(o.Sentence, "node b with 50% of 1× ") || o.Cost == nil || *o.Cost != 6 {
		t.Errorf("%q for %v, want two hours of half a GPU for $6", o.Sentence, o.Cost)
	}
}

func TestJobsPayForTheirPartOfAGPU(t *testing.T) {
	t.Parallel()
	cfg := yardmaster.Defaults(rules.New(rules.Defaults()))
	cfg.Tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{6, 6}}}}
	y := newYardOf(t, cfg)
	y.divided("a", 1, "1")

	quarter := half()
	quarter.Resources.GPUShare = 0.25

	jobs := []id.Job{y.submit("alice", half()), y.submit("alice", quarter)}
	y.round()

	for _, j := range jobs {
		y.running(j, 0)
	}

	y.pass(10*time.Minute, "a")

	// For her fair share an H200 counts as four GPUs, and a CPU as a sixteenth.
	if rate := yardmaster.RateOf(y.Yard, "alice"); rate != 0.75*4+2.0/16 {
		t.Errorf("alice is charged for %g GPUs", rate)
	}

	for _, j := range jobs {
		y.ends(j, 0, yardmaster.RankReport{Cause: job.CauseNone})
	}

	sum := map[id.Job]ledger.Amounts{}

	postings := y.Take().Ledger.Postings
	for i := range postings {
		if p := &postings[i]; p.Account == ledger.Use {
			was := sum[p.Job]
			was.GPUTime += p.GPUTime
			was.NodeCost += p.NodeCost
			sum[p.Job] = was
		}
	}

	// Ten minutes of the GPU cost a dollar.
	for j, part := range map[id.Job]float64{jobs[0]: 0.5, jobs[1]: 0.25} {
		got := sum[j]
		if got.NodeCost != ledger.Nanos(1e9*part) || got.GPUTime != ledger.Span(600_000*part) {
			t.Errorf("%s pays %d nanodollars for %d ms of GPUs, want the part %g of one", j, got.NodeCost, got.GPUTime, part)
		}
	}
}
