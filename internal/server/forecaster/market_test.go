package forecaster

import (
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

const gib = job.Bytes(1 << 30)

// marketNode is a node of the yard with a number of GPUs.
func marketNode(name id.Node, class fleet.Class, gpus int, model string, memory job.Bytes) fleet.Node {
	n := fleet.Node{ID: name, Class: class, State: fleet.Ready}
	n.Inventory.CPUs, n.Inventory.Memory = 32, 256*gib
	for i := range gpus {
		n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model, Memory: memory, Peak: 100})
	}

	return n
}

// marketOffer is an offer with a number of GPUs.
func marketOffer(name string, hourly job.Money, gpus int, model string, memory job.Bytes) fleet.Offer {
	return fleet.Offer{
		Name: name, Hourly: hourly, GPUs: gpus, GPU: model, GPUMemory: memory, CPUs: 16, Memory: 64 * gib, TFLOPS: 50,
	}
}

// marketOf is a forecaster that knows these nodes and prices.
func marketOf(t *fleet.Tariff, offers []fleet.Offer, nodes ...fleet.Node) *Forecaster {
	f := &Forecaster{tariff: t, offers: offers, nodes: map[id.Node]fleet.Node{}, leases: map[id.Lease]fleet.Lease{}}
	for _, n := range nodes {
		f.nodes[n.ID] = n
	}

	return f
}

func asks(change func(*job.Spec)) demand {
	s := job.Spec{Place: job.PlaceAny}
	s.Resources.GPUs = job.Range{Min: 1, Max: 1}
	s.Resources.Nodes = job.Range{Min: 1, Max: 1}
	change(&s)

	return demand{Need: fleet.NeedOf(&s, job.Floor{}, nil)}
}

// TestAJobIsPricedByWhatCouldRunIt: by the hour, as the ledger would post it, on the cheapest
// nodes among those on which it fits and that it may use.
func TestAJobIsPricedByWhatCouldRunIt(t *testing.T) {
	t.Parallel()

	const a100, t4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"
	tariff := &fleet.Tariff{
		Energy: 0.3,
		Nodes: []fleet.NodePrice{
			{Class: fleet.Local, Watts: []float64{200, 500, 800, 1100, 1400}}, // of four GPUs: $0.42 an hour
			{Class: fleet.Reserved, Hourly: []money.PerHour{8}},
		},
	}

	f := marketOf(tariff,
		[]fleet.Offer{
			marketOffer("cloud/t4", 350_000, 1, t4, 16*gib),
			marketOffer("cloud/a100x4", 12_000_000, 4, a100, 80*gib),
			func() fleet.Offer {
				o := marketOffer("cloud/l4", 200_000, 1, "NVIDIA L4", 24*gib)
				o.MaxNodes = 1

				return o
			}(),
		},
		marketNode("own-a", fleet.Local, 4, a100, 80*gib),
		marketNode("own-b", fleet.Local, 4, a100, 80*gib),
		marketNode("box", fleet.Reserved, 4, a100, 80*gib),
		marketNode("cpu", fleet.Local, 0, "", 0),
	)
	m := f.market(noon)

	for name, tc := range map[string]struct {
		change func(*job.Spec)
		own    bool
		want   money.PerHour
		none   bool
	}{
		// A GPU of the local node: a quarter of the idle node's 200 W and the 300 W that it adds.
		"the cheapest of all":     {change: func(*job.Spec) {}, want: 0.3 * (200.0/4 + 300) / 1000},
		"two GPUs of an own node": {change: func(s *job.Spec) { s.Resources.GPUs = job.Range{Min: 2, Max: 2} }, want: 0.3 * (100 + 600) / 1000},
		"a whole node":            {change: func(s *job.Spec) { s.Resources.GPUs = job.Range{Min: 4, Max: 4} }, want: 0.42},
		"two nodes":               {change: func(s *job.Spec) { s.Resources.Nodes = job.Range{Min: 2, Max: 2} }, want: 2 * 0.3 * 0.35},
		"local alone, cloud is cheaper": {
			change: func(s *job.Spec) { s.Place, s.Resources.GPU = job.PlaceLocal, []job.GPUKind{{Model: "A100"}} }, want: 0.3 * 0.35,
		},
		"cloud alone": {change: func(s *job.Spec) { s.Place = job.PlaceCloud }, want: 0.2},
		"cloud alone, memory that a T4 does not have": {
			change: func(s *job.Spec) {
				s.Place, s.Resources.GPUMemory = job.PlaceCloud, job.ByteRange{Min: 40 * gib}
			},
			want: 2, // a GPU of the reserved node
		},
		"cloud alone, more than the reserved node has": {
			change: func(s *job.Spec) {
				s.Place, s.Resources.GPUMemory = job.PlaceCloud, job.ByteRange{Min: 40 * gib}
				s.Resources.Memory, s.Resources.CPUs = 32*gib, 16
				s.Resources.Nodes = job.Range{Min: 1, Max: 1}
			},
			want: 2,
		},
		"nodes that an offer does not have": {
			change: func(s *job.Spec) {
				s.Place, s.Resources.GPU = job.PlaceCloud, []job.GPUKind{{Model: "L4"}}
				s.Resources.Nodes = job.Range{Min: 2, Max: 2}
			},
			none: true,
		},
		"more memory than any cloud node has": {
			change: func(s *job.Spec) {
				s.Place, s.Resources.GPU, s.Resources.Memory = job.PlaceCloud, []job.GPUKind{{Model: "T4"}}, 128*gib
			},
			none: true,
		},
		"more CPUs than any cloud node has": {
			change: func(s *job.Spec) {
				s.Place, s.Resources.GPU, s.Resources.CPUs = job.PlaceCloud, []job.GPUKind{{Model: "T4"}}, 24
			},
			none: true,
		},
		"a kind that only the cloud has":                      {change: func(s *job.Spec) { s.Resources.GPU = []job.GPUKind{{Model: "T4"}} }, want: 0.35},
		"a kind that only the cloud has, nothing provisioned": {change: func(s *job.Spec) { s.Resources.GPU = []job.GPUKind{{Model: "T4"}} }, own: true, none: true},
		"all of a provisioned node is paid": {
			change: func(s *job.Spec) {
				s.Place, s.Resources.GPU, s.Resources.GPUs = job.PlaceCloud, []job.GPUKind{{Model: "A100"}}, job.Range{Min: 3, Max: 3}
			},
			want: 6, // three GPUs of the reserved node, cheaper than the whole offer for $12
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			d := asks(tc.change)
			d.ownNodes = tc.own

			got, _, known := m.hourly(&d)
			if known == tc.none || got < tc.want-1e-9 || got > tc.want+1e-9 {
				t.Errorf("it costs %g an hour (known: %t), want %g", got, known, tc.want)
			}
		})
	}
}

// TestTheMarketFollowsTheOffers: an offer that is closed for now prices nothing.
func TestTheMarketFollowsTheOffers(t *testing.T) {
	t.Parallel()

	f := marketOf(nil, []fleet.Offer{marketOffer("cloud/t4", 350_000, 1, "Tesla T4", 16*gib)})
	d := asks(func(*job.Spec) {})
	if got, _, known := f.market(noon).hourly(&d); !known || got != 0.35 {
		t.Fatalf("it costs %g an hour (known: %t)", got, known)
	}

	if f.marketStale(noon.Add(marketFor / 2)) {
		t.Error("a survey is made for every job")
	}

	if !f.marketStale(noon.Add(marketFor)) {
		t.Error("a survey is used for ever")
	}

	f.setOffers(nil)

	if got, _, known := f.market(noon.Add(time.Second)).hourly(&d); known {
		t.Errorf("it costs %g an hour where nothing is offered", got)
	}
}

// TestPlacesCostWhatTheirNodesCost: an alternative of the forecast has the price of what would
// run it, and none that could not.
func TestPlacesCostWhatTheirNodesCost(t *testing.T) {
	t.Parallel()

	f := marketOf(&fleet.Tariff{Nodes: []fleet.NodePrice{{Class: fleet.Local, Hourly: []money.PerHour{0.4}}}},
		[]fleet.Offer{
			marketOffer("cloud/t4", 350_000, 1, "Tesla T4", 16*gib),
			marketOffer("cloud/a100x4", 12_000_000, 4, "NVIDIA A100-SXM4-80GB", 80*gib),
		},
		marketNode("own", fleet.Local, 4, "Tesla V100-SXM2-32GB", 32*gib),
	)

	d := asks(func(s *job.Spec) {
		s.Resources.GPUs, s.Resources.GPUMemory = job.Range{Min: 1, Max: 4}, job.ByteRange{Min: 24 * gib}
	})

	want := map[string]map[int]money.PerHour{
		"Tesla V100-SXM2-32GB":  {1: 0.1, 2: 0.2, 4: 0.4},
		"NVIDIA A100-SXM4-80GB": {1: 12, 2: 12, 4: 12},
	}

	places := f.market(noon).places(&d)
	if len(places) != 6 {
		t.Errorf("got %d places: %+v", len(places), places)
	}

	for _, p := range places {
		if price := want[p.GPU][p.GPUs]; price == 0 || p.Hourly < price-1e-9 || p.Hourly > price+1e-9 {
			t.Errorf("%d %s cost %g an hour, want %g", p.GPUs, p.GPU, p.Hourly, price)
		}
	}
}
