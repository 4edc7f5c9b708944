package ledger_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/ledger"
	"trainyard/internal/money"
)

// anHour is an hour of a small yard through its meters: a reserved node of which ann has
// half, a local one that is idle for half of it and broken for the rest, and one provisioned
// for zoe that bob uses after she did.
func anHour() ([]ledger.Posting, *fleet.Lease) {
	end := monday.Add(time.Hour)
	idle := ledger.Status{Rest: ledger.Idle}
	var books []ledger.Posting
	reserved := ledger.NewMeter(newNode("big", fleet.Reserved, 8), tariff(), nil, monday)
	books = reserved.Set(books, monday, idle, []ledger.Holder{gpus(1, "ann", 0x0f)})
	books = reserved.Close(books, end)
	local := ledger.NewMeter(newNode("own", fleet.Local, 1), tariff(), nil, monday)
	books = local.Set(books, monday.Add(30*time.Minute), ledger.Status{Rest: ledger.Error}, nil)
	books = local.Close(books, end)
	l := newLease()
	l.Offer.BillingIncrement = 0
	provisioned := ledger.NewMeter(l.Offer.Node(), nil, l, monday)
	books = provisioned.Set(books, monday.Add(5*time.Minute), idle, []ledger.Holder{gpus(9, "zoe", 0x0f)})
	books = provisioned.Set(books, monday.Add(35*time.Minute), idle, []ledger.Holder{gpus(10, "bob", 0x03)})
	l.Ended, l.State, l.Billed = end, fleet.LeaseEnded, 12.5
	books = provisioned.Close(books, end)

	return books, l
}

func TestTheFourGroupsOfFigures(t *testing.T) {
	t.Parallel()
	books, l := anHour()
	facts, ok := ledger.LeaseCostOf(l, monday.Add(9*time.Hour))
	if !ok {
		t.Fatal("the lease has no facts")
	}

	if want := (ledger.LeaseCost{
		Lease: "l1", Offer: "aws/p4d/eu", Owner: "zoe", Project: "vision", Job: "j9", Created: monday, Ended: monday.Add(time.Hour),
		Kept: 3_600_000, Estimated: ledger.NanosOf(12), Billed: ledger.NanosOf(12.5), BillKnown: true,
	}); facts != want {
		t.Errorf("the lease: %s", cmp.Diff(want, facts))
	}

	u, err := ledger.UsageOf(each(books), []ledger.LeaseCost{facts}, monday, monday.Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}

	const h, min = ledger.Span(3_600_000), ledger.Span(60_000)
	d := ledger.NanosOf
	want := &ledger.Usage{
		From: monday,
		To:   monday.Add(24 * time.Hour),
		UseRate: []ledger.UseRate{
			{Class: fleet.Local, AvailableNode: h / 2, AvailableGPU: h / 2},
			{
				Class:         fleet.Reserved,
				BusyNode:      h,
				AvailableNode: h,
				NodeRate:      1,
				BusyGPU:       4 * h,
				AvailableGPU:  8 * h,
				GPURate:       0.5,
			},
			{Class: fleet.Local, Node: "own", AvailableNode: h / 2, AvailableGPU: h / 2},
			{
				Class:         fleet.Reserved,
				Node:          "big",
				BusyNode:      h,
				AvailableNode: h,
				NodeRate:      1,
				BusyGPU:       4 * h,
				AvailableGPU:  8 * h,
				GPURate:       0.5,
			},
		},
		OnDemand: []ledger.OnDemandUsage{
			{Creations: 1, NodeTime: h, GPUTime: 4 * h, Estimated: d(12), Billed: d(12.5), BilledLeases: 1},
			{Offer: "aws/p4d/eu", Creations: 1, NodeTime: h, GPUTime: 4 * h, Estimated: d(12), Billed: d(12.5), BilledLeases: 1},
		},
		Own: []ledger.OwnUsage{
			{Researcher: "ann", Class: fleet.Reserved, NodeTime: h, GPUTime: 4 * h, Cost: d(4 + 0.15 + 0.6)},
		},
		OnDemandBy: []ledger.OnDemandUsage{
			{Researcher: "bob", NodeTime: 25 * min, GPUTime: 50 * min, Estimated: d(5)},
			{
				Researcher:   "zoe",
				Creations:    1,
				NodeTime:     35 * min,
				GPUTime:      190 * min,
				Estimated:    d(7),
				Billed:       d(12.5),
				BilledLeases: 1,
			},
		},
		Unused: []ledger.Unused{
			{Class: fleet.Local, Account: ledger.Error, NodeTime: h / 2, GPUTime: h / 2, Cost: d(4.15)},
			{Class: fleet.Local, Account: ledger.Idle, NodeTime: h / 2, GPUTime: h / 2, Cost: d(4.15)},
			{Class: fleet.OnDemand, Account: ledger.Boot, NodeTime: 5 * min, GPUTime: 20 * min, Cost: d(1)},
			{Class: fleet.OnDemand, Account: ledger.Idle, GPUTime: 50 * min},
			{Class: fleet.Reserved, Account: ledger.Idle, GPUTime: 4 * h, Cost: d(4.15)},
		},
	}

	if diff := cmp.Diff(want, u); diff != "" {
		t.Error(diff)
	}
}

func TestUsageOfAnotherPeriod(t *testing.T) {
	t.Parallel()
	books, l := anHour()
	facts, _ := ledger.LeaseCostOf(l, monday.Add(9*time.Hour))
	half, err := ledger.UsageOf(each(books), []ledger.LeaseCost{facts}, monday, monday.Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}

	// Created in it, and not ended: what was billed at its end is not of this period.
	want := ledger.OnDemandUsage{Creations: 1, NodeTime: 1_800_000, GPUTime: 7_200_000, Estimated: ledger.NanosOf(6)}
	if diff := cmp.Diff(want, half.OnDemand[0]); diff != "" {
		t.Error(diff)
	}

	rest, err := ledger.UsageOf(each(books), []ledger.LeaseCost{facts}, monday.Add(30*time.Minute), time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	want.Creations, want.Billed, want.BilledLeases = 0, ledger.NanosOf(12.5), 1
	if diff := cmp.Diff(want, rest.OnDemand[0]); diff != "" {
		t.Error(diff)
	}

	none, err := ledger.UsageOf(each(nil), nil, monday, monday)
	if err != nil {
		t.Fatal(err)
	}

	text, err := json.Marshal(none)
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("no use at all is %s, %v", text, err)
	}

	if _, err := ledger.UsageOf(each(nil), nil, monday, monday.Add(-1)); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a period that ends before it begins: %v", err)
	}

	if _, ok := ledger.LeaseCostOf(&fleet.Lease{State: fleet.LeaseRefused}, monday); ok {
		t.Error("a machine that was never given has facts")
	}
}

func TestUsageAsCSV(t *testing.T) {
	t.Parallel()
	books, l := anHour()
	facts, _ := ledger.LeaseCostOf(l, monday.Add(9*time.Hour))
	u, err := ledger.UsageOf(each(books), []ledger.LeaseCost{facts}, monday, time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	if err := u.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}

	want := `group,class,node,busy_node_seconds,available_node_seconds,node_rate,busy_gpu_seconds,available_gpu_seconds,gpu_rate
use_rate,local,,0,1800,0.0000,0,1800,0.0000
use_rate,reserved,,3600,3600,1.0000,14400,28800,0.5000
use_rate,local,own,0,1800,0.0000,0,1800,0.0000
use_rate,reserved,big,3600,3600,1.0000,14400,28800,0.5000
group,offer,creations,node_seconds,gpu_seconds,estimated_usd,billed_usd,billed_leases
on_demand,,1,3600,14400,12,12.5,1
on_demand,aws/p4d/eu,1,3600,14400,12,12.5,1
group,researcher,class,node_seconds,gpu_seconds,cost_usd
own_by_researcher,ann,reserved,3600,14400,4.75
group,researcher,creations,node_seconds,gpu_seconds,estimated_usd,billed_usd,billed_leases
on_demand_by_researcher,bob,0,1500,3000,5,0,0
on_demand_by_researcher,zoe,1,2100,11400,7,12.5,1
group,class,account,node_seconds,gpu_seconds,cost_usd
unused,local,error,1800,1800,4.15
unused,local,idle,1800,1800,4.15
unused,ondemand,boot,300,1200,1
unused,ondemand,idle,0,3000,0
unused,reserved,idle,0,14400,4.15
`

	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}

	if err := u.WriteCSV(full{}); !errors.Is(err, errFull) {
		t.Errorf("writing to a full disk: %v", err)
	}
}

func TestSavingsAddUp(t *testing.T) {
	t.Parallel()
	list := []ledger.Saving{
		{
			At:      monday,
			Job:     "j1",
			Owner:   "ann",
			Project: "vision",
			Kind:    "wait",
			Money:   ledger.NanosOf(3),
			Time:    -60_000,
			Reason:  "waited for n1 instead of provisioning",
		},
		{At: monday.Add(time.Hour), Job: "j2", Owner: "bob", Kind: "place", Money: ledger.NanosOf(1.5)},
		{
			At:      monday.Add(25 * time.Hour),
			Job:     "j1",
			Owner:   "ann",
			Project: "vision",
			Kind:    "place",
			Money:   ledger.NanosOf(0.5),
			Time:    5000,
		},
	}

	text := func(q ledger.Query) string {
		sum, err := ledger.NewSavingsSummary(q, 2)
		if err != nil {
			t.Fatal(err)
		}

		for i := range list {
			sum.Add(&list[i])
		}

		r := sum.Report()

		var out strings.Builder
		if err := r.WriteCSV(&out); err != nil {
			t.Fatal(err)
		}

		return out.String()
	}

	for name, tc := range map[string]struct {
		query ledger.Query
		want  string
	}{
		"in all":           {ledger.Query{}, "decisions,saved_usd,saved_seconds\n3,5,-55\n"},
		"by kind":          {ledger.Query{Group: []ledger.Key{ledger.ByKind}}, "kind,decisions,saved_usd,saved_seconds\nplace,2,2,5\nwait,1,3,-60\n"},
		"of one, by day":   {ledger.Query{Group: []ledger.Key{ledger.ByDay}, Filter: []ledger.Filter{{Key: ledger.ByJob, Values: []string{"j1"}}}}, "day,decisions,saved_usd,saved_seconds\n2026-11-16,1,3,-60\n2026-11-17,1,0.5,5\n"},
		"of a period":      {ledger.Query{From: monday.Add(time.Hour), To: monday.Add(25 * time.Hour), Group: []ledger.Key{ledger.ByResearcher}}, "researcher,decisions,saved_usd,saved_seconds\nbob,1,1.5,0\n"},
		"of nobody at all": {ledger.Query{From: monday.Add(99 * time.Hour), Group: []ledger.Key{ledger.ByProject}}, "project,decisions,saved_usd,saved_seconds\n"},
	} {
		if diff := cmp.Diff(tc.want, text(tc.query)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	for name, q := range map[string]ledger.Query{
		"by something they have not": {Group: []ledger.Key{ledger.ByNode}},
		"chosen by time":             {Filter: []ledger.Filter{{Key: ledger.ByDay}}},
		"ends first":                 {From: monday, To: monday.Add(-1)},
	} {
		if _, err := ledger.NewSavingsSummary(q, 2); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheGreatestSavingsAreKept(t *testing.T) {
	t.Parallel()
	sum, err := ledger.NewSavingsSummary(ledger.Query{Filter: []ledger.Filter{
		{Key: ledger.ByResearcher, Values: []string{"ann"}},
	}}, 3)
	if err != nil {
		t.Fatal(err)
	}

	for i, amount := range []money.Amount{1, -5, 1, 9, 3} {
		owner := id.User("ann")
		if amount == 9 {
			owner = "bob"
		}

		sum.Add(&ledger.Saving{Seq: uint64(i), At: monday, Owner: owner, Money: ledger.NanosOf(amount)})
	}

	var got []uint64
	for _, s := range sum.Greatest() {
		got = append(got, s.Seq)
	}

	if diff := cmp.Diff([]uint64{1, 4, 0}, got); diff != "" {
		t.Error(diff)
	}
}
