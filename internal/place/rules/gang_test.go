package rules_test

import (
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/place"
)

func TestAGangStartsOnUnlikeNodes(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name string
		want want
		fill func(*yard)
		on   []id.Node
		says string
	}{
		{
			"two kinds of GPU", want{gpus: 2, nodes: 2, lasts: time.Hour},
			func(y *yard) {
				y.node("a", fleet.Local, 4, a100())
				y.node("t", fleet.Local, 4, t4())
			},
			[]id.Node{"t", "a"}, "at the speed of the slowest (2× T4 16GB)",
		},
		{
			"two classes", want{gpus: 2, nodes: 2, lasts: time.Hour},
			func(y *yard) {
				y.node("a", fleet.Local, 4, a100())
				y.node("r", fleet.Reserved, 4, a100())
			},
			[]id.Node{"a", "r"}, "(local and reserved, idle)",
		},
		{
			"nodes with and without GPUs", want{cpus: 1000, nodes: 2, lasts: time.Hour},
			func(y *yard) {
				y.node("a", fleet.Local, 4, a100())
				y.node("c", fleet.Local, 0, fleet.GPU{})
			},
			[]id.Node{"c", "a"}, "unlike nodes",
		},
		{
			"alike nodes are preferred", want{gpus: 2, nodes: 2, lasts: time.Hour},
			func(y *yard) {
				y.node("a1", fleet.Local, 4, a100())
				y.node("a2", fleet.Local, 4, a100())
				y.node("t", fleet.Local, 4, t4())
			},
			[]id.Node{"a1", "a2"}, "a1 and 1 more (local, idle)",
		},
		{
			"slow alike nodes before unlike ones for a cost-sensitive job",
			want{gpus: 2, nodes: 2, lasts: time.Hour, objective: job.ObjectiveCost},
			func(y *yard) {
				y.node("a1", fleet.Local, 4, a100())
				y.node("a2", fleet.Local, 4, a100())
				y.node("t", fleet.Local, 4, t4())
			},
			[]id.Node{"a1", "a2"}, "slowest idle nodes that suffice",
		},
		{
			"faster nodes only for what the slower ones lack", want{gpus: 2, nodes: 3, lasts: time.Hour},
			func(y *yard) {
				y.node("a1", fleet.Local, 4, a100())
				y.node("a2", fleet.Local, 4, a100())
				y.node("t1", fleet.Local, 4, t4())
				y.node("t2", fleet.Local, 4, t4())
			},
			[]id.Node{"t1", "t2", "a1"}, "unlike nodes",
		},
		{
			"fast unlike nodes before slow alike ones", want{gpus: 2, nodes: 2, lasts: 10 * time.Hour},
			func(y *yard) {
				y.node("a", fleet.Local, 4, a100())
				y.node("h", fleet.Local, 4, h100())
				y.node("t1", fleet.Local, 4, t4())
				y.node("t2", fleet.Local, 4, t4())
			},
			[]id.Node{"a", "h"}, "at the speed of the slowest (2× A100 80GB)",
		},
		{
			"the free GPUs of each node", want{gpus: 2, nodes: 2, lasts: time.Hour},
			func(y *yard) {
				y.node("a", fleet.Local, 4, a100())
				y.node("t", fleet.Local, 4, t4())
				y.occupy("a", time.Minute, want{gpus: 2, lasts: time.Hour})
			},
			[]id.Node{"t", "a"}, "2× T4 16GB or 2× A100 80GB",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			tc.fill(y)

			it := y.submit(tc.want)
			p := y.plan(t)
			if got := where(p, it); !slices.Equal(got, tc.on) {
				t.Fatalf("it starts on %v, want %v: %+v", got, tc.on, p)
			}

			s := p.Starts[0]
			if !strings.Contains(s.Reason, tc.says) {
				t.Errorf("the reason is %q, want %q in it", s.Reason, tc.says)
			}

			for _, a := range s.Allocations {
				if bits.OnesCount64(a.GPUs) != tc.want.gpus {
					t.Errorf("it has GPUs %b of %s, want %d", a.GPUs, a.Node, tc.want.gpus)
				}
			}
		})
	}
}

// TestAGangWithSameGPU is newcomer 1: a job that says so starts on nodes with one GPU model alone, whatever their
// class, and waits for them.
func TestAGangWithSameGPU(t *testing.T) {
	t.Parallel()

	w := want{gpus: 2, nodes: 2, lasts: time.Hour, sameGPU: true}

	for _, tc := range []struct {
		name string
		fill func(*yard)
		on   []id.Node // none if it waits
	}{
		{"unlike nodes are not used", func(y *yard) {
			y.node("a", fleet.Local, 4, a100())
			y.node("t", fleet.Local, 4, t4())
		}, nil},
		{"alike ones are", func(y *yard) {
			y.node("a", fleet.Local, 4, a100())
			y.node("t1", fleet.Local, 4, t4())
			y.node("t2", fleet.Local, 4, t4())
		}, []id.Node{"t1", "t2"}},
		{"of several classes too", func(y *yard) {
			y.node("a", fleet.Local, 4, a100())
			y.node("r", fleet.Reserved, 4, a100())
			y.node("t", fleet.Local, 4, t4())
		}, []id.Node{"a", "r"}},
		{"it waits for the second one", func(y *yard) {
			y.node("a1", fleet.Local, 4, a100())
			y.node("a2", fleet.Local, 4, a100())
			y.node("t", fleet.Local, 4, t4())
			y.occupy("a2", time.Minute, want{gpus: 4, lasts: time.Hour})
		}, nil},
		{"nodes with GPUs of several models are alike none", func(y *yard) {
			for _, name := range []string{"both1", "both2"} {
				n := *y.node(name, fleet.Local, 4, t4())
				n.Inventory.GPUs = slices.Clone(n.Inventory.GPUs)
				n.Inventory.GPUs[3] = a100()
				n.Inventory.GPUs[3].Index = 3
				y.table.Put(&n, 0)
			}
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			y := newYard()
			tc.fill(y)

			it := y.submit(w)
			p := y.plan(t)
			if got := where(p, it); !slices.Equal(got, tc.on) {
				t.Fatalf("it starts on %v, want %v: %+v", got, tc.on, p)
			}
		})
	}
}

// TestAGangWaitsForAlikeNodesIfThatIsSooner: the cost model decides between unlike nodes now and
// alike ones later.
func TestAGangWaitsForAlikeNodesIfThatIsSooner(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		busy  time.Duration
		mixed bool
	}{{5 * time.Minute, false}, {100 * time.Hour, true}} {
		y := newYard()
		y.node("h1", fleet.Local, 4, h100())
		y.node("h2", fleet.Local, 4, h100())
		y.node("t", fleet.Local, 4, t4())
		y.occupy("h2", 0, want{gpus: 4, lasts: tc.busy})

		it := y.submit(want{gpus: 4, nodes: 2, lasts: 10 * time.Hour}) // on a T4; an hour on an H100
		p := y.plan(t)

		if got := where(p, it); (len(got) > 0) != tc.mixed {
			t.Errorf("with alike nodes free in %s it starts on %v", tc.busy, got)
		}

		if r := p.Reservation; !tc.mixed && (r == nil || !slices.Equal(r.Nodes, []id.Node{"h1", "h2"})) {
			t.Errorf("reserved is %+v, want h1 and h2", r)
		}
	}
}

func TestNodesOfSeveralPoolsAreReservedForAGang(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("a", fleet.Local, 4, a100())
	y.node("t", fleet.Local, 4, t4())
	y.occupy("a", 0, want{gpus: 4, lasts: time.Hour})
	y.occupy("t", 0, want{gpus: 4, lasts: 2 * time.Hour})

	gang := y.submit(want{gpus: 4, nodes: 2, lasts: time.Hour})
	p := y.round(t)

	want1 := place.Reservation{Job: gang.Job, Nodes: []id.Node{"t", "a"}, At: y.now.Add(2 * time.Hour)}
	if r := p.Reservation; r == nil || r.Job != want1.Job || !slices.Equal(r.Nodes, want1.Nodes) || !r.At.Equal(want1.At) {
		t.Fatalf("reserved is %+v, want %+v", r, want1)
	}

	y.pass(time.Hour)
	long := y.submit(want{gpus: 1, lasts: 30 * time.Hour, kind: "A100"})
	if got := where(y.round(t), long); got != nil {
		t.Errorf("a long job starts on %v, which is reserved for the gang", got)
	}

	y.pass(time.Hour)
	if got := where(y.round(t), gang); !slices.Equal(got, []id.Node{"t", "a"}) {
		t.Errorf("two hours later the gang starts on %v", got)
	}
}

// TestAGangCostsTheSumOfItsNodes: the estimates of unlike nodes are those of each node for the
// time that the slowest takes.
func TestAGangCostsTheSumOfItsNodes(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.tariff = &fleet.Tariff{Energy: 0.25, Nodes: []fleet.NodePrice{
		{Class: fleet.Local, Hourly: []money.PerHour{4}}, {Class: fleet.Reserved, Hourly: []money.PerHour{20}},
	}}

	y.node("t", fleet.Local, 4, t4())
	y.node("a", fleet.Reserved, 4, a100())

	it := y.submit(want{gpus: 2, nodes: 2, lasts: 3 * time.Hour})
	list := y.policy.(place.Adviser).Options(y.view(), it)

	if len(list) != 1 || len(list[0].Nodes) != 2 {
		t.Fatalf("the options are %+v", list)
	}

	o := list[0]
	if d := o.Finish.Sub(o.Start); d != 3*time.Hour {
		t.Errorf("it takes %s, want 3 hours as on the slowest node", d)
	}

	if want := money.Amount(3 * (2*4.0/4 + 2*20.0/4)); o.Cost < want*0.99 || o.Cost > want*1.01 {
		t.Errorf("it costs %g, want %g", o.Cost, want)
	}
}

// TestAGangUsesItsProvisionedNodesWithOthers: a node that was provisioned for a gang and one of
// the yard are enough for it together.
func TestAGangUsesItsProvisionedNodesWithOthers(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("t", fleet.Local, 4, t4())
	it := y.submit(want{gpus: 4, nodes: 2, lasts: time.Hour})

	n := *y.node("cloud", fleet.OnDemand, 4, a100())
	n.Lease = "l1"
	y.table.Put(&n, 0)
	y.leases = []*fleet.Lease{
		{ID: "l1", State: fleet.LeaseActive, Node: "cloud", Job: it.Job, Offer: fleet.Offer{Name: "x", Hourly: 3e6}},
		{ID: "l2", State: fleet.LeaseBooting, Job: it.Job, Offer: fleet.Offer{Name: "x", Hourly: 3e6}},
	}

	other := y.submit(want{gpus: 4, nodes: 2, lasts: time.Hour, prio: 90})
	p := y.plan(t)

	if got := where(p, it); !slices.Equal(got, []id.Node{"t", "cloud"}) {
		t.Errorf("it starts on %v, want its own node and one of the yard", got)
	}

	if got := where(p, other); got != nil {
		t.Errorf("another gang starts on %v, of which one is provisioned for the first", got)
	}
}

func TestWhyNodesAreProvisionedForAGang(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("t", fleet.Local, 4, t4())
	y.offer("aws/a100", 4, a100(), 4, time.Minute)

	it := y.submit(want{gpus: 4, nodes: 2, lasts: time.Hour})
	h := provisioned(y.plan(t), it)

	if h == nil || h.Count != 2 || !strings.Contains(h.Reason, "2 nodes needed, the yard has 1 that could run it") {
		t.Errorf("provisioned is %+v", h)
	}
}
