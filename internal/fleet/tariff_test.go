package fleet_test

import (
	"math"
	"testing"

	"trainyard/internal/fleet"
	"trainyard/internal/money"
)

func TestTariffChargesEnergyAndRent(t *testing.T) {
	t.Parallel()
	tariff := &fleet.Tariff{Energy: 0.2, PUE: 1.5, Nodes: []fleet.NodePrice{
		{GPU: "A100", Class: fleet.OnDemand, Hourly: []money.PerHour{3, 3, 4}},
		{GPU: "A100", Watts: []float64{200, 500, 800}},
		{Class: fleet.Local, Watts: []float64{100}, Off: true},
	}}

	node := func(class fleet.Class, gpus ...string) *fleet.Node {
		n := &fleet.Node{Class: class}
		for i, model := range gpus {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: i, Model: model})
		}

		return n
	}

	for _, tc := range []struct {
		name string
		node *fleet.Node
		used int
		want money.PerHour
	}{
		{"rent by what is in use", node(fleet.OnDemand, "NVIDIA A100-SXM4-80GB"), 2, 4},
		{"more in use than the line says", node(fleet.OnDemand, "NVIDIA A100-SXM4-80GB"), 7, 4},
		{"energy with the building's share", node(fleet.Local, "NVIDIA A100-SXM4-80GB"), 1, 0.15},
		{"unused and on", node(fleet.Local, "NVIDIA A100-SXM4-80GB"), 0, 0.06},
		{"unused and off", node(fleet.Local), 0, 0},
		{"a node without GPUs in use", node(fleet.Local), 1, 0.03},
		{"no line matches", node(fleet.Reserved, "NVIDIA L4"), 1, 0},
	} {
		if got := tariff.Rate(tariff.Of(tc.node), tc.used); math.Abs(float64(got-tc.want)) > 1e-9 {
			t.Errorf("%s: %g an hour, want %g", tc.name, got, tc.want)
		}
	}

	var none *fleet.Tariff
	if p := none.Of(node(fleet.Local)); p != nil {
		t.Error("a yard without a tariff has prices")
	}
}
