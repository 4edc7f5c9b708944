package ledger_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

var monday = time.Date(2026, 11, 16, 8, 0, 0, 0, time.UTC)

// newNode returns a node with GPUs and 16 CPUs.
func newNode(name string, class fleet.Class, gpus int) *fleet.Node {
	n := &fleet.Node{ID: id.Node(name), Class: class, State: fleet.Ready}
	n.Inventory.CPUs = 16_000
	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: "A100"})
	}

	return n
}

// tariff: a node with GPUs costs $8 an hour and draws 1000 W, and 500 W more for each GPU
// in use; a kWh costs $0.20 in a building with a PUE of 1.5.
func tariff() *fleet.Tariff {
	return &fleet.Tariff{Energy: 0.2, PUE: 1.5, Nodes: []fleet.NodePrice{
		{GPU: "A100", Hourly: []money.PerHour{8}, Watts: []float64{1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000}},
		{Class: fleet.Local, Watts: []float64{100}, Off: true},
		{Hourly: []money.PerHour{1.6}},
	}}
}

func newLease() *fleet.Lease {
	return &fleet.Lease{
		ID:      "l1",
		State:   fleet.LeaseBooting,
		Job:     "j9",
		Owner:   "zoe",
		Project: "vision",
		Granted: monday,
		Billed:  -1,
		Offer: fleet.Offer{
			Name:             "aws/p4d/eu",
			Provider:         "aws",
			Type:             "p4d",
			Region:           "eu",
			GPU:              "A100",
			GPUs:             4,
			CPUs:             16_000,
			Hourly:           12_000_000,
			BillingIncrement: job.Duration(time.Hour),
		},
	}
}

func gpus(n int, owner string, set uint64) ledger.Holder {
	return ledger.Holder{
		Run:   id.NewRun(id.NewJob(uint64(n)), 1),
		Job:   id.NewJob(uint64(n)),
		Owner: id.User(owner),
		GPUs:  set,
		CPUs:  2000,
	}
}

func share(n int, owner string, gpu uint64, milli int64) ledger.Holder {
	h := gpus(n, owner, gpu)
	h.Share = milli
	return h
}

// tell writes postings for comparison: account, who, node-time, GPU-time, rent, power, energy.
func tell(postings []ledger.Posting) []string {
	var list []string
	for i := range postings {
		p := &postings[i]
		list = append(
			list,
			strings.TrimSpace(
				fmt.Sprintf(
					"%s %s node %s gpu %s rent %s power %s J %s",
					p.Account,
					p.Owner,
					p.NodeTime,
					p.GPUTime,
					p.NodeCost,
					p.EnergyCost,
					p.Energy,
				),
			),
		)
	}

	return list
}

// TestANodeIsSharedOutByItsSeats has an hour of a node in all its states.
func TestANodeIsSharedOutByItsSeats(t *testing.T) {
	t.Parallel()
	idle := ledger.Status{Rest: ledger.Idle}
	for name, tc := range map[string]struct {
		node    *fleet.Node
		status  ledger.Status
		holders []ledger.Holder
		want    []string
	}{
		"nobody": {newNode("n", fleet.Reserved, 8), idle, nil, []string{
			"idle  node 3600 gpu 28800 rent 8 power 0.3 J 5400000"}},
		"one of eight pays an eighth of the rest and what it draws more": {newNode("n", fleet.Reserved, 8), idle,
			[]ledger.Holder{gpus(1, "ann", 1)}, []string{
				"use ann node 3600 gpu 3600 rent 1 power 0.1875 J 3375000",
				"idle  node 0 gpu 25200 rent 7 power 0.2625 J 4725000"}},
		"two runs, by what they hold": {newNode("n", fleet.Reserved, 8), idle,
			[]ledger.Holder{gpus(2, "bob", 0xf0), gpus(1, "ann", 3)}, []string{
				"use ann node 1200 gpu 7200 rent 2 power 0.375 J 6750000",
				"use bob node 2400 gpu 14400 rent 4 power 0.75 J 13500000",
				"idle  node 0 gpu 7200 rent 2 power 0.075 J 1350000"}},
		"shares count as such": {newNode("n", fleet.Reserved, 2), idle,
			[]ledger.Holder{share(1, "ann", 1, 250), share(2, "bob", 1, 500)}, []string{
				"use ann node 1200 gpu 900 rent 1 power 0.0875 J 1575000",
				"use bob node 2400 gpu 1800 rent 2 power 0.175 J 3150000",
				"idle  node 0 gpu 4500 rent 5 power 0.1875 J 3375000"}},
		"shares of more than a GPU are of all there is": {newNode("n", fleet.Reserved, 1), idle,
			[]ledger.Holder{share(1, "ann", 1, 800), share(2, "bob", 1, 800)}, []string{
				"use ann node 1800 gpu 1800 rent 4 power 0.225 J 4050000",
				"use bob node 1800 gpu 1800 rent 4 power 0.225 J 4050000"}},
		"a run without GPUs counts by its CPUs": {newNode("n", fleet.Reserved, 8), idle,
			[]ledger.Holder{gpus(1, "ann", 0)}, []string{
				"use ann node 3600 gpu 0 rent 1 power 0.0375 J 675000",
				"idle  node 0 gpu 28800 rent 7 power 0.2625 J 4725000"}},
		"a node without GPUs is shared out by CPUs": {newNode("n", fleet.Reserved, 0), idle,
			[]ledger.Holder{gpus(1, "ann", 0), gpus(2, "bob", 0)}, []string{
				"use ann node 1800 gpu 0 rent 0.2 power 0 J 0",
				"use bob node 1800 gpu 0 rent 0.2 power 0 J 0",
				"idle  node 0 gpu 0 rent 1.2 power 0 J 0"}},
		"a node that is off when unused": {newNode("n", fleet.Local, 0), idle, nil, []string{
			"idle  node 3600 gpu 0 rent 0 power 0 J 0"}},
		"and is on for its user, who pays for all": {newNode("n", fleet.Local, 0), idle,
			[]ledger.Holder{gpus(1, "ann", 0)}, []string{
				"use ann node 3600 gpu 0 rent 0 power 0.03 J 540000"}},
		"drained, with one run left": {newNode("n", fleet.Reserved, 2), ledger.Status{Rest: ledger.Cordoned},
			[]ledger.Holder{gpus(1, "ann", 1)}, []string{
				"use ann node 3600 gpu 3600 rent 4 power 0.3 J 5400000",
				"cordoned  node 0 gpu 3600 rent 4 power 0.15 J 2700000"}},
		"broken GPUs and those of others": {newNode("n", fleet.Reserved, 4), ledger.Status{Rest: ledger.Idle, Error: 1, Foreign: 2}, nil, []string{
			"error  node 900 gpu 3600 rent 2 power 0.075 J 1350000",
			"foreign  node 900 gpu 3600 rent 2 power 0.225 J 4050000",
			"idle  node 1800 gpu 7200 rent 4 power 0.15 J 2700000"}},
		"a GPU that broke under a run is still held": {newNode("n", fleet.Reserved, 2), ledger.Status{Rest: ledger.Idle, Error: 3},
			[]ledger.Holder{gpus(1, "ann", 1)}, []string{
				"use ann node 3600 gpu 3600 rent 4 power 0.3 J 5400000",
				"error  node 0 gpu 3600 rent 4 power 0.15 J 2700000"}},
		"a shared GPU beside a broken one": {newNode("n", fleet.Reserved, 2), ledger.Status{Rest: ledger.Idle, Error: 2},
			[]ledger.Holder{share(1, "ann", 1, 500)}, []string{
				"use ann node 3600 gpu 1800 rent 2 power 0.225 J 4050000",
				"error  node 0 gpu 3600 rent 4 power 0.15 J 2700000",
				"idle  node 0 gpu 1800 rent 2 power 0.075 J 1350000"}},
		"lost: rent goes on": {newNode("n", fleet.Reserved, 2), ledger.Status{Rest: ledger.Error, PowerOff: true}, nil, []string{
			"error  node 3600 gpu 7200 rent 8 power 0 J 0"}},
		"a node that nothing is known of": {&fleet.Node{ID: "n", Class: fleet.Local}, idle, nil, []string{
			"idle  node 3600 gpu 0 rent 0 power 0 J 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := ledger.NewMeter(tc.node, tariff(), nil, monday)
			if early := m.Set(nil, monday, tc.status, tc.holders); len(early) > 0 {
				t.Errorf("posted before anything passed: %v", tell(early))
			}

			got := m.Close(nil, monday.Add(time.Hour))
			if diff := cmp.Diff(tc.want, tell(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAProvisionedNodeIsPaidForByThoseItWasProvisionedFor follows a lease from its grant to its end.
func TestAProvisionedNodeIsPaidForByThoseItWasProvisionedFor(t *testing.T) {
	t.Parallel()
	l := newLease()
	m := ledger.NewMeter(l.Offer.Node(), nil, l, monday)
	joined := l.Offer.Node()
	joined.ID, l.State = "cloud-1", fleet.LeaseActive
	var books []ledger.Posting
	books = m.Change(books, monday.Add(6*time.Minute), joined, nil, l)
	books = m.Set(books, monday.Add(6*time.Minute), ledger.StatusOf(joined, 0, l), []ledger.Holder{gpus(1, "ann", 1)})
	books = m.Set(books, monday.Add(36*time.Minute), ledger.StatusOf(joined, 0, l), nil)
	l.State = fleet.LeaseReleasing
	books = m.Set(books, monday.Add(62*time.Minute), ledger.StatusOf(joined, 0, l), nil)
	l.State, l.Ended = fleet.LeaseEnded, monday.Add(63*time.Minute)
	books = m.Close(books, l.Ended)

	want := []string{
		"boot zoe node 360 gpu 1440 rent 1.2 power 0 J 0",
		"use ann node 1800 gpu 1800 rent 6 power 0 J 0",
		"idle zoe node 0 gpu 5400 rent 0 power 0 J 0",
		"idle zoe node 1560 gpu 6240 rent 5.2 power 0 J 0",
		"releasing zoe node 60 gpu 240 rent 0.2 power 0 J 0",
		"waste zoe node 0 gpu 0 rent 11.4 power 0 J 0",
	}

	if diff := cmp.Diff(want, tell(books)); diff != "" {
		t.Error(diff)
	}

	if p := books[0]; p.Node != "aws/p4d/eu" || p.Lease != "l1" || p.Job != "j9" || p.Project != "vision" ||
		p.Provider() != "aws" ||
		p.GPU != "A100" {
		t.Errorf("the node was booted as %+v", p)
	}

	if p := books[1]; p.Node != "cloud-1" || p.Run != "j1.1" || p.Project != "" || p.GPUs != 1000 {
		t.Errorf("the node was used as %+v", p)
	}

	if got := ledger.Estimate(l, monday.Add(24*time.Hour)); got != ledger.NanosOf(24) {
		t.Errorf("the lease is estimated at %s", got)
	}

	if more := m.Close(m.Roll(nil, monday.Add(9*time.Hour)), monday.Add(9*time.Hour)); len(more) > 0 {
		t.Errorf("a closed meter posts %v", tell(more))
	}
}

func TestForecastsAgreeWithTheBooks(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		node  *fleet.Node
		lease *fleet.Lease
		who   ledger.Holder
		want  money.PerHour
	}{
		"a seat of a reserved node":              {newNode("n", fleet.Reserved, 8), nil, gpus(1, "ann", 1), 1.1875},
		"all of it":                              {newNode("n", fleet.Reserved, 8), nil, gpus(1, "ann", 0xff), 9.5},
		"one GPU of a node provisioned for that": {newNode("n", fleet.OnDemand, 4), newLease(), gpus(1, "ann", 1), 12},
		"a node of which nothing is known":       {&fleet.Node{ID: "n", Class: fleet.OnDemand}, nil, gpus(1, "ann", 0), 1.6},
	} {
		if got := ledger.Hourly(tc.node, tariff(), tc.lease, tc.who); got != tc.want {
			t.Errorf("%s: %g an hour, want %g", name, got, tc.want)
		}
	}
}

func TestTheRestOfAPaidStretchIsWaste(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		bills, least, kept time.Duration
		want               ledger.Nanos // in all, at $12 an hour
	}{
		"by the second":                 {0, 0, 90 * time.Second, ledger.NanosOf(0.3)},
		"by the second, at least one":   {0, time.Minute, 10 * time.Second, ledger.NanosOf(0.2)},
		"more than the least":           {0, time.Minute, 90 * time.Second, ledger.NanosOf(0.3)},
		"by the hour":                   {time.Hour, 0, 90 * time.Minute, ledger.NanosOf(24)},
		"to the end of the hour":        {time.Hour, 0, 2 * time.Hour, ledger.NanosOf(24)},
		"by the minute, at least ten":   {time.Minute, 10 * time.Minute, 61 * time.Second, ledger.NanosOf(2)},
		"ended in the moment it began":  {time.Hour, 0, 0, 0},
		"not kept, but paid for anyway": {time.Hour, time.Minute, 0, ledger.NanosOf(12)},
	} {
		l := newLease()
		l.Offer.BillingIncrement, l.Offer.MinBilling, l.Ended = job.Duration(tc.bills), job.Duration(tc.least),
			monday.Add(tc.kept)

		m := ledger.NewMeter(l.Offer.Node(), tariff(), l, monday)

		var sum ledger.Nanos
		for _, p := range m.Close(nil, l.Ended) {
			sum += p.Cost()
		}

		if sum != tc.want || m.Read().Cost() != tc.want {
			t.Errorf("%s: %s is posted and %s read, want %s", name, sum, m.Read().Cost(), tc.want)
		}

		if got := ledger.Estimate(l, monday.Add(24*time.Hour)); got != tc.want {
			t.Errorf("%s: estimated at %s, want %s", name, got, tc.want)
		}
	}

	t.Run("of a node without a lease", func(t *testing.T) {
		t.Parallel()
		prices := &fleet.Tariff{
			Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{6}, BillingIncrement: job.Duration(10 * time.Minute)}},
		}
		m := ledger.NewMeter(newNode("n", fleet.OnDemand, 1), prices, nil, monday)

		want := []string{"idle  node 240 gpu 240 rent 0.4 power 0 J 0", "waste  node 0 gpu 0 rent 0.6 power 0 J 0"}
		if diff := cmp.Diff(want, tell(m.Close(nil, monday.Add(4*time.Minute)))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestStatusOfANode(t *testing.T) {
	t.Parallel()
	lease := func(s fleet.LeaseState) *fleet.Lease { return &fleet.Lease{State: s} }
	for name, tc := range map[string]struct {
		change func(*fleet.Node)
		lease  *fleet.Lease
		want   ledger.Status
	}{
		"ready":                    {func(*fleet.Node) {}, nil, ledger.Status{Rest: ledger.Idle, Foreign: 4}},
		"drained":                  {func(n *fleet.Node) { n.Cordoned = true }, nil, ledger.Status{Rest: ledger.Cordoned, Foreign: 4}},
		"silent":                   {func(n *fleet.Node) { n.State = fleet.Suspect }, nil, ledger.Status{Rest: ledger.Error, Foreign: 4}},
		"lost":                     {func(n *fleet.Node) { n.State = fleet.Lost }, nil, ledger.Status{Rest: ledger.Error, Foreign: 4, PowerOff: true}},
		"a broken GPU":             {func(n *fleet.Node) { n.Inventory.GPUs[1].Error = "Xid 79" }, nil, ledger.Status{Rest: ledger.Idle, Error: 2, Foreign: 4}},
		"booting":                  {func(*fleet.Node) {}, lease(fleet.LeaseBooting), ledger.Status{Rest: ledger.Boot, Foreign: 4}},
		"provisioned and joined":   {func(*fleet.Node) {}, lease(fleet.LeaseActive), ledger.Status{Rest: ledger.Idle, Foreign: 4}},
		"provisioned and drained":  {func(n *fleet.Node) { n.Cordoned = true }, lease(fleet.LeaseActive), ledger.Status{Rest: ledger.Cordoned, Foreign: 4}},
		"given back":               {func(n *fleet.Node) { n.Cordoned = true }, lease(fleet.LeaseReleasing), ledger.Status{Rest: ledger.Releasing, Foreign: 4}},
		"ended and not yet closed": {func(*fleet.Node) {}, lease(fleet.LeaseEnded), ledger.Status{Rest: ledger.Releasing, Foreign: 4}},
	} {
		n := newNode("n", fleet.Local, 4)
		tc.change(n)

		if diff := cmp.Diff(tc.want, ledger.StatusOf(n, 4, tc.lease)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOneNameForOneKindOfGPU(t *testing.T) {
	t.Parallel()
	gpu := func(model string, gb job.Bytes) fleet.GPU { return fleet.GPU{Model: model, Memory: gb << 30} }
	for name, tc := range map[string]struct {
		gpus []fleet.GPU
		want string
	}{
		"none":                 {nil, ""},
		"as a driver says":     {[]fleet.GPU{gpu("NVIDIA A100-SXM4-80GB", 80), gpu("NVIDIA A100-SXM4-80GB", 80)}, "A100 SXM4 80GB"},
		"as a cloud says":      {[]fleet.GPU{gpu("A100", 80)}, "A100 SXM4 80GB"},
		"memory not known":     {[]fleet.GPU{gpu("A100", 0)}, "A100"},
		"nobody knows it":      {[]fleet.GPU{gpu("Abacus 9", 4)}, "Abacus 9"},
		"two kinds in one box": {[]fleet.GPU{gpu("A100", 80), gpu("L4", 24)}, "mixed"},
	} {
		n := newNode("n", fleet.Local, 0)
		n.Inventory.GPUs = tc.gpus
		fresh := ledger.NewMeter(n, nil, nil, monday)
		changed := ledger.NewMeter(newNode("n", fleet.Local, 1), nil, nil, monday)
		changed.Change(nil, monday, n, nil, nil)

		again, err := ledger.LoadMeter(ledger.NewMeter(newNode("n", fleet.Local, 1), nil, nil, monday).Save())
		if err != nil {
			t.Fatal(err)
		}

		again.Change(nil, monday, n, nil, nil)

		for _, m := range []*ledger.Meter{fresh, changed, again} {
			if got := m.Save().GPU; got != tc.want {
				t.Errorf("%s: %q, want %q", name, got, tc.want)
			}
		}
	}
}

func TestHolderOfAHold(t *testing.T) {
	t.Parallel()
	got := ledger.HolderOf(&fleet.Hold{Run: "j1.1", Job: "j1", Owner: "ann", GPUs: 2, Share: 0.3333, CPUs: 500}, "vision")

	want := ledger.Holder{Run: "j1.1", Job: "j1", Owner: "ann", Project: "vision", GPUs: 2, Share: 333, CPUs: 500}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if got := ledger.HolderOf(&fleet.Hold{GPUs: 1, Share: 1e-9}, ""); got.Share != 1 {
		t.Errorf("the smallest share is %d thousandths", got.Share)
	}
}

func TestTheMeterAndTheClock(t *testing.T) {
	t.Parallel()
	idle := ledger.Status{Rest: ledger.Idle}
	ann := []ledger.Holder{gpus(1, "ann", 1), gpus(2, "bob", 2)}
	start := func() *ledger.Meter {
		m := ledger.NewMeter(newNode("n", fleet.Reserved, 2), tariff(), nil, monday)
		m.Set(nil, monday, idle, ann)
		return m
	}

	t.Run("no news, no posting", func(t *testing.T) {
		t.Parallel()
		m := start()
		if got := m.Set(nil, monday.Add(time.Minute), idle, []ledger.Holder{ann[1], ann[0]}); len(got) > 0 {
			t.Errorf("posted %v", tell(got))
		}

		if got := m.Change(nil, monday.Add(time.Minute), newNode("n", fleet.Reserved, 2), tariff(), nil); len(got) > 0 {
			t.Errorf("posted %v", tell(got))
		}
	})

	t.Run("time never goes back", func(t *testing.T) {
		t.Parallel()
		m := start()
		if got := m.Set(nil, monday.Add(-time.Hour), idle, nil); len(got) > 0 || !m.Since().Equal(monday) {
			t.Errorf("posted %v, and goes on from %s", tell(got), m.Since())
		}

		got := m.Close(nil, monday.Add(time.Hour))
		if len(got) != 1 || got[0].NodeTime != 3_600_000 || got[0].Account != ledger.Idle {
			t.Errorf("posted %v", tell(got))
		}
	})

	t.Run("less than a millisecond is nothing yet", func(t *testing.T) {
		t.Parallel()
		m := start()
		if got := m.Set(nil, monday.Add(999*time.Microsecond), idle, ann[:1]); len(got) > 0 {
			t.Errorf("posted %v", tell(got))
		}

		if got := m.Set(nil, monday.Add(1001*time.Microsecond), idle, nil); len(got) != 2 || got[0].NodeTime != 1 {
			t.Errorf("posted %v", tell(got))
		}
	})

	t.Run("a jump posts once, to the full hour", func(t *testing.T) {
		t.Parallel()
		m := start()
		got := m.Roll(nil, monday.Add(26*time.Hour+10*time.Minute))
		if len(got) != 2 || !got[0].To.Equal(monday.Add(26*time.Hour)) {
			t.Errorf("posted %v", tell(got))
		}

		if got := m.Roll(nil, monday.Add(26*time.Hour+59*time.Minute)); len(got) > 0 {
			t.Errorf("posted %v within the hour", tell(got))
		}
	})

	t.Run("peeking changes nothing", func(t *testing.T) {
		t.Parallel()
		m := start()
		before := m.Save()

		if got := m.Peek(nil, monday.Add(90*time.Minute)); len(got) != 2 || got[1].NodeTime != 2_700_000 {
			t.Errorf("saw %v", tell(got))
		}

		if diff := cmp.Diff(before, m.Save()); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("centuries at the highest price do not wrap around", func(t *testing.T) {
		t.Parallel()
		dear := &fleet.Tariff{
			Energy: money.PerKWh(math.Inf(1)),
			Nodes:  []fleet.NodePrice{{Hourly: []money.PerHour{1e300}, Watts: []float64{math.NaN(), 1e300}}},
		}

		m := ledger.NewMeter(newNode("n", fleet.Local, 1), dear, nil, monday)
		m.Set(nil, monday, idle, ann[:1])

		for _, p := range m.Close(nil, monday.AddDate(250, 0, 0)) {
			if p.NodeCost < 0 || p.EnergyCost < 0 || p.Energy < 0 {
				t.Errorf("posted %v", tell([]ledger.Posting{p}))
			}
		}

		if m.Read().NodeCost != math.MaxInt64 {
			t.Errorf("%s is read", m.Read().NodeCost)
		}
	})
}

// TestNothingIsLostBetweenStretches closes a stretch every 7 ms: what no single stretch
// amounts to is there at the end.
func TestNothingIsLostBetweenStretches(t *testing.T) {
	t.Parallel()
	prices := &fleet.Tariff{
		Energy: 0.123, Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{0.0101}, Watts: []float64{0.3}}},
	}
	idle, drained := ledger.Status{Rest: ledger.Idle}, ledger.Status{Rest: ledger.Cordoned}
	m := ledger.NewMeter(newNode("n", fleet.Local, 1), prices, nil, monday)
	var books []ledger.Posting

	at := monday
	for i := range 10_000 {
		at = at.Add(7 * time.Millisecond)
		status := idle
		if i%2 == 0 {
			status = drained
		}

		books = m.Set(books, at, status, nil)
	}

	var sum ledger.Amounts

	for i := range books {
		p := &books[i]
		sum.NodeTime += p.NodeTime
		sum.NodeCost += p.NodeCost
		sum.EnergyCost += p.EnergyCost
		sum.Energy += p.Energy
	}

	// 70 s: 10,100,000 n$/h, 300 mW, 123,000,000 n$/kWh.
	want := ledger.Amounts{
		NodeTime:   70_000,
		NodeCost:   10_100_000 * 70 / 3600,
		EnergyCost: 300 * 123_000_000 * 70 / 3_600_000_000,
		Energy:     21_000,
	}

	if diff := cmp.Diff(want, sum); diff != "" {
		t.Error(diff)
	}
}

func TestAMeterGoesOnFromItsStoredState(t *testing.T) {
	t.Parallel()
	l := newLease()
	m := ledger.NewMeter(l.Offer.Node(), tariff(), l, monday)
	m.Set(
		nil,
		monday.Add(time.Second),
		ledger.Status{Rest: ledger.Idle, Error: 2},
		[]ledger.Holder{gpus(1, "ann", 1), share(2, "bob", 4, 300)},
	)

	m.Roll(nil, monday.Add(time.Hour))

	text, err := json.Marshal(m.Save())
	if err != nil {
		t.Fatal(err)
	}

	var state ledger.State
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}

	again, err := ledger.LoadMeter(state)
	if err != nil {
		t.Fatal(err)
	}

	end := monday.Add(77 * time.Minute)
	if diff := cmp.Diff(m.Close(nil, end), again.Close(nil, end)); diff != "" {
		t.Error(diff)
	}

	if diff := cmp.Diff(m.Save(), again.Save()); diff != "" {
		t.Error(diff)
	}

	for name, spoil := range map[string]func(*ledger.State){
		"no node":                   func(s *ledger.State) { s.Node = "" },
		"posted before it was open": func(s *ledger.State) { s.Since = s.Opened.Add(-time.Hour) },
		"unknown account":           func(s *ledger.State) { s.Status.Rest = "" },
		"less than nothing carried": func(s *ledger.State) { s.Carry[0] = -1 },
		"a unit carried":            func(s *ledger.State) { s.Carry[2] = 1000 },
		"a price below nothing":     func(s *ledger.State) { s.Rates.Hourly = []int64{-1} },
	} {
		bad := state
		spoil(&bad)
		if _, err := ledger.LoadMeter(bad); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
}
